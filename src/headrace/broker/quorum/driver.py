"""The shell around the pure quorum: it stores, appends and syncs what `Raft` says, and publishes what is committed.

One path for every change of the cluster's metadata: a pure function decides on the newest image; its records are
appended to the metadata log; they are synced, and with that committed where one node votes; the new image is published;
then the reply leaves. Decisions go on while a sync is under way: each is made on the image that the one before leaves,
and nobody is told of any of it before it is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headrace.broker.quorum.controller import ControllerError
from headrace.broker.quorum.metadata_log import LoadedMetadata, MetadataLog
from headrace.broker.quorum.uncommitted import Change, Decided, Uncommitted
from headrace.broker.storage.storage_format import StorageError
from headrace.env import DiskLock, Node
from headrace.env.disk import is_full, is_passing
from headrace.machine import Decision
from headrace.metadata import adoption, bootstrap, levels
from headrace.metadata.batches import control_batch, data_batches
from headrace.metadata.delta import ImageDelta
from headrace.metadata.framing import encode_record, record_version
from headrace.metadata.image import ClusterImage
from headrace.raft.control import Voter, encode_control
from headrace.raft.events import Output, Propose, Refused, Resign, Shortened, Synced
from headrace.raft.log_view import LogView
from headrace.raft.machine import Raft
from headrace.raft.messages import Entries, Position, ReplicaKey
from headrace.raft.quorum_state import QuorumState
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.metadata_records import AbortTransactionRecord

if TYPE_CHECKING:
    from asyncio import Future

SNAPSHOT_BACKOFF_S: Final = 60.0
"""How long a snapshot that failed waits for its next attempt."""

SYNC_BACKOFF_S: Final = 0.1
"""How long a sync that found no descriptor or no memory waits for its next attempt."""

UNCOMMITTED_MAX: Final = 10_000
"""Decisions that wait for their commit at once; one more is refused."""

R = TypeVar("R")
ImageListener = Callable[[ClusterImage, ClusterImage, ImageDelta], None]


@dataclass(frozen=True, slots=True)
class SnapshotPolicy:
    """When a snapshot is due: after so many bytes of records, or so many milliseconds with at least one record."""

    max_new_bytes: int = 20 * 1024 * 1024
    max_interval_ms: int = 3_600_000


@dataclass(frozen=True, slots=True)
class _Values:
    """What the driver proposes: encoded metadata records, and the time that their batches bear."""

    values: Sequence[bytes]
    timestamp_ms: int


class QuorumDriver:
    """One node of the metadata quorum; today the only one, so that it leads from its start on.

    `image` is what is committed. `on_failure` is called when a sync fails: the owner should stop. `voter` is this
    node, for a static quorum (kraft.version 0), whose metadata do not say who votes.
    """

    raft: Raft

    def __init__(
        self, node: Node, log: MetadataLog, *, voter: Voter, cluster_id: str, policy: SnapshotPolicy | None = None
    ) -> None:
        self.log = log
        self.node_id = voter.id
        self.image = ClusterImage(cluster_id=cluster_id)
        self.kraft_version = 0
        self.voters: tuple[Voter, ...] = (voter,)
        self.failure: Exception | None = None
        self.lock: DiskLock | None = None
        self.on_failure: Callable[[str], None] | None = None
        self._node = node
        self._owner = node.owner("quorum")
        self._log = node.logger("quorum")
        self._policy = policy or SnapshotPolicy()
        self._listeners: list[ImageListener] = []
        self._uncommitted = Uncommitted(self.image)
        self._syncing: Future[None] | None = None
        self._snapshotting: Future[None] | None = None
        self._bytes_since_snapshot = 0
        self._last_snapshot_s = 0.0
        self._next_attempt_s = 0.0

    @property
    def epoch(self) -> int:
        """The epoch of the quorum."""
        return self.raft.epoch

    # --- start

    def load(self, obstacles: Callable[[ClusterImage], list[str]] = lambda _: []) -> None:
        """Replays what is on disk and takes the lead, all of it synchronously: at start there is nothing to wait for.

        Raises StorageError where this node must not start on the directory, naming every reason; `obstacles` has those
        that do not lie in the metadata. No record has been written then.
        """
        loaded = self.log.load(self.image.cluster_id)
        saved = self.log.read_quorum_state()
        others = foreign_voters(self.node_id, loaded.voters, saved)
        reasons = [f"the metadata quorum has other voters: {others}"] if others else []
        if not loaded.image.is_empty:
            reasons += adoption.obstacles(loaded.image, self.node_id) + obstacles(loaded.image)
        if reasons:
            raise StorageError(f"{self.log.directory} cannot be served: " + "; ".join(reasons))
        self.image = loaded.image
        self.kraft_version = loaded.kraft_version
        self.voters = loaded.voters or self.voters
        self._bytes_since_snapshot = loaded.log_bytes
        now_ms = self._node.clock.now_ms()
        age_ms = max(0, now_ms - (loaded.image.timestamp_ms or now_ms))
        self._last_snapshot_s = self._node.clock.monotonic() - age_ms / 1000
        # What a crash left in memory is on the disk before anybody hears how far this log goes.
        self.log.sync()
        self.raft = self._machine(loaded, saved)
        self._take_the_lead(loaded)

    def _machine(self, loaded: LoadedMetadata, saved: QuorumState | None) -> Raft:
        view = LogView(loaded.snapshot_end, self.log.end_offset, loaded.epochs, loaded.snapshot_epoch)
        assert view.last.epoch == loaded.last_epoch
        me = next(ReplicaKey(voter.id, voter.directory_id) for voter in self.voters if voter.id == self.node_id)
        return Raft(
            me,
            self.voters,
            view,
            saved,
            jitter=self._node.entropy.random().randrange,
            kraft_version=self.kraft_version,
            voters_are_in_log=loaded.voters_are_in_log,
        )

    def _take_the_lead(self, loaded: LoadedMetadata) -> None:
        self._perform(self.raft.start(self._steady_ms()))
        assert self.raft.leads, "a lone voter leads at once"
        now_ms = self._node.clock.now_ms()
        first = ImageDelta(self.image)
        self.image = first.image(offset=self.log.end_offset - 1, epoch=self.epoch, timestamp_ms=now_ms)
        records: list[Any] = []
        if loaded.in_transaction:
            records.append(AbortTransactionRecord(reason="Controller failover"))
        if self.image.is_empty:
            records += self._first_records()
        change, values = self._prepare(self.image, records)
        if change is not None and values is not None:
            self._propose(values)
            self.image = change.after
        end = self.raft.log.last
        self.log.sync()
        out = self.raft.step(Synced(end), self._steady_ms())
        assert out.committed == end.offset and self.raft.is_active
        self._uncommitted = Uncommitted(self.image)

    def _first_records(self) -> Sequence[Any]:
        stored = self.log.read_bootstrap()
        if stored is None:
            stored = bootstrap.bootstrap_records(bootstrap.default_levels(levels.LATEST_METADATA_VERSION))
        return bootstrap.activation_records(stored, 1)

    # --- what the broker asks

    def on_image(self, listener: ImageListener) -> None:
        """Calls `listener(old, new, delta)` after each change, in order, before the replies that it makes possible."""
        self._listeners.append(listener)

    def submit(self, decide: Callable[[ClusterImage], Decision[R]]) -> Future[R]:
        """Decides on the newest image, at once; the answer comes when the records are committed and applied.

        A decision without records is answered when all that it was made on is committed. The future raises
        ControllerError, or what `decide` raises.
        """
        asked: Future[R] = self._node.future()
        refusal = self._refusal()
        if refusal is not None:
            asked.set_exception(refusal)
            return asked
        image = self._uncommitted.newest
        try:
            decision = decide(image)
            change, values = self._prepare(image, decision.records)
        except Exception as error:  # nothing was touched: it is the business of whoever asked
            asked.set_exception(error)
            return asked
        try:
            if values is not None:
                self._propose(values)
        except OSError as error:
            # A full disk refuses what does not fit and leaves no trace of it: the next one may fit again.
            asked.set_exception(ControllerError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
            return asked
        except Exception as error:
            self._fail(error)
            asked.set_exception(ControllerError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
            return asked
        self._uncommitted.push(Decided(self.raft.log.end_offset, change, decision.reply, asked))
        if change is None and not self._is_waiting():
            self._commit(self.raft.log.end_offset)
        else:
            self._sync_soon()
        return asked

    def _refusal(self) -> ControllerError | None:
        if self.failure is not None:
            return ControllerError(ErrorCode.KAFKA_STORAGE_ERROR, str(self.failure))
        if not self.raft.is_active:
            return ControllerError(ErrorCode.NOT_CONTROLLER)
        if len(self._uncommitted) >= UNCOMMITTED_MAX:
            return ControllerError(ErrorCode.REQUEST_TIMED_OUT, "Too many changes of the metadata wait for the disk.")
        return None

    def _is_waiting(self) -> bool:
        return self.raft.high_watermark < self.raft.log.end_offset

    def resign(self) -> None:
        """Gives up the lead, if this node has it. What is not committed is nobody's business here any more."""
        self._perform(self.raft.step(Resign(), self._steady_ms()))

    # --- records into the log

    def _prepare(self, image: ClusterImage, records: Sequence[Any]) -> tuple[Change | None, _Values | None]:
        """Applies records and encodes them: what cannot be applied must not reach the log. None without records."""
        if not records:
            return None, None
        delta = ImageDelta(image)
        delta.apply_all(records)
        now_ms = self._node.clock.now_ms()
        base_offset = self.raft.log.end_offset
        after = delta.image(offset=base_offset + len(records) - 1, epoch=self.epoch, timestamp_ms=now_ms)
        level = image.features.metadata_version or after.features.metadata_version
        values = [encode_record(record, record_version(record, level)) for record in records]
        return Change(image, after, delta), _Values(values, now_ms)

    def _propose(self, values: _Values) -> None:
        """Appends records. Raises OSError, and then nothing of them is there."""
        base_offset = self.raft.log.end_offset
        out = self.raft.step(Propose(len(values.values), values), self._steady_ms())
        try:
            self._perform(out)
        except OSError:
            self.raft.step(Refused(base_offset), self._steady_ms())
            if self.log.end_offset > base_offset:
                self.log.log.truncate_to(base_offset)
            raise

    def _perform(self, out: Output) -> None:
        """Does what the machine wants done, in its order. A lone voter has nobody to speak to."""
        assert not (out.send or out.reply or out.load_snapshot or out.truncate_to is not None)
        if out.store is not None:
            self.log.write_quorum_state(out.store, out.store.data_version)
        for entries in out.append:
            self._write(entries)
        if out.committed is not None:
            self._commit(out.committed)
        if not self.raft.leads:
            self._revert()

    def _write(self, entries: Entries) -> None:
        assert entries.base_offset == self.log.end_offset, "the machine knows where the log ends"
        if isinstance(entries.payload, _Values):
            batches = data_batches(
                entries.payload.values,
                base_offset=entries.base_offset,
                leader_epoch=entries.epoch,
                timestamp_ms=entries.payload.timestamp_ms,
            )
        else:
            batch = control_batch(
                [encode_control(record) for record in entries.payload],
                base_offset=entries.base_offset,
                leader_epoch=entries.epoch,
                timestamp_ms=self._node.clock.now_ms(),
            )
            batches = [batch]
        for data in batches:
            result = self.log.log.append(
                data, leader_epoch=entries.epoch, now_ms=self._node.clock.now_ms(), origin="controller"
            )
            if result.error is ErrorCode.KAFKA_STORAGE_ERROR:
                raise OSError(result.error_message)
            assert not result.error, f"the metadata log refused a batch: {result.error.name} {result.error_message}"
            self._bytes_since_snapshot += len(data)

    # --- syncs and commits

    def _sync_soon(self) -> None:
        """What is appended in this turn of the loop, and while a sync is under way, shares the next one."""
        if self._syncing is None:
            self._syncing = self._node.future()
            self._owner.later(0, self._sync)

    def _sync(self) -> None:
        end = self.raft.log.last
        self._node.syncs.submit(self.log.sync, lambda _, error: self._synced(end, error))

    def _synced(self, end: Position, error: BaseException | None) -> None:
        syncing = self._syncing
        assert syncing is not None
        if isinstance(error, OSError) and is_passing(error) and not is_full(error):
            # The disk was not asked. After a sync that it refused for lack of room nobody knows what it holds.
            self._log.warning("metadata log cannot be synced yet", why=error)
            self._owner.later(SYNC_BACKOFF_S, self._sync)
            return
        self._syncing = None
        if not syncing.done():
            syncing.set_result(None)
        if error is not None:
            self._fail(error)
            return
        try:
            self._perform(self.raft.step(Synced(end), self._steady_ms()))
        except Exception as defect:  # nobody may wait for ever
            self._fail(defect)
            return
        if self.raft.log.synced_offset < self.raft.log.end_offset:
            self._sync_soon()
        self._maybe_snapshot()

    def _fail(self, error: BaseException) -> None:
        """A sync failed: nobody knows what the disk holds, so nothing more may be built on it (fsyncgate).

        Nor may it on a driver that contradicts itself, which is what anything but an OSError says.
        """
        if not isinstance(error, OSError):
            self._node.defects.report(error, "the metadata quorum")
        self.failure = OSError(str(error))
        self._log.error("metadata log cannot be written", why=error)
        for lost in self._uncommitted.revert(self.image):
            if not lost.asked.done():
                lost.asked.set_exception(ControllerError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
        if self.on_failure is not None:
            self.on_failure(f"the metadata log cannot be written: {error}")

    def _commit(self, end_offset: int) -> None:
        for decided in self._uncommitted.commit(end_offset):
            if decided.change is not None:
                self.image = decided.change.after
                self._publish(decided.change)
            if not decided.asked.done():
                decided.asked.set_result(decided.reply)

    def _revert(self) -> None:
        for lost in self._uncommitted.revert(self.image):
            if not lost.asked.done():
                lost.asked.set_exception(ControllerError(ErrorCode.NOT_CONTROLLER))

    def _publish(self, change: Change) -> None:
        for listener in self._listeners:
            try:
                listener(change.before, change.after, change.delta)
            except Exception as error:
                # The change is committed: one listener's mistake must not keep it from the others, or the reply back.
                self._node.defects.report(error, "a change of the metadata", offset=change.after.offset)

    # --- snapshots

    def _maybe_snapshot(self) -> None:
        now_s = self._node.clock.monotonic()
        due = (
            self._bytes_since_snapshot >= self._policy.max_new_bytes
            or now_s - self._last_snapshot_s >= self._policy.max_interval_ms / 1000
        )
        if due and now_s >= self._next_attempt_s and self._snapshotting is None:
            self._next_attempt_s = now_s + SNAPSHOT_BACKOFF_S
            self._snapshotting = self._node.future()
            self._owner.spawn(self._try_snapshot(self._snapshotting))

    async def _try_snapshot(self, ended: Future[None]) -> None:
        try:
            await self.snapshot()
            self._next_attempt_s = 0.0
        except OSError as error:
            self._log.error("metadata snapshot failed; the broker tries again later", why=error)
        finally:
            self._snapshotting = None
            ended.set_result(None)

    async def snapshot(self) -> None:
        """Writes a snapshot of the committed image, then deletes the log before it, on workers. Raises OSError."""
        image, now_ms, now_s = self.image, self._node.clock.now_ms(), self._node.clock.monotonic()
        before = self._bytes_since_snapshot
        workers = self._node.workers
        size = await workers.run(lambda: self.log.write_snapshot(image, self.kraft_version, self.voters, now_ms))
        self._log.info("metadata snapshot written", end_offset=image.offset + 1, bytes=size)
        self._bytes_since_snapshot -= before
        self._last_snapshot_s = now_s
        replaced = self.log.take_out_before(image.offset + 1, now_ms)
        self.raft.step(Shortened(Position(image.epoch, image.offset + 1)), self._steady_ms())
        await workers.run(lambda: self.log.remove(replaced, image.offset + 1))

    # --- end

    async def close(self) -> None:
        """Waits for what is under way; takes nothing more."""
        while self._syncing is not None:
            await self._syncing
        if self._snapshotting is not None:
            await self._snapshotting
        self.resign()
        self._owner.close()
        self.log.log.close()
        if self.lock is not None:
            self.lock.release()

    def _steady_ms(self) -> int:
        return int(self._node.clock.monotonic() * 1000)


def foreign_voters(node_id: int, voters: Sequence[Voter], saved: QuorumState | None) -> list[int]:
    """Voters other than this node: a directory of theirs is part of a larger quorum, which one node cannot lead."""
    ids = {voter.id for voter in voters}
    if saved is not None:
        ids.update(saved.voters)
    return sorted(ids - {node_id})
