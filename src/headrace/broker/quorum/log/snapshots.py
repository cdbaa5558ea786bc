"""When a snapshot of the metadata is due, and its writing on a worker."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headrace.broker.quorum.log.metadata_log import MetadataLog
from headrace.broker.quorum.log.snapshot_files import SnapshotFiles
from headrace.env.node import settle
from headrace.raft.messages import Position

if TYPE_CHECKING:
    from asyncio import Future

    from headrace.env import LogSink, Node
    from headrace.metadata.image import ClusterImage
    from headrace.raft.log_view import LogView
    from headrace.raft.voter_set import VoterSet

BACKOFF_S: Final = 60.0
"""How long a snapshot that failed waits for its next attempt."""


@dataclass(frozen=True, slots=True)
class SnapshotPolicy:
    """When a snapshot is due: after so many bytes of records, or so many milliseconds with at least one record."""

    max_new_bytes: int = 20 * 1024 * 1024
    max_interval_ms: int = 3_600_000
    """0: never by time."""
    retention_bytes: int = 100 * 1024 * 1024
    """What the log and its snapshots may hold before the oldest go; a negative number: there is no bound."""
    retention_ms: int = 7 * 86_400_000
    """How old the last record of the oldest snapshot may become; a negative number: there is no bound."""


class Snapshots:
    """When snapshots are due, and which are kept. `new_bytes` are the bytes of the log since the last one."""

    def __init__(self, node: Node, log: MetadataLog, policy: SnapshotPolicy, sink: LogSink) -> None:
        self.new_bytes = 0
        self._node = node
        self._metadata = log
        self._policy = policy
        self._log = sink
        self._last_s = 0.0
        self._next_attempt_s = 0.0
        self._under_way: Future[None] | None = None

    def loaded(self, timestamp_ms: int, log_bytes: int) -> None:
        """There is a snapshot, and so much log behind it; the age of the last record that was read counts."""
        self.new_bytes = log_bytes
        now_ms = self._node.clock.now_ms()
        age_ms = max(0, now_ms - (timestamp_ms or now_ms))
        self._last_s = self._node.clock.monotonic() - age_ms / 1000

    @property
    def is_due(self) -> bool:
        """Whether one is to be written now."""
        now_s = self._node.clock.monotonic()
        interval_ms = self._policy.max_interval_ms
        due = self.new_bytes >= self._policy.max_new_bytes
        due = due or (interval_ms > 0 and self.new_bytes > 0 and now_s - self._last_s >= interval_ms / 1000)
        return due and now_s >= self._next_attempt_s and self._under_way is None

    def attempt(self, writing: Coroutine[Any, Any, None]) -> Coroutine[Any, Any, None]:
        """Returns the awaitable of a snapshot; none is due meanwhile. If the disk does not allow
        it, the next attempt waits for BACKOFF_S."""
        self._under_way = self._node.future()
        self._next_attempt_s = self._node.clock.monotonic() + BACKOFF_S
        return self._attempt(writing, self._under_way)

    async def _attempt(self, writing: Coroutine[Any, Any, None], ended: Future[None]) -> None:
        try:
            await writing
            self._next_attempt_s = 0.0
        except OSError as error:
            self._log.error("metadata snapshot failed; the broker tries again later", why=error)
        finally:
            self._under_way = None
            settle(ended)

    async def write(self, image: ClusterImage, voters: VoterSet, log: LogView, *, keeps_old: bool) -> Position | None:
        """Writes a snapshot of an image, on a worker: where the log begins with it. `keeps_old`: others may still fetch
        what lies before it. None where the log has it, or one that is newer. Raises OSError."""
        end = Position(image.epoch, image.offset + 1)
        if end.offset <= log.snapshot.offset:
            return None
        now_ms, now_s, before = self._node.clock.now_ms(), self._node.clock.monotonic(), self.new_bytes
        size = await self._node.workers.run(lambda: self._metadata.files.write(image, voters, now_ms))
        self._log.info("metadata snapshot written", end_offset=image.offset + 1, bytes=size)
        self.new_bytes -= before
        self._last_s = now_s
        start = await self._log_start(Position(log.start_epoch, log.start_offset), end) if keeps_old else end
        return start if end.offset > log.snapshot.offset else None  # one of the leader's may have come meanwhile

    async def _log_start(self, start: Position, newest: Position) -> Position:
        now_ms, held, files = self._node.clock.now_ms(), self._metadata.bytes_held(), self._metadata.files
        return await self._node.workers.run(lambda: oldest_kept(files, self._policy, start, newest, held, now_ms))

    async def ended(self) -> None:
        """Returns when none is under way."""
        if self._under_way is not None:
            await self._under_way


def oldest_kept(
    files: SnapshotFiles, policy: SnapshotPolicy, start: Position, newest: Position, held: int, now_ms: int
) -> Position:
    """Where a log of `held` bytes, which begins at `start`, may begin now: where the oldest snapshot ends that is kept,
    as Kafka keeps them. Of two the older one goes if log and snapshots are too large, or it is too old. Raises OSError.

    Snapshots behind `newest` do not count: one of the leader's may have its name before the log gives way to it.
    """
    snapshots = [end for end in files.ends() if start.offset <= end.offset <= newest.offset]
    held += sum(files.size(end) for end in snapshots)
    while len(snapshots) > 1:
        oldest = snapshots.pop(0)
        too_large = 0 <= policy.retention_bytes < held
        if not too_large and not 0 <= policy.retention_ms < now_ms - files.last_record_ms(oldest):
            break
        held -= files.size(oldest)
        start = snapshots[0]
    return start
