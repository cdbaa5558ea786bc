"""Consume, transform, produce: a transactor that reads a key, appends to others, and commits its position in the same
transaction.

Its committed position may come from a coordinator that does not know yet that it has been replaced: OffsetFetch names
no leader epoch, and Apache Kafka's answers likewise. A commit that another coordinator accepts does not count: the
client aborts the transaction, and looks again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from headrace.client.errors import ClientError
from headrace.sim.checkers.isolation import Consumed, OffsetRead
from headrace.sim.client import OF_GROUPS
from headrace.sim.workloads.transacting import RETRIED, SEND_TRIES_MAX, Attempt, Protocol, Transactor, poll
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from headrace.wire.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from headrace.wire.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

if TYPE_CHECKING:
    from headrace.sim.checkers.isolation import Appends, Key
    from headrace.sim.cluster_client import ClusterClient

WAIT_MS: Final = 100
OUTPUTS_MAX: Final = 2


class Copier(Transactor):
    """A transactor that consumes, transforms and produces.

    Its group is its own, or that of all copiers with its transactional id: one of them goes on.
    """

    def __init__(
        self,
        client: ClusterClient,
        history: Appends,
        keys: Sequence[Key],
        transactional_id: str,
        protocol: Protocol,
        numbers: Any,
        source: Key,
    ) -> None:
        super().__init__(client, history, [key for key in keys if key != source], transactional_id, protocol, numbers)
        self.source = source
        self.group = f"of {transactional_id}"
        self._position: int | None = None
        self._position_read: tuple[OffsetRead, str | None] | None = None
        """Where its group is, by which coordinator: until that one has taken a commit it may be old."""

    def _goes_on_as(self, producer_id: int, producer_epoch: int) -> None:
        if self._identity is None:
            self._position = None  # the id's previous owner may have come further
        super()._goes_on_as(producer_id, producer_epoch)

    async def work(self, attempt: Attempt) -> bool:
        """See Transactor.work."""
        return await self._produce(attempt, await self._consume(attempt))

    async def _consume(self, attempt: Attempt) -> Consumed:
        """Reads on where its group is."""
        first = self._position
        self._position = self._position_read = None
        if first is None:
            first = await self._committed()
        return await self._read(first, attempt)

    async def _produce(self, attempt: Attempt, consumed: Consumed) -> bool:
        """Whether everything is written for what was read, and how far that was."""
        rng = self.client.rng
        keys = rng.sample(self.keys, rng.randint(1, min(OUTPUTS_MAX, len(self.keys))))
        attempt.transaction.consumed.append(consumed)
        if rng.random() < 0.5:
            return await self.write_all(attempt, keys) and await self._commit(attempt, consumed)
        # Of two requests that are on their way at once the offsets may come first.
        return await self._commit(attempt, consumed) and await self.write_all(attempt, keys)

    def is_acknowledged(self, attempt: Attempt) -> None:
        """See Transactor.is_acknowledged."""
        super().is_acknowledged(attempt)
        self._position = attempt.transaction.consumed[-1].after

    async def _committed(self) -> int:
        """Where its group is, by its coordinator."""
        while True:
            read = await committed_offset(self.client, self.group, self.source)
            if read is not None:
                self._position_read = read, self.client.coordinator(OF_GROUPS)
                return max(read.offset, 0)
            await self.client.rest()

    async def _read(self, first: int, attempt: Attempt) -> Consumed:
        """Waits until there is something to read."""
        position = first
        while True:
            try:
                read = await poll(self.client, self.source, position, max_wait_ms=WAIT_MS)
            except ClientError:
                read = None
            if read is None:
                await self.client.rest()
                continue
            self.history.reads.append(read)
            attempt.transaction.reads.append(read)
            position = read.after
            if read.values:
                return Consumed(self.group, self.source, first, position)

    async def _commit(self, attempt: Attempt, consumed: Consumed) -> bool:
        who = (self.transactional_id, attempt.producer_id, attempt.producer_epoch)
        if self.protocol.adds_itself and not await self._insist_on_adding(AddOffsetsToTxnRequest(*who, self.group)):
            return False
        topic, index = self.source
        partition = TxnOffsetCommitRequestPartition(index, consumed.after)
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=self.group,
            producer_id=attempt.producer_id,
            producer_epoch=attempt.producer_epoch,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])],
        )
        for _ in range(SEND_TRIES_MAX):
            error = await self._commit_once(request)
            if error == ErrorCode.NONE:
                return self._is_current()
            if error is not None and error not in RETRIED:
                return False
            self.client.moved(None)
            await self.client.rest()
        return False

    def _is_current(self) -> bool:
        """Whether the coordinator that accepted a commit is the one that returned the group's position."""
        if self._position_read is None:
            return True  # it knew by itself
        read, coordinator = self._position_read
        if coordinator is None or coordinator != self.client.coordinator(OF_GROUPS):
            return False
        self.history.offset_reads.append(read)
        return True

    async def _commit_once(self, request: TxnOffsetCommitRequest) -> int | None:
        """Returns the error code of the one partition; None without an answer."""
        try:
            if not await self.client.find(OF_GROUPS, self.group):
                return None
            response = await self.client.ask(request, TxnOffsetCommitResponse, self.protocol.commit_offsets)
        except ClientError:
            return None
        return int(response.topics[0].partitions[0].error_code)

    async def _insist_on_adding(self, request: AddOffsetsToTxnRequest) -> bool:
        for _ in range(SEND_TRIES_MAX):
            response = await self.coordinator_says(request, AddOffsetsToTxnResponse, 3)
            if response is not None and response.error_code not in RETRIED:
                return self.is_taken(response.error_code)
            await self.client.rest()
        return False


async def committed_offset(client: ClusterClient, group: str, key: Key) -> OffsetRead | None:
    """What is committed of a key, once no transaction is open that may change it; None where nobody can say."""
    topics = [OffsetFetchRequestTopics(name=key[0], partition_indexes=[key[1]])]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)], require_stable=True)
    asked_at = client.world.loop.time()
    try:
        if not await client.find(OF_GROUPS, group):
            return None
        response = (await client.ask(request, OffsetFetchResponse, 8)).groups[0]
    except ClientError:
        return None
    if response.error_code != ErrorCode.NONE:
        client.moved(None)
        return None
    partition = response.topics[0].partitions[0]
    if partition.error_code != ErrorCode.NONE:
        return None
    return OffsetRead(group, key, asked_at, client.world.loop.time(), int(partition.committed_offset))
