"""Classifies the errors of a log: stale, passing, files lost, or a failing disk.

A missing file is never a fault of the disk: the log was moved or deleted meanwhile, or the file was removed by hand. A
log that lacks files goes offline alone; a probe finds out whether its directory still works.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum

from headrace.env.disk import is_passing
from headrace.log.directory import LogDirFailed
from headrace.log.log import Log
from headrace.log.log_set import LogSet


class Verdict(Enum):
    """The reaction to an error."""

    STALE = "stale"
    """Nothing: the log is no longer that of its partition."""
    PASSING = "passing"
    """The operation is refused or postponed, and retried."""
    LOG = "log"
    """The log goes offline, and its directory is probed."""
    DIRECTORY = "directory"
    """The whole directory goes offline."""


class LogsLost(OSError):
    """Logs that lack files, each with the error that showed it."""

    def __init__(self, lost: Sequence[tuple[Log, OSError]]) -> None:
        super().__init__(f"{len(lost)} logs lack files: {lost[0][1]}")
        self.lost = lost


def judge(held: LogSet, log: Log, error: OSError) -> Verdict:
    """Classifies an error of a log. For any thread that holds no lock of it."""
    with log.lock:  # held to move or remove a log, until the others can see that
        key = log.topic_partition
        if held.logs.get(key) is not log and held.future_logs.get(key) is not log:
            return Verdict.STALE
        if is_passing(error):
            return Verdict.PASSING
        if not isinstance(error, FileNotFoundError):
            return Verdict.DIRECTORY
        # What was renamed or removed on purpose in between is found under its new name, or not needed.
        return Verdict.PASSING if log.state.segment_list.all_there(log.resources.disk) else Verdict.LOG


def guarded(held: LogSet, logs: Iterable[Log], action: Callable[[Log], object]) -> None:
    """Runs an action on logs. Raises LogDirFailed for a failing disk, or LogsLost, after the others had their turn."""
    failed: dict[str, OSError] = {}
    lost: list[tuple[Log, OSError]] = []
    for log in logs:
        directory = log.directory.rpartition("/")[0]
        if directory in failed or held.directories[directory].failure is not None:
            continue
        try:
            action(log)
        except OSError as error:
            verdict = judge(held, log, error)
            if verdict is Verdict.DIRECTORY:
                failed[log.directory.rpartition("/")[0]] = error
            elif verdict is Verdict.LOG:
                lost.append((log, error))
    for directory, cause in failed.items():
        raise LogDirFailed(directory, cause)  # those that are lost are met again
    if lost:
        raise LogsLost(lost)
