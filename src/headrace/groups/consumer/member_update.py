"""What one request of a member changes in its consumer group: the member, the epochs, the target assignment, and the
member's own. The records are the same in both protocols.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.groups.consumer.assignors import ASSIGNORS, Subscriber
from headrace.groups.consumer.group import NO_PARTITIONS, ConsumerGroup
from headrace.groups.consumer.member_timers import await_revocation, forget
from headrace.groups.consumer.reconcile import Owned, reconcile
from headrace.groups.consumer.records import (
    PARTITION_BYTES,
    ConsumerRecord,
    CurrentAssignment,
    Kind,
    Member,
    Partitions,
)
from headrace.groups.modern.epochs import AssignmentEpoch, GroupEpoch, may_compute, raised
from headrace.groups.modern.targets import changed

if TYPE_CHECKING:
    from headrace.groups.shard_state import GroupShardState
    from headrace.machine.outcome import Outcome


class MemberUpdate:
    """The update of a current or new member of a group. Its records are collected in `out`, as one atomic batch."""

    def __init__(self, shard: GroupShardState, group: ConsumerGroup, member_id: str, now_ms: int, out: Outcome) -> None:
        self.shard = shard
        self.group = group
        self.member_id = member_id
        self.now_ms = now_ms
        self.out = out
        self.settings = shard.settings_of(group.id)
        self.replaced_id: str | None = None
        """The former id of the static member: another one, or the same."""
        self.member = Member()
        """The member before this request."""
        self.current = group.current(member_id)
        self.owned: Owned | None = None
        """The partitions that the member says it owns; None if it does not say."""

    def write(
        self,
        kind: Kind,
        name: str,
        value: Member | GroupEpoch | AssignmentEpoch | Partitions | CurrentAssignment | None,
    ) -> None:
        """Adds a record of the group, or with None its tombstone."""
        self.out.records.append(ConsumerRecord(self.group.id, kind, name, value))

    # --- the member --------------------------------------------------------------------------------------------------

    def replace_static(self, replaced_id: str) -> None:
        """Gives a static member that came back the subscription and assignments of its instance, at epoch 0."""
        group = self.group
        assert self.replaced_id is None, "a member takes the place of one"
        self.replaced_id = replaced_id
        self.member = group.members.latest[replaced_id]
        had = group.current(replaced_id)
        for kind in (Kind.CURRENT, Kind.TARGET, Kind.MEMBER):
            self.write(kind, replaced_id, None)
        self.current = CurrentAssignment(0, 0, had.state, had.assigned, had.revoking)
        self.write(Kind.MEMBER, self.member_id, self.member)
        self.write(Kind.TARGET, self.member_id, self.target_before)
        self.write(Kind.CURRENT, self.member_id, self.current)
        self.out.note(
            "static member has a new id",
            group=group.id,
            instance=self.member.instance_id,
            was=replaced_id,
            now=self.member_id,
        )

    @property
    def target_before(self) -> Partitions:
        """The target of the member, or of the one that it replaces, before this request."""
        known_as = self.member_id if self.replaced_id is None else self.replaced_id
        return self.group.targets.latest.get(known_as, NO_PARTITIONS)

    def store(self, updated: Member) -> None:
        """Writes the member if it is new or updated."""
        is_new = self.replaced_id is None and self.member_id not in self.group.members.latest
        if is_new or updated != self.member:
            self.write(Kind.MEMBER, self.member_id, updated)

    def change_regex(self, updated: Member) -> bool:
        """Returns whether the member has another regular expression, and removes the topics of one that has no other
        subscriber. The new one may not be resolved yet."""
        before = self.member.regex
        if updated.regex == before:
            return False
        if before in self.group.regexes.latest and self.group.regex_readers.latest.get(before) == 1:
            self.write(Kind.REGEX, before, None)
        return True

    def forget_replaced(self) -> None:
        """Cancels the timers of the member that is replaced."""
        if self.replaced_id is not None and self.replaced_id != self.member_id:
            forget(self.shard, self.group.id, self.replaced_id)

    # --- the epochs and the target assignment ------------------------------------------------------------------------

    def raise_epoch(self, updated: Member, is_bumped: bool, subscription_changed: bool) -> int:
        """Returns the group epoch, which rises if the subscriptions (`is_bumped`) or topics of the group changed."""
        group, topics = self.group, self.shard.topics
        before = group.epoch
        if not is_bumped and group.checked_topics is topics:
            return before.epoch
        subscribed = group.topics_with(self.member, updated) if subscription_changed else group.topics()
        epoch = raised(before, topics, subscribed, is_bumped)
        if epoch is None:
            group.checked_topics = topics
            return before.epoch
        self.write(Kind.EPOCH, "", epoch)
        if group.known_topics.latest:
            self.write(Kind.PARTITION_METADATA, "", None)
        return epoch.epoch

    def target(self, group_epoch: int, updated: Member) -> tuple[int, Partitions]:
        """Returns the assignment epoch and the target of the member; computes the target assignment if it is due."""
        group = self.group
        last = group.target_epoch
        if last.epoch >= group_epoch or not may_compute(last, self.settings.assignment_interval_ms, self.now_ms):
            return last.epoch, self.target_before
        if not self._has_room(updated):
            self.out.note("targets stay as they are: there is no room for larger ones", group=group.id)
            return last.epoch, self.target_before
        computed = self._compute(updated)
        assert self.member_id in computed, "each member has a target"
        for member_id, target in changed(computed, group.targets.latest, self.member_id, self.replaced_id):
            self.write(Kind.TARGET, member_id, target)
        self.write(Kind.TARGET_EPOCH, "", AssignmentEpoch(group_epoch, self.now_ms))
        return group_epoch, computed[self.member_id]

    def _has_room(self, updated: Member) -> bool:
        """Returns whether all partitions of the group's topics may be assigned, and charges the group for them."""
        group, topics = self.group, self.shard.topics.by_name
        names = group.topics_with(self.member, updated)
        partitions = sum([topics[name].partition_count for name in names if name in topics])
        growth = PARTITION_BYTES * partitions - group.target_bytes
        return growth <= 0 or self.shard.take_for_assignments(group.id, growth, self.now_ms)

    def _compute(self, updated: Member) -> dict[str, Partitions]:
        """Returns the targets of all members, by the assignor that most of them ask for."""
        group, topics = self.group, self.shard.topics
        members = {**group.members.latest, self.member_id: updated}
        if self.replaced_id is not None and self.replaced_id != self.member_id:
            del members[self.replaced_id]
        subscribers = []
        # Thousands of members subscribe to the same topics: these are looked up once.
        known: dict[tuple[frozenset[str], str], frozenset[bytes]] = {}
        for member_id, member in sorted(members.items()):
            known_as = self.replaced_id if self.replaced_id is not None and member_id == self.member_id else member_id
            had = group.targets.latest.get(known_as, NO_PARTITIONS)
            subscription = member.topics, member.regex
            topic_ids = known.get(subscription)
            if topic_ids is None:
                topic_ids = known[subscription] = topics.ids(group.topics_of(member))
            subscribers.append(Subscriber(member_id, member.instance_id, topic_ids, had))
        counts = {
            topic_id: topics.by_id[topic_id].partition_count for topic_ids in known.values() for topic_id in topic_ids
        }
        votes = dict(group.votes.latest)
        for member, by in ((self.member, -1), (updated, 1)):
            if member.assignor is not None:
                votes[member.assignor] = votes.get(member.assignor, 0) + by
        chosen = max(self.settings.assignors, key=lambda name: votes.get(name, 0))
        self.out.note("targets are computed", group=group.id, members=len(subscribers), assignor=chosen)
        return ASSIGNORS[chosen](subscribers, counts)

    # --- the assignment of the member --------------------------------------------------------------------------------

    def reconcile(
        self, updated: Member, assignment_epoch: int, target: Partitions, subscription_changed: bool
    ) -> CurrentAssignment | None:
        """Returns the assignment of the member after one step towards its target; None if it has to be fenced."""
        known_as = (self.member_id, self.replaced_id)
        reached = reconcile(
            self.current,
            assignment_epoch,
            target,
            self.shard.topics.ids(self.group.topics_of(updated)),
            self.owned,
            lambda partition: self.group.holders.latest.get(partition, self.member_id) not in known_as,
            subscription_changed,
        )
        assert reached is None or reached.epoch >= self.current.epoch, "a member's epoch never falls"
        if reached is not None and reached != self.current:
            self.write(Kind.CURRENT, self.member_id, reached)
            await_revocation(self.shard, self.group.id, self.member_id, updated, reached, self.now_ms)
        return reached
