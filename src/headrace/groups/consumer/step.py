"""One step of a member of a consumer group: what it says is taken in, targets are computed where that is due, and it is
led on to its own. Whichever protocol it speaks, the records are the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.groups.consumer.assignors import ASSIGNORS, Subscriber
from headrace.groups.consumer.group import NOTHING, ConsumerGroup
from headrace.groups.consumer.member_timers import await_revocation, forget
from headrace.groups.consumer.reconcile import Owned, reconcile
from headrace.groups.consumer.records import (
    PARTITION_BYTES,
    ConsumerRecord,
    Current,
    GroupEpoch,
    Kind,
    Member,
    Partitions,
    TargetEpoch,
)

if TYPE_CHECKING:
    from headrace.groups.shard_state import GroupShardState
    from headrace.machine.outcome import Outcome


class Step:
    """A step of a member that is, or wants to be, in a group; what it decides gathers in `out`, as one atomic batch."""

    def __init__(self, shard: GroupShardState, group: ConsumerGroup, member_id: str, now_ms: int, out: Outcome) -> None:
        self.shard = shard
        self.group = group
        self.member_id = member_id
        self.now_ms = now_ms
        self.out = out
        self.settings = shard.settings_of(group.id)
        self.replaces: str | None = None
        """The member whose place a static member takes: its other, earlier id, or the same."""
        self.member = Member()
        """What the member said before."""
        self.current = group.current(member_id)
        self.owned: Owned | None = None
        """What it says that it has; None where it does not say."""

    def write(
        self, kind: Kind, name: str, value: Member | GroupEpoch | TargetEpoch | Partitions | Current | None
    ) -> None:
        """A record of the group, or with None its tombstone."""
        self.out.records.append(ConsumerRecord(self.group.id, kind, name, value))

    # --- who it is ---------------------------------------------------------------------------------------------------

    def take_the_place_of(self, holder: str) -> None:
        """A static member is back, as another process: it goes on with what its instance had, from epoch 0."""
        group = self.group
        self.replaces = holder
        self.member = group.members.latest[holder]
        had = group.current(holder)
        for kind in (Kind.CURRENT, Kind.TARGET, Kind.MEMBER):
            self.write(kind, holder, None)
        self.current = Current(0, 0, had.state, had.assigned, had.revoking)
        self.write(Kind.MEMBER, self.member_id, self.member)
        self.write(Kind.TARGET, self.member_id, self.target_now)
        self.write(Kind.CURRENT, self.member_id, self.current)
        self.out.note(
            "static member has a new id",
            group=group.id,
            instance=self.member.instance_id,
            was=holder,
            now=self.member_id,
        )

    @property
    def target_now(self) -> Partitions:
        """What the member, or whom it replaces, was to have until now."""
        holder = self.member_id if self.replaces is None else self.replaces
        return self.group.targets.latest.get(holder, NOTHING)

    # --- what it says ------------------------------------------------------------------------------------------------

    def take_in(self, said: Member) -> None:
        """Stores what the member says of itself, where that is new."""
        is_new = self.replaces is None and self.member_id not in self.group.members.latest
        if is_new or said != self.member:
            self.write(Kind.MEMBER, self.member_id, said)

    def change_regex(self, said: Member) -> bool:
        """Whether the member has another regular expression, one that is not resolved yet perhaps."""
        before = self.member.regex
        if said.regex == before:
            return False
        if before in self.group.regexes.latest and self.group.regex_readers.latest.get(before) == 1:
            self.write(Kind.REGEX, before, None)
        return True

    # --- the group's epoch and targets -------------------------------------------------------------------------------

    def bump(self, said: Member, bumps: bool, subscription_changed: bool) -> int:
        """The group's epoch: the next one where its subscriptions (`bumps`) or its topics changed."""
        group, topics = self.group, self.shard.topics
        before = group.epoch
        if not bumps and group.checked_topics is topics:
            return before.epoch
        known = topics.hash(group.topics_with(self.member, said) if subscription_changed else group.topics())
        if not bumps and known == before.metadata_hash:
            group.checked_topics = topics
            return before.epoch
        self.write(Kind.EPOCH, "", GroupEpoch(before.epoch + 1, known))
        if group.known_topics.latest:
            self.write(Kind.PARTITION_METADATA, "", None)
        return before.epoch + 1

    def target(self, epoch: int, said: Member) -> tuple[int, Partitions]:
        """The epoch of the targets and the member's own: computed here where that is due."""
        group = self.group
        last = group.target_epoch
        if last.epoch >= epoch or not is_due(last, self.settings.assignment_interval_ms, self.now_ms):
            return last.epoch, self.target_now
        if not self._has_room(said):
            self.out.note("targets stay as they are: there is no room for larger ones", group=group.id)
            return last.epoch, self.target_now
        computed = self._compute(said)
        holder = self.member_id if self.replaces is None else self.replaces
        for member_id, target in sorted(computed.items()):
            before = group.targets.latest.get(holder if member_id == self.member_id else member_id)
            if target != before:
                self.write(Kind.TARGET, member_id, target)
        self.write(Kind.TARGET_EPOCH, "", TargetEpoch(epoch, self.now_ms))
        return epoch, computed[self.member_id]

    def _has_room(self, said: Member) -> bool:
        """Whether all partitions of the group's topics may be assigned: the group is charged for them then."""
        group, topics = self.group, self.shard.topics.by_name
        names = group.topics_with(self.member, said)
        partitions = sum([topics[name].partition_count for name in names if name in topics])
        growth = PARTITION_BYTES * partitions - group.target_bytes
        return growth <= 0 or self.shard.take_for_assignments(group.id, growth, self.now_ms)

    def _compute(self, said: Member) -> dict[str, Partitions]:
        """The targets of everybody, by the assignor that most members ask for."""
        group, topics = self.group, self.shard.topics
        members = {**group.members.latest, self.member_id: said}
        if self.replaces is not None and self.replaces != self.member_id:
            del members[self.replaces]
        subscribers = []
        # Thousands of members read the same topics: these are looked up once.
        known: dict[tuple[frozenset[str], str], frozenset[bytes]] = {}
        for member_id, member in sorted(members.items()):
            holder = self.replaces if self.replaces is not None and member_id == self.member_id else member_id
            had = group.targets.latest.get(holder, NOTHING)
            subscription = member.topics, member.regex
            reads = known.get(subscription)
            if reads is None:
                reads = known[subscription] = topics.ids(group.topics_of(member))
            subscribers.append(Subscriber(member_id, member.instance_id, reads, had))
        counts = {topic_id: topics.by_id[topic_id].partition_count for reads in known.values() for topic_id in reads}
        votes = dict(group.votes.latest)
        for member, by in ((self.member, -1), (said, 1)):
            if member.assignor is not None:
                votes[member.assignor] = votes.get(member.assignor, 0) + by
        chosen = max(self.settings.assignors, key=lambda name: votes.get(name, 0))
        self.out.note("targets are computed", group=group.id, members=len(subscribers), assignor=chosen)
        return ASSIGNORS[chosen](subscribers, counts)

    # --- what it has -------------------------------------------------------------------------------------------------

    def advance(self, said: Member, target_epoch: int, target: Partitions, changed: bool) -> Current | None:
        """Leads the member on to its target; what it has then, or None where it has to be fenced.

        `changed`: whether it subscribes to something else than before.
        """
        mine = (self.member_id, self.replaces)
        reached = reconcile(
            self.current,
            target_epoch,
            target,
            self.shard.topics.ids(self.group.topics_of(said)),
            self.owned,
            lambda partition: self.group.holders.latest.get(partition, self.member_id) not in mine,
            changed,
        )
        if reached is not None and reached != self.current:
            self.write(Kind.CURRENT, self.member_id, reached)
            await_revocation(self.shard, self.group.id, self.member_id, said, reached, self.now_ms)
        return reached

    def replaced(self) -> None:
        """Nobody goes by the id of the member that was replaced any more."""
        if self.replaces is not None and self.replaces != self.member_id:
            forget(self.shard, self.group.id, self.replaces)


def is_due(last: TargetEpoch, interval_ms: int, now_ms: int) -> bool:
    """Whether targets may be computed again."""
    return not (last.computed_ms and last.computed_ms <= now_ms < last.computed_ms + interval_ms)
