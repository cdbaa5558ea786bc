"""Where replicas go: in turn over the racks, and in each rack in turn over its brokers, those that are up first.

So a partition's replicas are spread over all racks, and leaders over all brokers. The first rack and broker are random;
each partition starts one later than the one before. The first replica is on a broker that is up, because it is to lead.

Source: KIP-631 (StripedReplicaPlacer), KIP-1066.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from headrace.controller.context import ApiError, first
from headrace.metadata import image as im
from headrace.metadata.image import Broker, ClusterImage, Partition
from headrace.wire.errors import ErrorCode

T = TypeVar("T")
_Rack = tuple[list[int], list[int]]
"""The brokers of a rack: those that are up, and those that are fenced."""


class Placer:
    """Places replicas on the brokers of one image. `random(n)` is one of the numbers from 0 to n - 1."""

    def __init__(self, image: ClusterImage, random: Callable[[int], int] = first) -> None:
        self._random = random
        self._registered = len(image.brokers)
        usable = [broker for broker in image.brokers.values() if _is_usable(broker)]
        self._usable = len(usable)
        self._up = sum(not broker.fenced for broker in usable)
        by_rack: dict[str, _Rack] = {}
        for broker in sorted(usable, key=lambda broker: broker.id):
            by_rack.setdefault(broker.rack or "", ([], []))[broker.fenced].append(broker.id)
        self._racks = [by_rack[rack] for rack in sorted(by_rack)]

    def place(self, first_index: int, count: int, replication_factor: int) -> Iterator[tuple[int, ...]] | str:
        """Replicas of `count` partitions from `first_index` on, placed as they are asked for; or why they cannot be."""
        prefix = f"The target replication factor of {replication_factor} cannot be reached because only"
        if replication_factor > self._registered:
            return f"{prefix} {self._registered} broker(s) are registered."
        if not self._up:
            return "All brokers are currently fenced."
        if replication_factor > self._usable:
            return f"{prefix} {self._usable} broker(s) take new replicas."
        return self._placed(_Turns(self._racks, first_index, self._random), count, replication_factor)

    def _placed(self, turns: _Turns, count: int, replication_factor: int) -> Iterator[tuple[int, ...]]:
        for number in range(count):
            # Once every broker that is up has had its turn the same replicas would come again.
            if number and number % self._up == 0:
                turns.shuffle()
            yield turns.next(replication_factor)


def _is_usable(broker: Broker) -> bool:
    """Whether new replicas may go to a broker: a fenced one will catch up when it is back."""
    closed = bool(broker.directories) and set(broker.directories) <= set(broker.cordoned_directories or ())
    return not broker.in_controlled_shutdown and not closed


class _Turns:
    """The brokers of each rack, those that are up and those that are fenced, each in the order of their turns."""

    def __init__(self, racks: Sequence[_Rack], first_index: int, random: Callable[[int], int]) -> None:
        self._random = random

        def begun(turns: Sequence[T]) -> list[T]:
            return _rotated(turns, first_index + random(len(turns))) if turns else []

        self._racks = begun([(begun(up), begun(fenced)) for up, fenced in racks])
        self._further = 0
        """So many places further all turns begin by now."""

    def next(self, replication_factor: int) -> tuple[int, ...]:
        """The replicas of the next partition."""
        racks, further = self._racks, self._further
        count = len(racks)
        taken = [0] * count
        at = further % count
        while not racks[at][0]:
            at = (at + 1) % count
        leading, at = at, further % count
        up = racks[leading][0]
        replicas = [up[further % len(up)]]
        taken[leading] = 1
        # The rack of the leader has had its turn in the first round.
        skipped = leading
        while len(replicas) < replication_factor:
            if at == skipped:
                skipped = -1
            else:
                up, fenced = racks[at]
                turn = taken[at]
                taken[at] += 1
                if turn < len(up):
                    replicas.append(up[(further + turn) % len(up)])
                elif turn < len(up) + len(fenced):
                    replicas.append(fenced[(further + turn - len(up)) % len(fenced)])
            at = (at + 1) % count
        self._further += 1
        assert len(set(replicas)) == replication_factor, "a broker has one replica of a partition"
        return tuple(replicas)

    def shuffle(self) -> None:
        """Reorders racks and brokers, so that the next cycle yields other sets of replicas."""
        further, self._further = self._further, 0
        racks = _rotated([(_rotated(up, further), _rotated(fenced, further)) for up, fenced in self._racks], further)
        self._shuffle(racks)
        for rack in racks:
            for turns in rack:
                self._shuffle(turns)
        self._racks = racks

    def _shuffle(self, turns: list[Any]) -> None:
        for at in range(len(turns) - 1):
            other = at + self._random(len(turns) - at)
            turns[at], turns[other] = turns[other], turns[at]


def _rotated(turns: Sequence[T], by: int) -> list[T]:
    by = by % len(turns) if turns else 0
    return [*turns[by:], *turns[:by]]


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
