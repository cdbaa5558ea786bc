"""A topic that is repeatedly deleted and created under the same name: readers get records of its current life only.

Each life is written to with acks=all and read whole, by topic id, before it ends. Its acknowledged records are there,
in order, and none of an earlier life.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.client.errors import ClientError
from headrace.sim.workloads.producing import answer_of, request_for
from headrace.sim.workloads.reading import end_of, records_in
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k00_produce import ProduceResponse
from headrace.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from headrace.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from headrace.wire.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from headrace.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from headrace.wire.records import Record, build_batch

if TYPE_CHECKING:
    from headrace.sim.client import SimClient
    from headrace.sim.cluster_client import ClusterClient

NAME: Final = "reborn"
BATCHES_MAX: Final = 8
_BY_ID: Final = 13
_GONE: Final = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class Reborn:
    """A topic that is deleted and created again under its name."""

    def __init__(self, client: ClusterClient) -> None:
        self.client: SimClient = client
        self.lives = 0
        self._written = 0
        self._place = (NAME, 0)

    async def run(self) -> None:
        """Until its node ends."""
        while True:
            topic_id = await self._create()
            acknowledged = [value for value in [await self._write() for _ in range(self._batches())] if value]
            await self._read(topic_id, acknowledged)
            await self._delete(topic_id)
            self.lives += 1

    def _batches(self) -> int:
        return self.client.rng.randint(1, BATCHES_MAX)

    async def _create(self) -> bytes:
        """Returns the new topic's id. Its creation may also be a late effect of an earlier request."""
        topic = CreatableTopic(name=NAME, num_partitions=1, replication_factor=3)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=20_000)
        while True:
            made = (await self.client.insist(request, CreateTopicsResponse, 7)).topics[0]
            if made.error_code == ErrorCode.NONE:
                return bytes(made.topic_id)
            if made.error_code == ErrorCode.TOPIC_ALREADY_EXISTS and (found := await self._id()):
                return found
            self.client.moved(None)
            await self.client.rest()

    async def _id(self) -> bytes | None:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=NAME)], allow_auto_topic_creation=False)
        topic = (await self.client.insist(request, MetadataResponse, 10)).topics[0]
        return bytes(topic.topic_id) if topic.error_code == ErrorCode.NONE else None

    async def _write(self) -> bytes | None:
        """One record of this life; its value where it was acknowledged."""
        self._written += 1
        value = b"%d:%d" % (self.lives, self._written)
        now_ms = self.client.node.clock.now_ms()
        request = request_for(self._place, build_batch([Record(0, now_ms, None, value)]), -1)
        try:
            answer = answer_of(await self.client.ask(request, ProduceResponse, 9))
        except ClientError:
            await self.client.rest()
            return None
        if answer.error_code != ErrorCode.NONE:
            await self.client.rest()
            return None
        return value

    async def _read(self, topic_id: bytes, acknowledged: list[bytes]) -> None:
        found: list[bytes] = []
        missing = list(acknowledged)
        offset = 0
        while missing:
            asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
            request = FetchRequest(
                max_wait_ms=100,
                min_bytes=1,
                max_bytes=1 << 20,
                session_epoch=-1,
                topics=[FetchTopic(topic=NAME, topic_id=topic_id, partitions=[asked])],
            )
            try:
                response = await self.client.ask(request, FetchResponse, _BY_ID)
            except ClientError:
                await self.client.rest()
                continue
            data = response.responses[0].partitions[0]
            if data.error_code != ErrorCode.NONE:
                self.client.world.demand(
                    data.error_code != ErrorCode.OFFSET_OUT_OF_RANGE, f"{NAME} lost what it had at offset {offset}"
                )
                self.client.moved(self._place)
                await self.client.rest()
                continue
            for at, _, value in records_in(data, offset):
                of_this_life = value.startswith(b"%d:" % self.lives)
                self.client.world.demand(of_this_life, f"{NAME} has {value!r} at {at} in life {self.lives}")
                self.client.world.demand(value not in found, f"{NAME} has {value!r} twice")
                found.append(value)
            offset = end_of(data, offset)
            missing = [value for value in missing if value not in found]
        in_order = [value for value in found if value in acknowledged]
        self.client.world.demand(in_order == acknowledged, f"{NAME}: {in_order} was read, {acknowledged} was written")

    async def _delete(self, topic_id: bytes) -> None:
        """By its id: no request of before deletes what comes after it."""
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=topic_id)], timeout_ms=20_000)
        while True:
            deleted = (await self.client.insist(request, DeleteTopicsResponse, 6)).responses[0]
            if deleted.error_code in _GONE:
                return
            self.client.moved(None)
            await self.client.rest()
