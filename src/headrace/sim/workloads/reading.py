"""The readers of the simulator: one that follows a partition for ever, and one pass over the records at the end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from headrace.client.errors import ClientError
from headrace.client.reading import whole_batches
from headrace.wire.batch import iter_headers
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from headrace.wire.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from headrace.wire.records import CorruptBatch, decode_batch

if TYPE_CHECKING:
    from headrace.sim.checkers.history import History, Place
    from headrace.sim.client import SimClient

VERSIONS: Final = (4, 7, 11, 12)
EARLIEST: Final = -2
LATEST: Final = -1
NO_SESSION: Final = -1
MAX_WAIT_MS: Final = 500


def fetch_request(
    place: Place, offset: int, *, max_wait_ms: int, max_bytes: int, session: tuple[int, int] = (0, NO_SESSION)
) -> FetchRequest:
    """A fetch of one partition; `session` is (id, epoch)."""
    asked = FetchPartition(partition=place[1], fetch_offset=offset, partition_max_bytes=max_bytes)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchTopic(topic=place[0], partitions=[asked])],
    )


def records_in(data: PartitionData, offset: int) -> Iterator[tuple[int, bytes | None, bytes]]:
    """(offset, key, value) of what an answer holds from `offset` on; the last batch may be cut short."""
    records: Any = data.records
    if not records:
        return
    view, _ = whole_batches(memoryview(bytes(records)))
    for at, header in iter_headers(view):
        if header.is_control:
            continue
        for record in decode_batch(view, at):
            if record.offset >= offset:
                assert record.value is not None
                yield record.offset, record.key, bytes(record.value)


def end_of(data: PartitionData, offset: int) -> int:
    """Where the next fetch goes on: behind the last whole batch."""
    records: Any = data.records
    view, _ = whole_batches(memoryview(bytes(records or b"")))
    for _, header in iter_headers(view):
        offset = max(offset, header.next_offset)
    return offset


async def edge(client: SimClient, place: Place, timestamp: int) -> int:
    """The earliest or latest offset of a partition. Raises ClientError; -1 where the broker answers with an error."""
    asked = ListOffsetsPartition(partition_index=place[1], timestamp=timestamp)
    topic = ListOffsetsTopic(name=place[0], partitions=[asked])
    response = await client.ask(ListOffsetsRequest(replica_id=-1, topics=[topic]), ListOffsetsResponse, 5)
    answer = response.topics[0].partitions[0]
    return int(answer.offset) if answer.error_code == ErrorCode.NONE else -1


class Reader:
    """Follows one partition, and tells the history what it sees."""

    def __init__(self, client: SimClient, history: History, place: Place) -> None:
        self.client = client
        self.history = history
        self.place = place
        self.offset = 0

    async def run(self) -> None:
        """Until its node ends."""
        while True:
            try:
                await self._read()
            except ClientError:
                await self.client.rest()

    async def _read(self) -> None:
        rng = self.client.rng
        request = fetch_request(
            self.place, self.offset, max_wait_ms=rng.randint(0, MAX_WAIT_MS), max_bytes=rng.choice((300, 1 << 20))
        )
        response = await self.client.ask(request, FetchResponse, rng.choice(VERSIONS))
        data = response.responses[0].partitions[0]
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._find_place()
        elif data.error_code != ErrorCode.NONE:
            await self.client.rest()
        else:
            for offset, key, value in records_in(data, self.offset):
                self.history.reads(self.place, offset, key, value)
            self.offset = end_of(data, self.offset)

    async def _find_place(self) -> None:
        """Retention may have taken what was asked for; what readers saw never goes away at the other end."""
        start, end = await edge(self.client, self.place, EARLIEST), await edge(self.client, self.place, LATEST)
        if end >= 0:
            self.client.world.demand(
                self.offset <= end, f"{self.place} ends at {end}, and readers have seen it up to {self.offset}"
            )
        if start >= 0:
            self.offset = max(self.offset, start)


async def read_whole(client: SimClient, history: History, place: Place) -> None:
    """Reads a partition from its start to its end, while nobody writes, and has the history judge it."""
    start = end = -1
    while start < 0 or end < 0:
        try:
            start, end = await edge(client, place, EARLIEST), await edge(client, place, LATEST)
        except ClientError:
            pass
        if start < 0 or end < 0:
            await client.rest()
    found: list[tuple[int, bytes | None, bytes]] = []
    offset = start
    while offset < end:
        request = fetch_request(place, offset, max_wait_ms=0, max_bytes=1 << 20)
        response = await client.insist(request, FetchResponse, 11)
        data = response.responses[0].partitions[0]
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            start = offset = max(offset, await edge(client, place, EARLIEST))
            found.clear()
            continue
        client.world.demand(
            data.error_code == ErrorCode.NONE, f"{place} cannot be read at offset {offset}: error {data.error_code}"
        )
        try:
            after, records = end_of(data, offset), list(records_in(data, offset))
        except CorruptBatch as error:
            client.world.object(f"{place} has a damaged batch at or behind offset {offset}: {error}", error)
            return
        client.world.demand(after > offset, f"{place} has nothing at offset {offset}, and its end is {end}")
        if client.world.objection is not None:
            return
        for record in records:
            history.reads(place, *record)
        found += records
        offset = after
    history.is_whole(place, start, end, found)
