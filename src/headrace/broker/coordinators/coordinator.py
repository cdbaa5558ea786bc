"""The group coordinator's runtime: one `GroupShard` a partition of `__consumer_offsets` that this broker leads.

It hands requests to the shard, appends the records that the shard decides, applies them, releases answers once they are
committed, and wakes the shards when their timers are due. Partitions are loaded from their logs piece by piece, and
workers read and decode, so that the loop never stalls; until then their groups are answered
COORDINATOR_LOAD_IN_PROGRESS.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from headrace.broker.net.answers import Pending
from headrace.groups.partitions import partition_of
from headrace.wire.batch import CorruptBatch
from headrace.wire.errors import ErrorCode
from headrace.wire.primitives import DecodeError

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.coordinators.coordinator_partition import CoordinatorPartition
    from headrace.env import Timer
    from headrace.groups.outcome import Outcome
    from headrace.groups.records import Record
    from headrace.log.log import Log
    from headrace.metadata.delta import ImageDelta
    from headrace.metadata.image import ClusterImage

OFFSETS_TOPIC: Final = "__consumer_offsets"

_CLOCK_STEP_MS: Final = 1_000
"""A wall clock that moves this much against the steady one was set: timers move with it, sessions do not end."""

_log = logging.getLogger("headrace.groups")

_ANSWERED_AS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""What a client hears when its records could not be appended for the reason on the left, as in Kafka since 4.0: of too
large a commit too, which older ones called INVALID_COMMIT_OFFSET_SIZE."""

ErrorReply = Callable[[ErrorCode], Any]


class _Append:
    """Records on their way: how it ended, if that was known before the call returned."""

    __slots__ = ("coordinator", "error", "on_done", "part", "returned", "sequence")

    def __init__(
        self,
        coordinator: GroupCoordinator,
        part: CoordinatorPartition,
        sequence: int,
        on_done: Callable[[ErrorCode], None],
    ) -> None:
        self.coordinator = coordinator
        self.part = part
        self.sequence = sequence
        self.on_done = on_done
        self.returned = False
        self.error: ErrorCode | None = None

    def __call__(self, error: ErrorCode, base_offset: int) -> None:
        """What `append_internal` calls, before or after it returns."""
        if self.returned:
            self.coordinator.append_ended(self, error)
        else:
            self.error = error


def _ignore(error: ErrorCode) -> None:
    """An append whose end nobody waits for."""


class GroupCoordinator:
    """All coordinator partitions of one broker. `start` after the replica manager; `stop` before it."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.partitions: dict[int, CoordinatorPartition] = {}
        self._clock = broker.node.clock
        self._partition_count = 0
        self._partition_of: dict[str, int] = {}
        self._owner = broker.node.owner("coordinators")
        self._timer: Timer | None = None
        self._wake_ms = 0
        self._clock_base_ms = self._clock.now_ms() - int(self._clock.monotonic() * 1000)
        self._stopped = True
        self._tasks: set[asyncio.Task[None]] = set()
        self._records = broker.metrics.counter("groups.records_appended")
        self._refused = broker.metrics.counter("groups.appends_refused")
        broker.metrics.gauge("groups.count", self.group_count)

    def group_count(self) -> int:
        """Groups of all kinds that this broker keeps."""
        return sum(part.shard.group_count for part in self.partitions.values())

    # --- life --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Takes up the partitions that this broker leads and follows the cluster image from here on."""
        self._stopped = False
        self._take_up(self.broker.image)
        self.broker.quorum.on_image(self._image_changed)

    async def stop(self) -> None:
        """Answers whoever still waits with NOT_COORDINATOR and stops all timers and loads."""
        self._stopped = True
        tasks = [part.load_task for part in self.partitions.values() if part.load_task is not None]
        for task in self._tasks:
            task.cancel()
            tasks.append(task)
        for index in list(self.partitions):
            self._give_up(index)
        if self._timer is not None:
            self._timer.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def loaded(self) -> None:
        """Returns once no partition is loading."""
        while tasks := [part.load_task for part in self.partitions.values() if part.load_task is not None]:
            await asyncio.wait(tasks)

    def now_ms(self) -> int:
        """The wall clock; when somebody sets it, all deadlines move along."""
        wall_ms = self._clock.now_ms()
        step_ms = wall_ms - int(self._clock.monotonic() * 1000) - self._clock_base_ms
        if abs(step_ms) > _CLOCK_STEP_MS:
            self._clock_base_ms += step_ms
            for part in self.partitions.values():
                part.shard.clock_stepped(step_ms)
        return wall_ms

    # --- who coordinates what ----------------------------------------------------------------------------------------

    def partition_for(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that a group belongs to."""
        index = self._partition_of.get(group_id)
        if index is None:
            if len(self._partition_of) >= 100_000:
                self._partition_of.clear()
            index = self._partition_of[group_id] = partition_of(group_id, self.partition_count)
        return index

    @property
    def partition_count(self) -> int:
        """Partitions of `__consumer_offsets`: as it is, or as it would be created."""
        if self._partition_count == 0:
            topic = self.broker.image.topics.by_name(OFFSETS_TOPIC)
            if topic is None:
                return self.broker.config.integer("offsets.topic.num.partitions")
            self._partition_count = len(topic.partitions)
        return self._partition_count

    def coordinator_of(self, group_id: str) -> CoordinatorPartition | ErrorCode:
        """The partition that serves a group, or the error that says why this broker does not serve it now."""
        part = self.partitions.get(self.partition_for(group_id))
        if part is None:
            return ErrorCode.NOT_COORDINATOR
        return part if part.is_active else part.error

    # --- running decisions -------------------------------------------------------------------------------------------

    def run(self, part: CoordinatorPartition, out: Outcome, on_error: ErrorReply) -> Any:
        """Does what a decision with a `reply` says; returns it, or a `Pending` until its records are committed.

        `on_error` makes the reply for records that could not be appended.
        """
        pending: Pending[Any] | None = None

        def late(error: ErrorCode) -> None:
            assert pending is not None
            pending.resolve(out.reply if error is ErrorCode.NONE else on_error(error))
            self._settle(part, out, error)

        error = self._append(part, out, late) if out.records else ErrorCode.NONE
        if error is None:
            pending = Pending()
            return pending
        reply = out.reply if error is ErrorCode.NONE else on_error(error)
        self._settle(part, out, error)
        return reply

    def run_waiting(
        self, part: CoordinatorPartition, out: Outcome, waiter: Pending[Any], on_error: ErrorReply
    ) -> Pending[Any]:
        """Does what a decision says whose machine was given `waiter`, which is answered now or by a later decision."""

        def finish(error: ErrorCode) -> None:
            if out.reply is not None:
                waiter.resolve(out.reply if error is ErrorCode.NONE else on_error(error))
            self._settle(part, out, error)

        error = self._append(part, out, finish) if out.records else ErrorCode.NONE
        if error is not None:
            finish(error)
        return waiter

    def _run_alone(self, part: CoordinatorPartition, out: Outcome) -> None:
        """Does what a decision says that nobody asked for: a timer's, or what follows a commit."""

        def finish(error: ErrorCode) -> None:
            self._settle(part, out, error)

        error = self._append(part, out, finish) if out.records else ErrorCode.NONE
        if error is not None:
            finish(error)

    def _settle(self, part: CoordinatorPartition, out: Outcome, error: ErrorCode) -> None:
        """The records are committed, or never will be: everything else that the decision says."""
        for note in out.notes:
            _log.info("%s", note)
        for waiter, response in out.released:
            waiter.resolve(response)
        if out.then is not None:
            self._run_alone(part, out.then(error, self.now_ms()))
        self._arm(part.shard.deadline_ms())

    def _append(
        self, part: CoordinatorPartition, out: Outcome, on_done: Callable[[ErrorCode], None]
    ) -> ErrorCode | None:
        """Appends and applies. Returns how it ended if that is known at once; else `on_done` hears of it later.

        A decision goes out as one append, which has effect as a whole or not at all. One that may take effect in parts
        ends where a part is refused.
        """
        replica = self.broker.replicas.find(OFFSETS_TOPIC, part.index)
        if isinstance(replica, ErrorCode):
            self._refused.value += 1
            return _ANSWERED_AS.get(replica, replica)
        appends = part.appends(out, self.now_ms(), replica.log.config.max_message_bytes)
        error: ErrorCode | None = ErrorCode.NONE
        for number, (records, batches) in enumerate(appends, 1):
            error = self._append_records(part, records, batches, on_done if number == len(appends) else _ignore)
            if error not in (None, ErrorCode.NONE):
                break
        return error

    def _append_records(
        self,
        part: CoordinatorPartition,
        records: Sequence[Record],
        batches: bytes,
        on_done: Callable[[ErrorCode], None],
    ) -> ErrorCode | None:
        part.sequence += 1
        append = _Append(self, part, part.sequence, on_done)
        self.broker.replicas.append_internal(OFFSETS_TOPIC, part.index, batches, append)
        append.returned = True
        error = append.error
        if error is not None and error is not ErrorCode.NONE:
            self._refused.value += 1
            return _ANSWERED_AS.get(error, error)
        if error is ErrorCode.NONE:
            part.shard.committed(append.sequence)
        self._records.value += len(records)
        for record in records:
            part.shard.apply(record, append.sequence)
        return error

    def append_ended(self, append: _Append, error: ErrorCode) -> None:
        """An append that was under way is committed, or never will be."""
        part = append.part
        if error is ErrorCode.NONE:
            part.shard.committed(append.sequence)
        elif self.partitions.get(part.index) is part:
            # What was applied is not in the log, as far as anybody knows: only the log can tell.
            _log.error("group coordinator %d loads again: records were not committed: %s", part.index, error.name)
            self._give_up(part.index)
            self._take_over(part.index, part.leader_epoch)
        append.on_done(_ANSWERED_AS.get(error, error))

    # --- timers ------------------------------------------------------------------------------------------------------

    def _arm(self, deadline_ms: int | None) -> None:
        if deadline_ms is None or self._stopped or (self._timer is not None and self._wake_ms <= deadline_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._wake_ms = deadline_ms
        delay = max(0, deadline_ms - self.now_ms()) / 1000
        self._timer = self._owner.later(delay, self._wake)

    def _wake(self) -> None:
        self._timer = None
        now_ms = self.now_ms()
        for part in list(self.partitions.values()):
            if not part.is_active:
                continue
            while (out := part.shard.due(now_ms)) is not None:
                self._run_alone(part, out)
        for part in self.partitions.values():
            if part.is_active:
                self._arm(part.shard.deadline_ms())

    # --- taking up and giving up partitions --------------------------------------------------------------------------

    def _image_changed(self, old: ClusterImage, new: ClusterImage, delta: ImageDelta) -> None:
        if self._stopped:
            return
        if new.topics.by_name(OFFSETS_TOPIC) is not old.topics.by_name(OFFSETS_TOPIC):
            self._take_up(new)
        gone = {topic.name: topic.id for topic in delta.deleted_topics.values()}
        if gone and self.partitions:
            task = self._owner.spawn(self._forget(gone))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _forget(self, gone: Mapping[str, bytes]) -> None:
        """Removes the offsets of deleted topics, a partition at a time: it looks at every offset."""
        for index in list(self.partitions):
            part = self.partitions.get(index)
            if part is not None and part.is_active:
                self._run_alone(part, part.shard.forget_topics(gone, self.broker.image.topics.topics_by_name))
            await asyncio.sleep(0)

    def _take_up(self, image: ClusterImage) -> None:
        """Serves exactly the partitions that the image says this broker leads."""
        topic = image.topics.by_name(OFFSETS_TOPIC)
        count = len(topic.partitions) if topic is not None else 0
        if count != self._partition_count:
            self._partition_count = count
            self._partition_of.clear()
        led = {}
        if topic is not None:
            led = {p.index: p.leader_epoch for p in topic.partitions if p.leader == self.broker.node_id}
        for index, part in list(self.partitions.items()):
            if led.get(index) != part.leader_epoch:
                self._give_up(index)
        for index, leader_epoch in led.items():
            if index not in self.partitions:
                self._take_over(index, leader_epoch)

    def _give_up(self, index: int) -> None:
        part = self.partitions.pop(index)
        if part.load_task is not None:
            part.load_task.cancel()
        if part.is_active:
            self._settle(part, part.shard.unload(self.now_ms()), ErrorCode.NONE)

    def _take_over(self, index: int, leader_epoch: int) -> None:
        from headrace.broker.coordinators.coordinator_partition import CoordinatorPartition, LoadState

        part = CoordinatorPartition(index, leader_epoch, self.broker.config, self.broker.node.entropy, self.group_count)
        self.partitions[index] = part
        replica = self.broker.replicas.find(OFFSETS_TOPIC, index)
        if isinstance(replica, ErrorCode):
            _log.error("%s-%d is not here, its groups are not served: %s", OFFSETS_TOPIC, index, replica.name)
            part.enter(LoadState.FAILED)
        elif replica.log.end_offset == replica.log.log_start_offset:
            part.enter(LoadState.ACTIVE)
            self._loaded(part)
        else:
            part.load_task = self._owner.spawn(self._load(part, replica.log))

    async def _load(self, part: CoordinatorPartition, log: Log) -> None:
        from headrace.broker.coordinators.coordinator_partition import LoadState

        try:
            records = await part.load(log, self.broker.node.workers)
        except Exception as error:
            # Whatever it was, the partition must not be "loading" for ever; what nobody expected shows its trace.
            expected = isinstance(error, (OSError, CorruptBatch, DecodeError))
            _log.error(
                "%s-%d cannot be loaded, its groups are not served: %s",
                OFFSETS_TOPIC,
                part.index,
                error,
                exc_info=None if expected else error,
            )
            part.enter(LoadState.FAILED)
            return
        finally:
            part.load_task = None
        _log.info("group coordinator %d is loaded: %d records", part.index, records)
        part.enter(LoadState.ACTIVE)
        self._loaded(part)

    def _loaded(self, part: CoordinatorPartition) -> None:
        self._run_alone(part, part.shard.loaded(self.now_ms()))
        self._run_alone(part, part.shard.forget_missing(self.broker.image.topics.topics_by_id))
