"""The shell around the pure quorum: it stores, appends, syncs and says what `Raft` wants, and publishes what is
committed.

One path for every change of the cluster's metadata: a pure function decides on the newest image of the leader; its
records are appended to the metadata log; they are synced, here and on a majority of the voters, and with that
committed; the new image is published; then the reply leaves. Decisions go on while that is under way: each is made on
the image that the one before leaves, and nobody is told of any of it before it is committed.

What a leader decided comes to its image by the queue of decisions; all else that is committed, a follower's and what
lay in the log before this node led, by the log itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headrace.broker.quorum.answers import Answers
from headrace.broker.quorum.codec import Codec
from headrace.broker.quorum.completeness import Completeness
from headrace.broker.quorum.controller import ControllerError
from headrace.broker.quorum.links import VoterLinks
from headrace.broker.quorum.metadata_log import LoadedMetadata, MetadataLog
from headrace.broker.quorum.outputs import Outputs
from headrace.broker.quorum.progress import ReplicaProgress, observers_of, progress_of
from headrace.broker.quorum.proposals import Values, opening_records, prepare
from headrace.broker.quorum.snapshot_loading import SnapshotLoading
from headrace.broker.quorum.snapshots import SnapshotPolicy, Snapshots
from headrace.broker.quorum.syncs import Syncs
from headrace.broker.quorum.uncommitted import Change, Uncommitted, look_at, refuse
from headrace.broker.quorum.voters import Member, foreign_voters
from headrace.broker.quorum.whereabouts import Whereabouts
from headrace.broker.storage.storage_format import StorageError
from headrace.client.security import PLAIN_WAY
from headrace.env import DiskLock, Node
from headrace.machine import Decision
from headrace.metadata.delta import ImageDelta
from headrace.metadata.image import ClusterImage
from headrace.metadata.replay import Replay
from headrace.raft.control import Voter, VoterEndpoint
from headrace.raft.events import (
    Answered,
    Event,
    Output,
    Propose,
    RaiseVersion,
    Refused,
    Requested,
    Resign,
    Snapshotted,
    Synced,
    Tick,
    Unreachable,
)
from headrace.raft.machine import Raft
from headrace.raft.messages import Position, Request
from headrace.raft.peers import RaftSettings
from headrace.raft.quorum_state import QuorumState
from headrace.raft.voter_set import VoterHistory, VoterSet
from headrace.wire.errors import ErrorCode

if TYPE_CHECKING:
    from asyncio import Future

    from headrace.client.security import Way
    from headrace.env import Timer

APPLIED_BYTES: Final = 64 * 1024
APPLIED_RECORDS: Final = 256
"""What is taken out of the log into the image in one turn of the loop; a larger batch is read in one turn."""

RESIGN_S: Final = 1.0
"""How long a leader that stops waits until the other voters have heard of it."""

UNCOMMITTED_MAX: Final = 10_000
"""Decisions that wait for their commit at once; one more is refused."""

R = TypeVar("R")
ImageListener = Callable[[ClusterImage, ClusterImage, ImageDelta], None]


class QuorumDriver:
    """One node of the metadata quorum.

    `image` is what is committed. `on_failure` is called when the log cannot be written: the owner should stop. Alone,
    it leads from its start on; beside other voters it stands for election, and follows whoever was elected; as an
    observer it follows.
    """

    raft: Raft

    def __init__(
        self,
        node: Node,
        log: MetadataLog,
        *,
        member: Member,
        cluster_id: str,
        policy: SnapshotPolicy | None = None,
        settings: RaftSettings | None = None,
        min_insync_replicas: int = 1,
        has_observers: bool = False,
    ) -> None:
        """`member` is who this node is by its settings; `min_insync_replicas` is what a fresh cluster begins with.
        `has_observers`: others than voters read this node's log."""
        self.log = log
        self.node_id = member.key.id
        self.image = ClusterImage(cluster_id=cluster_id)
        self.member = member
        self.sets = VoterHistory(VoterSet(member.voters, kraft_version=0))
        self.whereabouts = Whereabouts(self.node_id, lambda: self.voters, member.bootstrap)
        self.failure: Exception | None = None
        self.lock: DiskLock | None = None
        self.on_failure: Callable[[str], None] | None = None
        self.on_decides: Callable[[], None] = lambda: None
        """Called when `decides` changes, and at `start`."""
        self.on_leader: Callable[[], None] = lambda: None
        """Called when this node hears of another leader."""
        self.way: Callable[[], Way] = lambda: PLAIN_WAY
        """What connections to other voters are opened with."""
        self._leader: int | None = None
        self._node = node
        self._owner = node.owner("quorum")
        self._log = node.logger("quorum")
        self._settings = settings or RaftSettings()
        self._min_insync_replicas = min_insync_replicas
        self._has_observers = has_observers
        self._listeners: list[ImageListener] = []
        self._uncommitted = self._nothing_decided()
        self._deciding_epoch: int | None = None
        self._committed = 0
        self._replay = Replay(self.image)
        self._applying = False
        self._stopping = self._closed = False
        self._timer: Timer | None = None
        self.links: VoterLinks | None = None
        self.outputs = Outputs(
            node, self._owner, log, self._log, carry_out=self._carry_out, went_on=self._wind, failed=self._fail
        )
        self._syncs = Syncs(
            node,
            self._owner,
            log,
            self._log,
            end=lambda: None if self.outputs else self.raft.log.last,
            synced=self._synced,
            failed=self._fail,
        )
        self._completeness = Completeness(node, log, member, self._log)
        self._answers = Answers(node, log)
        self._snapshots = Snapshots(node, log, policy or SnapshotPolicy(), self._log)
        self._loading = SnapshotLoading(
            node, self._owner, log.files, self._step, lambda: self.image, cluster_id, self._log
        )

    @property
    def voters(self) -> tuple[Voter, ...]:
        """Who votes by the newest set in the log, committed or not."""
        return self.sets.newest.voters

    @property
    def kraft_version(self) -> int:
        """The finalized kraft.version."""
        return self.sets.newest.kraft_version

    @property
    def epoch(self) -> int:
        """The epoch of the quorum."""
        return self.raft.epoch

    @property
    def decides(self) -> bool:
        """Whether this node is the active controller: it leads, and its image has all that was committed before."""
        return self.raft.leads and self._deciding_epoch == self.raft.epoch

    @property
    def is_current(self) -> bool:
        """Whether the image has all that the quorum has committed, by what its leader says; False until one said it."""
        return self.decides or 0 <= self.raft.heard_high_watermark <= self.image.offset + 1

    @property
    def is_alone(self) -> bool:
        """Whether this node votes, and no other."""
        return self.member.is_alone_in(self.sets.newest)

    def progress(self) -> list[ReplicaProgress]:
        """How far every voter is, this node first; nothing where it does not lead."""
        return progress_of(self.raft, self._node.clock.now_ms(), self._steady_ms())

    def observers(self) -> list[ReplicaProgress]:
        """How far every observer is; nothing where this node does not lead."""
        return observers_of(self.raft, self._node.clock.now_ms(), self._steady_ms())

    # --- start

    def load(self, obstacles: Callable[[ClusterImage], list[str]] = lambda _: []) -> None:
        """Replays what is on disk, and takes the lead where no other node votes; all of it synchronously: at start
        there is nothing to wait for.

        Raises StorageError where this node must not start on the directory, naming every reason; `obstacles` has those
        that do not lie in the metadata. No record has been written then.
        """
        loaded = self.log.load(self.image.cluster_id, self.voters, lambda newest: not self.member.is_alone_in(newest))
        saved = self.log.read_quorum_state()
        newest = loaded.sets.newest
        counts = self.member.is_static or newest.kraft_version == 0  # what the settings say of voters
        others = foreign_voters(self.voters, newest.voters, saved) if counts else []
        reasons = [f"the metadata quorum has other voters: {others}"] if others else []
        if self.member.is_lost_in(newest):
            reasons.append("this node is no voter and knows no other: set controller.quorum.bootstrap.servers")
        self.sets = loaded.sets
        if self.is_alone and not loaded.image.is_empty:
            reasons += obstacles(loaded.image)
        reasons += self._completeness.look(newest, saved, is_alone=self.is_alone)
        if reasons:
            raise StorageError(f"{self.log.directory} cannot be served: " + "; ".join(reasons))
        self.image = loaded.image
        self._committed = loaded.image.offset + 1
        self._snapshots.loaded(loaded.image, loaded.log_bytes)
        self._completeness.note()
        # What a crash left in memory is on the disk before anybody hears how far this log goes.
        self.log.sync_all()
        self.raft = self._machine(loaded, saved)
        if self.is_alone:
            self._take_the_lead(loaded)
        else:
            self._replay = Replay(self.image)

    def _machine(self, loaded: LoadedMetadata, saved: QuorumState | None) -> Raft:
        view, member = loaded.view(self.log.end_offset), self.member
        assert view.last.epoch == loaded.last_epoch
        key, place = member.key_in(self.sets.newest), self.whereabouts.endpoint
        self.codec = Codec(self.image.cluster_id, key, place, dynamic=lambda: self.kraft_version > 0)
        return Raft(
            key,
            self.sets,
            view,
            saved,
            jitter=self._node.entropy.random().randrange,
            settings=self._settings,
            bootstrap=len(member.bootstrap),
            own=member.own,
            is_incomplete=self._completeness.lacks is not None,
        )

    def _take_the_lead(self, loaded: LoadedMetadata) -> None:
        """Without other voters: nothing is waited for."""
        self._carry_out(self.raft.start(self._steady_ms()))
        assert self.raft.leads, "a lone voter leads at once"
        now_ms = self._node.clock.now_ms()
        first = ImageDelta(self.image)
        self.image = first.image(offset=self.log.end_offset - 1, epoch=self.epoch, timestamp_ms=now_ms)
        change, values = self._prepare(self.image, self._opening(loaded.in_transaction))
        if change is not None and values is not None:
            self._propose(values)
            self.image = change.after
        end = self.raft.log.last
        self.log.sync()
        out = self.raft.step(Synced(end), self._steady_ms())
        assert out.committed == end.offset and self.raft.is_active
        self._uncommitted = self._nothing_decided()
        self._deciding_epoch = self.epoch

    def _opening(self, in_transaction: bool) -> Sequence[Any]:
        """See `opening_records`. Raises StorageError."""
        stored = self.log.read_bootstrap() if self.image.is_empty else None
        return opening_records(self.image, stored, in_transaction, self._min_insync_replicas)

    def start(self) -> None:
        """Begins to speak with the other voters, as soon as there are any."""
        self.links = VoterLinks(
            self._node,
            self.codec,
            self.whereabouts.endpoint,
            self._step,
            self._learn,
            timeout_s=self._settings.request_timeout_ms / 1000,
            way=self.way,
            log=self._log,
        )
        if self.decides:  # it votes alone, and leads since it was loaded
            self.on_decides()
        else:
            self._take(self.raft.start(self._steady_ms()))

    def _learn(self, leader_id: int, endpoint: VoterEndpoint) -> None:
        """Another node says who leads, and where. A voter of the settings knows that by them."""
        if self.kraft_version > 0 or not self.raft.is_voter:
            self.whereabouts.learn(leader_id, endpoint)

    # --- what the broker asks

    def on_image(self, listener: ImageListener) -> None:
        """Calls `listener(old, new, delta)` after each change, in order, before the replies that it makes possible."""
        self._listeners.append(listener)

    def submit(self, decide: Callable[[ClusterImage], Decision[R]]) -> Future[R]:
        """Decides on the newest image, at once; the answer comes when the records are committed and applied.

        A decision without records is answered when all that it was made on is committed; others are decided between
        the pieces of one. The future raises ControllerError, or what `decide` raises.
        """
        asked: Future[R] = self._node.future()
        self._decide(decide, asked)
        return asked

    def _decide(self, decide: Callable[[ClusterImage], Decision[R]], asked: Future[R]) -> None:
        refusal = self._refusal()
        if refusal is not None:
            refuse(asked, refusal)
            return
        image = self._uncommitted.newest
        try:
            decision = decide(image)
            change, values = self._prepare(image, decision.records)
        except Exception as error:  # nothing was touched: it is the business of whoever asked
            refuse(asked, error)
            return
        try:
            if values is not None:
                self._propose(values)
            if decision.kraft_version is not None:
                change = self._raise_version(change, decision.kraft_version)
        except OSError as error:
            # A full disk refuses what does not fit and leaves no trace of it: the next one may fit again, and another
            # voter may have room for this one.
            if not self.is_alone:
                self._log.error("this node has no room to decide, and lets another one lead", why=error)
                self.resign()
            refuse(asked, ControllerError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
            return
        except Exception as error:
            self._fail(error)
            refuse(asked, ControllerError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
            return
        self._uncommitted.push(self.raft.log.end_offset, change, decision, asked)
        if change is None and self.raft.high_watermark >= self.raft.log.end_offset:
            self._commit(self.raft.log.end_offset)
        else:
            self._syncs.soon()

    def _nothing_decided(self) -> Uncommitted:
        return Uncommitted(self.image, soon=self._owner.soon, decide=self._decide, publish=self._publish_decided)

    def _raise_version(self, change: Change | None, level: int) -> Change | None:
        """Appends what raises kraft.version behind the records of the same decision. A full disk is waited out."""
        if change is not None:
            first: Future[None] = self._node.future()  # whoever asked hears of both
            first.add_done_callback(look_at)
            self._uncommitted.push(self.raft.log.end_offset, change, Decision(None), first)
        self._take(self.raft.step(RaiseVersion(level), self.raft.now))
        return None

    def _refusal(self) -> ControllerError | None:
        if self.failure is not None:
            return ControllerError(ErrorCode.KAFKA_STORAGE_ERROR, str(self.failure))
        if not self.decides:
            return ControllerError(ErrorCode.NOT_CONTROLLER)
        if self.outputs:  # a change of the voters waits for room
            return ControllerError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")
        if len(self._uncommitted) >= UNCOMMITTED_MAX:
            return ControllerError(ErrorCode.REQUEST_TIMED_OUT, "Too many changes of the metadata wait for the disk.")
        return None

    def requested(self, message: Request) -> Future[tuple[Any, bytes]]:
        """What another node says to this one. The future has the answer, and the batches that a fetch gets."""
        answer: Future[tuple[Any, bytes]] = self._node.future()
        if self.failure is not None or self.outputs.waits_for_room:
            why = str(self.failure or "the disk is full")
            answer.set_exception(ControllerError(ErrorCode.KAFKA_STORAGE_ERROR, why))
        else:
            self._step(Requested(answer, message))
        return answer

    def resign(self) -> None:
        """Gives up the lead, if this node has it. What is not committed is nobody's business here any more."""
        self._step(Resign())

    # --- records into the log

    def _prepare(self, image: ClusterImage, records: Sequence[Any]) -> tuple[Change | None, Values | None]:
        """None without records. See `proposals.prepare`."""
        if not records:
            return None, None
        return prepare(image, records, self.raft.log.end_offset, self.epoch, self._node.clock.now_ms())

    def _propose(self, values: Values) -> None:
        """Appends records. Raises OSError, and then nothing of them is there.

        For the machine no time passes meanwhile: the lead that the decision was made under is not lost before it is
        noted down. A leader that was too long without its followers hears of that next, from its timer.
        """
        assert not self.outputs, "an active leader has stored what it is"
        base_offset, now_ms = self.raft.log.end_offset, self.raft.now
        out = self.raft.step(Propose(len(values.values), values), now_ms)
        try:
            self._carry_out(out)
        except OSError:
            self.raft.step(Refused(base_offset), now_ms)
            if self.log.end_offset > base_offset:
                self.log.truncate_to(base_offset)
            raise
        self._wind()

    # --- steps of the machine

    def _step(self, event: Event) -> None:
        """Something happened. To a node that waits for room nothing does but what is its own: it takes part again when
        it has done what it was about to do."""
        is_heard = not (self.outputs.waits_for_room and isinstance(event, Tick | Requested | Answered | Unreachable))
        if self.failure is None and not self._closed and is_heard:
            self._take(self.raft.step(event, self._steady_ms()))

    def _take(self, out: Output) -> None:
        """Carries out what the machine wants; see `outputs`."""
        self.outputs.take(out)
        self._wind()
        leader = self.raft.known_leader
        if leader is not None and leader != self._leader:
            self._leader = leader
            self.on_leader()

    def _carry_out(self, out: Output) -> None:
        """Does what one step wants done, in its order. Raises OSError; after a NoRoomError it goes on where it was."""
        if self._deciding_epoch is not None and not self.decides:
            self._revert()
        if out.store is not None:
            self.log.write_quorum_state(out.store, out.store.data_version)
        if out.install is not None:
            self._install(out.install)
        if out.truncate_to is not None:
            self._log.info("metadata log truncated", to=out.truncate_to, epoch=self.epoch)
            self.log.truncate_to(out.truncate_to)
        out.store = out.install = out.truncate_to = None
        while out.append:
            self._snapshots.new_bytes += self.log.append(out.append[0], self._node.clock.now_ms())
            del out.append[0]
        if self.links is not None:
            for send in out.send:
                self.links.send(send)
        for reply in out.reply:
            self._answers.give(reply)
        if out.piece is not None:
            self._loading.take(out.piece)
        if out.committed is not None:
            self._commit(out.committed)
        if out.is_complete:
            self._completeness.restored()

    def _wind(self) -> None:
        """Sets the timer of the machine, and syncs what was appended."""
        if self._timer is not None:
            self._timer.cancel()
        due_ms = self.raft.deadline_ms()
        if due_ms is not None and self.failure is None:
            self._timer = self._owner.later(max(0, due_ms - self._steady_ms()) / 1000, self._step, Tick())
        if self.raft.log.synced_offset < self.log.end_offset and not self.outputs:
            self._syncs.soon()

    # --- syncs and commits

    def _synced(self, end: Position) -> None:
        try:
            self._step(Synced(end))
        except Exception as defect:  # nobody may wait for ever
            self._fail(defect)
            return
        if self._snapshots.is_due and not self._replay.in_transaction:
            self._snapshots.attempt(self._owner, self.snapshot)

    def _fail(self, error: BaseException) -> None:
        """A sync failed: nobody knows what the disk holds, so nothing more may be built on it (fsyncgate).

        Nor may it on a driver that contradicts itself, which is what anything but an OSError says.
        """
        if not isinstance(error, OSError):
            self._node.defects.report(error, "the metadata quorum")
        self.failure = OSError(str(error))
        self.outputs.end()
        self._log.error("metadata log cannot be written", why=error)
        self._uncommitted.revert(self.image, ControllerError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
        if self.on_failure is not None:
            self.on_failure(f"the metadata log cannot be written: {error}")

    def _commit(self, end_offset: int) -> None:
        """All below is committed, and in the log: the machine may know of more that is not written yet."""
        self._committed = end_offset
        if self._deciding_epoch is None:
            self._apply_soon()
            return
        self._uncommitted.commit(end_offset)

    def _publish_decided(self, change: Change) -> None:
        self.image = change.after
        self._publish(change)

    def _revert(self) -> None:
        """The lead is lost. What was decided here may still be committed: the log will tell."""
        self._deciding_epoch = None
        self._replay = Replay(self.image)
        if not self._stopping:
            self._log.info("this node is no longer the active controller", epoch=self.epoch)
        self._uncommitted.revert(self.image, ControllerError(ErrorCode.NOT_CONTROLLER))
        self.on_decides()
        if self.image.offset + 1 < self._committed:  # committed, and not published yet
            self._apply_soon()

    # --- what others decided, out of the log

    def _apply_soon(self) -> None:
        if not self._applying:
            self._applying = True
            self._owner.soon(self._apply)

    def _apply(self) -> None:
        """Takes some of what is committed into the image. A leader that has taken in all of it decides from then on."""
        self._applying = False
        if self._deciding_epoch is not None or self.failure is not None:
            return
        before, end = self.image, self._committed
        try:
            if before.offset + 1 < end:
                self.log.apply(self._replay, before.offset + 1, end, APPLIED_BYTES, APPLIED_RECORDS)
                if not self._replay.is_amid_batch:
                    delta = self._replay.delta
                    self.image = self._replay.finish()
                    self._replay = self._replay.next(self.image)
                    self._publish(Change(before, self.image, delta))
            if self.image.offset + 1 < end:
                self._apply_soon()
            elif self.raft.is_active and not self.outputs and end == self.raft.log.end_offset:
                # What was appended meanwhile is a change of the voters: its commit comes here again.
                self._begin_to_decide()
        except Exception as error:  # metadata are never guessed
            self._fail(error)

    def _begin_to_decide(self) -> None:
        """This node is the active controller."""
        records = self._opening(self._replay.in_transaction)
        assert self.image.offset + 1 == self.raft.log.end_offset, "nothing was proposed in this epoch"
        self._uncommitted = self._nothing_decided()
        self._deciding_epoch = self.epoch
        self._log.info("this node is the active controller", epoch=self.epoch, offset=self.image.offset)
        if records:
            self.submit(lambda _: Decision(None, records)).add_done_callback(look_at)
        self.on_decides()

    def _publish(self, change: Change) -> None:
        for listener in self._listeners:
            try:
                listener(change.before, change.after, change.delta)
            except Exception as error:
                # The change is committed: one listener's mistake must not keep it from the others, or the reply back.
                self._node.defects.report(error, "a change of the metadata", offset=change.after.offset)

    # --- the end

    async def snapshot(self) -> None:
        """Writes a snapshot of the committed image, then deletes what is old, on workers. Raises OSError."""
        image, log = self.image, self.raft.log
        voters = self.sets.at(image.offset + 1)
        keeps_old = self._has_observers or not self.is_alone
        start = await self._snapshots.write(image, voters, log, keeps_old=keeps_old)
        if start is not None:
            replaced = self.log.take_out_before(start.offset, self._node.clock.now_ms())
            self._step(Snapshotted(Position(image.epoch, image.offset + 1), start))
            await self._node.workers.run(lambda: self.log.remove(replaced, start.offset))

    def _install(self, end: Position) -> None:
        """The leader's snapshot, which is on the disk, takes the place of the image and of the log. Raises OSError."""
        before = self.image
        content, delta = self._loading.loaded(end)
        self._log.info("metadata snapshot loaded", end_offset=end.offset, epoch=end.epoch)
        self.log.start_at(end.offset, self._node.clock.now_ms())
        self.image, self._committed = content.image, end.offset
        self._replay = Replay(self.image)
        self._snapshots.loaded(self.image, 0)
        self._publish(Change(before, self.image, delta))

    async def close(self) -> None:
        """Waits for what is under way; takes nothing more."""
        self._stopping = True
        await self._syncs.all()
        await self._snapshots.ended()
        led = self.raft.leads
        self.resign()
        if self.links is not None:
            if led:
                await self.links.finish(RESIGN_S)
            self.links.close()
        self._closed = True
        await self._syncs.all()
        self._owner.close()
        self.log.close(self._log)
        if self.lock is not None:
            self.lock.release()

    def _steady_ms(self) -> int:
        return int(self._node.clock.monotonic() * 1000)
