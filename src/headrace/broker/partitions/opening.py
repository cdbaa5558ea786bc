"""Opens the logs of the partitions that this broker leads or follows, on workers; after a crash it recovers them first.

Logs that no request waits for are opened a slice at a time; a log that a request waits for is opened at once. The first
logs of a metadata change are opened at once too, so that a new topic can be used when its creation is answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace.env.disk import is_passing
from headrace.env.workers import Raised
from headrace.log.filenames import directory_name
from headrace.log.manager import LogDirFailed
from headrace.log.recovery import LogDamaged
from headrace.metadata.image import DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED

if TYPE_CHECKING:
    from headrace.broker.partitions.ports import BrokerState
    from headrace.broker.partitions.replica import Key
    from headrace.broker.telemetry.metrics import Registry
    from headrace.config import TopicConfig
    from headrace.env import Node
    from headrace.log.log import Log
    from headrace.log.manager import LogManager
    from headrace.metadata.image import Partition, Topic

OPENED_AT_ONCE: Final = 64
"""Bound on the new partitions of one metadata change that are opened before the change is answered."""
TAKEN_AWAY_A_TURN: Final = 64
"""Bound on the logs of removed partitions whose folders are renamed in one turn of the event loop."""
OPENED_A_SLICE: Final = 32
"""Partitions that a worker opens in one slice."""

OPEN_AGAIN_S: Final = 1.0
"""Pause before another attempt to open a log that failed for a reason other than its disk."""

NO_DIRECTORY: Final = frozenset({DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED})
"""Directory ids of replicas that have not been placed yet."""


class LogElsewhereError(Exception):
    """Raised if the metadata place a replica of this broker in a log directory that has failed or was removed."""


class Plan(NamedTuple):
    """Everything needed to open the log of one partition."""

    key: Key
    topic: Topic
    partition: Partition
    config: TopicConfig
    directory: str | None


Outcome = tuple[Plan, "Log | Exception"]


class Opener:
    """The partitions whose logs are still to be opened."""

    def __init__(
        self,
        node: Node,
        logs: LogManager,
        metrics: Registry,
        broker: BrokerState,
        *,
        opened: Callable[[Plan, Log], None],
        refused: Callable[[Key, Exception], None],
    ) -> None:
        """`opened` or `refused` is called on the event loop, once for each expected partition. After `refused` it has
        no log until the next start or, if its log is in another directory, until its metadata change."""
        self.unopened: dict[Key, Topic] = {}
        """Expected partitions whose logs are not open yet."""
        self.put_off: dict[Key, Topic] = {}
        """Partitions whose logs could not be opened, to be retried."""
        self._node = node
        self._logs = logs
        self._broker = broker
        self._node_id = broker.config.node_id
        self._directory_ids: Mapping[str, bytes] = {}
        self._opened = opened
        self._refused = refused
        self._log = node.logger("partitions")
        self._owner = node.owner("opening of logs")
        self._lock = node.lock()
        self._at_work: dict[Key, None] = {}
        """Partitions whose logs workers are opening."""
        self._waiting: dict[Key, list[Callable[[], None]]] = {}
        """Callbacks of `when_open` by partition."""
        self._doomed: dict[Key, None] = {}
        """Deleted partitions whose logs are still to be removed."""
        self._taken_away = 0
        """Number of logs removed in this turn of the event loop."""
        self._has_slice = False
        self._stopped = False
        self._errors = metrics.counter("storage.errors")

    # --- logs to open

    def expect(self, key: Key, topic: Topic) -> bool:
        """Expects a partition that this broker leads or follows without a replica; returns False if it was expected
        already."""
        is_new = key not in self.unopened
        self.put_off.pop(key, None)
        if key in self._doomed:
            self._take_away(key)  # the key belongs to a new topic of that name
        self.unopened[key] = topic
        return is_new

    def forget(self, key: Key) -> None:
        """Forgets a partition that this broker no longer has."""
        self.unopened.pop(key, None)
        self.put_off.pop(key, None)
        self._settled(key)

    def delete(self, key: Key) -> None:
        """Removes the log of a partition that was deleted or moved away from this broker: at once, unless there are
        many."""
        if key in self._at_work:
            return  # a worker still uses its files; `_finish` deletes it
        if self._taken_away < TAKEN_AWAY_A_TURN:
            self._take_away(key)
        else:
            self._doomed[key] = None

    def _take_away(self, key: Key) -> None:
        self._doomed.pop(key, None)
        if not self._taken_away:
            self._owner.soon(self._take_more_away)
        self._taken_away += 1
        with self._lock:
            self._logs.delete(*key)

    def _take_more_away(self) -> None:
        self._taken_away = 0
        for key in list(islice(self._doomed, TAKEN_AWAY_A_TURN)):
            self._take_away(key)

    def when_open(self, key: Key, callback: Callable[[], None]) -> None:
        """Calls back when an unopened partition is opened, or never will be; a worker opens it next."""
        assert key in self.unopened
        self._waiting.setdefault(key, []).append(callback)
        if key not in self._at_work:
            self._submit(self._plans([key]), is_slice=False)

    def _settled(self, key: Key) -> None:
        for callback in self._waiting.pop(key, ()):
            callback()

    def stop(self) -> None:
        """Opens no further logs, and ends all waits."""
        self._stopped = True
        for key in list(self._doomed):
            self._take_away(key)
        self._owner.close()
        self.unopened.clear()
        for key in list(self._waiting):
            self._settled(key)

    # --- opening

    def start(self, directory_ids: Mapping[str, bytes]) -> None:
        """Begins to open the expected logs; `directory_ids` are the ids of the log directories, by path."""
        self._directory_ids = directory_ids
        self.open_behind()

    def open_now(self, keys: Iterable[Key]) -> None:
        """Opens up to OPENED_AT_ONCE logs on the event loop, and leaves the rest to workers."""
        configs: dict[str, TopicConfig] = {}
        at_once = [key for key in keys if key in self.unopened and key not in self._at_work]
        for plan in self._plans(at_once[:OPENED_AT_ONCE], configs):
            self._take_up(plan, self._try_open(plan))
        self.open_behind()

    def open_behind(self) -> None:
        """Has a worker open the next logs that no request waits for."""
        if self._has_slice or self._stopped:
            return
        keys = list(islice((key for key in self.unopened if key not in self._at_work), OPENED_A_SLICE))
        if not keys:
            return
        plans = self._plans(keys)
        if plans:
            self._has_slice = True
            self._submit(plans, is_slice=True)
        else:
            self._owner.soon(self.open_behind)

    def _submit(self, plans: list[Plan], *, is_slice: bool) -> None:
        self._at_work.update((plan.key, None) for plan in plans)

        def work() -> list[Outcome]:
            return [(plan, self._try_open(plan)) for plan in plans if not self._stopped]

        def done(outcomes: list[Outcome] | Raised) -> None:
            assert not isinstance(outcomes, Raised), "a log that fails to open is an outcome"
            for plan in plans:
                self._at_work.pop(plan.key, None)
            for plan, outcome in outcomes:
                self._finish(plan, outcome)
            if is_slice:
                self._has_slice = False
            self.open_behind()

        self._node.workers.submit(work).deliver_to(done)

    def _finish(self, plan: Plan, outcome: Log | Exception) -> None:
        """Takes over a log that a worker opened, if it is still wanted."""
        key = plan.key
        # Compared by id, because each metadata change makes a new topic value.
        wanted = self.unopened.get(key)
        if wanted is not None and wanted.id == plan.topic.id:
            self._take_up(plan, outcome)
            return
        if not self._is_ours(plan):
            self.delete(key)  # its topic was deleted meanwhile, or other brokers have it now
        if wanted is not None and key in self._waiting and not self._stopped:
            self._submit(self._plans([key]), is_slice=False)

    def _is_ours(self, plan: Plan) -> bool:
        topic = self._broker.image.topics.by_id(plan.topic.id)
        return topic is not None and self._node_id in topic.partitions[plan.key[1]].replicas

    def _plans(self, keys: Iterable[Key], configs: dict[str, TopicConfig] | None = None) -> list[Plan]:
        """Returns plans for opening logs; partitions that cannot be opened are settled."""
        configs = {} if configs is None else configs
        return [plan for plan in (self._plan(key, configs) for key in keys) if plan is not None]

    def _plan(self, key: Key, configs: dict[str, TopicConfig]) -> Plan | None:
        topic = self.unopened[key]
        config = configs.get(topic.name)
        if config is None:
            config = configs[topic.name] = self._broker.topic_config(topic.name)
        current = self._broker.image.topics.by_id(topic.id)
        if current is None:
            self.forget(key)
            return None
        partition = current.partitions[key[1]]
        if self.lies_elsewhere(key, partition):
            # A new, empty log in its place would lack acknowledged records.
            del self.unopened[key]
            self._refused(key, LogElsewhereError("lies in a log directory that this broker does not have"))
            self._settled(key)
            return None
        return Plan(key, topic, partition, config, self._directory(partition))

    def _try_open(self, plan: Plan) -> Log | Exception:
        """Opens one log, on a worker or the loop. New logs are opened one at a time, because the directories count
        them."""
        is_new = not any(plan.key in home.found for home in self._logs.online())
        with self._lock if is_new else nullcontext():
            try:
                return self._logs.get_or_create(*plan.key, plan.topic.id, plan.config, directory=plan.directory)
            except Exception as error:
                return error

    def _take_up(self, plan: Plan, opened: Log | Exception) -> None:
        key = plan.key
        topic = self.unopened.pop(key)
        if isinstance(opened, Exception):
            self._errors.value += 1
        if isinstance(opened, OSError) and is_passing(opened) and not isinstance(opened, LogDirFailed):
            self._put_off_opening(key, topic, opened)
        elif isinstance(opened, Exception):
            self._refused(key, opened)
        else:
            if self._logs.was_clean:  # else it was recovered, and reported, before anything was served
                self._report_recovery([key])
            self._opened(plan, opened)
        self._settled(key)

    def _put_off_opening(self, key: Key, topic: Topic, error: OSError) -> None:
        """Retries a log later, together with others that could not be opened; only the first is logged."""
        if not self.put_off:
            self._log.error("log cannot be opened now, and is tried again", partition=directory_name(*key), why=error)
            self._owner.later(OPEN_AGAIN_S, self._open_again)
        self.put_off[key] = topic

    def _open_again(self) -> None:
        put_off, self.put_off = self.put_off, {}
        self.unopened.update(put_off)
        self.open_behind()

    def lies_elsewhere(self, key: Key, partition: Partition) -> bool:
        """Returns whether the replica of this broker is in a directory that has failed or was removed, by the metadata
        or, if they do not know, by where it was found.

        A replica whose directory was removed, or came back empty, starts empty if other replicas have all committed
        records.
        """
        if any(key in home.found for home in self._logs.online()):
            return False
        if any(key in home.found for home in self._logs.directories.values()):
            return True
        online = self._logs.online()
        wanted = partition.directory_of(self._node_id)
        if wanted in NO_DIRECTORY or any(self._directory_ids.get(home.path) == wanted for home in online):
            return False
        may_come_back = len(online) < len(self._logs.directories)
        complete = (*partition.isr, *partition.eligible_leaders)
        return may_come_back or not complete or self._node_id in complete

    def _directory(self, partition: Partition) -> str | None:
        """Returns the log directory that the metadata name for this broker's replica; None if it names none that
        works."""
        wanted = partition.directory_of(self._node_id)
        for home in self._logs.online():
            if self._directory_ids.get(home.path) == wanted:
                return home.path
        return None

    # --- recovering

    async def recover(self, keys: list[Key], threads_per_directory: int) -> None:
        """Opens the logs found in the directories, several at a time, including those of partitions without a
        leader."""
        lanes = max(1, threads_per_directory * len(self._logs.online()))
        configs = {name: self._broker.topic_config(name) for name, _ in keys}
        ids = {topic.name: topic.id for topic in self._broker.image.topics}

        def recover(lane: int) -> None:
            for key in keys[lane::lanes]:
                try:
                    self._logs.get_or_create(*key, ids[key[0]], configs[key[0]])
                except (OSError, LogDamaged):
                    continue  # retried when it is opened for use, and reported then

        run = self._node.workers.run
        tasks = [self._owner.spawn(run(lambda lane=lane: recover(lane))) for lane in range(lanes)]  # type: ignore[misc]
        for task in tasks:
            await task
        self._report_recovery(keys)

    def _report_recovery(self, keys: list[Key]) -> None:
        for key in keys:
            opened = self._logs.get(*key)
            if opened is None:
                continue
            name, report = opened.name, opened.recovery_report
            if report.stray:
                self._log.warning("folder of another topic is set aside", partition=name, folder=report.stray)
            if report.unindexed:
                count = len(report.unindexed)
                self._log.warning("missing indexes are rebuilt from the batches", partition=name, segments=count)
            for file in report.rebuilt:
                self._log.warning("damaged file is rebuilt from the batches", partition=name, file=file)
            if report.cut_offset >= 0:
                self._log.warning(
                    "log cut",
                    partition=name,
                    offset=report.cut_offset,
                    bytes=report.bytes_cut,
                    file=report.cut_path,
                    why=report.cut_reason,
                )
