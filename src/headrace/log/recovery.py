"""Opens a log: cheaply after a clean shutdown, by scanning the part after the recovery point after a crash.

After a clean shutdown only names, the end of the last index and the last few batches are read. After a crash, or if the
last batch is damaged, `crash.Recovery` reads the batches from the recovery point on; `Log.recovery_report` has the
loss.
"""

from __future__ import annotations

from headrace.config.topic import TopicConfig
from headrace.env import Disk
from headrace.log.bounds import LogBounds
from headrace.log.checkpoints import CheckpointError
from headrace.log.crash import Recovered, Recovery
from headrace.log.derived import lost_of, suspected
from headrace.log.epochs import LeaderEpochs
from headrace.log.filenames import (
    INDEX,
    LEADER_EPOCHS,
    PARTITION_METADATA,
    SEAL,
    SNAPSHOT,
    TIME_INDEX,
    TRANSACTION_INDEX,
    offset_name,
)
from headrace.log.folder import NO_TOPIC_ID, find_segments, finish_swaps, read_topic_id
from headrace.log.log import Log
from headrace.log.producer_history import snapshot_offsets
from headrace.log.producers import Producers
from headrace.log.rebuild import are_epochs_true, rebuild_aborted, rebuild_epochs
from headrace.log.recovery_report import LogDamaged, RecoveryReport
from headrace.log.resources import Resources
from headrace.log.seal import read_sum
from headrace.log.segment import Segment
from headrace.log.segment_end import check_end
from headrace.log.state import LogState
from headrace.log.transaction_index import TransactionIndexError
from headrace.wire.batch import CorruptBatch


def open_log(
    resources: Resources,
    directory: str,
    topic_partition: tuple[str, int],
    config: TopicConfig,
    *,
    topic_id: bytes = NO_TOPIC_ID,
    clean: bool = False,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    now_ms: int = 0,
    producers: Producers | None = None,
) -> Log:
    """Opens the log in an existing folder, or creates one in an empty folder.

    `clean` promises that the log was closed by `Log.close`; if its end is damaged it is recovered all the same. Raises
    OSError if the disk fails, LogDamaged if the log cannot be trusted or its topic is unknown.
    """
    disk = resources.disk
    sizes = finish_swaps(resources, directory, dict(disk.list_sizes(directory)))
    if PARTITION_METADATA in sizes and topic_id == NO_TOPIC_ID:
        topic_id = read_topic_id(disk, directory)
    segments = find_segments(resources, directory, sizes, log_start_offset, now_ms)
    unindexed = _suspect(segments, sizes)
    epochs, rebuilt = _read_epochs(disk, directory, segments, 1 << 63 if clean else recovery_point)
    producers = Producers() if producers is None else producers  # an empty one is falsy
    snapshots = snapshot_offsets(list(sizes))
    end_offset = _clean_end(segments[-1], recovery_point, config) if clean else None
    closed_well = end_offset is not None
    if end_offset is not None:
        rebuilt += _repair_aborted(disk, directory, segments, sizes)
        recovered = Recovered(segments, end_offset, 1 << 63, -1, RecoveryReport())
        flushed_offset = end_offset if segments[-1].size else min(recovery_point, end_offset)
    else:
        recovered = Recovery(
            disk, directory, config, segments, epochs, producers, recovery_point, distrusted=clean
        ).run(snapshots, now_ms)
        flushed_offset = min(recovery_point, recovered.end_offset)
    unindexed = tuple(segment for segment in unindexed if not segment.is_indexed)
    start_offset = max(log_start_offset, recovered.segments[0].base_offset)
    if _repair_epochs(disk, epochs, recovered.segments, (start_offset, recovered.end_offset)):
        rebuilt = tuple({**dict.fromkeys(rebuilt), LEADER_EPOCHS: None})
    report = recovered.report._replace(rebuilt=rebuilt, unindexed=unindexed)
    bounds = LogBounds(start_offset, recovered.end_offset)
    state = LogState(resources, directory, topic_partition, config, bounds, recovered.segments, epochs, producers)
    state.has_snapshot(recovered.snapshot_offset)
    log = Log(state, topic_id, recovery_point=flushed_offset, report=report, fresh=not closed_well)
    if start_offset > recovered.end_offset:
        # Everything had been deleted up to there, and the files went with it.
        log.truncate_fully_and_start_at(start_offset, now_ms=now_ms)
        return log
    epochs.truncate_from_end(bounds.end_offset)
    epochs.truncate_from_start(start_offset)
    _settle_producers(state, snapshots, recovered, now_ms, closed_well=closed_well)
    return log


def _settle_producers(
    state: LogState, snapshots: list[int], recovered: Recovered, now_ms: int, *, closed_well: bool
) -> None:
    """Loads the state of producers, or drops the expired ones after a scan; removes snapshots that match nothing in the
    log. Raises OSError."""
    if not closed_well:
        state.producers.remove_expired(now_ms)
        _remove_untrue_snapshots(state, snapshots, recovered)
    elif snapshots or state.bounds.end_offset > state.bases[0]:
        # They are in the snapshot at the end of the log; if that is missing or damaged, in an older one and the batches
        # behind it.
        state.load_producers(snapshots, now_ms)
    _remove_stray_snapshots(state, snapshots)


def _suspect(segments: list[Segment], sizes: dict[str, int]) -> tuple[Segment, ...]:
    """Distrusts the files that depend on a missing one; returns the segments without an index. Raises OSError."""
    unindexed: list[Segment] = []
    for segment in segments:
        lost = lost_of(segment.base_offset, sizes) if segment.size else []
        if INDEX in lost or TIME_INDEX in lost:
            unindexed.append(segment)
        if SEAL not in lost and SEAL in suspected(lost):
            segment.remove_seal()
    return tuple(unindexed)


def _remove_untrue_snapshots(state: LogState, snapshots: list[int], recovered: Recovered) -> None:
    disk = state.resources.disk
    gone = [offset for offset in snapshots if offset > recovered.trusted_to]
    for offset in gone:
        disk.remove(f"{state.directory}/{offset_name(offset, SNAPSHOT)}")
    if gone or recovered.report.cut_offset >= 0:
        # The log grows over the truncated part: another crash must not restore its files.
        disk.sync_directory(state.directory)


def _clean_end(active: Segment, closed_at: int, config: TopicConfig) -> int | None:
    """Returns the end of a cleanly closed log if its last batch is whole; None if the end is unknown."""
    if not active.size:
        return active.base_offset
    try:
        try:
            return check_end(active, closed_at)
        except CorruptBatch:
            active.rebuild_indexes(config.index_interval_bytes)  # perhaps they were wrong
            return check_end(active, closed_at, from_start=True)
    except CorruptBatch:
        return None


def _read_epochs(
    disk: Disk, directory: str, segments: list[Segment], below: int
) -> tuple[LeaderEpochs, tuple[str, ...]]:
    """Returns the leader epochs, and the name of their file if it was unreadable: it holds nothing that batches do not.

    They are read from the segments that begin below an offset: after a crash everything after the recovery point is
    read in any case. Raises OSError.
    """
    epochs = LeaderEpochs(disk, directory)
    damaged: tuple[str, ...] = ()
    try:
        epochs.load()
    except CheckpointError:
        damaged = (LEADER_EPOCHS,)
    if not epochs.epochs:
        rebuild_epochs(epochs, [segment for segment in segments if segment.base_offset < below])
    return epochs, damaged


def _repair_epochs(disk: Disk, epochs: LeaderEpochs, segments: list[Segment], span: tuple[int, int]) -> bool:
    """Rebuilds the leader epochs from the batches if their file does not match its seal and contradicts the batches;
    returns whether it did. Raises OSError."""
    if span[0] >= span[1]:
        return False
    active = segments[-1]
    sealed = active.read_seal()
    if sealed is not None and sealed.log_bytes == active.size and sealed.epochs == read_sum(disk, epochs.path):
        return False
    if are_epochs_true(epochs, segments, *span):
        return False
    rebuild_epochs(epochs, segments)
    return True


def _repair_aborted(disk: Disk, directory: str, segments: list[Segment], sizes: dict[str, int]) -> tuple[str, ...]:
    """Reads the transaction index of the last segment, to which appends add; returns its name if it was damaged and
    rebuilt. If nothing was ever sealed, another program wrote it, and it is read on first use, like the others. Raises
    OSError."""
    active = segments[-1]
    if active.knows_aborted or offset_name(active.base_offset, SEAL) not in sizes:
        return ()
    try:
        active.aborted()
    except TransactionIndexError:
        if active.learn_aborted(rebuild_aborted(disk, directory, segments, active)):
            active.sync()
            return (offset_name(active.base_offset, TRANSACTION_INDEX),)
    return ()


def _remove_stray_snapshots(state: LogState, snapshots: list[int]) -> None:
    """Removes snapshots inside merged segments, where no later start looks for them."""
    bases = set(state.bases)
    for offset in snapshots[:-1]:
        if offset not in bases and offset < state.snapshot_offset:
            state.resources.disk.remove(f"{state.directory}/{offset_name(offset, SNAPSHOT)}")


def create_log(
    resources: Resources,
    directory: str,
    topic_partition: tuple[str, int],
    config: TopicConfig,
    *,
    topic_id: bytes,
    now_ms: int,
    producers: Producers,
) -> Log:
    """Creates a log in a new folder. Raises OSError."""
    segment = Segment(resources, directory, 0, size=0, created_ms=now_ms)
    segment.create()
    epochs = LeaderEpochs(resources.disk, directory)
    state = LogState(resources, directory, topic_partition, config, LogBounds(0, 0), [segment], epochs, producers)
    return Log(state, topic_id, recovery_point=0, fresh=True)


__all__ = ["NO_TOPIC_ID", "LogDamaged", "create_log", "open_log"]
