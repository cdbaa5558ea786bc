"""Checks that deleted records stay deleted and others stay, by DeleteRecords requests, their answers and the replicas'
start offsets.

- A replica starts at most at the highest offset that a client has asked for, and never above its high watermark.
- A success carries the lowest start offset of the active replicas, which is at least the requested offset.
- From then on no leader starts before that, as long as one of the electable replicas remembers it. As in Kafka, a
  process remembers it from the moment at which its replica starts there until it is killed; a clean stop stores it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, Any

from headrace.broker.partitions.record_deletions import RecordDeletions
from headrace.broker.partitions.replica import Replica
from headrace.env.completion import Completion
from headrace.replicas.partition import Role
from headrace.sim.machine import Machine
from headrace.sim.moments import after_each, before_each, in_place
from headrace.wire.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.metadata.image import ClusterImage
    from headrace.sim.checkers.history import Place
    from headrace.sim.machine import AnyMachine
    from headrace.sim.world import World

HIGH_WATERMARK = -1
"""What DeleteRecords takes for everything that is committed."""


@dataclass(slots=True)
class _Known:
    """Of one partition."""

    ceiling: int = 0
    """The highest offset before which a client has asked to delete."""
    up_to_mark: bool = False
    """Whether one has asked to delete all that is committed."""
    floor: int = 0
    """Everything before this was reported as deleted."""
    epoch: int = -1
    """The newest one of a leader that answered."""
    remember: set[int] = field(default_factory=set)
    """The nodes that have not been killed since their replica came to begin there."""


class Deletions:
    """Checks that deleted records, and no others, stay deleted."""

    def __init__(
        self,
        world: World,
        places: Sequence[Place],
        machines: Mapping[int, AnyMachine],
        newest: Callable[[], ClusterImage | None],
    ) -> None:
        """`newest` is the newest image that any node has applied."""
        self._world = world
        self._machines = machines
        self._newest = newest
        self._known = {place: _Known() for place in places}
        self.confirmed = 0
        self.forgotten = 0
        """How often nobody was left who remembered."""

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Hears inside the block of kills, of logs that begin elsewhere, and of what leaders say is done."""
        real = RecordDeletions.when_deleted

        @wraps(real)
        def when_deleted(
            deletions: RecordDeletions, replica: Replica, offset: int, timeout_ms: float
        ) -> Completion[ErrorCode]:
            def deleted(error: ErrorCode) -> ErrorCode:
                if error is ErrorCode.NONE:
                    self._done(replica, offset)
                return error

            return real(deletions, replica, offset, timeout_ms).mapped(deleted)

        with ExitStack() as taps:
            taps.enter_context(in_place(RecordDeletions, "when_deleted", when_deleted))
            taps.enter_context(before_each(Replica, "delete_before", self._deletes))
            taps.enter_context(after_each(Replica, "was_cut", self._cut))
            taps.enter_context(before_each(Machine, "kill", self._killed))
            yield

    # --- reported by clients

    def asks(self, place: Place, offset: int) -> None:
        """A client is about to ask that all before an offset be deleted."""
        known = self._known[place]
        known.ceiling = max(known.ceiling, offset)
        known.up_to_mark |= offset == HIGH_WATERMARK

    def confirms(self, place: Place, epoch: int, offset: int, low_watermark: int) -> None:
        """Takes a success, from the leader of an epoch, or of a later one."""
        self.confirmed += 1
        text = f"{place} was deleted up to {offset}, and begins at {low_watermark}"
        self._world.demand(low_watermark >= offset, text)
        known = self._known[place]
        known.epoch = max(known.epoch, epoch)
        if low_watermark > known.floor:
            known.floor = low_watermark
            known.remember.clear()
            self._look_who_remembers(place, known)
            self._look_who_may_lead(place, known)

    def floor(self, place: Place) -> int:
        """Before this no leader has anything to read."""
        return self._known[place].floor

    def epoch(self, place: Place) -> int:
        """A leader of an epoch before this may not know."""
        return self._known[place].epoch

    # --- seen in the brokers

    def _deletes(self, replica: Replica, _: int) -> None:
        known = self._known.get(replica.key)
        if known is not None and known.up_to_mark and replica.state.role is Role.LEADER:
            known.ceiling = max(known.ceiling, replica.high_watermark)

    def _cut(self, replica: Replica) -> None:
        if replica.key in self._known:
            self._look_at_marks(replica)

    def _look_at_marks(self, replica: Replica) -> None:
        start, mark, end = replica.log.log_start_offset, replica.high_watermark, replica.log.end_offset
        text = f"{replica.key} begins at {start} on {replica.state.node_id}, is committed to {mark}, and ends at {end}"
        self._world.demand(start <= mark <= end, text)

    def _done(self, replica: Replica, offset: int) -> None:
        """A leader is about to say that nobody who serves has anything before an offset."""
        if replica.key not in self._known:
            return
        low = replica.low_watermark
        leader = next((each for each in self._up() if each.node_id == replica.state.node_id), None)
        brokers = {} if leader is None else leader.image.brokers
        self._world.demand(low >= offset, f"{replica.key} is deleted up to {low}, not to {offset}, and that is done")
        for broker in self._up():
            held = broker.replicas.held(replica.key)
            known = brokers.get(broker.node_id)
            if known is None or known.fenced or known.in_controlled_shutdown or known.epoch != broker.epoch:
                continue  # its leader does not wait for it
            if held is not None and held.topic_id == replica.topic_id and not held.is_held:
                start = held.log.log_start_offset
                text = f"{replica.key} begins at {start} on {broker.node_id}, and at {low} as its leader says"
                self._world.demand(start >= low, text)

    def _killed(self, machine: Machine[Any], **_: object) -> None:
        for node, each in self._machines.items():
            if each is machine and machine.runs:
                for place, known in self._known.items():
                    known.remember.discard(node)
                    self._look_who_may_lead(place, known)

    def _up(self) -> list[Broker]:
        return [machine.broker for machine in self._machines.values() if machine.broker is not None]

    def look(self) -> None:
        """At any time."""
        for place, known in self._known.items():
            self._look_who_remembers(place, known)
            self._look_who_may_lead(place, known)
            self._look_at(place, known)

    def _look_who_remembers(self, place: Place, known: _Known) -> None:
        for broker in self._up():
            held = broker.replicas.held(place)
            if held is not None and held.log.log_start_offset >= known.floor:
                known.remember.add(broker.node_id)

    def _look_who_may_lead(self, place: Place, known: _Known) -> None:
        image = self._newest()
        partition = None if image is None else image.topics.partition(*place)
        if partition is None:
            return
        if known.floor and not known.remember.intersection((*partition.isr, *partition.eligible_leaders)):
            self.forgotten += 1
            known.floor = 0
            known.remember.clear()

    def _look_at(self, place: Place, known: _Known) -> None:
        image = self._newest()
        partition = None if image is None else image.topics.partition(*place)
        for broker in self._up():
            held = broker.replicas.held(place)
            if held is None or held.is_held:
                continue
            start = held.log.log_start_offset
            where = f"{place} begins at {start} on {broker.node_id}"
            self._world.demand(start <= known.ceiling, f"{where}, and nobody asked for more than {known.ceiling}")
            self._look_at_marks(held)
            leads = partition is not None and held.state.role is Role.LEADER
            if leads and partition is not None and held.leader_epoch == partition.leader_epoch:
                text = f"{where}, which leads, and was deleted up to {known.floor}, as {known.remember} know"
                self._world.demand(start >= known.floor, text)

    def differences(self) -> list[str]:
        """Where replicas begin at different offsets, at rest."""
        late = []
        for place in self._known:
            held = {broker.node_id: broker.replicas.held(place) for broker in self._up()}
            starts = {node: each.log.log_start_offset for node, each in held.items() if each is not None}
            if len(set(starts.values())) > 1:
                late.append(f"{place} begins at different offsets: {starts}")
        return late
