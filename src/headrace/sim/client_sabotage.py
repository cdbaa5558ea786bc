"""Planted faults in `headrace.client`: each is harmless as long as no request is refused, lost or answered late."""

from __future__ import annotations

from typing import Any, TypeVar

from headrace.client.brokers import Brokers
from headrace.client.conversation import Steps
from headrace.client.errors import ClientError
from headrace.client.metadata import PartitionInfo
from headrace.client.producing import ProducerMachine
from headrace.client.routing import Router
from headrace.client.transacting import TransactionalMachine

T = TypeVar("T")


def _sent_alone(self: TransactionalMachine) -> Steps[ProducerMachine | None]:
    """What was written is sent, and its answers are not waited for."""
    if self._writer is not None:
        yield from self._writer.poll_steps(0.0)
    return self._writer


def _guarded_by_nothing(_self: TransactionalMachine, write: Steps[T]) -> Steps[T | None]:
    """A write that failed does not keep its transaction from being committed."""
    try:
        return (yield from write)
    except ClientError:
        return None


def _asked_alone(self: Brokers) -> Steps[Any]:
    """The broker that was asked first says who leads, for as long as its connection lasts."""
    return self.any_connection()


def _believed(_self: Router, _topic_id: bytes, partition: PartitionInfo) -> PartitionInfo:
    """A leader of an older epoch is believed."""
    return partition


def client_plants() -> dict[str, list[tuple[Any, str, Any]]]:
    """By name: whose attributes, which, and what takes their place."""
    return {
        "commits-before-writes-are-answered": [(TransactionalMachine, "_flushed", _sent_alone)],
        "commits-what-failed": [(TransactionalMachine, "_guarded", _guarded_by_nothing)],
        "asks-one-broker-who-leads": [
            (Brokers, "informed_connection", _asked_alone),
            (Router, "_checked_leader", _believed),
        ],
    }
