"""Planted faults in a broker's change of a partition's role while a worker has its log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.broker.partitions.replica import Replica
from headrace.env.disk import is_passing
from headrace.log import housekeeping, manager, verdicts
from headrace.log.verdicts import Verdict

if TYPE_CHECKING:
    from headrace.log.log import Log
    from headrace.log.log_set import LogSet


def _judge_by_the_error(_held: LogSet, _log: Log, error: OSError) -> Verdict:
    """A log whose files are gone lies on a broken disk, whether it was removed under the worker or not."""
    return Verdict.PASSING if is_passing(error) else Verdict.DIRECTORY


def roles_plants() -> dict[str, list[tuple[Any, str, Any]]]:
    """By name: whose attributes, which, and what takes their place."""
    return {
        "changes-roles-under-workers": [(Replica, "is_held", property(lambda _: False))],
        "takes-a-removed-log-for-a-broken-disk": [
            (manager, "judge", _judge_by_the_error),
            (housekeeping, "judge", _judge_by_the_error),
            (verdicts, "judge", _judge_by_the_error),
        ],
    }
