"""When a snapshot of the metadata is due, and its writing on a worker."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headrace.broker.quorum.metadata_log import LoadedMetadata, MetadataLog

if TYPE_CHECKING:
    from asyncio import Future

    from headrace.env import LogSink, Node, Owner
    from headrace.metadata.image import ClusterImage
    from headrace.raft.control import Voter

BACKOFF_S: Final = 60.0
"""How long a snapshot that failed waits for its next attempt."""


@dataclass(frozen=True, slots=True)
class SnapshotPolicy:
    """When a snapshot is due: after so many bytes of records, or so many milliseconds with at least one record."""

    max_new_bytes: int = 20 * 1024 * 1024
    max_interval_ms: int = 3_600_000


class Snapshots:
    """See the module. `new_bytes` is what the log has got since the last one."""

    def __init__(self, node: Node, log: MetadataLog, policy: SnapshotPolicy, sink: LogSink) -> None:
        self.new_bytes = 0
        self._node = node
        self._metadata = log
        self._policy = policy
        self._log = sink
        self._last_s = 0.0
        self._next_attempt_s = 0.0
        self._under_way: Future[None] | None = None

    def loaded(self, loaded: LoadedMetadata) -> None:
        """After a start: the age of what is there counts."""
        self.new_bytes = loaded.log_bytes
        now_ms = self._node.clock.now_ms()
        age_ms = max(0, now_ms - (loaded.image.timestamp_ms or now_ms))
        self._last_s = self._node.clock.monotonic() - age_ms / 1000

    @property
    def is_due(self) -> bool:
        """Whether one is to be written now."""
        now_s = self._node.clock.monotonic()
        due = (
            self.new_bytes >= self._policy.max_new_bytes or now_s - self._last_s >= self._policy.max_interval_ms / 1000
        )
        return due and now_s >= self._next_attempt_s and self._under_way is None

    def attempt(self, owner: Owner, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Does it, and comes again later where the disk does not allow it."""
        ended = self._under_way = self._node.future()
        self._next_attempt_s = self._node.clock.monotonic() + BACKOFF_S
        owner.spawn(self._attempt(work, ended))

    async def _attempt(self, work: Callable[[], Coroutine[Any, Any, None]], ended: Future[None]) -> None:
        try:
            await work()
            self._next_attempt_s = 0.0
        except OSError as error:
            self._log.error("metadata snapshot failed; the broker tries again later", why=error)
        finally:
            self._under_way = None
            ended.set_result(None)

    async def write(self, image: ClusterImage, kraft_version: int, voters: tuple[Voter, ...]) -> None:
        """Writes a snapshot of an image, on a worker. Raises OSError."""
        now_ms, now_s, before = self._node.clock.now_ms(), self._node.clock.monotonic(), self.new_bytes
        size = await self._node.workers.run(lambda: self._metadata.write_snapshot(image, kraft_version, voters, now_ms))
        self._log.info("metadata snapshot written", end_offset=image.offset + 1, bytes=size)
        self.new_bytes -= before
        self._last_s = now_s

    async def ended(self) -> None:
        """Returns when none is under way."""
        if self._under_way is not None:
            await self._under_way
