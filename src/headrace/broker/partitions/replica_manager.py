"""The replicas that this broker holds: they follow the cluster's image, and take appends and reads.

Logs are opened for what the image says that this broker leads. Of many new partitions at once a worker opens the most,
and a request that asks for one of them opens it at once, so that creating thousands does not stall the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace.broker.partitions.flusher import Flusher
from headrace.broker.partitions.replica import Replica
from headrace.broker.storage.open_transactions import open_in_logs
from headrace.broker.storage.storage_format import StorageError
from headrace.env.disk import is_full, is_passing
from headrace.log.manager import LogDirFailed
from headrace.log.moves import remove_strange_copies
from headrace.log.recovery import LogDamaged
from headrace.log.results import AppendResult
from headrace.metadata.image import DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED
from headrace.replicas.progress import LeaderProgress
from headrace.wire.errors import ErrorCode
from headrace.wire.primitives import Buffer

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.config import TopicConfig
    from headrace.log.log import Log
    from headrace.log.producers import Origin
    from headrace.log.validate import Accepted
    from headrace.metadata.delta import ImageDelta
    from headrace.metadata.image import ClusterImage, Partition, Topic

log = logging.getLogger("headrace.broker")

OPENED_AT_ONCE: Final = 64
"""New partitions of one change of the image that are opened before the change is answered."""
OPENED_A_SLICE: Final = 32
"""Partitions that a worker opens between two reports to the event loop."""

OPEN_AGAIN_S: Final = 1.0
"""How long a partition waits whose log could not be opened for a reason that says nothing about the disk."""

NO_DIRECTORY: Final = frozenset({DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED})
"""What the metadata says of replicas that were not put anywhere yet."""

Key = tuple[str, int]


class Plan(NamedTuple):
    """What is needed to open the log of one partition."""

    key: Key
    topic: Topic
    partition: Partition
    config: TopicConfig
    directory: str | None


class ReplicaManager:
    """Every partition replica of one broker, by (topic, partition) and by (topic id, partition)."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.by_name: dict[Key, Replica] = {}
        self.by_id: dict[tuple[bytes, int], Replica] = {}
        self.offline: dict[Key, ErrorCode] = {}
        self._unopened: dict[Key, Topic] = {}
        self._put_off: dict[Key, Topic] = {}
        self._opening = False
        self._stopped = False
        self._open_lock = broker.node.lock()
        self.owner = broker.node.owner("partitions")
        self._gated = broker.config.text("acks.flush") == "before-reply"
        metrics = broker.metrics
        self._bytes_in = metrics.counter("produce.bytes")
        self._appends = metrics.counter("produce.batches")
        self._storage_errors = metrics.counter("storage.errors")
        flushes = metrics.counter("log.flushes")
        self.flusher = Flusher(broker.node.syncs, flushes, self.storage_failed, broker.node.disk.write_pressure)
        metrics.gauge("log.producers_wait", lambda: int(self.flusher.behind))
        metrics.gauge("replicas.online", lambda: len(self.by_name))
        metrics.gauge("replicas.offline", lambda: len(self.offline) + len(self._put_off))

    # --- following the image

    async def start(self) -> None:
        """Takes up everything that the image names, and follows it from here on.

        After a crash every log is recovered first, on worker threads. After a clean stop logs are opened when they
        are asked for, and the rest in the background. Raises StorageError where recovery finds an open transaction.
        """
        logs = self.broker.logs
        for topic in self.broker.image.topics:
            self._expect(topic, None)
        for key in logs.found():
            if not self._is_ours(key):
                logs.mark_stray(*key)
        remove_strange_copies(logs, self._is_ours)
        logs.watch_high_watermarks(self._high_watermark)
        if not logs.was_clean:
            await self._recover()
            if reasons := open_in_logs(logs, self.broker.image):
                raise StorageError(f"{', '.join(logs.directories)} cannot be served: {'; '.join(reasons)}")
        self.broker.quorum.on_image(self._image_changed)
        self._open_some(0)

    def _is_ours(self, key: Key) -> bool:
        """Whether this broker is to have a replica; one that has no leader now (a clean stop leaves it so) is too."""
        assigned = self.broker.image.topics.partition(*key)
        return assigned is not None and self.broker.node_id in assigned.replicas

    def _high_watermark(self, key: Key) -> int | None:
        replica = self.by_name.get(key)
        return replica.progress.high_watermark if replica is not None else None

    async def _recover(self) -> None:
        """Opens the logs that lie in the directories, several at a time; those too that nobody leads yet."""
        broker = self.broker
        keys = [key for key in broker.logs.found() if self._is_ours(key)]
        per_directory = broker.config.integer("num.recovery.threads.per.data.dir")
        lanes = max(1, per_directory * len(broker.logs.online()))
        configs = {name: broker.dynamic.topic(name) for name, _ in keys}
        ids = {topic.name: topic.id for topic in broker.image.topics}

        def recover(lane: int) -> None:
            for key in keys[lane::lanes]:
                try:
                    broker.logs.get_or_create(*key, ids[key[0]], configs[key[0]])
                except (OSError, LogDamaged):
                    continue  # asked for again when it is opened for use, and reported then

        await asyncio.gather(*(broker.node.workers.run(lambda lane=lane: recover(lane)) for lane in range(lanes)))  # type: ignore[misc]
        self._report_recovery(keys)

    def _report_recovery(self, keys: list[Key]) -> None:
        for key in keys:
            opened = self.broker.logs.get(*key)
            if opened is not None and opened.recovery_report.unindexed:
                count = len(opened.recovery_report.unindexed)
                log.warning("%s-%d: %d segments lack an index, which is rebuilt from the batches", *key, count)
            if opened is not None and opened.recovery_report.rebuilt:
                names = ", ".join(opened.recovery_report.rebuilt)
                log.warning("%s-%d: %s could not be read, and is rebuilt from the batches", *key, names)
            if opened is not None and opened.recovery_report.cut_offset >= 0:
                report = opened.recovery_report
                log.warning(
                    "%s-%d: %d bytes cut from %s at offset %d: %s",
                    *key,
                    report.bytes_cut,
                    report.cut_path,
                    report.cut_offset,
                    report.cut_reason,
                )

    def _image_changed(self, old: ClusterImage, new: ClusterImage, delta: ImageDelta) -> None:
        for topic in delta.deleted_topics.values():
            for partition in topic.partitions:
                self._forget(topic.name, partition.index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                with self._open_lock:
                    self.broker.logs.delete(topic.name, partition.index)
        for topic_id in delta.topics:
            changed = new.topics.by_id(topic_id)
            if changed is not None:
                self._expect(changed, delta.topics[topic_id].changed)
        self._open_some(OPENED_AT_ONCE)

    def _expect(self, topic: Topic, changed: set[int] | None) -> None:
        """Takes note of the partitions of a topic that this broker leads, or leads no more."""
        node_id = self.broker.node_id
        for partition in topic.partitions:
            if changed is not None and partition.index not in changed:
                continue
            key = (topic.name, partition.index)
            replica = self.by_name.get(key)
            if partition.leader != node_id:
                self._unopened.pop(key, None)
                if key not in self.offline:
                    self._forget(*key, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            elif replica is not None:
                replica.leads_as(partition)
            elif key not in self.offline:
                self._put_off.pop(key, None)
                self._unopened[key] = topic

    def _forget(self, topic: str, index: int, error: ErrorCode) -> None:
        self._unopened.pop((topic, index), None)
        self._put_off.pop((topic, index), None)
        self.offline.pop((topic, index), None)
        replica = self.by_name.pop((topic, index), None)
        if replica is not None:
            self.by_id.pop((replica.topic_id, index), None)
            self.flusher.forget(replica)
            replica.give_up(error)

    def _open_some(self, count: int) -> None:
        """Opens some logs here and now, and leaves the rest to a worker."""
        configs: dict[str, TopicConfig] = {}
        while self._unopened and count:
            count -= 1
            self._open(next(iter(self._unopened)), configs)
        self._open_behind()

    def _open_behind(self) -> None:
        """Has a worker open the next logs that nobody has asked for yet."""
        if self._opening or self._stopped:
            return
        configs: dict[str, TopicConfig] = {}
        plans = [self._plan(key, configs) for key in list(islice(self._unopened, OPENED_A_SLICE))]
        todo = [plan for plan in plans if plan is not None]
        if not todo:
            if self._unopened:
                self.owner.soon(self._open_behind)
            return
        self._opening = True

        def work() -> list[tuple[Plan, Log | Exception]]:
            return [(plan, self._try_open(plan)) for plan in todo if not self._stopped]

        self.broker.node.workers.submit(work, self._opened_behind)

    def _opened_behind(self, outcomes: list[tuple[Plan, Log | Exception]] | None, error: BaseException | None) -> None:
        self._opening = False
        if error is not None:
            raise error
        assert outcomes is not None
        for plan, outcome in outcomes:
            # By id: every change of a topic's metadata makes another value of it.
            wanted = self._unopened.get(plan.key)
            if wanted is not None and wanted.id == plan.topic.id:
                self._take_up(plan, outcome)
            elif isinstance(outcome, Exception) or plan.key in self.by_name:
                continue
            elif self.broker.image.topics.by_id(plan.topic.id) is None:
                # Its topic was deleted while the worker opened it.
                self.broker.logs.delete(*plan.key)
        self._open_behind()

    def _open(self, key: Key, configs: dict[str, TopicConfig]) -> Replica | None:
        """Opens the log of a partition that this broker leads; None where its disk fails."""
        plan = self._plan(key, configs)
        return None if plan is None else self._take_up(plan, self._try_open(plan))

    def _plan(self, key: Key, configs: dict[str, TopicConfig]) -> Plan | None:
        """What is needed to open a log; None, and the partition is settled, where it cannot be opened."""
        topic = self._unopened[key]
        config = configs.get(topic.name)
        if config is None:
            config = configs[topic.name] = self.broker.dynamic.topic(topic.name)
        current = self.broker.image.topics.by_id(topic.id)
        if current is None:
            del self._unopened[key]
            return None
        partition = current.partitions[key[1]]
        if self._lies_elsewhere(key, partition):
            # An empty log in its place would be a hole where acknowledged records were.
            log.error("%s-%d lies in a log directory that is not here: it is offline", *key)
            del self._unopened[key]
            self.offline[key] = ErrorCode.KAFKA_STORAGE_ERROR
            return None
        return Plan(key, topic, partition, config, self._directory(partition))

    def _try_open(self, plan: Plan) -> Log | Exception:
        """Opens one log, on a worker or here; one at a time, so that the two never open the same."""
        with self._open_lock:
            try:
                return self.broker.logs.get_or_create(*plan.key, plan.topic.id, plan.config, directory=plan.directory)
            except (OSError, LogDamaged) as error:
                return error

    def _take_up(self, plan: Plan, opened: Log | Exception) -> Replica | None:
        """Serves a partition whose log was opened, or takes it offline."""
        key, topic = plan.key, plan.topic
        del self._unopened[key]
        if isinstance(opened, Exception):
            self._storage_errors.value += 1
            if isinstance(opened, OSError) and is_passing(opened):
                self._put_off_opening(key, topic, opened)
                return None
            log.error("%s-%d cannot be opened: %s", *key, opened)
            self.offline[key] = ErrorCode.KAFKA_STORAGE_ERROR
            if isinstance(opened, LogDirFailed):
                self.directory_failed(opened.directory, opened)
            return None
        self.broker.assignments.note(opened)
        if self.broker.logs.was_clean:  # else it was recovered, and reported, before anything was served
            self._report_recovery([key])
        undecided = opened.producers.first_undecided_offset
        if undecided is not None:
            log.error("%s-%d: a transaction that nobody can end keeps read_committed before offset %d", *key, undecided)
        end = opened.recovery_point if self._gated else opened.end_offset
        partition = self.broker.image.topics.partition(*key) or plan.partition
        progress = LeaderProgress(self.broker.node_id, partition.leader_epoch, partition.isr, end)
        replica = Replica(topic.name, key[1], topic.id, opened, progress, self._gated)
        self.by_name[key] = replica
        self.by_id[(topic.id, key[1])] = replica
        if self._gated and end < opened.end_offset:
            self.flusher.request(replica)
        self.broker.moves.resume(replica)
        return replica

    def _put_off_opening(self, key: Key, topic: Topic, error: OSError) -> None:
        """Has a log opened later, together with the others that could not be opened; the first of them is said."""
        if not self._put_off:
            log.error("%s-%d cannot be opened now, and is tried again: %s", *key, error)
            self.owner.later(OPEN_AGAIN_S, self._open_again)
        self._put_off[key] = topic

    def _open_again(self) -> None:
        put_off, self._put_off = self._put_off, {}
        self._unopened.update(put_off)
        self._open_behind()

    def _lies_elsewhere(self, key: Key, partition: Partition) -> bool:
        """Whether the metadata put a replica of ours into a directory that has failed, or was taken away."""
        wanted = partition.directory_of(self.broker.node_id)
        if wanted in NO_DIRECTORY or any(key in home.found for home in self.broker.logs.online()):
            return False
        return all(self.broker.layout.directory_ids.get(home.path) != wanted for home in self.broker.logs.online())

    def _directory(self, partition: Partition) -> str | None:
        """The log directory that the metadata names for a replica of ours; None where it names none that works."""
        wanted = partition.directory_of(self.broker.node_id)
        for home in self.broker.logs.online():
            if self.broker.layout.directory_ids.get(home.path) == wanted:
                return home.path
        return None

    def find(self, topic: str, index: int) -> Replica | ErrorCode:
        """The online replica of a partition that this broker leads, or what a client is answered instead."""
        key = (topic, index)
        replica = self.by_name.get(key)
        if replica is None:
            return self._find_slowly(key)
        return replica if replica.error is ErrorCode.NONE else replica.error

    def _find_slowly(self, key: Key) -> Replica | ErrorCode:
        if key in self._unopened:
            replica = self._open(key, {})
            return replica if replica is not None else ErrorCode.KAFKA_STORAGE_ERROR
        if key in self._put_off:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if key in self.offline:
            return self.offline[key]
        if self.broker.image.topics.partition(*key) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    # --- appending

    def append_many(
        self, replica: Replica, chunks: Sequence[Buffer | Accepted], now_ms: int, origin: Origin = "client"
    ) -> list[AppendResult]:
        """Appends what several requests bring to one partition, in order; a result for each chunk."""
        if replica.error:
            # Its directory failed under an append that came together with this one.
            return [AppendResult(replica.error)] * len(chunks)
        target = replica.log
        before = target.end_offset
        try:
            results = target.append_many(
                chunks, leader_epoch=replica.progress.leader_epoch, now_ms=now_ms, origin=origin
            )
        except OSError as error:
            self.storage_failed(replica, error)
            refused = AppendResult(ErrorCode.KAFKA_STORAGE_ERROR, error_message=str(error))
            return [refused] * len(chunks)
        except Exception:
            # A defect is an answer, as in Kafka: what came together with these is served.
            log.exception("%s-%d: an append failed", replica.topic, replica.index)
            return [AppendResult(ErrorCode.UNKNOWN_SERVER_ERROR)] * len(chunks)
        end = target.end_offset
        if end != before:
            size = 0
            for chunk in chunks:
                size += len(chunk)
            self._bytes_in.value += size
            self._appends.value += len(chunks)
            self.flusher.appended(replica, size)
            if replica.flush_gated:
                self.flusher.request(replica)
            else:
                replica.reached(end, size)
                if end - target.flushed_offset >= target.config.flush_messages:
                    self.flusher.request(replica)
        return results

    def append_internal(
        self, topic: str, partition: int, batches: bytes, on_committed: Callable[[ErrorCode, int], None]
    ) -> None:
        """Appends the batches of a coordinator's decision to an internal topic, all of them or none.

        `on_committed(error, base_offset)` is called exactly once: when the high watermark has passed the last one, or
        with the error (and -1) when they were refused. It may be called before this returns.
        """
        replica = self.find(topic, partition)
        if not isinstance(replica, Replica):
            on_committed(replica, -1)
            return
        if replica.under_min_isr:
            on_committed(ErrorCode.NOT_ENOUGH_REPLICAS, -1)
            return
        result = self.append_many(replica, (batches,), self.broker.node.clock.now_ms(), "coordinator")[0]
        if result.error:
            on_committed(result.error, -1)
            return

        def committed(error: ErrorCode) -> None:
            on_committed(error, result.base_offset if error is ErrorCode.NONE else -1)

        self.when_committed(replica, result.last_offset + 1, committed)

    def when_committed(
        self, replica: Replica, offset: int, callback: Callable[[ErrorCode], None], timeout_ms: float = inf
    ) -> None:
        """Calls back with NONE once everything below `offset` is committed (at once if it is), or with an error:
        REQUEST_TIMED_OUT where that takes longer than `timeout_ms`."""
        if replica.error:
            callback(replica.error)
        elif replica.progress.high_watermark >= offset:
            callback(ErrorCode.NONE)
        elif replica.offset_waiters.add(offset, callback, self.broker.node.clock.monotonic() + timeout_ms / 1000):
            self._wake_in_time(replica)

    def _wake_in_time(self, replica: Replica) -> None:
        """Sets the timer of those who wait for a commit. It runs on when they are answered, for those who come after
        them: a busy partition has one timer in the span of a timeout, an idle one has none."""
        if replica.timer is not None:
            replica.timer.cancel()
            replica.timer = None
        wake_at = replica.offset_waiters.wake_at
        if wake_at < inf:
            delay = wake_at - self.broker.node.clock.monotonic()
            replica.timer = self.owner.later(delay, self._waited_too_long, replica)

    def _waited_too_long(self, replica: Replica) -> None:
        expired = replica.offset_waiters.expire(self.broker.node.clock.monotonic())
        self._wake_in_time(replica)
        for callback in expired:
            callback(ErrorCode.REQUEST_TIMED_OUT)

    # --- failing

    def storage_failed(self, replica: Replica, error: OSError) -> None:
        """A disk failed under a replica: everything in its log directory goes offline, and nothing else.

        A log that was deleted or moved meanwhile has lost its files, and that is no failure; nor is what passes, like
        having no descriptor free. A full disk is an answer, and no line in the log each time.
        """
        if self.broker.logs.get(replica.topic, replica.index) is not replica.log:
            return
        if is_passing(error):
            self._storage_errors.value += 1
            if not is_full(error):
                log.error("%s-%d: %s", replica.topic, replica.index, error)
            return
        self.directory_failed(replica.log.directory.rpartition("/")[0], error)

    def directory_failed(self, directory: str, error: OSError) -> None:
        """A log directory cannot be used any more."""
        self._storage_errors.value += 1
        logs = self.broker.logs
        affected = [r for r in self.by_name.values() if r.log.directory.rpartition("/")[0] == directory]
        if affected or logs.directories[directory].failure is None:
            log.error("log directory %s failed, %d partitions are offline: %s", directory, len(affected), error)
        for replica in affected:
            self.by_name.pop((replica.topic, replica.index), None)
            self.by_id.pop((replica.topic_id, replica.index), None)
            self.offline[(replica.topic, replica.index)] = ErrorCode.KAFKA_STORAGE_ERROR
            self.flusher.forget(replica)
            replica.give_up(ErrorCode.KAFKA_STORAGE_ERROR)
        logs.directory_failed(directory, error)
        if not logs.online():
            self.broker.fail("every log directory failed")
        else:
            self.broker.assignments.failed(home.path for home in logs.online())

    def stop(self) -> None:
        """Opens nothing any more; whoever waits is answered."""
        self._stopped = True
        for replica in list(self.by_name.values()):
            replica.give_up(ErrorCode.NOT_LEADER_OR_FOLLOWER)
