"""Planted faults in one log: its transactions and leader epochs, its start, and compaction. Only runs of one log that
is truncated, compacted and crashes can find them, or find them soon."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from headrace.log import cleaner, compaction, producer_history
from headrace.log.compaction import Rules, Transactions
from headrace.log.epochs import LeaderEpochs
from headrace.log.log import Log
from headrace.log.producer_snapshot import SnapshotEntry
from headrace.log.producers import Producers
from headrace.log.reader import LogReader
from headrace.log.segment import Segment
from headrace.log.state import LogState
from headrace.log.transaction_index import AbortedTransaction
from headrace.sim.workloads import log_crash
from headrace.wire.batch import BatchHeader

Real = Callable[..., Any]


def _nothing(*_: object, **__: object) -> None:
    """Done, it says."""


def _begin_with_the_files(real: Real) -> Real:
    """After a clean stop a log begins where its first segment does."""

    def open_log(*given: Any, clean: bool, log_start_offset: int, **named: Any) -> Log:
        log: Log = real(*given, clean=clean, log_start_offset=0 if clean else log_start_offset, **named)
        return log

    return open_log


def _no_horizon(real: Real) -> Real:
    """A tombstone may go with the round after the first that sees it (KAFKA-8522)."""

    def clean_batch(header: BatchHeader, batch: Any, rules: Rules, transactions: Transactions) -> Any:
        return real(header, batch, replace(rules, delete_retention_ms=0), transactions)

    return clean_batch


def _none_is_open(real: Real) -> Real:
    """A snapshot says nothing of transactions that are open."""

    def to_snapshot(self: Producers) -> list[SnapshotEntry]:
        return [entry._replace(current_txn_first_offset=-1) for entry in real(self)]

    return to_snapshot


def _nobody_else_is_open(real: Real) -> Real:
    """Readers who meet an aborted transaction look for none behind it: as if no other had been open at its end."""

    def stage_marker(self: Producers, *given: Any, **named: Any) -> AbortedTransaction | None:
        found: AbortedTransaction | None = real(self, *given, **named)
        return None if found is None else found._replace(last_stable_offset=found.last_offset + 1)

    return stage_marker


def _keep_aborted(real: Real) -> Real:
    """A transaction whose marker was cut was aborted all the same: readers drop it, whatever comes of it."""

    def truncate(self: Segment, position: int, end_offset: int) -> None:
        known = list(self.aborted())
        real(self, position, end_offset)
        self.set_aborted(known)

    return truncate


def _abort_nothing(real: Real) -> Real:
    """For the cleaner, a record of an aborted transaction is as good as another."""

    def is_aborted(self: Transactions, header: BatchHeader) -> bool:
        real(self, header)
        return False

    return is_aborted


def _compact_what_is_open(real: Real) -> Real:
    """The cleaner goes up to the high watermark, whatever is open below."""

    def dirty(log: Log, first_dirty: int | None, high_watermark: int) -> Any:
        stable = vars(Log)["last_stable_offset"]
        setattr(Log, "last_stable_offset", lambda self, mark: min(mark, self.end_offset))  # noqa: B010
        try:
            return real(log, first_dirty, high_watermark)
        finally:
            setattr(Log, "last_stable_offset", stable)  # noqa: B010

    return dirty


def _skip_the_file(self: LogState) -> None:
    """A roll has written its producer snapshot, it says."""
    self.snapshot_offset = max(self.snapshot_offset, self.bounds.end_offset)


def _scan_from_the_start_alone(real: Real) -> Real:
    """A start trusts its newest snapshot, although the log goes on behind it, and reads no batch."""

    def scan(producers: Producers, segments: Sequence[Segment], start: int, end_offset: int) -> None:
        if start == segments[0].base_offset:
            real(producers, segments, start, end_offset)

    return scan


def _empty_first(real: Real) -> Real:
    """Gives back the room of a file before its name goes, whether a reader holds it or not."""

    def remove_files(self: Segment) -> None:
        if self.size:
            self.file().truncate(0)
        real(self)

    return remove_files


def _keep_places(real: Real) -> Real:
    """A place that was found holds, though the segment was cut while it was looked for."""

    def find(self: Segment, *given: Any, **named: Any) -> tuple[int, int] | None:
        found: tuple[int, int] | None = real(self, *given, **named)
        next_offset, position, _ = self._found_last
        self._found_last = (next_offset, position, self._cuts)
        return found

    return find


def _look_the_segment_up_again(real: Real) -> Real:
    """Where a batch was found in a segment, it is in the segment that has the same base offset by then."""

    def older_place_of(self: LogReader, offset: int, wait: bool) -> tuple[Segment, int, int] | None:
        found: tuple[Segment, int, int] | None = real(self, offset, wait)
        if found is None:
            return None
        segment, position, size = found
        listed = self.segment_list.segments
        now = next((each for each in listed if each.base_offset == segment.base_offset), segment)
        return now, position, size

    return older_place_of


def log_plants() -> dict[str, list[tuple[Any, str, Any]]]:
    """By name: whose attributes, which, and what takes their place."""
    return {
        "keeps-epochs-that-were-cut": [(LeaderEpochs, "truncate_from_end", _nothing)],
        "forgets-where-a-log-begins": [(log_crash, "open_log", _begin_with_the_files(vars(log_crash)["open_log"]))],
        "drops-tombstones-too-early": [(compaction, "clean_batch", _no_horizon(compaction.clean_batch))],
        "snapshots-nothing-that-is-open": [(Producers, "to_snapshot", _none_is_open(Producers.to_snapshot))],
        "stops-at-the-first-aborted": [(Producers, "stage_marker", _nobody_else_is_open(Producers.stage_marker))],
        "names-aborted-that-were-cut": [(Segment, "truncate", _keep_aborted(Segment.truncate))],
        "compacts-by-aborted-records": [(Transactions, "is_aborted", _abort_nothing(Transactions.is_aborted))],
        "compacts-what-is-open": [(cleaner, "dirty", _compact_what_is_open(cleaner.dirty))],
        "writes-no-snapshot-at-a-roll": [(LogState, "take_snapshot", _skip_the_file)],
        "empties-files-that-readers-hold": [(Segment, "remove_files", _empty_first(Segment.remove_files))],
        "keeps-places-that-were-cut": [(Segment, "find", _keep_places(Segment.find))],
        "reads-in-what-was-swapped-in": [
            (LogReader, "_older_place_of", _look_the_segment_up_again(vars(LogReader)["_older_place_of"]))
        ],
        "trusts-a-snapshot-of-another-offset": [
            (producer_history, "_scan", _scan_from_the_start_alone(vars(producer_history)["_scan"]))
        ],
    }
