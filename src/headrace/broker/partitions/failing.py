"""What goes offline where a disk fails, or the program does."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from headrace.env.disk import is_full, is_passing
from headrace.wire.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.broker.partitions.replica import Replica
    from headrace.broker.partitions.replica_table import ReplicaTable
    from headrace.broker.telemetry.metrics import Registry
    from headrace.env.node import Defects, LogSink
    from headrace.log.manager import LogManager


class Failures:
    """Takes replicas offline. A replica that is offline stays so until the next start."""

    def __init__(
        self,
        table: ReplicaTable,
        logs: LogManager,
        defects: Defects,
        log: LogSink,
        metrics: Registry,
        *,
        gone: Callable[[Replica], None],
        only_online: Callable[[Iterable[str]], None],
        cannot_go_on: Callable[[str], None],
    ) -> None:
        """`gone` hears of each replica that goes offline, `only_online` which log directories are left when one failed,
        `cannot_go_on` that none is."""
        self._table = table
        self._logs = logs
        self._defects = defects
        self._log = log
        self._gone = gone
        self._only_online = only_online
        self._cannot_go_on = cannot_go_on
        self._errors = metrics.counter("storage.errors")

    def failed(self, replica: Replica, error: Exception, where: str = "a partition's work") -> None:
        """Something that was done to a replica failed: its disk, or the program."""
        if isinstance(error, OSError):
            self.storage_failed(replica, error)
        else:
            self.defect(replica, error, where)

    def storage_failed(self, replica: Replica, error: OSError) -> None:
        """A disk failed under a replica: everything in its log directory goes offline, and nothing else.

        A log that was deleted or moved meanwhile has lost its files, and that is no failure; nor is what passes, like
        having no descriptor free. A full disk is an answer, and no line in the log each time.
        """
        if self._logs.get(replica.topic, replica.index) is not replica.log:
            return
        if is_passing(error):
            self._errors.value += 1
            if not is_full(error):
                self._log.error("log cannot be used now", partition=replica.log.name, why=error)
            return
        self.directory_failed(replica.log.directory.rpartition("/")[0], error)

    def directory_failed(self, directory: str, error: OSError) -> None:
        """A log directory cannot be used any more."""
        self._errors.value += 1
        logs = self._logs
        affected = [replica for replica in self._table if replica.log.directory.rpartition("/")[0] == directory]
        if affected or logs.directories[directory].failure is None:
            self._log.error("log directory failed", directory=directory, offline=len(affected), why=error)
        for replica in affected:
            self._take_offline(replica)
        logs.directory_failed(directory, error)
        online = [home.path for home in logs.online()]
        if online:
            self._only_online(online)
        else:
            self._cannot_go_on("every log directory failed")

    def defect(self, replica: Replica, error: Exception, where: str) -> None:
        """The program failed over a replica: nobody knows what it would do next, so it does nothing more."""
        self._defects.report(error, where, topic=replica.topic, partition=replica.index)
        if self._table.held(replica.key) is replica:
            self._log.error("partition is offline until the next start", partition=replica.log.name, why="a defect")
            self._take_offline(replica)

    def _take_offline(self, replica: Replica) -> None:
        self._table.take_out(replica.key)
        self._table.offline[replica.key] = ErrorCode.KAFKA_STORAGE_ERROR
        replica.become_offline(ErrorCode.KAFKA_STORAGE_ERROR)
        self._gone(replica)
