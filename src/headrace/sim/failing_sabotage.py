"""Planted faults in a cluster's reaction to a failed log directory: only runs in which one fails find them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.broker.broker import Broker
from headrace.broker.partitions.directory_assignment import DirectoryAssignment
from headrace.broker.partitions.failing import Failures
from headrace.broker.partitions.replica import Replica
from headrace.replicas.partition import Role

Real = Callable[..., Any]


def _nothing(*_: object) -> None:
    """Done, it says."""


def _take_the_first(real: Real) -> Real:
    """The replica that met the error is the one that goes offline."""

    def directory_failed(self: Failures, directory: str, error: OSError) -> None:
        take_offline, taken = self._take_offline, list[Replica]()

        def take_first(replica: Replica) -> None:
            if not taken:
                taken.append(replica)
                take_offline(replica)

        vars(self)["_take_offline"] = take_first
        try:
            real(self, directory, error)
        finally:
            del vars(self)["_take_offline"]

    return directory_failed


def _only_followers(real: Real) -> Real:
    """Who leads goes on leading: others have it too."""

    def take_offline(self: Failures, replica: Replica) -> None:
        if replica.state.role is not Role.LEADER:
            real(self, replica)

    return take_offline


def _none_failed(_: Broker) -> tuple[bytes, ...]:
    return ()


def failing_plants() -> dict[str, list[tuple[Any, str, Any]]]:
    """By name: whose attributes, which, and what takes their place."""
    return {
        "takes-one-of-a-directory": [(Failures, "directory_failed", _take_the_first(Failures.directory_failed))],
        "leads-on-from-a-dead-disk": [(Failures, "_take_offline", _only_followers(vars(Failures)["_take_offline"]))],
        "keeps-a-dead-disk-secret": [(Broker, "_failed_directories", _none_failed)],
        "never-says-where-a-log-lies": [(DirectoryAssignment, "_note", _nothing)],
    }
