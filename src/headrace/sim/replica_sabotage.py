"""Planted faults in leaders and followers, their logs and ISRs, that only steered runs find, or find soon. Kafka has
had most of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.broker.partitions.isr_changes import IsrChanges
from headrace.controller import in_sync
from headrace.replicas.fetcher import UNKNOWN, Fetcher
from headrace.replicas.partition import PartitionState
from headrace.wire.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.broker.partitions.replica import Replica
    from headrace.controller.in_sync import PartitionAlteration
    from headrace.replicas.fetcher import Followed
    from headrace.replicas.partition import AlterIsr, Follower

Real = Callable[..., Any]


def _any_partition_epoch(real: Real) -> Real:
    """A leader may ask for another in-sync set on top of one that has changed since."""

    def refusal(changes: Any, broker_id: int, partition: Any, asked: PartitionAlteration) -> ErrorCode:
        epoch = max(asked.partition_epoch, partition.partition_epoch)
        found: ErrorCode = real(changes, broker_id, partition, replace(asked, partition_epoch=epoch))
        return found

    return refusal


def _cut_once(real: Real) -> Real:
    """A log that was cut joins its leader's: nobody compares the two again (KAFKA-6361)."""

    def cut(self: Fetcher, followed: Followed, offset: int, _: int, *given: int) -> None:
        real(self, followed, offset, UNKNOWN, *given)

    return cut


def _in_sync_as_wished(self: PartitionState) -> tuple[int, ...]:
    """A follower that the controller is asked to take out does not count any more, although it may be elected."""
    return self.isr if self.pending is None else tuple(each for each, _ in self.pending.members)


def _has_the_high_watermark(self: PartitionState, node_id: int, follower: Follower) -> bool:
    """Enough for a replica that is to join, whatever the leader began its epoch with (KAFKA-7128)."""
    is_eligible: bool = vars(PartitionState)["_is_eligible"](self, node_id, follower)
    return is_eligible and follower.log_end >= self.high_watermark


def _unanswered_is_undone(real: Real) -> Real:
    """What the controller did not answer it has not done."""

    async def ask_for(self: IsrChanges, asked: dict[Replica, AlterIsr]) -> bool:
        again: bool = await real(self, asked)
        if again:
            for replica, change in asked.items():
                replica.altered(change, ErrorCode.OPERATION_NOT_ATTEMPTED, None)
        return again

    return ask_for


def _keep_followers(self: PartitionState) -> None:
    """What a leader knew of its followers is known when it comes to lead again, whatever has been cut since..."""
    self.is_alone = False
    self.epoch_start = UNKNOWN


def _known_followers(real: Real) -> Real:
    """... and counts."""

    def follower(self: PartitionState, node_id: int, _: bool, *given: Any) -> Follower:
        found: Follower = real(self, node_id, False, *given)
        return found

    return follower


def replica_plants() -> dict[str, list[tuple[Any, str, Any]]]:
    """By name: whose attributes, which, and what takes their place."""
    return {
        "alters-old-partition-epochs": [(in_sync, "_refusal", _any_partition_epoch(vars(in_sync)["_refusal"]))],
        "cuts-in-one-round": [(Fetcher, "cut", _cut_once(Fetcher.cut))],
        "counts-without-those-it-wants-out": [(PartitionState, "maximal_isr", property(_in_sync_as_wished))],
        "lets-replicas-join-below-its-epoch": [(PartitionState, "_may_join", _has_the_high_watermark)],
        "remembers-followers-of-earlier-terms": [
            (PartitionState, "_end_leadership", _keep_followers),
            (PartitionState, "_follower", _known_followers(vars(PartitionState)["_follower"])),
        ],
        "undoes-what-nobody-answers": [(IsrChanges, "_ask_for", _unanswered_is_undone(vars(IsrChanges)["_ask_for"]))],
    }
