"""The guards of KIP-890: batches of a transaction wait until its coordinator has verified the first of them.

A guard lasts from the verification request until the transaction has its first batch here, or a marker has ended it. An
answer for a guard that is gone belongs to a transaction that is over: the batch is not appended. Guards compare by
identity, so that one is never taken for its successor.

Until the coordinator has confirmed it, a producer may not belong to the transactional id that it names. So each pair
has its own guard: a client that names the producer of another transaction blocks no other client.
"""

from __future__ import annotations

from typing import Final


class Guard:
    """The claim of a producer on a partition: it waits for verification, or its transaction is open."""

    __slots__ = ("epoch", "first_offset", "lowest_sequence", "raises", "since_ms", "transactional_id")

    def __init__(
        self,
        transactional_id: str,
        epoch: int,
        lowest_sequence: int,
        raises: bool,
        since_ms: int,
        first_offset: int = -1,
    ) -> None:
        """`raises`: the end of the transaction will carry a raised epoch (transaction.version 2)."""
        self.transactional_id = transactional_id
        self.epoch = epoch
        self.first_offset = first_offset
        """The first offset of the transaction, -1 before it begins."""
        self.lowest_sequence = lowest_sequence
        """The lowest sequence of all waiting batches: no later batch may be the first one of the transaction."""
        self.raises = raises
        self.since_ms = since_ms


_NONE: Final[dict[str, Guard]] = {}
"""The empty table of a producer without guards: never changed."""


class Guards:
    """The guards of one partition, by producer id and transactional id.

    `guards_max` bounds them: one of the oldest is dropped for a new one, and the batches that wait for it are refused.
    """

    __slots__ = ("_by_id", "_count", "_max")

    def __init__(self, guards_max: int) -> None:
        self._by_id: dict[int, dict[str, Guard]] = {}
        self._count = 0
        self._max = guards_max

    def __len__(self) -> int:
        return self._count

    def get(self, producer_id: int, transactional_id: str) -> Guard | None:
        """Returns the guard of a producer, if it waits."""
        return self._by_id.get(producer_id, _NONE).get(transactional_id)

    def begin(
        self, producer_id: int, transactional_id: str, epoch: int, sequence: int, *, raises: bool, now_ms: int
    ) -> Guard | None:
        """Returns the guard for one more waiting batch; None if a newer producer of these ids waits already."""
        guard = self.get(producer_id, transactional_id)
        if guard is not None and guard.epoch > epoch:
            return None
        if guard is not None and guard.epoch == epoch:
            guard.lowest_sequence = min(guard.lowest_sequence, sequence)
            guard.raises = guard.raises or raises
            return guard
        if guard is None:
            if self._count >= self._max:
                oldest = next(iter(self._by_id))
                self._remove(oldest, next(iter(self._by_id[oldest])))
            self._count += 1
        guard = Guard(transactional_id, epoch, sequence, raises, now_ms)
        self._by_id.setdefault(producer_id, {})[transactional_id] = guard
        return guard

    def _remove(self, producer_id: int, transactional_id: str) -> None:
        there = self._by_id[producer_id]
        del there[transactional_id]
        self._count -= 1
        if not there:
            del self._by_id[producer_id]

    def opened(self, producer_id: int, epoch: int, first_offset: int) -> None:
        """Ends the guards of a producer whose transaction begins: batches no longer wait for it."""
        for guard in list(self._by_id.get(producer_id, _NONE).values()):
            self._remove(producer_id, guard.transactional_id)
            if guard.epoch == epoch:
                guard.first_offset = first_offset

    def ended(self, producer_id: int, epoch: int) -> None:
        """Ends guards after a marker with that epoch. If ends raise the epoch, and it is the epoch of the waiting
        producer, the marker ended the previous transaction."""
        for guard in list(self._by_id.get(producer_id, _NONE).values()):
            if not (guard.raises and guard.epoch == epoch):
                self._remove(producer_id, guard.transactional_id)

    def remove_before(self, since_ms: int) -> None:
        """Drops the guards that are that old or older."""
        for producer_id, there in list(self._by_id.items()):
            for guard in list(there.values()):
                if guard.since_ms <= since_ms:
                    self._remove(producer_id, guard.transactional_id)
