"""Who waits for a coordinator's word before the first batch of a transaction may be appended: the guards of KIP-890.

A guard stands from the question until the transaction has its first batch here, or a marker has ended it. What was
answered about a guard that is gone is about a transaction that is over: the batch is not appended. A guard is its own
identity, so that one that came in the place of another is never taken for it.
"""

from __future__ import annotations


class Guard:
    """One producer's claim on one partition: it waits, or its transaction is open."""

    __slots__ = ("epoch", "first_offset", "lowest_sequence", "raises", "since_ms")

    def __init__(self, epoch: int, lowest_sequence: int, raises: bool, since_ms: int, first_offset: int = -1) -> None:
        """`raises`: the end of the transaction will carry a raised epoch (transaction.version 2)."""
        self.epoch = epoch
        self.first_offset = first_offset
        """Where the transaction begins, -1 before it does."""
        self.lowest_sequence = lowest_sequence
        """Of all batches that wait: none behind it may be the first one of the transaction."""
        self.raises = raises
        self.since_ms = since_ms


class Guards:
    """The guards of one partition, by producer id. `guards_max` bounds them: the oldest one gives way, and what waits
    for it is refused."""

    __slots__ = ("_by_id", "_max")

    def __init__(self, guards_max: int) -> None:
        self._by_id: dict[int, Guard] = {}
        self._max = guards_max

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, producer_id: int) -> Guard | None:
        """The guard of a producer, if it waits."""
        return self._by_id.get(producer_id)

    def begin(self, producer_id: int, epoch: int, sequence: int, *, raises: bool, now_ms: int) -> Guard | None:
        """The guard for one more batch that waits; None where a newer producer of that id waits already."""
        guard = self._by_id.get(producer_id)
        if guard is not None and guard.epoch > epoch:
            return None
        if guard is not None and guard.epoch == epoch:
            guard.lowest_sequence = min(guard.lowest_sequence, sequence)
            guard.raises = guard.raises or raises
            return guard
        if guard is None and len(self._by_id) >= self._max:
            del self._by_id[next(iter(self._by_id))]
        guard = self._by_id[producer_id] = Guard(epoch, sequence, raises, now_ms)
        return guard

    def opened(self, producer_id: int, epoch: int, first_offset: int) -> None:
        """A producer's transaction begins there: whoever has waited for it need not wait any more."""
        guard = self._by_id.pop(producer_id, None)
        if guard is not None and guard.epoch == epoch:
            guard.first_offset = first_offset

    def ended(self, producer_id: int, epoch: int) -> None:
        """A marker with that epoch is in the log. Where ends raise the epoch, and it is the one that waits, the marker
        has ended the transaction before."""
        guard = self._by_id.get(producer_id)
        if guard is not None and not (guard.raises and guard.epoch == epoch):
            del self._by_id[producer_id]

    def remove_before(self, since_ms: int) -> None:
        """Forgets the guards that have stood since then, or longer."""
        self._by_id = {each: guard for each, guard in self._by_id.items() if guard.since_ms > since_ms}
