"""A reader that uses epochs (KIP-320): it sends the leader epoch that it knows, and that of its last record, and gives
up records that are not in the leader's history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.client.errors import ClientError
from headrace.client.reading import whole_batches
from headrace.sim.workloads.reading import EARLIEST, edge, records_in
from headrace.wire.batch import iter_headers
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

if TYPE_CHECKING:
    from headrace.sim.checkers.history import History, Place
    from headrace.sim.cluster_client import ClusterClient

VERSION: Final = 12
"""The first in which a leader says where a history parts from its own, and the last that names topics."""


class LooseReader:
    """A reader that checks leader epochs (KIP-320)."""

    def __init__(self, client: ClusterClient, history: History, place: Place) -> None:
        self.client = client
        self.place = place
        self.offset = 0
        self.view: dict[int, tuple[int, bytes]] = {}
        """What it has read and not given up: epoch and value, by offset."""
        self.given_up = 0
        self._history = history
        self._last_epoch = -1

    async def run(self) -> None:
        """Until its node ends."""
        while True:
            try:
                await self._read()
            except ClientError:
                await self.client.rest()

    async def _read(self) -> None:
        asked = FetchPartition(
            partition=self.place[1],
            current_leader_epoch=await self.client.epoch_of(self.place),
            fetch_offset=self.offset,
            last_fetched_epoch=self._last_epoch,
            partition_max_bytes=self.client.rng.choice((300, 1 << 20)),
        )
        topics = [FetchTopic(topic=self.place[0], partitions=[asked])]
        request = FetchRequest(
            max_wait_ms=self.client.rng.randint(0, 500), min_bytes=1, session_epoch=-1, topics=topics
        )
        response = await self.client.ask(request, FetchResponse, VERSION)
        data = response.responses[0].partitions[0]
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._give_up(max(await edge(self.client, self.place, EARLIEST), 0))
        elif data.error_code != ErrorCode.NONE:
            await self.client.rest()
        elif data.diverging_epoch is not None and data.diverging_epoch.end_offset >= 0:
            self._part(data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
        else:
            self._take(data)

    def _part(self, epoch: int, end_offset: int) -> None:
        """The leader's history ends there in that epoch: nothing that this reader has of later epochs is in it."""
        kept = [offset for offset, (found, _) in self.view.items() if found <= epoch and offset < end_offset]
        self._give_up(max(kept, default=-1) + 1)

    def _give_up(self, offset: int) -> None:
        gone = [each for each in self.view if each >= offset]
        self.given_up += len(gone)
        for each in gone:
            del self.view[each]
        self.offset = offset
        self._last_epoch = self.view[offset - 1][0] if offset - 1 in self.view else -1

    def _take(self, data: PartitionData) -> None:
        records: Any = data.records
        view, _ = whole_batches(memoryview(bytes(records or b"")))
        epochs = {}
        for _, header in iter_headers(view):
            for offset in range(header.base_offset, header.next_offset):
                epochs[offset] = header.partition_leader_epoch
        for offset, key, value in records_in(data, self.offset):
            self._history.reads(self.place, offset, key, value)
            self.view[offset] = (epochs[offset], value)
            self._last_epoch = epochs[offset]
            self.offset = offset + 1

    def differences(self, found: dict[int, bytes]) -> list[str]:
        """Records that it has, that are not there, and of which it was not notified."""
        wrong = [(offset, value) for offset, (_, value) in sorted(self.view.items()) if found.get(offset) != value]
        return (
            [f"{self.place}: a reader has {wrong[0]} and {len(wrong) - 1} more, which are not there"] if wrong else []
        )
