"""Takes partitions and log directories offline if a disk or the program fails."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from headrace.env.disk import is_full
from headrace.env.workers import Raised
from headrace.log.verdicts import LogsLost, Verdict
from headrace.wire.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.broker.partitions.replica import Replica
    from headrace.broker.partitions.replica_table import ReplicaTable
    from headrace.broker.telemetry.metrics import Registry
    from headrace.env import Node
    from headrace.log.log import Log
    from headrace.log.manager import LogManager


class Failures:
    """Takes replicas offline. An offline replica stays so until the next start."""

    def __init__(
        self,
        node: Node,
        table: ReplicaTable,
        logs: LogManager,
        metrics: Registry,
        *,
        gone: Callable[[Replica], None],
        lost: Callable[[Log], None],
        only_online: Callable[[list[str]], None],
    ) -> None:
        """`gone` is called with each replica that goes offline, `lost` with each log that lacks files, `only_online`
        with the remaining log directories, perhaps none, when one failed."""
        self._node = node
        self._table = table
        self._logs = logs
        self._defects = node.defects
        self._log = node.logger("partitions")
        self._gone = gone
        self._lost = lost
        self._probed: set[str] = set()
        """Directories that a worker is probing."""
        self._only_online = only_online
        self._errors = metrics.counter("storage.errors")

    def failed(
        self, replica: Replica, error: Exception, where: str = "a partition's work", log: Log | None = None
    ) -> None:
        """Handles an error of work on a replica, which is a disk failure or a defect."""
        if isinstance(error, OSError):
            self.storage_failed(replica, error, log)
        else:
            self.defect(replica, error, where)

    def storage_failed(self, replica: Replica, error: OSError, log: Log | None = None) -> None:
        """Handles a disk error of a replica: takes its log directory offline if that has failed.

        `log` is the log that met the error, by default the replica's current one. An error of a log that was deleted or
        moved meanwhile is no failure, nor is a passing condition such as a lack of descriptors. A full disk is not
        logged each time. A log that lacks files goes offline alone.
        """
        log = replica.log if log is None else log
        verdict = self._logs.judge(log, error)
        if verdict is Verdict.PASSING:
            self._errors.value += 1
            if not is_full(error):
                self._log.error("log cannot be used now", partition=log.name, why=error)
        elif verdict is Verdict.LOG:
            self._lose(log, error)
        elif verdict is Verdict.DIRECTORY:
            self.directory_failed(log.directory.rpartition("/")[0], error)

    def logs_lost(self, lost: LogsLost) -> None:
        """Takes offline the logs that a worker found to lack files."""
        for log, error in lost.lost:
            if self._logs.get(*log.topic_partition) is log:
                self._lose(log, error)

    def _lose(self, log: Log, error: OSError) -> None:
        """Takes a log that lacks files offline, so that another replica leads, and probes its directory."""
        self._errors.value += 1
        event = "partition is offline until the next start: its log lacks files"
        self._log.error(event, partition=log.name, folder=log.directory, why=error)
        directory = self._logs.directory_of(log).path
        self._logs.lost(log)
        replica = self._table.held(log.topic_partition)
        if replica is not None and replica.log is log:
            self._take_offline(replica)
        self._lost(log)
        self.suspect(directory)

    def suspect(self, directory: str) -> None:
        """Probes a log directory in which files are missing; it goes offline if it cannot be written and read."""
        home = self._logs.directories[directory]
        if home.failure is None and directory not in self._probed:
            self._probed.add(directory)
            self._node.workers.submit(home.probe).deliver_to(partial(self._probe_done, directory))

    def _probe_done(self, directory: str, found: OSError | Raised | None) -> None:
        self._probed.discard(directory)
        if isinstance(found, Raised):
            self._defects.report(found.error, "the probe of a log directory")
        elif found is not None and self._logs.directories[directory].failure is None:
            self.directory_failed(directory, found)

    def directory_failed(self, directory: str, error: OSError) -> None:
        """Takes a log directory offline."""
        self._errors.value += 1
        logs = self._logs
        affected = [replica for replica in self._table if replica.log.directory.rpartition("/")[0] == directory]
        if affected or logs.directories[directory].failure is None:
            self._log.error("log directory failed", directory=directory, offline=len(affected), why=error)
        for replica in affected:
            self._take_offline(replica)
        logs.directory_failed(directory, error)
        self._only_online([home.path for home in logs.online()])

    def defect(self, replica: Replica, error: Exception, where: str) -> None:
        """Reports a defect that involves a replica and takes the replica offline, because its state is unknown."""
        self._defects.report(error, where, topic=replica.topic, partition=replica.index)
        if self._table.held(replica.key) is replica:
            self._log.error("partition is offline until the next start", partition=replica.log.name, why="a defect")
            self._take_offline(replica)

    def _take_offline(self, replica: Replica) -> None:
        self._table.take_out(replica.key)
        self._table.offline[replica.key] = ErrorCode.KAFKA_STORAGE_ERROR
        replica.become_offline(ErrorCode.KAFKA_STORAGE_ERROR)
        self._gone(replica)
