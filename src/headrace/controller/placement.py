"""Where replicas go: in turn over the brokers that are up, so that leaders spread evenly."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.controller.context import ApiError
from headrace.metadata import image as im
from headrace.metadata.image import ClusterImage, Partition
from headrace.wire.errors import ErrorCode


def place(image: ClusterImage, first: int, count: int, replication_factor: int) -> list[tuple[int, ...]] | str:
    """Replicas of `count` partitions from index `first` on, or why they cannot be placed."""
    registered = len(image.brokers)
    if replication_factor > registered:
        return (
            f"The target replication factor of {replication_factor} cannot be reached because only {registered} "
            "broker(s) are registered."
        )
    brokers = [broker.id for broker in image.online_brokers() if not broker.in_controlled_shutdown]
    if not brokers:
        return "All brokers are currently fenced."
    # A fenced broker may hold a follower: it will catch up when it is back.
    spare = sorted(set(image.brokers) - set(brokers))
    wheel = [tuple(brokers[i:] + brokers[:i] + spare)[:replication_factor] for i in range(len(brokers))]
    return [wheel[index % len(wheel)] for index in range(first, first + count)]


def new_partition(image: ClusterImage, index: int, replicas: Sequence[int]) -> Partition | None:
    """A partition led by the first of its replicas that is up; None where all of them are down."""
    isr = tuple([r for r in replicas if is_active(image, r)])
    if not isr:
        return None
    return Partition(
        index=index,
        replicas=tuple(replicas),
        directories=tuple([default_directory(image, r) for r in replicas]),
        isr=isr,
        leader=isr[0],
        leader_epoch=0,
        partition_epoch=0,
    )


def is_active(image: ClusterImage, broker_id: int) -> bool:
    """Whether a broker may lead: registered, not fenced, not shutting down."""
    broker = image.brokers.get(broker_id)
    return broker is not None and not broker.fenced and not broker.in_controlled_shutdown


def default_directory(image: ClusterImage, broker_id: int) -> bytes:
    """The directory of a new replica: a broker's only one, or still to be chosen by the broker itself."""
    broker = image.brokers.get(broker_id)
    if broker is None or not broker.directories:
        return im.DIRECTORY_MIGRATING
    return broker.directories[0] if len(broker.directories) == 1 else im.DIRECTORY_UNASSIGNED


def check_manual(image: ClusterImage, replicas: Sequence[int], replication_factor: int | None) -> ApiError | None:
    """Why replicas given by hand are refused, or None; every partition must have as many as the first."""
    bad = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    if not replicas:
        return ApiError(bad, "The manual partition assignment includes an empty replica list.")
    ordered = sorted(replicas)
    previous: int | None = None
    for replica in ordered:
        if replica == previous:
            return ApiError(bad, f"The manual partition assignment includes the broker {replica} more than once.")
        previous = replica
        if replica not in image.brokers:
            return ApiError(
                bad, f"The manual partition assignment includes broker {replica}, but no such broker is registered."
            )
    if replication_factor is not None and len(replicas) != replication_factor:
        return ApiError(
            bad,
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is not "
            f"consistent with previous partitions, which have {replication_factor} replica(s).",
        )
    return None
