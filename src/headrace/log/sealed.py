"""The part of a segment that has its files, its seal, and its aborted transactions.

A `.txnindex` is trusted if the seal covers it (see `seal` for that file); otherwise the owner of the log rebuilds it
from the batches when it is first needed, and `learn_aborted` takes the result. Additions before that are kept apart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from headrace.log import seal, transaction_index
from headrace.log.filenames import INDEX, LOG, SEAL, SEGMENT_KINDS, TIME_INDEX, TRANSACTION_INDEX
from headrace.log.resources import Resources
from headrace.log.seal import NOT_COVERED, Seal, Sum
from headrace.log.transaction_index import AbortedTransaction, TransactionIndexError

T = TypeVar("T")

_NO_TIME = -1, -1
_NONE_ADDED: tuple[AbortedTransaction, ...] = ()


class SealedFiles:
    """The files of a segment, with their seal and aborted transactions. `Segment` is what others see of it."""

    __slots__ = (
        "_aborted",
        "_added",
        "_dirty",
        "_is_gone",
        "_opened_with",
        "_resources",
        "_seals_removed",
        "base_offset",
        "size",
        "stem",
        "suffix",
    )

    def __init__(self, resources: Resources, stem: str, base_offset: int, *, size: int, suffix: str) -> None:
        self._resources = resources
        self.stem = stem
        self.suffix = suffix
        self.base_offset = base_offset
        self.size = size
        self._opened_with = size  # what others wrote, and indexed; the rest went through this object
        self._aborted: list[AbortedTransaction] | None = None if size else []  # None: not read yet
        self._added = _NONE_ADDED
        self._dirty = False  # whether there are aborted transactions that the file does not have
        self._seals_removed = 0
        self._is_gone = False

    def path_of(self, kind: str) -> str:
        """One of the files."""
        return f"{self.stem}{kind}{self.suffix}"

    def paths(self) -> list[str]:
        """All files that the segment may have."""
        return [self.path_of(kind) for kind in SEGMENT_KINDS]

    def by_name(self, kind: str, action: Callable[[str], T]) -> T:
        """Does something to one of the files by its name, and again where that was another one's by then: the segment
        was renamed meanwhile, or its folder. Raises OSError."""
        while True:
            path = self.path_of(kind)
            try:
                found = action(path)
            except FileNotFoundError:
                with self._resources.renames:  # held to rename files
                    if path == self.path_of(kind):
                        raise
            else:
                if path == self.path_of(kind):
                    return found

    # The seal

    def create(self) -> None:
        """Makes the empty `.log` file; the indexes come with their first entries. Raises OSError."""
        file = self._resources.disk.open(self.path_of(LOG), create=True)
        if file.size():
            file.truncate(0)
        file.close()

    def complete_files(self) -> None:
        """Makes the index files that are not there: Kafka looks for them after a clean shutdown. Raises OSError."""
        disk = self._resources.disk
        with self._resources.renames:
            for kind in (INDEX, TIME_INDEX):
                path = self.path_of(kind)
                if not disk.exists(path):
                    disk.write_file(path, b"")

    def read_seal(self) -> Seal | None:
        """What was sealed, where it covers no more than the log had when it was opened. Raises OSError."""
        sealed = self.by_name(SEAL, lambda path: seal.read(self._resources.disk, path))
        return sealed if sealed is not None and sealed.log_bytes <= self._opened_with else None

    def is_sealed_with(self, epochs: Sum) -> bool:
        """Whether all derived files were sealed, with these leader epochs, as long as the log was. Raises OSError."""
        sealed = self.read_seal()
        if sealed is None or sealed.log_bytes != self.size or sealed.epochs != epochs:
            return False
        return NOT_COVERED not in (sealed.transactions, sealed.offset_index, sealed.time_index)

    def begins_as_sealed(self) -> bool:
        """Whether both index files begin with what was sealed of them, if anything was. Raises OSError."""
        sealed = self.read_seal()
        if sealed is None:
            return True
        files = (INDEX, sealed.offset_index), (TIME_INDEX, sealed.time_index)
        return all(of.is_beginning_of(self.by_name(kind, self._read_or_nothing)) for kind, of in files)

    def remove_seal(self) -> None:
        """Nothing vouches for the derived files any more. Raises OSError."""
        with self._resources.renames:
            self._seals_removed += 1
            self._resources.disk.remove(self.path_of(SEAL))

    def stop_sealing(self) -> None:
        """Marks the files as going: a pending seal must not leave one behind, for the next segment that begins at the
        same offset.
        """
        with self._resources.renames:
            self._is_gone = True

    def put_seal(self, last_time: tuple[int, int] | None = None, epochs: Sum = NOT_COVERED) -> None:
        """Seals the aborted transactions, as long as the file says the same; of a segment that has
        ended, as far as one can see, with `last_time` in its time index, both indexes too. What the seal says of them
        already holds on: entries are only added to them. Raises OSError."""
        removals = self._seals_removed
        log_bytes = self.size  # first: an append meanwhile is not covered
        known = self._aborted
        if known is None or self._dirty or not log_bytes:
            return
        transactions = seal.sum_of(transaction_index.encode(known))
        sums, end = (NOT_COVERED, NOT_COVERED), _NO_TIME
        if last_time is not None:
            sums, end = self._index_sums(), last_time
        elif (before := self.read_seal()) is not None:
            sums, epochs = (before.offset_index, before.time_index), before.epochs
            if before.log_bytes == log_bytes:
                end = before.max_timestamp, before.max_relative_offset
        self._write_seal(Seal(log_bytes, transactions, *sums, epochs, *end), removals)

    def put_rebuilt(self, last_time: tuple[int, int]) -> None:
        """Seals again what was sealed, with indexes that have just been rebuilt. Raises OSError."""
        removals = self._seals_removed
        sealed = self.read_seal()
        if sealed is not None:
            sums = self._index_sums()
            self._write_seal(Seal(sealed.log_bytes, sealed.transactions, *sums, sealed.epochs, *last_time), removals)

    def _index_sums(self) -> tuple[Sum, Sum]:
        disk = self._resources.disk
        index = self.by_name(INDEX, lambda path: seal.read_sum(disk, path))
        return index, self.by_name(TIME_INDEX, lambda path: seal.read_sum(disk, path))

    def _write_seal(self, sealed: Seal, removals: int) -> None:
        """Writes a seal, unless the segment was cut since that many were removed, or is gone. Raises OSError."""
        with self._resources.renames:
            if removals == self._seals_removed and not self._is_gone:
                self._resources.disk.write_file(self.path_of(SEAL), seal.encode(sealed))

    # Aborted transactions

    def aborted(self, *, wait: bool = True) -> list[AbortedTransaction]:
        """The aborted transactions whose marker is in here, in the order of the markers.

        Raises TransactionIndexError where the file is damaged or nothing vouches for it, OSError, and without `wait`
        BlockingIOError where it was not read yet.
        """
        known = self._aborted
        if known is not None:
            return known
        if not wait:
            raise BlockingIOError(f"{self.path_of(TRANSACTION_INDEX)} was not read yet")
        sealed = self.read_seal()
        if sealed is None or sealed.log_bytes != self._opened_with:
            raise TransactionIndexError(f"{self.path_of(TRANSACTION_INDEX)}: no seal vouches for it")
        return self._take_aborted(self.sealed_aborted(sealed))

    def sealed_aborted(self, sealed: Seal) -> list[AbortedTransaction]:
        """What the file says, if it is what was sealed. Raises TransactionIndexError, OSError."""
        path = self.path_of(TRANSACTION_INDEX)
        data = self.by_name(TRANSACTION_INDEX, self._read_or_nothing)
        if sealed.transactions != seal.sum_of(data):
            raise TransactionIndexError(f"{path} is not what was sealed")
        return transaction_index.decode(path, data)

    def _read_or_nothing(self, path: str) -> bytes:
        try:
            return self._resources.disk.read_file(path)
        except FileNotFoundError:
            return b""

    def _take_aborted(self, found: list[AbortedTransaction]) -> list[AbortedTransaction]:
        """Takes what was found for what there is, with what was added meanwhile."""
        with self._resources.index_making:
            if self._aborted is None:
                last = found[-1].last_offset if found else -1
                self._aborted = found + [entry for entry in self._added if entry.last_offset > last]
                self._added = _NONE_ADDED
            return self._aborted

    def learn_aborted(self, found: list[AbortedTransaction]) -> bool:
        """Takes the aborted transactions found in the batches; returns whether the file differs, and needs
        `write_aborted`. Raises OSError.
        """
        if self._aborted is not None:
            return False
        known = self._take_aborted(found)
        differs = self.by_name(TRANSACTION_INDEX, self._read_or_nothing) != transaction_index.encode(found)
        if differs:
            self._dirty = True
            if not known:
                self._resources.disk.remove(self.path_of(TRANSACTION_INDEX))
        return differs

    @property
    def knows_aborted(self) -> bool:
        """Whether they were read."""
        return self._aborted is not None

    @property
    def has_aborted(self) -> bool:
        """Whether the marker of an aborted transaction is in here, or may be: the index was not read yet."""
        return self._aborted is None or bool(self._aborted)

    @property
    def owes_aborted(self) -> bool:
        """Whether some were added to what was not read yet: the file cannot be written before that is known."""
        return self._aborted is None and bool(self._added)

    def set_aborted(self, entries: list[AbortedTransaction]) -> None:
        """Replaces them; the file has them after the next sync; no entries, no file. Raises OSError."""
        self._aborted, self._added = entries, _NONE_ADDED
        self._dirty = True
        if not entries:
            self._resources.disk.remove(self.path_of(TRANSACTION_INDEX))

    def add_aborted(self, entry: AbortedTransaction) -> None:
        """Adds one; the file has it after the next sync."""
        with self._resources.index_making:
            if self._aborted is None:
                self._added = (*self._added, entry)
            else:
                self._aborted = [*self._aborted, entry]
        self._dirty = True

    def write_aborted(self, *, durable: bool = True) -> bool:
        """Writes the file where anything has changed, and returns whether. One that is not durable takes no wait for
        the disk, and the seal shows what a power loss did to it. Raises OSError."""
        if not self._dirty or self._aborted is None:
            return False
        self._dirty = False
        try:
            if self._aborted:
                disk = self._resources.disk
                write = disk.write_file_atomically if durable else disk.write_file
                write(self.path_of(TRANSACTION_INDEX), transaction_index.encode(self._aborted))
        except OSError:
            self._dirty = True
            raise
        return True
