"""A client that keeps asking for the end of a partition, or reads there: it never goes back, under any leader.

It asks every broker separately, so that one that does not answer does not block the others. It sends the newest leader
epoch that it has learned from any broker, so a deposed leader that does not know it yet refuses it. Such a leader gives
others stale answers, which Kafka allows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.client.errors import ClientError
from headrace.sim.workloads.reading import EARLIEST, LATEST
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from headrace.wire.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from headrace.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.sim.checkers.history import Place
    from headrace.sim.cluster_client import ClusterClient

READ_BYTES: Final = 300
QUESTIONS: Final = 2
"""About one partition, before it goes on to another."""
_BY_LEADERS: Final = 10
"""The last version of Fetch that followers do not answer: one that lags has not got that far."""


class Watcher:
    """A client that watches the end of a partition."""

    def __init__(self, client: ClusterClient, places: Sequence[Place]) -> None:
        self.client = client
        self._places = list(places)
        self._ends: dict[Place, int] = {}
        self._stable_ends: dict[Place, int] = {}
        self._epochs: dict[Place, int] = {}

    def start(self) -> None:
        """Watches until its node ends."""
        for broker in self.client.brokers:
            self.client.owner.spawn(self._watch(broker))

    async def _watch(self, broker: str) -> None:
        rng = self.client.rng
        while True:
            place = rng.choice(self._places)
            try:
                await self._hear_of_epochs(broker, place[0])
                for _ in range(QUESTIONS):
                    await rng.choice((self._ask, self._ask_for_stable, self._read))(broker, place)
            except ClientError:
                pass
            await self.client.rest()

    async def _hear_of_epochs(self, broker: str, topic: str) -> None:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        answer = await self.client.ask_at(broker, request, MetadataResponse, 10)
        for found in answer.topics[0].partitions:
            place = (topic, found.partition_index)
            self._epochs[place] = max(found.leader_epoch, self._epochs.get(place, 0))

    async def _ask(self, broker: str, place: Place, isolation_level: int = 0) -> None:
        floors = (self._ends, self._stable_ends)[isolation_level]
        floor = floors.get(place, 0)
        asked = ListOffsetsPartition(
            partition_index=place[1], current_leader_epoch=self._epochs.get(place, 0), timestamp=LATEST
        )
        topics = [ListOffsetsTopic(name=place[0], partitions=[asked])]
        request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=topics)
        answer = (await self.client.ask_at(broker, request, ListOffsetsResponse, 5)).topics[0].partitions[0]
        if answer.error_code == ErrorCode.NONE:
            what = ("ends", "is stable up to")[isolation_level]
            text = f"{place} {what} at {answer.offset}, and did at {floor} before"
            self.client.world.demand(answer.offset >= floor, text)
            floors[place] = max(int(answer.offset), floors.get(place, 0))

    async def _ask_for_stable(self, broker: str, place: Place) -> None:
        """Where committed records end: no transaction below that is open again."""
        await self._ask(broker, place, 1)

    async def _read(self, broker: str, place: Place) -> None:
        """Fails: a reader with an out-of-range position begins elsewhere, and loses records or doubles them."""
        floor = self._ends.get(place, 0)
        asked = FetchPartition(
            partition=place[1],
            current_leader_epoch=self._epochs.get(place, 0),
            fetch_offset=floor,
            partition_max_bytes=READ_BYTES,
        )
        topics = [FetchTopic(topic=place[0], partitions=[asked])]
        request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=READ_BYTES, session_epoch=-1, topics=topics)
        answer = (await self.client.ask_at(broker, request, FetchResponse, _BY_LEADERS)).responses[0].partitions[0]
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            is_gone = await self._is_deleted(broker, place, floor)
            self.client.world.demand(is_gone, f"{place} ended at {floor} before, which is out of range now")

    async def _is_deleted(self, broker: str, place: Place, offset: int) -> bool:
        """Whether a partition begins behind an offset, or cannot be asked here any more. Raises ClientError."""
        asked = ListOffsetsPartition(partition_index=place[1], timestamp=EARLIEST)
        topics = [ListOffsetsTopic(name=place[0], partitions=[asked])]
        request = ListOffsetsRequest(replica_id=-1, topics=topics)
        answer = (await self.client.ask_at(broker, request, ListOffsetsResponse, 5)).topics[0].partitions[0]
        return answer.error_code != ErrorCode.NONE or answer.offset > offset
