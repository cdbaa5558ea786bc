"""When the group epoch rises, when a target assignment may be computed, and which member epochs are fenced."""

from __future__ import annotations

import pytest

from headrace.groups.modern.epochs import AssignmentEpoch, GroupEpoch, SentEpoch, compare, may_compute, raised
from headrace.groups.modern.topics import TopicInfo, Topics

TOPICS = Topics([TopicInfo("t", b"t" * 16, 3), TopicInfo("u", b"u" * 16, 1)])


@pytest.mark.parametrize(
    ("sent", "how"),
    [(0, SentEpoch.CURRENT), (7, SentEpoch.CURRENT), (5, SentEpoch.PREVIOUS), (4, SentEpoch.FENCED),
     (6, SentEpoch.FENCED), (8, SentEpoch.FENCED)],
)  # fmt: skip
def test_a_sent_epoch_beside_the_member_s(sent: int, how: SentEpoch) -> None:
    assert compare(sent, 7, 5) is how


def test_a_newer_previous_epoch_is_fenced() -> None:
    assert compare(8, 7, 8) is SentEpoch.FENCED


def test_the_group_epoch_rises_once_for_a_change_of_members_or_topics() -> None:
    before = GroupEpoch(4, TOPICS.hash({"t"}))
    assert raised(before, TOPICS, {"t"}, is_changed=False) is None
    assert raised(before, TOPICS, {"t", "missing"}, is_changed=False) is None
    assert raised(before, TOPICS, {"t"}, is_changed=True) == GroupEpoch(5, before.metadata_hash)
    assert raised(before, TOPICS, {"t", "u"}, is_changed=False) == GroupEpoch(5, TOPICS.hash({"t", "u"}))
    grown = Topics([TopicInfo("t", b"t" * 16, 4)])
    assert raised(before, grown, {"t"}, is_changed=False) == GroupEpoch(5, grown.hash({"t"}))


def test_targets_wait_for_the_assignment_interval() -> None:
    last = AssignmentEpoch(3, computed_ms=10_000)
    assert [may_compute(last, 1_000, now_ms) for now_ms in (10_000, 10_999, 11_000)] == [False, False, True]
    assert may_compute(last, 1_000, 9_000), "the clock was set back"
    assert may_compute(AssignmentEpoch(1), 1_000, 500), "the first one is computed at once"
    assert may_compute(last, 0, 10_000)
