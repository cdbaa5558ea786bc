"""The metadata quorum's shell: everything that changes the cluster's metadata passes through `submit`.

One path: a pure function decides on an image; its records are appended to the metadata log and synced; they are
applied; the new image is published; then the reply leaves. With one voter the sync is the commit.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from headrace.broker.quorum.metadata_log import LoadedMetadata, MetadataLog
from headrace.broker.storage.storage_format import StorageError
from headrace.env import DiskLock, Environment
from headrace.env.workers import Workers
from headrace.machine import Decision
from headrace.metadata import adoption, bootstrap, levels
from headrace.metadata.batches import control_batch, data_batches
from headrace.metadata.delta import ImageDelta
from headrace.metadata.framing import encode_record, record_version
from headrace.metadata.image import ClusterImage
from headrace.raft import solo
from headrace.raft.control import Voter, encode_control
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.metadata_records import AbortTransactionRecord

log = logging.getLogger("headrace.broker")

SNAPSHOT_BACKOFF_MS = 60_000
"""How long a snapshot that failed waits for its next attempt."""

R = TypeVar("R")
ImageListener = Callable[[ClusterImage, ClusterImage, ImageDelta], None]


class QuorumError(Exception):
    """The metadata log could not be written: nothing that was asked took effect, and nothing more will be taken."""


@dataclass(frozen=True, slots=True)
class SnapshotPolicy:
    """When a snapshot is due: after so many bytes of records, or so many milliseconds with at least one record."""

    max_new_bytes: int = 20 * 1024 * 1024
    max_interval_ms: int = 3_600_000


@dataclass(slots=True)
class _Waiting:
    decide: Callable[[ClusterImage], Decision[Any]]
    reply: asyncio.Future[Any]


@dataclass(slots=True)
class _Step:
    """One decision on its way: its delta over the image before it."""

    before: ClusterImage
    after: ClusterImage
    delta: ImageDelta


class Quorum:
    """The controller and leader of a quorum of one.

    `image` is what is committed: it changes only after a sync. Decisions that wait together share one sync.
    `on_failure` is called when a sync fails: the owner should stop. `voter` is this node, for a static quorum
    (kraft.version 0), whose metadata do not say who votes.
    """

    def __init__(
        self,
        env: Environment,
        log: MetadataLog,
        *,
        voter: Voter,
        cluster_id: str,
        policy: SnapshotPolicy | None = None,
        workers: Workers | None = None,
    ) -> None:
        self.env = env
        self.log = log
        self.workers = workers
        self.node_id = voter.id
        self.image = ClusterImage(cluster_id=cluster_id)
        self.epoch = 0
        self.kraft_version = 0
        self.voters: tuple[Voter, ...] = (voter,)
        self.failure: Exception | None = None
        self.lock: DiskLock | None = None
        self._policy = policy or SnapshotPolicy()
        self._listeners: list[ImageListener] = []
        self._queue: list[_Waiting] = []
        self._worker: asyncio.Task[None] | None = None
        self._snapshot: asyncio.Task[None] | None = None
        self.on_failure: Callable[[str], None] | None = None
        self._bytes_since_snapshot = 0
        self._last_snapshot_ms = 0
        self._next_attempt_ms = 0

    def load(self, obstacles: Callable[[ClusterImage], list[str]] = lambda _: []) -> None:
        """Replays what is on disk and takes the lead, all of it synchronously: at start there is nothing to wait for.

        Raises StorageError where this node must not start on the directory, naming every reason; `obstacles` has those
        that do not lie in the metadata. No record has been written then.
        """
        loaded = self.log.load(self.image.cluster_id)
        previous = self.log.read_quorum_state()
        others = solo.foreign_voters(self.node_id, loaded.voters, previous)
        reasons = [f"the metadata quorum has other voters: {others}"] if others else []
        if not loaded.image.is_empty:
            reasons += adoption.obstacles(loaded.image, self.node_id) + obstacles(loaded.image)
        if reasons:
            raise StorageError(f"{self.log.directory} cannot be served: " + "; ".join(reasons))
        self.image = loaded.image
        self.kraft_version = loaded.kraft_version
        self.voters = loaded.voters or self.voters
        self._bytes_since_snapshot = loaded.log_bytes
        self._last_snapshot_ms = loaded.image.timestamp_ms or self.env.clock.now_ms()
        self._lead(solo.lead(self.node_id, previous, _log_state(loaded)), loaded)

    def _lead(self, leadership: solo.Leadership, loaded: LoadedMetadata) -> None:
        self.log.write_quorum_state(leadership.state, leadership.state_version)
        self.epoch = leadership.epoch
        now_ms = self.env.clock.now_ms()
        batch = control_batch(
            [encode_control(record) for record in leadership.records],
            base_offset=self.log.end_offset,
            leader_epoch=self.epoch,
            timestamp_ms=now_ms,
        )
        self._append(batch, now_ms)
        self.image = ImageDelta(self.image).image(offset=self.log.end_offset - 1, epoch=self.epoch, timestamp_ms=now_ms)
        records: list[Any] = []
        if loaded.in_transaction:
            records.append(AbortTransactionRecord(reason="Controller failover"))
        if self.image.is_empty:
            records += self._first_records()
        if records:
            step = self._step(self.image, records)
            self.image = step.after
        self.log.sync()

    def _first_records(self) -> Sequence[Any]:
        stored = self.log.read_bootstrap()
        if stored is None:
            stored = bootstrap.bootstrap_records(bootstrap.default_levels(levels.LATEST_METADATA_VERSION))
        return bootstrap.activation_records(stored, 1)

    def on_image(self, listener: ImageListener) -> None:
        """Calls `listener(old, new, delta)` after each change, in order, before the replies that it makes possible."""
        self._listeners.append(listener)

    async def submit(self, decide: Callable[[ClusterImage], Decision[R]]) -> R:
        """Decides on the newest image and answers once the records are durable and applied.

        Decisions take effect in the order in which they are submitted. Raises QuorumError.
        """
        if self.failure is not None:
            raise QuorumError(str(self.failure))
        loop = asyncio.get_running_loop()
        waiting = _Waiting(decide, loop.create_future())
        self._queue.append(waiting)
        if self._worker is None or self._worker.done():
            self._worker = loop.create_task(self._work())
        reply: R = await waiting.reply
        return reply

    async def _work(self) -> None:
        while self._queue:
            batch, self._queue = self._queue, []
            try:
                await self._commit(batch)
            except Exception as error:  # whatever it was, nobody may wait for ever
                self._fail(error, batch)
                return
            self._maybe_snapshot()

    def _fail(self, error: Exception, batch: list[_Waiting]) -> None:
        """A sync failed: nobody knows what the disk holds, so nothing more may be built on it (fsyncgate)."""
        self.failure = error
        log.critical("the metadata log cannot be synced: %s", error)
        waiting, self._queue = batch + self._queue, []
        for each in waiting:
            if not each.reply.done():
                each.reply.set_exception(QuorumError(str(error)))
        if self.on_failure is not None:
            self.on_failure(f"the metadata log cannot be synced: {error}")

    async def _commit(self, batch: list[_Waiting]) -> None:
        """Decides each in turn on the image that the one before leaves, syncs once, and publishes them one by one."""
        image = self.image
        done: list[tuple[_Waiting, Any, _Step | None]] = []
        wrote = False
        for waiting in batch:
            if waiting.reply.done():
                continue
            try:
                decision = waiting.decide(image)
                step = self._step(image, decision.records) if decision.records else None
            except OSError as error:
                # A full disk refuses what does not fit and leaves no trace of it: the next one may fit again.
                waiting.reply.set_exception(QuorumError(str(error)))
                continue
            except Exception as error:
                waiting.reply.set_exception(error)
                continue
            if step is not None:
                image, wrote = step.after, True
            done.append((waiting, decision.reply, step))
        if wrote:
            await self._run(self.log.sync)
        for waiting, reply, step in done:
            if step is not None:
                self.image = step.after
                self._publish(step)
            if not waiting.reply.done():
                waiting.reply.set_result(reply)

    def _publish(self, step: _Step) -> None:
        for listener in self._listeners:
            try:
                listener(step.before, step.after, step.delta)
            except Exception:
                # The change is committed: one listener's mistake must not keep it from the others, or the reply back.
                log.exception("a change of the metadata (offset %d) could not be followed", step.after.offset)

    def _step(self, image: ClusterImage, records: Sequence[Any]) -> _Step:
        """Applies records and appends them. They are applied first: what cannot be applied must not reach the log."""
        delta = ImageDelta(image)
        delta.apply_all(records)
        now_ms = self.env.clock.now_ms()
        base_offset = self.log.end_offset
        after = delta.image(offset=base_offset + len(records) - 1, epoch=self.epoch, timestamp_ms=now_ms)
        level = image.features.metadata_version or after.features.metadata_version
        values = [encode_record(record, record_version(record, level)) for record in records]
        try:
            for data in data_batches(values, base_offset=base_offset, leader_epoch=self.epoch, timestamp_ms=now_ms):
                self._append(data, now_ms)
        except OSError:
            if self.log.end_offset > base_offset:
                self.log.log.truncate_to(base_offset)
            raise
        return _Step(image, after, delta)

    def _append(self, data: bytes, now_ms: int) -> None:
        result = self.log.log.append(data, leader_epoch=self.epoch, now_ms=now_ms, origin="controller")
        if result.error is ErrorCode.KAFKA_STORAGE_ERROR:
            raise OSError(result.error_message)
        assert not result.error, f"the metadata log refused a batch: {result.error.name} {result.error_message}"
        self._bytes_since_snapshot += len(data)

    def _maybe_snapshot(self) -> None:
        now_ms = self.env.clock.now_ms()
        due = (
            self._bytes_since_snapshot >= self._policy.max_new_bytes
            or now_ms - self._last_snapshot_ms >= self._policy.max_interval_ms
        )
        if due and now_ms >= self._next_attempt_ms and (self._snapshot is None or self._snapshot.done()):
            self._next_attempt_ms = now_ms + SNAPSHOT_BACKOFF_MS
            self._snapshot = asyncio.get_running_loop().create_task(self._try_snapshot())

    async def _try_snapshot(self) -> None:
        try:
            await self.snapshot()
            self._next_attempt_ms = 0
        except OSError as error:
            log.error("a snapshot of the metadata failed, and is tried again later: %s", error)

    async def snapshot(self) -> None:
        """Writes a snapshot of the committed image on a worker, then deletes the log before it. Raises OSError."""
        image, now_ms = self.image, self.env.clock.now_ms()
        before = self._bytes_since_snapshot
        await self._run(lambda: self.log.write_snapshot(image, self.kraft_version, self.voters, now_ms))
        self._bytes_since_snapshot -= before
        self._last_snapshot_ms = now_ms
        self.log.delete_before(image.offset + 1, now_ms)

    async def _run(self, work: Callable[[], object]) -> None:
        """Blocking work goes to a worker thread, where there is one."""
        if self.workers is None:
            work()
        else:
            await self.workers.run(work)

    async def close(self) -> None:
        """Waits for what is under way; takes nothing more."""
        while self._worker is not None and not self._worker.done():
            await asyncio.wait([self._worker])
        if self._snapshot is not None and not self._snapshot.done():
            await asyncio.wait([self._snapshot])
        if self.failure is None:
            self.failure = OSError("the quorum is closed")
        self.log.log.close()
        if self.lock is not None:
            self.lock.release()


def _log_state(loaded: LoadedMetadata) -> solo.LogState:
    return solo.LogState(loaded.last_epoch, loaded.kraft_version, loaded.voters, loaded.voters_are_in_log)
