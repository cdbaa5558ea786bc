"""The shell around the pure quorum machine: one loop that takes events and carries out effects.

An event is a message of another node, a timer, a finished sync or a submitted decision. The machine takes it
(`Raft.step`) and returns what it wants done. That becomes a list of effects in order (`effects`), and the loop carries
them out: elections are stored, records appended and synced, messages sent, changes committed and published. What takes
a worker or the network comes back as an event.

A change of the metadata is decided by a pure function on the leader's newest image, appended, synced here and on a
majority of the voters, and with that committed; then the new image is published, and the reply leaves. Decisions go on
meanwhile, each on the image that the one before leaves; nothing of it is visible before it is committed.

What a leader decided reaches its image by the queue of decisions. Everything else that is committed, a follower's
changes and what lay in the log before this node led, reaches it by the log itself.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headrace.broker.quorum import effects
from headrace.broker.quorum.answers import Answers
from headrace.broker.quorum.codec import Codec
from headrace.broker.quorum.images import Images
from headrace.broker.quorum.log.log_sync import LogSync
from headrace.broker.quorum.log.metadata_log import NoRoomError
from headrace.broker.quorum.log.proposals import Values, opening_records, prepare
from headrace.broker.quorum.log.snapshot_loading import SnapshotLoading
from headrace.broker.quorum.log.snapshots import SnapshotPolicy, Snapshots
from headrace.broker.quorum.machine_loading import LoadedMachine
from headrace.broker.quorum.port.controller import ControllerError
from headrace.broker.quorum.progress import ReplicaProgress, observers_of, progress_of
from headrace.broker.quorum.uncommitted import Answer, Change, Publish, look_at, refuse, refuse_all
from headrace.broker.quorum.voter_addresses import VoterAddresses
from headrace.broker.quorum.voter_links import VoterLinks
from headrace.env import DiskLock, Node
from headrace.env.disk import is_passing
from headrace.env.node import settle
from headrace.machine import Decision
from headrace.metadata.delta import ImageDelta
from headrace.metadata.image import ClusterImage
from headrace.raft import events as ev
from headrace.raft.control import Voter
from headrace.raft.messages import Position, Request
from headrace.raft.peers import RaftSettings
from headrace.raft.quorum_state import QuorumState
from headrace.wire.errors import ErrorCode

if TYPE_CHECKING:
    from asyncio import Future, Task

    from headrace.client.node_security import NodeSecurity
    from headrace.env import Timer
    from headrace.env.workers import Raised

RESIGN_S: Final = 1.0
"""How long a leader that stops waits until the other voters have heard of it."""

UNCOMMITTED_MAX: Final = 10_000
"""Decisions that wait for their commit at once; one more is refused."""

ROOM_S: Final = 0.5
"""How long a node whose disk is full waits before it tries to write again."""

R = TypeVar("R")
ImageListener = Callable[[ClusterImage, ClusterImage, ImageDelta], None]


class QuorumDriver:
    """One node of the metadata quorum.

    `on_failure` is called when the log cannot be written: the owner should stop. A single voter leads from the start;
    one of several becomes a candidate and follows the elected leader; an observer follows.
    """

    def __init__(
        self,
        node: Node,
        loaded: LoadedMachine,
        *,
        policy: SnapshotPolicy,
        settings: RaftSettings,
        has_observers: bool = False,
    ) -> None:
        """`has_observers`: nodes other than voters read this node's log."""
        self.log, self.raft, self.member = loaded.log, loaded.raft, loaded.member
        self.images = Images(self.log, loaded.image, loaded.committed, self.raft.epoch if loaded.leads else None)
        self.node_id = loaded.member.key.id
        self.sets = loaded.sets
        self.addresses = VoterAddresses(self.raft.me, self.sets, self.member.bootstrap)
        self.codec = Codec(self.image.cluster_id, self.raft.me, self.addresses, self.sets)
        self.failure: Exception | None = None
        self.lock: DiskLock | None = None
        self.on_failure: Callable[[str], None] | None = None
        self.on_decides: Callable[[], None] = lambda: None
        """Called when `decides` changes, and at `start`."""
        self.on_leader: Callable[[], None] = lambda: None
        """Called when this node hears of another leader."""
        self._leader: int | None = None
        self._node = node
        self._owner = node.owner("quorum")
        self._log = node.logger("quorum")
        self._timeout_s = settings.request_timeout_ms / 1000
        self._min_insync_replicas = loaded.min_insync_replicas
        self._has_observers = has_observers
        self._listeners: list[ImageListener] = []
        self._inbox: deque[effects.DriverEvent] = deque()
        self._effects: deque[effects.Effect] = deque()
        self._is_in_loop = False
        self._is_held = False
        """Whether the first effect waits: for a worker, or for room on the disk."""
        self.waits_for_room = False
        """Whether the metadata log cannot be written: then this node takes no part in the quorum."""
        self._is_turn_due = False
        self._stopping = self._closed = False
        self._timer: Timer | None = None
        self._due_ms: int | None = None
        """When the timer is due."""
        self._log_sync = LogSync(node, self.log, self._log)
        self._syncing: Task[None] | None = None
        """The task that syncs the log; None if everything is synced."""
        self.links: VoterLinks | None = None
        self._exchanges: set[Task[None]] = set()
        self._completeness = loaded.completeness
        self._answers = Answers(node, self.log)
        self._snapshots = Snapshots(node, self.log, policy, self._log)
        self._snapshots.loaded(loaded.timestamp_ms, loaded.log_bytes)
        self._loading = SnapshotLoading(node, self.log.files, self.image.cluster_id, self._log)

    @property
    def image(self) -> ClusterImage:
        """The committed metadata."""
        return self.images.image

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
        return self.raft.leads and self.images.deciding_epoch == self.raft.epoch

    @property
    def is_current(self) -> bool:
        """Whether the image has caught up with the leader's high watermark; False until a leader has sent one."""
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

    def start(self, security: NodeSecurity | None = None) -> None:
        """Begins to exchange messages with the other voters; `security`, if given, protects the connections to them."""
        self.links = VoterLinks(
            self._node, self.codec, self.addresses, security, timeout_s=self._timeout_s, log=self._log
        )
        if self.decides:  # it votes alone, and leads since it was loaded
            self.on_decides()
        else:
            self._effects += effects.effects_of(self.raft.start(self._steady_ms()), self.raft.log.last)
            self._loop()

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
        self._take(effects.Submitted(decide, asked))
        return asked

    def _decide(self, decide: Callable[[ClusterImage], Decision[R]], asked: Future[R]) -> None:
        refusal = self._refusal()
        if refusal is not None:
            refuse(asked, refusal)
            return
        image = self.images.uncommitted.newest
        try:
            decision = decide(image)
            change: Change | None = None
            values: Values | None = None
            if decision.records:
                end, now_ms = self.raft.log.end_offset, self._node.clock.now_ms()
                change, values = prepare(image, decision.records, end, self.epoch, now_ms)
        except Exception as error:  # nothing was touched: the caller handles it
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
        self.images.uncommitted.push(self.raft.log.end_offset, change, decision, asked)
        self._turn_if_due()
        if change is None and self.raft.high_watermark >= self.raft.log.end_offset:
            self._effects.append(effects.Commit(self.raft.log.end_offset))

    def _raise_version(self, change: Change | None, level: int) -> Change | None:
        """Appends what raises kraft.version behind the records of the same decision. If the disk is full, that waits
        for room."""
        if change is not None:
            first: Future[None] = self._node.future()  # the caller hears of both
            first.add_done_callback(look_at)
            self.images.uncommitted.push(self.raft.log.end_offset, change, Decision(None), first)
        self._step(ev.RaiseVersion(level), self.raft.now)
        return None

    def _refusal(self) -> ControllerError | None:
        if self.failure is not None:
            return ControllerError(ErrorCode.KAFKA_STORAGE_ERROR, str(self.failure))
        if not self.decides:
            return ControllerError(ErrorCode.NOT_CONTROLLER)
        if self._effects:  # a change of the voters waits for room
            return ControllerError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")
        if len(self.images.uncommitted) >= UNCOMMITTED_MAX:
            return ControllerError(ErrorCode.REQUEST_TIMED_OUT, "Too many changes of the metadata wait for the disk.")
        return None

    def requested(self, message: Request) -> Future[tuple[Any, bytes]]:
        """Takes a request of another node. The future has the answer, and the batches that a fetch gets."""
        answer: Future[tuple[Any, bytes]] = self._node.future()
        if self.failure is not None or self.waits_for_room:
            why = str(self.failure or "the disk is full")
            answer.set_exception(ControllerError(ErrorCode.KAFKA_STORAGE_ERROR, why))
        else:
            self._take(ev.Requested(answer, message))
        return answer

    def resign(self) -> None:
        """Gives up the lead, if this node has it. Uncommitted entries are left to the next leader."""
        self._take(ev.Resign())

    # --- records into the log

    def _propose(self, values: Values) -> None:
        """Appends records. Raises OSError, and then nothing of them is there.

        For the machine no time passes meanwhile: the lead that the decision was made under is not lost before it is
        noted down. A leader that was too long without its followers hears of that next, from its timer.
        """
        assert not self._effects, "an active leader has stored what it is"
        base_offset, now_ms = self.raft.log.end_offset, self.raft.now
        out = self.raft.step(ev.Propose(len(values.values), values), now_ms)
        try:
            for effect in effects.effects_of(out, self.raft.log.last):
                self._carry_out(effect)
        except OSError:
            self.raft.step(ev.Refused(base_offset), now_ms)
            if self.log.end_offset > base_offset:
                self.log.truncate_to(base_offset)
            raise

    # --- the loop

    def _take(self, event: effects.DriverEvent) -> None:
        """Takes an event, after those that came before it."""
        self._inbox.append(event)
        if not self._is_in_loop:
            self._loop()

    def _loop(self) -> None:
        """Carries out effects in order, and takes the next event once there is none that can be carried out now.

        What an effect leads to (a listener that submits a decision, for one) is taken in its turn, never inside it.
        """
        self._is_in_loop = True
        try:
            while True:
                if self._effects and not self._is_held and self.failure is None:
                    self._carry_out_next()
                elif self._inbox:
                    self._handle(self._inbox.popleft())
                else:
                    break
        except BaseException:
            self._owner.soon(self._loop)  # what comes after a defect is taken all the same
            raise
        finally:
            self._is_in_loop = False
        self._set_timer()
        leader = self.raft.known_leader
        if leader is not None and leader != self._leader:
            self._leader = leader
            self.on_leader()

    def _handle(self, event: effects.DriverEvent) -> None:
        """Has the machine take an event, or does what an event of the driver's own asks for."""
        if isinstance(event, effects.Submitted):
            self._decide(event.decide, event.asked)
        elif isinstance(event, effects.Turn):
            self._turn()
        elif self.failure is None and not self._closed:
            # A node that waits for room does only its own work: it takes part again once that is done.
            if not (self.waits_for_room and isinstance(event, ev.Tick | ev.Requested | ev.Answered | ev.Unreachable)):
                self._step(event, self._steady_ms())

    def _step(self, event: ev.Event, now_ms: int) -> None:
        out = self.raft.step(event, now_ms)
        steps_down = self.images.deciding_epoch is not None and not self.decides
        self._effects += effects.effects_of(out, self.raft.log.last, steps_down=steps_down)

    def _carry_out_next(self) -> None:
        effect = self._effects[0]
        if isinstance(effect, effects.Store):
            self._store(effect.state)
            return
        self._effects.popleft()
        try:
            self._carry_out(effect)
        except NoRoomError as error:
            self._effects.appendleft(effect)
            self._wait_for_room(error)
        except Exception as error:  # a log that cannot be written, or a driver that contradicts itself
            self._fail(error)

    def _carry_out(self, effect: effects.Effect) -> None:
        """Carries out one effect. Raises OSError; after a NoRoomError it can be carried out again."""
        match effect:
            case effects.Append():
                self._snapshots.new_bytes += self.log.append(effect.entries, self._node.clock.now_ms())
            case effects.Sync():
                self._log_sync.want(effect.end)
                if self._syncing is None:
                    self._syncing = self._owner.spawn(self._sync_log())
            case ev.Send():
                self._send(effect)
            case ev.Reply():
                self._answers.give(effect)
            case effects.Commit():
                self._publish_all(self.images.commit(effect.end_offset))
            case effects.StepDown():
                self._step_down()
            case effects.Truncate():
                self._log.info("metadata log truncated", to=effect.offset, epoch=self.epoch)
                self.log.truncate_to(effect.offset)
            case effects.Install():
                self._install(effect.end)
            case ev.Piece():
                if self._loading.add(effect):
                    self._owner.spawn(self._load())
            case effects.Complete():
                self._completeness.restored()

    def _set_timer(self) -> None:
        """Sets the timer of the machine, unless it is set to that moment already."""
        is_deaf = self.waits_for_room or self._closed or self.failure is not None
        due_ms = None if is_deaf else self.raft.deadline_ms()
        if due_ms != self._due_ms:
            self._due_ms = due_ms
            if self._timer is not None:
                self._timer.cancel()
            if due_ms is not None:
                self._timer = self._owner.later(max(0, due_ms - self._steady_ms()) / 1000, self._tick)

    def _tick(self) -> None:
        self._due_ms = None
        self._take(ev.Tick())

    # --- effects that wait for the disk

    def _store(self, state: QuorumState) -> None:
        self._is_held = True
        write = self.log.write_quorum_state
        self._node.syncs.submit(lambda: write(state, state.data_version)).deliver_to(self._stored)

    def _stored(self, outcome: Raised | None) -> None:
        if outcome is None:
            self._effects.popleft()
            self._resume()
        elif isinstance(error := outcome.error, OSError) and is_passing(error):
            self._wait_for_room(error)
        else:
            self._fail(error)

    def _wait_for_room(self, error: OSError) -> None:
        self._is_held = True
        if not self.waits_for_room:
            self.waits_for_room = True
            event = "metadata log cannot be written: this node takes no part in the quorum until there is room"
            self._log.error(event, why=error)
        self._owner.later(ROOM_S, self._resume)

    def _resume(self) -> None:
        """The first effect can be tried, or was carried out."""
        self._is_held = False
        self._loop()
        if self.waits_for_room and not self._effects and self.failure is None:
            self.waits_for_room = False
            self._log.info("metadata log can be written again", end_offset=self.log.end_offset)
            self._set_timer()

    # --- syncs, commits and images

    async def _sync_log(self) -> None:
        """Syncs what was appended by the end of a turn of the event loop, as often as there is more."""
        while self._log_sync.is_wanted and self.failure is None:
            try:
                self._take(ev.Synced(await self._log_sync.run()))
            except Exception as error:  # nothing may wait for ever
                self._fail(error)
            else:
                if self._snapshots.is_due and not self.images.in_transaction:
                    self._owner.spawn(self._snapshots.attempt(self.snapshot()))
            await asyncio.sleep(0)
        self._syncing = None

    async def _all_synced(self) -> None:
        """Returns when no sync is to come or under way."""
        while self._syncing is not None:
            await asyncio.wait([self._syncing])

    def _fail(self, error: BaseException) -> None:
        """A sync failed: nobody knows what the disk holds, so nothing more may be built on it (fsyncgate).

        Nor may it on a driver that contradicts itself, which is what anything but an OSError says.
        """
        if not isinstance(error, OSError):
            self._node.defects.report(error, "the metadata quorum")
        self.failure = OSError(str(error))
        self._log.error("metadata log cannot be written", why=error)
        lost = self.images.uncommitted.revert(self.image)
        refuse_all(lost, ControllerError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
        if self.on_failure is not None:
            self.on_failure(f"the metadata log cannot be written: {error}")

    def _publish_all(self, settled: Sequence[Publish | Answer]) -> None:
        for effect in settled:
            if isinstance(effect, Publish):
                self.images.image = effect.change.after
                self._publish(effect.change)
            else:
                settle(effect.asked, effect.reply)
        self._turn_if_due()

    def _turn(self) -> None:
        """Continues the work that is done in parts; of decisions of many pieces one piece, however many there are."""
        self._is_turn_due = False
        try:
            settled = self.images.more() if self.failure is None else []
        except Exception as error:  # metadata are never guessed
            self._fail(error)
            return
        self._publish_all(settled)
        if self.images.uncommitted.has_next_piece:
            self._decide(*self.images.uncommitted.next_piece())
        elif self._may_decide():
            self._begin_to_decide()
        self._turn_if_due()

    def _turn_if_due(self) -> None:
        if not self._is_turn_due and (self.images.has_more or self.images.uncommitted.has_next_piece):
            self._is_turn_due = True
            self._owner.soon(self._take, effects.Turn())

    def _step_down(self) -> None:
        if not self._stopping:
            self._log.info("this node is no longer the active controller", epoch=self.epoch)
        refuse_all(self.images.step_down(), ControllerError(ErrorCode.NOT_CONTROLLER))
        self.on_decides()
        self._turn_if_due()

    def _may_decide(self) -> bool:
        """Whether this node leads and has applied everything; an entry that is not committed yet is a change of the
        voters, and its commit leads here again."""
        end = self.raft.log.end_offset
        is_applied = self.image.offset + 1 == self.images.committed == end
        return is_applied and self.raft.is_active and not self.decides and not self._effects and self.failure is None

    def _begin_to_decide(self) -> None:
        """This node is the active controller."""
        stored = self.log.read_bootstrap() if self.image.is_empty else None
        records = opening_records(self.image, stored, self.images.in_transaction, self._min_insync_replicas)
        assert self.image.offset + 1 == self.raft.log.end_offset, "nothing was proposed in this epoch"
        self.images.begin_to_decide(self.epoch)
        self._log.info("this node is the active controller", epoch=self.epoch, offset=self.image.offset)
        if records:
            opened: Future[None] = self._node.future()
            opened.add_done_callback(look_at)
            self._decide(lambda _: Decision(None, records), opened)  # before anything that was submitted meanwhile
        self.on_decides()

    def _publish(self, change: Change) -> None:
        for listener in self._listeners:
            try:
                listener(change.before, change.after, change.delta)
            except Exception as error:
                # The change is committed: one listener's mistake must not keep it from the others, or the reply back.
                self._node.defects.report(error, "a change of the metadata", offset=change.after.offset)

    # --- the other voters

    def _send(self, send: ev.Send) -> None:
        if self.links is not None:
            task = self._owner.spawn(self._exchange(self.links, send))
            self._exchanges.add(task)
            task.add_done_callback(self._exchanges.discard)

    async def _exchange(self, links: VoterLinks, send: ev.Send) -> None:
        event = await links.exchange(send)
        if event is not None:
            self._take(event)

    # --- snapshots

    async def snapshot(self) -> None:
        """Writes a snapshot of the committed image, then deletes old ones, on workers. Raises OSError."""
        image, log = self.image, self.raft.log
        voters = self.sets.at(image.offset + 1)
        keeps_old = self._has_observers or not self.is_alone
        start = await self._snapshots.write(image, voters, log, keeps_old=keeps_old)
        if start is not None:
            replaced = self.log.take_out_before(start.offset, self._node.clock.now_ms())
            self._take(ev.Snapshotted(Position(image.epoch, image.offset + 1), start))
            await self._node.workers.run(lambda: self.log.remove(replaced, start.offset))

    def _install(self, end: Position) -> None:
        """Replaces the image and the log by the leader's snapshot, which is on the disk. Raises OSError."""
        before = self.image
        content, delta = self._loading.take(end, self.image)
        self._log.info("metadata snapshot loaded", end_offset=end.offset, epoch=end.epoch)
        self.log.start_at(end.offset, self._node.clock.now_ms())
        self.images.install(content.image, end.offset)
        self._snapshots.loaded(self.image.timestamp_ms, 0)
        self._publish(Change(before, self.image, delta))

    async def _load(self) -> None:
        while self._loading.continues():
            event = await self._loading.store()
            if isinstance(event, ev.SnapshotLoaded):
                while await self._loading.compare(self.image):
                    pass  # the rest of the log may have been applied meanwhile
            if not self._loading.has_pieces:  # else it began again meanwhile
                self._take(event)

    # --- the end

    async def close(self) -> None:
        """Waits for the work in progress; accepts nothing more."""
        self._stopping = True
        await self._all_synced()
        await self._snapshots.ended()
        led = self.raft.leads
        self.resign()
        if self.links is not None:
            if led and self._exchanges:
                await asyncio.wait(self._exchanges, timeout=RESIGN_S)
            self.links.close()
        self._closed = True
        await self._all_synced()
        self._owner.close()
        self.log.close(self._log)
        if self.lock is not None:
            self.lock.release()

    def _steady_ms(self) -> int:
        return int(self._node.clock.monotonic() * 1000)
