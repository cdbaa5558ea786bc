"""The checker of consumer groups: what it objects to, and what it lets pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from headrace.groups.consumer.records import ConsumerRecord, CurrentAssignment, Held, Kind, Member
from headrace.groups.modern.epochs import AssignmentEpoch, GroupEpoch
from headrace.groups.records import GroupRecord, Offset, OffsetRecord, Record
from headrace.groups.subscription import write_assignment
from headrace.sim.checkers.shares import Shares, tag_of
from headrace.sim.world import World
from headrace.wire.messages.group_records import GroupMetadataValue, MemberMetadata

GROUP = "g"
TOPIC_ID = bytes(range(16))
PLACE = ("topic", 0)
OWNED: Held = {TOPIC_ID: {0: 1}}


class Written:
    """The committed records of a test."""

    def __init__(self) -> None:
        self._batches: list[list[Record]] = []
        self._read = 0

    def write(self, *records: Record) -> None:
        """One decision of the coordinator."""
        self._batches.append(list(records))

    def news(self) -> Iterator[tuple[int, list[Record]]]:
        """See GroupRecords."""
        while self._read < len(self._batches):
            self._read += 1
            yield self._read, self._batches[self._read - 1]


class Fixture:
    """A checker and the log that it reads."""

    def __init__(self) -> None:
        self.world = World(1)
        self.log = Written()
        self.shares = Shares(self.world, self.log, lambda: {TOPIC_ID: PLACE[0]})  # type: ignore[arg-type]

    @property
    def objection(self) -> str:
        return str(self.world.objection or "")

    def joins(self, member: str, epoch: int, assigned: Held | None = None) -> None:
        """The member is in the group, whose epoch is the member's."""
        group = [self.of(Kind.EPOCH, "", GroupEpoch(epoch)), self.of(Kind.TARGET_EPOCH, "", AssignmentEpoch(epoch))]
        self.log.write(self.of(Kind.MEMBER, member, Member()), *group, self.has(member, epoch, assigned))

    def of(
        self, kind: Kind, name: str, value: GroupEpoch | AssignmentEpoch | Member | CurrentAssignment | None
    ) -> ConsumerRecord:
        return ConsumerRecord(GROUP, kind, name, value)

    def has(
        self, member: str, epoch: int, assigned: Held | None = None, revoking: Held | None = None
    ) -> ConsumerRecord:
        return self.of(
            Kind.CURRENT, member, CurrentAssignment(epoch, epoch, assigned=assigned or {}, revoking=revoking or {})
        )

    def goes(self, member: str) -> list[Record]:
        return [self.of(kind, member, None) for kind in (Kind.CURRENT, Kind.MEMBER)]

    def commits(self, member: str, epoch: int, position: int) -> OffsetRecord:
        return OffsetRecord(GROUP, *PLACE, Offset(position, metadata=tag_of(member, epoch, 1)))


@pytest.fixture
def run() -> Fixture:
    made = Fixture()
    made.joins("a", 2, OWNED)
    made.shares.gained(GROUP, "a", 2, [PLACE])
    return made


def gains(run: Fixture, before: Iterable[Record] = ()) -> None:
    """Another member is given the partition."""
    run.log.write(*before)
    run.joins("b", 3, OWNED)
    run.shares.gained(GROUP, "b", 3, [PLACE])


def test_a_partition_is_given_up_before_it_is_given_on(run: Fixture) -> None:
    run.shares.lost(GROUP, "a", [PLACE])
    gains(run, [run.has("a", 2)])
    assert not run.objection


def test_a_partition_is_given_on_that_its_owner_has_not_given_up(run: Fixture) -> None:
    gains(run, [run.has("a", 2)])
    assert "has not given it up" in run.objection


def test_a_member_that_was_expired_owns_nothing_though_it_has_not_heard(run: Fixture) -> None:
    gains(run, run.goes("a"))
    assert not run.objection
    assert run.shares.expired == 1


def test_the_log_gives_a_partition_to_two(run: Fixture) -> None:
    run.log.write(run.has("a", 2, revoking=OWNED))
    run.joins("b", 3, OWNED)
    run.shares.look()
    assert "is both a's and b's" in run.objection


def test_a_member_is_given_what_the_log_does_not_hold(run: Fixture) -> None:
    run.shares.look_at_rest()
    assert not run.objection
    run.shares.gained(GROUP, "a", 2, [("topic", 1)])
    run.shares.look_at_rest()
    assert "are in no record" in run.objection


def test_epochs_go_back(run: Fixture) -> None:
    run.log.write(run.has("a", 1, OWNED))
    run.shares.look()
    assert "goes back from epoch 2 to 1" in run.objection


def test_a_commit_of_an_owner_is_taken(run: Fixture) -> None:
    run.log.write(run.commits("a", 2, 7))
    run.log.write(run.has("a", 2, revoking=OWNED))
    run.log.write(run.commits("a", 2, 8))
    run.shares.look()
    assert not run.objection


def test_a_commit_is_taken_that_goes_back(run: Fixture) -> None:
    run.log.write(run.commits("a", 2, 7))
    run.log.write(run.commits("a", 2, 6))
    run.shares.look()
    assert "goes back from 7" in run.objection


def test_a_commit_may_arrive_late_that_its_member_gave_up_waiting_for(run: Fixture) -> None:
    run.shares.unanswered.add(tag_of("a", 2, 1))
    run.log.write(run.commits("a", 2, 7))
    run.log.write(run.commits("a", 2, 6))
    run.shares.look()
    assert not run.objection


@pytest.mark.parametrize("is_late", [True, False])
def test_a_commit_of_what_a_member_has_given_up(run: Fixture, is_late: bool) -> None:
    if is_late:
        run.shares.unanswered.add(tag_of("a", 2, 1))
    run.log.write(run.has("a", 2))
    run.log.write(run.commits("a", 2, 7))
    run.shares.look()
    assert ("is taken" in run.objection) != is_late


def test_a_commit_of_a_member_that_is_out_is_taken(run: Fixture) -> None:
    run.log.write(*run.goes("a"))
    run.log.write(run.commits("a", 2, 7))
    run.shares.look()
    assert "is not in the group" in run.objection


def test_a_group_is_at_rest_once_its_members_are_those_that_live(run: Fixture) -> None:
    assert run.shares.late(GROUP, ["a"]) == []
    assert run.shares.late(GROUP, []) == ["group g has members ['a'], not []"]
    run.log.write(run.has("a", 2, revoking=OWNED), run.of(Kind.EPOCH, "", GroupEpoch(3)))
    assert len(run.shares.late(GROUP, ["a"])) == 1


def downgrade(run: Fixture, generation: int, assigned: list[tuple[str, list[int]]]) -> None:
    """The group becomes a classic one in one decision."""
    assignment = write_assignment(assigned, b"\x00\x03")
    stored = GroupMetadataValue(generation=generation, members=[MemberMetadata(member_id="a", assignment=assignment)])
    gone = [run.of(kind, "", None) for kind in (Kind.TARGET_EPOCH, Kind.EPOCH)]
    run.log.write(*run.goes("a"), *gone, GroupRecord(GROUP, stored))


def test_a_member_owns_what_it_had_before_a_conversion(run: Fixture) -> None:
    downgrade(run, 2, [("topic", [0])])
    run.log.write(run.commits("a", 2, 7))
    run.shares.look()
    assert not run.objection
    assert (run.shares.upgrades, run.shares.downgrades) == (0, 1)


def test_a_conversion_loses_what_a_member_had(run: Fixture) -> None:
    downgrade(run, 2, [])
    run.log.write(run.commits("a", 2, 7))
    run.shares.look()
    assert "is taken" in run.objection


def test_a_conversion_takes_the_epoch_back(run: Fixture) -> None:
    downgrade(run, 1, [("topic", [0])])
    run.shares.look()
    assert "goes back from epoch 2 to 1" in run.objection
