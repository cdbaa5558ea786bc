"""The replicas that this broker holds, each led or followed as the cluster's image says.

Other packages use it to find replicas by name or id, to append, and to report disk failures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from headrace.broker.partitions.appending import Acknowledgement, Appender
from headrace.broker.partitions.epoch_starts import EpochStarts
from headrace.broker.partitions.failing import Failures
from headrace.broker.partitions.fetchers import Fetchers
from headrace.broker.partitions.flusher import Flusher
from headrace.broker.partitions.following import Following
from headrace.broker.partitions.isr_changes import IsrChanges, no_controller
from headrace.broker.partitions.opening import OPENED_AT_ONCE, LogElsewhereError, Opener, Plan
from headrace.broker.partitions.record_deletions import RecordDeletions
from headrace.broker.partitions.refused_batches import RefusedBatches
from headrace.broker.partitions.replica import Key, Replica
from headrace.broker.partitions.replica_table import ReplicaTable
from headrace.broker.partitions.throttles import Throttles
from headrace.broker.telemetry.pace import PacedLines
from headrace.log.filenames import directory_name
from headrace.log.manager import LogDirFailed
from headrace.log.moves import remove_strange_copies
from headrace.log.recovery import LogDamaged
from headrace.log.writer import behind_prefix
from headrace.metadata.image import NO_LEADER
from headrace.replicas.partition import PartitionState
from headrace.wire.batch import BATCH_OVERHEAD
from headrace.wire.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.broker.partitions.directory_assignment import DirectoryAssignment
    from headrace.broker.partitions.isr_changes import Ask
    from headrace.broker.partitions.ports import BrokerState
    from headrace.broker.telemetry.metrics import Registry
    from headrace.config import BrokerConfig
    from headrace.env import Node
    from headrace.log.log import Log
    from headrace.log.manager import LogManager
    from headrace.log.producers import Origin
    from headrace.metadata.delta import ImageDelta
    from headrace.metadata.image import ClusterImage, Partition, Topic
    from headrace.wire.primitives import Buffer

TRANSACTIONS_TOPIC: Final = "__transaction_state"
"""Topic with the state of transactions."""

ImageListener = Callable[["ClusterImage", "ClusterImage", "ImageDelta"], None]


class ReplicaManager:
    """The replicas of one broker. `on_opened` is called with each replica whose log was opened."""

    def __init__(
        self,
        node: Node,
        config: BrokerConfig,
        metrics: Registry,
        logs: LogManager,
        broker: BrokerState,
        *,
        cannot_go_on: Callable[[str], None],
        alter_partitions: Ask = no_controller,
    ) -> None:
        """`config` has the settings at the start. `cannot_go_on` is called with the reason why the broker has to stop;
        `alter_partitions` asks the active controller for changes of in-sync sets."""
        self.node_id = config.node_id
        self.on_opened: Callable[[Replica], None] = lambda _: None
        self._led_listeners: dict[str, Callable[[int], None]] = {}
        self._node = node
        self._log = node.logger("partitions")
        self._removals = PacedLines(self._log, node.clock.monotonic)
        self._logs = logs
        self._broker = broker
        self._cannot_go_on = cannot_go_on
        self._assignments: DirectoryAssignment | None = None
        self._stopped = False
        self._gated = config.acks_flush == "before-reply"
        self._lag_max_ms = config.replica_lag_time_max_ms
        self._table = table = ReplicaTable()
        self.by_name = table.by_name
        self.by_id = table.by_id
        self.offline = table.offline
        self.failures = failures = Failures(
            node, table, logs, metrics, gone=self._gone, lost=self._lost, only_online=self._only_online
        )
        self._opener = Opener(node, logs, metrics, broker, opened=self._opened, refused=self._refused)
        self._epoch_starts = EpochStarts(node.workers, failures.failed)
        self.flusher = Flusher(node.syncs, metrics.counter("log.flushes"), failures.failed, node.disk.write_pressure)
        self.appender = Appender(node, metrics, self.flusher, self._epoch_starts, failures)
        self._refused_batches = RefusedBatches(node.clock)
        self.deletions = RecordDeletions(node)
        self._isr_changes = IsrChanges(
            node, config, metrics, table.by_name.values, ask=alter_partitions, broker_epoch=lambda: broker.epoch
        )
        self._may_join: Mapping[int, int] = {}
        self.throttles = Throttles(node.clock, self.node_id, lambda: broker.config)
        following = Following(node, logs, self.flusher, failures, metrics, self._log, released=self._released)
        self._fetchers = Fetchers(node, config, metrics, following, self.throttles, broker)
        self.lost_leaders = self._fetchers.lost_leaders
        self._held_back: set[Key] = set()
        """Replicas whose role change waits for a worker that uses their logs."""
        self._elsewhere: set[Key] = set()
        """Partitions in `offline` that were refused because their log is in a directory that this broker does not
        have."""
        metrics.gauge("log.producers_wait", lambda: int(self.flusher.behind))
        metrics.gauge("replicas.online", lambda: len(table.by_name))
        metrics.gauge("replicas.offline", lambda: len(table.offline) + len(self._opener.put_off))

    # --- following the image

    async def start(
        self,
        on_image: Callable[[ImageListener], None],
        directory_ids: Mapping[str, bytes],
        assignments: DirectoryAssignment,
        recovery_threads: int,
    ) -> None:
        """Takes over all partitions of the image, and follows its changes (`on_image` registers for them).

        After a crash every log is recovered first, on `recovery_threads` workers for each directory. After a clean stop
        logs are opened on request, and the rest in the background.
        """
        logs = self._logs
        self._assignments = assignments
        for key in logs.found():
            if not self._is_ours(key):
                logs.mark_stray(*key)
        remove_strange_copies(logs, self._is_ours)
        logs.watch_high_watermarks(self._high_watermark)
        logs.retention.when_moved(self._begins_later)
        if not logs.was_clean:
            await self._opener.recover([key for key in logs.found() if self._is_ours(key)], recovery_threads)
        # In one step: in a cluster the metadata change while logs are recovered.
        image = self._broker.image
        self._fetchers.settings_changed()
        for topic in image.topics:
            self._follow(topic, None)
        self._brokers_are(image)
        on_image(self._image_changed)
        self._opener.start(directory_ids)
        self._isr_changes.start()

    def _is_ours(self, key: Key) -> bool:
        """Returns whether this broker is to have a replica, also if it has no leader now (as after a clean stop)."""
        assigned = self._broker.image.topics.partition(*key)
        return assigned is not None and self.node_id in assigned.replicas

    def _high_watermark(self, key: Key) -> int | None:
        """Returns the high watermark of an open log for checkpoints and retention; the last known one if it is not in
        use."""
        replica = self._table.held(key)
        if replica is not None:
            return replica.high_watermark
        opened = self._logs.get(*key)
        return None if opened is None else self._logs.directory_of(opened).high_watermarks.get(key, 0)

    def _begins_later(self, log: Log) -> None:
        """Updates the replica of a log whose start retention has moved."""
        replica = self._table.held(log.topic_partition)
        if replica is not None and replica.log is log:
            replica.begins_later()

    def _brokers_are(self, image: ClusterImage) -> None:
        """Updates in every replica which brokers may join its in-sync set."""
        brokers = image.brokers.values()
        self._may_join = {each.id: each.epoch for each in brokers if not (each.fenced or each.in_controlled_shutdown)}
        for replica in self._table:
            replica.state.brokers_are(self._may_join)
        self.deletions.look_at_all()

    def _image_changed(self, _: ClusterImage, new: ClusterImage, delta: ImageDelta) -> None:
        if self._stopped:
            return  # it leads nothing, even if the metadata say so
        if delta.changed_brokers:
            self._brokers_are(new)
            self._fetchers.brokers_changed()
        if delta.changed_configs:
            self._fetchers.settings_changed()
        for topic in delta.deleted_topics.values():
            for partition in topic.partitions:
                key = (topic.name, partition.index)
                self._drop(key)
                self._opener.delete(key)
        expected: list[Key] = []
        for topic_id, changes in delta.topics.items():
            changed = new.topics.by_id(topic_id)
            if changed is not None:
                expected += self._follow(changed, changes.changed)
        self._opener.open_now(expected)
        if len(expected) <= OPENED_AT_ONCE:
            for key in expected:
                if key in self.by_name:
                    self._epoch_starts.add_new(self.by_name[key])

    def _follow(self, topic: Topic, changed: set[int] | None) -> list[Key]:
        """Leads, follows or drops the changed partitions of a topic; returns those that are newly expected to be
        opened."""
        expected: list[Key] = []
        for partition in topic.partitions:
            if changed is not None and partition.index not in changed:
                continue
            key = (topic.name, partition.index)
            replica = self._table.held(key)
            if self.node_id not in partition.replicas:
                self._remove(key, replica)
            elif replica is not None:
                self._take_role(replica, partition)
            elif partition.leader == NO_LEADER:
                self._opener.forget(key)  # there is no leader to follow
            elif self._may_open(key, partition) and self._opener.expect(key, topic):
                expected.append(key)
        return expected

    def _may_open(self, key: Key, partition: Partition) -> bool:
        """Returns whether a partition may get a replica: not if its log failed or, if it was refused for its directory,
        while the metadata still name a directory that this broker does not have."""
        if key in self._elsewhere and not self._opener.lies_elsewhere(key, partition):
            self._elsewhere.discard(key)
            del self.offline[key]
        return key not in self.offline

    def _take_role(self, replica: Replica, partition: Partition) -> None:
        """Leads or follows, as the metadata say."""
        if replica.is_held:
            self._held_back.add(replica.key)
        elif partition.leader == self.node_id:
            self._fetchers.forget(replica)
            self._lead(replica, partition)
        else:
            self._table.rest(replica)
            replica.become_follower(partition)
            self.deletions.look(replica)
            self._epoch_starts.forget(replica)
            self._fetchers.follow(replica)

    def _released(self, replica: Replica) -> None:
        key = replica.key
        if key not in self._held_back:
            return
        self._held_back.discard(key)
        partition = self._broker.image.topics.partition(*key)
        if partition is not None and self._table.held(key) is replica and not self._stopped:
            self._take_role(replica, partition)

    def _lead(self, replica: Replica, partition: Partition) -> None:
        self._table.serve(replica)
        places = ((replica.topic, replica.index), (replica.topic_id, replica.index))
        replica.log.producers.refused([behind_prefix(each) for each in self._refused_batches.take(*places)])
        if replica.become_leader(partition):
            self._epoch_starts.add(replica)
        self.deletions.look(replica)
        if replica.topic in self._led_listeners:
            self._led_listeners[replica.topic](replica.index)

    def _remove(self, key: Key, replica: Replica | None) -> None:
        """Drops a partition that was reassigned to other brokers."""
        if replica is None and key not in self._opener.unopened and not self._logs.has(*key):
            return
        self._removals.info(key[0], "replica is removed from this broker", partition=directory_name(*key))
        self._drop(key, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._opener.delete(key)

    def _drop(self, key: Key, error: ErrorCode = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) -> None:
        """Drops a partition that was deleted, or is no longer assigned to this broker."""
        self._opener.forget(key)
        self.offline.pop(key, None)
        self._elsewhere.discard(key)
        replica = self._table.take_out(key)
        if replica is not None:
            replica.become_offline(error)
            self._gone(replica)

    def _gone(self, replica: Replica) -> None:
        self.flusher.forget(replica)
        self.deletions.look(replica)
        self._epoch_starts.forget(replica)
        self._fetchers.forget(replica)
        self._held_back.discard(replica.key)

    # --- opened, or not

    def _opened(self, plan: Plan, opened: Log) -> None:
        """Leads or follows a partition whose log was opened."""
        key, topic = plan.key, plan.topic
        assert self._assignments is not None, "logs are opened after the start"
        self._assignments.note(opened)
        undecided = opened.producers.first_undecided_offset
        if undecided is not None and self._broker.image.topics.by_name(TRANSACTIONS_TOPIC) is None:
            event = "an open transaction without a coordinator keeps read_committed back"
            self._log.error(event, partition=opened.name, offset=undecided)
        known = self._logs.directory_of(opened).high_watermarks.get(key, 0)
        committed = min(max(known, opened.log_start_offset), opened.end_offset)
        unstable = opened.producers.unstable
        state = PartitionState(
            self.node_id,
            committed,
            unstable=unstable,
            log_start=opened.log_start_offset,
            lag_max_ms=self._lag_max_ms,
        )
        state.brokers_are(self._may_join)
        replica = Replica(topic.name, key[1], topic.id, opened, state, self._node.clock, self._gated)
        self._take_role(replica, self._broker.image.topics.partition(*key) or plan.partition)
        if self._gated and opened.flushing.flushed_offset < opened.end_offset:
            self.flusher.request(replica)
        self.on_opened(replica)

    def _refused(self, key: Key, error: Exception) -> None:
        """Marks a partition as offline until the next start or, if its log is elsewhere, until its metadata change."""
        self.offline[key] = ErrorCode.KAFKA_STORAGE_ERROR
        if isinstance(error, LogElsewhereError):
            self._elsewhere.add(key)
            self._log.error("partition is offline", partition=directory_name(*key), why=error)
            return
        self._log.error("log cannot be opened", partition=directory_name(*key), why=error)
        if isinstance(error, LogDirFailed):
            self.failures.directory_failed(error.directory, error)
        elif isinstance(error, FileNotFoundError):
            self._tell_lost(key)
            for home in self._logs.online():
                if key in home.found:
                    self.failures.suspect(home.path)
        elif not isinstance(error, (OSError, LogDamaged)):
            self._node.defects.report(error, "the opening of a log", topic=key[0], partition=key[1])

    def moved(self, replica: Replica, log: Log) -> None:
        """Replaces the log of a replica that was moved to another directory."""
        assert self._assignments is not None, "logs are moved after the start"
        if replica.lies_in(log) or replica in self._epoch_starts:
            self._epoch_starts.add(replica)
        self._assignments.note(log)

    def _lost(self, log: Log) -> None:
        """Reports a log that lacks files, whose replica is offline."""
        self._tell_lost(log.topic_partition)

    def _tell_lost(self, key: Key) -> None:
        partition = self._broker.image.topics.partition(*key)
        topic = self._broker.image.topics.by_name(key[0])
        others = set() if partition is None else {*partition.isr} - {self.node_id}
        if self._assignments is not None and topic is not None and others:
            self._assignments.lost(topic.id, key[1])
        # Else nobody else has all of it: it stays this broker's, and leads again after its next start.

    def _only_online(self, paths: list[str]) -> None:
        if not paths:
            self._cannot_go_on("every log directory failed")
        elif self._assignments is not None:
            self._assignments.failed(paths)

    # --- for the other rooms

    def on_led(self, topic: str, listener: Callable[[int], None]) -> None:
        """Calls `listener` with the index of each partition of a topic that this broker comes to lead, or leads on with
        new metadata; one listener per topic."""
        assert topic not in self._led_listeners
        self._led_listeners[topic] = listener

    def find(self, topic: str, index: int) -> Replica | ErrorCode:
        """Returns the online replica of a partition that this broker leads, or the error for the client.

        A caller that can wait calls `when_ready` first: this broker does not lead a partition whose log is not open.
        """
        key = (topic, index)
        replica = self.by_name.get(key)
        if replica is None:
            return self._why_not(key)
        return replica if replica.error is ErrorCode.NONE else replica.error

    def find_held(self, topic: str, index: int) -> Replica | ErrorCode:
        """Returns the online replica of a partition that this broker leads or follows, or the error for the client."""
        return self._table.held((topic, index)) or self._why_not((topic, index))

    def held(self, key: Key) -> Replica | None:
        """Returns the online replica of a partition, led or not."""
        return self._table.held(key)

    def fetched(self, replica: Replica, node_id: int, broker_epoch: int, offset: int, log_start: int) -> ErrorCode:
        """Handles a follower's fetch at `offset` from a led replica: it has everything from `log_start` (-1: not
        reported) to there. Returns an error or NONE."""
        fetched = replica.fetched(node_id, broker_epoch, offset, log_start)
        self.deletions.look(replica)
        if fetched.alter is not None:
            self._isr_changes.wish(replica, fetched.alter)
        return fetched.error

    def has_restarted(self, node_id: int, broker_epoch: int) -> bool:
        """Returns whether a broker has registered again since it had this broker epoch (-1: not reported)."""
        return -1 < broker_epoch < self._may_join.get(node_id, -1)

    def _why_not(self, key: Key) -> ErrorCode:
        if key in self._opener.put_off:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if key in self.offline:
            return self.offline[key]
        if self._broker.image.topics.partition(*key) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def all_ready(self, for_appends: bool) -> bool:
        """Returns whether every partition is ready: its log is open, and (`for_appends`) it takes appends."""
        return not self._opener.unopened and not (for_appends and self._epoch_starts)

    def is_ready(self, key: Key, *, for_appends: bool) -> bool:
        """Returns whether `find` has its final answer and (`for_appends`) the replica takes appends, if it ever
        will."""
        if key in self._opener.unopened:
            return False
        replica = self.by_name.get(key)
        return not for_appends or replica is None or replica not in self._epoch_starts

    def when_ready(self, key: Key, callback: Callable[[], None], *, for_appends: bool = False) -> None:
        """Calls back once `is_ready`, at once if it is; speeds up what it waits for."""
        replica = self.by_name.get(key)
        if key in self._opener.unopened:
            self._opener.when_open(key, lambda: self.when_ready(key, callback, for_appends=for_appends))
        elif for_appends and replica is not None and replica in self._epoch_starts:
            self._epoch_starts.when_written(replica, callback)
        else:
            callback()

    def come_again(self, topic: str, topic_id: bytes, index: int, batch: Buffer) -> None:
        """Notes that a client has to resend a batch: while this broker leads, it takes no later batch of an idempotent
        producer before it. `topic` is empty if the topic id is unknown."""
        replica = self.by_name.get((topic, index))
        if replica is None or replica.error:
            self._refused_batches.note((topic or topic_id, index), batch)
        elif len(batch) >= BATCH_OVERHEAD:
            replica.log.producers.refused((behind_prefix(batch),))

    def holds(self, partition: Key) -> bool:
        """Returns whether this broker has a replica of a partition, in any role."""
        return self.held(partition) is not None

    def append_internal(
        self, topic: str, partition: int, appends: Sequence[bytes], origin: Origin = "coordinator"
    ) -> list[Acknowledgement]:
        """Appends records of coordinators to a led partition, as `Appender.append_internal` does."""
        replica = self.find(topic, partition)
        if isinstance(replica, Replica):
            return self.appender.append_internal(replica, appends, origin)
        return [replica] * len(appends)

    def when_committed(self, replica: Replica, offset: int) -> Acknowledgement:
        """Returns NONE, now or later, when everything below `offset` is committed, or an error."""
        return self.appender.acknowledged(replica, offset, True)

    async def stop_fetching(self) -> None:
        """Stops following; returns when no fetch is in progress. Called before `stop`."""
        await self._fetchers.stop()

    def stop(self) -> None:
        """Opens no further logs, and answers all waiting requests."""
        self._stopped = True
        self._opener.stop()
        self._isr_changes.stop()
        for replica in self._table:
            replica.become_offline(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self.deletions.look(replica)
            self._epoch_starts.forget(replica)
