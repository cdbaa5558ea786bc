"""Checks that no two members of a group own a partition at the same time, by the coordinator's confirmations; and that
epochs and committed offsets never go back.

Members report what they gain and lose as they act upon it; the committed records give the order of the coordinator's
decisions. A member owns a partition from the answer that assigned it until it revokes it, and only while it is in the
group: a member that expired unknowingly owns nothing, and its later commits have to be refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from headrace.groups.records import OffsetRecord
from headrace.sim.checkers.group_state import GroupState, Place, Share

if TYPE_CHECKING:
    from headrace.groups.records import Record
    from headrace.sim.checkers.group_records import GroupRecords
    from headrace.sim.world import World

AWAY: Final = -2
"""The epoch of a static member that left for a while."""
NOBODY: Final = Share(epoch=-1)


def tag_of(member_id: str, epoch: int, number: int) -> str:
    """The metadata of a commit: who makes it, at which epoch, and which of its commits it is."""
    return f"{member_id} {epoch} {number}"


@dataclass(slots=True)
class Stretch:
    """A member has a partition from one batch to another, as the coordinator decided."""

    member: str
    start: int
    """The offset of the batch that gave it."""
    epochs: tuple[int, int]
    """The first and the last of the member meanwhile."""
    is_over: bool = False


@dataclass(slots=True, eq=False)
class Holding:
    """A member acts as the owner of a partition."""

    member: str
    place: Place
    epoch: int
    """The member's, when it heard."""
    is_over: bool = False
    stretch: Stretch | None = None
    """The decision behind it, once it is known."""


@dataclass(slots=True)
class _Known:
    """What is known of one group."""

    state: GroupState
    shares: dict[str, Share] = field(default_factory=dict)
    epoch: int = -1
    is_classic: bool = False
    stretches: dict[tuple[str, Place], list[Stretch]] = field(default_factory=dict)
    gone: dict[str, list[int]] = field(default_factory=dict)
    """By member: the offsets of the batches after which it was not in the group any longer."""
    offsets: dict[Place, int] = field(default_factory=dict)
    holdings: list[Holding] = field(default_factory=list)
    """Those that are not over."""
    unproven: list[Holding] = field(default_factory=list)
    """Those whose decision no replica knows to be committed yet."""
    pairs: list[tuple[Holding, Holding]] = field(default_factory=list)
    """Two at a time, of one partition: the one that was given first must have ended before the other was given."""


class Shares:
    """Checks that members of a group never share a partition."""

    def __init__(self, world: World, records: GroupRecords, topics: Callable[[], Mapping[bytes, str]]) -> None:
        """`topics` gives the names of all topics by their ids."""
        self._world = world
        self._records = records
        self._topics = topics
        self._groups: dict[str, _Known] = {}
        self.unanswered: set[str] = set()
        """Commits that their members gave up waiting for: one that arrives late may take an offset back."""
        self.expired = 0
        """Members that went on as owners while another one was given what they had."""
        self.upgrades = self.downgrades = 0
        """Of groups that had members before and after."""

    # --- what members report

    def gained(self, group: str, member: str, epoch: int, places: Iterable[Place]) -> None:
        """A member acts as the owner of these from now on."""
        known = self._known(group)
        for place in sorted(places):
            holding = Holding(member, place, epoch)
            others = [each for each in known.holdings if each.place == place]
            known.pairs += [(each, holding) for each in others]
            known.holdings.append(holding)
            known.unproven.append(holding)
        self.look()

    def lost(self, group: str, member: str, places: Iterable[Place]) -> None:
        """It gave these up, and says so next."""
        known, given_up = self._known(group), set(places)
        for each in known.holdings:
            each.is_over = each.is_over or (each.member == member and each.place in given_up)
        known.holdings = [each for each in known.holdings if not each.is_over]

    def ended(self, group: str, member: str) -> None:
        """It gave up all that it had, or its process ended."""
        self.lost(group, member, [each.place for each in self._known(group).holdings if each.member == member])

    # --- what the log says

    def look(self) -> None:
        """At any time: at what was committed since the last look."""
        for offset, records in self._records.news():
            self._take_in(offset, records)
        for group, known in self._groups.items():
            self._judge(group, known)

    def look_at_rest(self) -> None:
        """At rest: everything that a member was given is in the log."""
        self.look()
        for group, known in self._groups.items():
            self._world.demand(not known.unproven, f"group {group}: {known.unproven} are in no record")

    def late(self, group: str, live: Iterable[str]) -> list[str]:
        """What keeps the group from rest, if these members alone live and everything is read."""
        self.look()
        known, expected = self._known(group), set(live)
        found = set(known.shares)
        late = [f"group {group} has members {sorted(found)}, not {sorted(expected)}"] if found != expected else []
        return late + [f"{each} of group {group} has {s}" for each, s in known.shares.items() if not s.is_stable]

    def _known(self, group: str) -> _Known:
        known = self._groups.get(group)
        if known is None:
            known = self._groups[group] = _Known(GroupState({}))
        return known

    def _take_in(self, offset: int, records: Iterable[Record]) -> None:
        topics = self._topics()
        touched: dict[str, _Known] = {}
        commits: list[OffsetRecord] = []
        for record in records:
            known = self._known(record.group_id)
            known.state.topics = topics
            if isinstance(record, OffsetRecord):
                commits.append(record)
            elif hasattr(record, "stored") or hasattr(record, "name"):
                known.state.apply(record)  # type: ignore[arg-type]
                touched[record.group_id] = known
        for group, known in touched.items():
            self._step(group, known, offset)
        for commit in commits:
            self._look_at_commit(commit)

    def _step(self, group: str, known: _Known, offset: int) -> None:
        """One decision about a group."""
        before, now = known.shares, known.state.shares()
        demand, where = self._world.demand, f"group {group} at {offset}"
        demand(not known.state.is_both(), f"{where} is a classic group and a consumer group at once")
        epoch = known.state.group_epoch()
        is_classic = known.state.classic is not None
        if before and now:
            self.upgrades += known.is_classic and not is_classic
            self.downgrades += is_classic and not known.is_classic
            demand(epoch >= known.epoch, f"{where} goes back from epoch {known.epoch} to {epoch}")
        for member in before.keys() - now.keys():
            known.gone.setdefault(member, []).append(offset)
        holders: dict[Place, str] = {}
        for member, share in sorted(now.items()):
            had = before.get(member, NOBODY)
            is_back = share.epoch >= had.epoch or share.epoch == AWAY
            demand(is_back, f"{where}: {member} goes back from epoch {had.epoch} to {share.epoch}")
            demand(share.epoch <= epoch, f"{where}: {member} is at epoch {share.epoch}, and the group at {epoch}")
            for place in sorted(share.held):
                other = holders.setdefault(place, member)
                demand(other == member, f"{where}: {place} is both {other}'s and {member}'s")
        self._stretch(known, before, now, offset)
        known.shares, known.epoch, known.is_classic = now, epoch, is_classic

    def _stretch(self, known: _Known, before: Mapping[str, Share], now: Mapping[str, Share], offset: int) -> None:
        for member in sorted(before.keys() | now.keys()):
            had, has = before.get(member, NOBODY), now.get(member, NOBODY)
            for place in sorted(had.assigned | has.assigned):
                stretches = known.stretches.setdefault((member, place), [])
                if place in has.assigned and (not stretches or stretches[-1].is_over):
                    stretches.append(Stretch(member, offset, (has.epoch, has.epoch)))
                elif place in has.assigned:
                    first, last = stretches[-1].epochs
                    stretches[-1].epochs = min(first, has.epoch), max(last, has.epoch)
                elif stretches:
                    stretches[-1].is_over = True

    def _look_at_commit(self, record: OffsetRecord) -> None:
        if record.offset is None or not record.offset.metadata:
            return
        known, place = self._known(record.group_id), (record.topic, record.partition)
        member, epoch, _ = record.offset.metadata.rsplit(" ", 2)
        where = f"group {record.group_id}: a commit of {place} at {record.offset.position} by {record.offset.metadata}"
        share = known.shares.get(member)
        self._world.demand(share is not None, f"{where}, who is not in the group, is taken")
        if share is not None:
            # At its own epoch a member may commit anything: a commit may be late that it gave up waiting for.
            is_late = record.offset.metadata in self.unanswered and int(epoch) == share.epoch
            self._world.demand(place in share.held or is_late, f"{where}, who has {share}, is taken")
            self._world.demand(int(epoch) <= share.epoch, f"{where}, who has {share}, is of a later epoch")
        last = known.offsets.get(place, 0)
        is_forward = record.offset.position >= last or record.offset.metadata in self.unanswered
        self._world.demand(is_forward, f"{where} goes back from {last}")
        known.offsets[place] = max(last, record.offset.position)

    # --- both together

    def _judge(self, group: str, known: _Known) -> None:
        for holding in known.unproven:
            for stretch in known.stretches.get((holding.member, holding.place), ()):
                if stretch.epochs[0] <= holding.epoch <= stretch.epochs[1]:
                    holding.stretch = stretch
        known.unproven = [each for each in known.unproven if each.stretch is None]
        left = []
        for one, other in known.pairs:
            if one.stretch is None or other.stretch is None:
                left.append((one, other))
                continue
            first, second = sorted((one.stretch, other.stretch), key=lambda each: each.start)
            is_out = any(first.start < at <= second.start for at in known.gone.get(first.member, ()))
            self._world.demand(
                is_out,
                f"group {group}: {one.place} is given to {second.member} at {second.start}, and {first.member}, who "
                f"has it since {first.start}, has not given it up",
            )
            self.expired += is_out
        known.pairs = left
