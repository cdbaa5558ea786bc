"""An operator who deletes records during writes and failures, and checks that they stay deleted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from headrace.client.errors import ClientError
from headrace.sim.checkers.deletions import HIGH_WATERMARK
from headrace.sim.workloads.reading import EARLIEST
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from headrace.wire.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)

if TYPE_CHECKING:
    from headrace.sim.checkers.deletions import Deletions
    from headrace.sim.checkers.history import History, Place
    from headrace.sim.cluster_client import ClusterClient

ALL: Final = 0.15
"""How often everything that is committed is to go."""
TOO_MUCH: Final = 5
"""How far beyond the last record that was acknowledged an offset may lie."""
TIMEOUTS_MS: Final = (0, 300, 2_000, 10_000)
LATEST_VERSION: Final = 2


class Deleter:
    """An operator that deletes records. Its requests may fail: what it asked for may come all the same."""

    def __init__(
        self, client: ClusterClient, deletions: Deletions, history: History, places: Sequence[Place], pause: int
    ) -> None:
        """`pause`: how often it rests, at most, before the next request."""
        self.client = client
        self._deletions = deletions
        self._history = history
        self._places = list(places)
        self._pause = pause

    async def run(self) -> None:
        """Until its node ends."""
        rng = self.client.rng
        while True:
            place = rng.choice(self._places)
            try:
                await self._delete(place, self._offset(place), rng.choice(TIMEOUTS_MS))
                await self._look_back(rng.choice(self._places))
            except ClientError:
                pass
            for _ in range(rng.randint(1, self._pause)):
                await self.client.rest()

    def _offset(self, place: Place) -> int:
        rng = self.client.rng
        if rng.random() < ALL:
            return HIGH_WATERMARK
        floor, end = self._deletions.floor(place), self._history.end(place)
        return rng.randint(min(floor, end), end + rng.choice((0, 0, TOO_MUCH)))

    async def _delete(self, place: Place, offset: int, timeout_ms: int) -> int:
        """One request, and the error that it was answered. Raises ClientError."""
        self._deletions.asks(place, offset)
        partition = DeleteRecordsPartition(partition_index=place[1], offset=offset)
        topics = [DeleteRecordsTopic(name=place[0], partitions=[partition])]
        request = DeleteRecordsRequest(topics=topics, timeout_ms=timeout_ms)
        epoch = await self.client.epoch_of(place)
        answer = (await self.client.ask(request, DeleteRecordsResponse, LATEST_VERSION)).topics[0].partitions[0]
        if answer.error_code == ErrorCode.NONE:
            self._deletions.confirms(place, epoch, offset, answer.low_watermark)
        return int(answer.error_code)

    async def _look_back(self, place: Place) -> None:
        """No leader has it again. One of before, which does not know that another one leads, is not asked: it has
        another epoch. Raises ClientError."""
        floor = self._deletions.floor(place)
        epoch = max(await self.client.epoch_of(place), self._deletions.epoch(place))
        asked = ListOffsetsPartition(partition_index=place[1], current_leader_epoch=epoch, timestamp=EARLIEST)
        topics = [ListOffsetsTopic(name=place[0], partitions=[asked])]
        request = ListOffsetsRequest(replica_id=-1, topics=topics)
        answer = (await self.client.ask(request, ListOffsetsResponse, 5)).topics[0].partitions[0]
        if answer.error_code == ErrorCode.NONE:
            floor = min(floor, self._deletions.floor(place))  # nobody may be left who remembers
            text = f"{place} begins at {answer.offset} for a client, and was deleted up to {floor}"
            self.client.world.demand(answer.offset >= floor, text)

    async def delete_at_last(self) -> None:
        """Where nothing is broken, what is asked for is done, in every partition, and in time."""
        for place in self._places:
            error: int = ErrorCode.UNKNOWN_SERVER_ERROR
            while error:
                await self.client.rest()
                try:
                    error = await self._delete(place, self._history.end(place), TIMEOUTS_MS[-1])
                except ClientError:
                    continue
                text = f"{place} is not deleted in time, and nothing is broken"
                self.client.world.demand(error != ErrorCode.REQUEST_TIMED_OUT, text)
