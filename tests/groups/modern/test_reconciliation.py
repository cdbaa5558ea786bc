"""What a member keeps, revokes and gets; partitions of topics, and tasks of subtopologies, alike."""

from __future__ import annotations

from headrace.groups.modern.reconciliation import add_released, owns_any, owns_only, split, without_unsubscribed
from headrace.groups.modern.targets import changed

T, U = b"t" * 16, b"u" * 16


def test_what_the_target_does_not_name_is_revoked() -> None:
    kept, revoked = split({T: {0: 3, 1: 4}, U: {0: 3}}, {T: frozenset({1, 2}), U: frozenset({0})}, {T})
    assert kept == {T: {1: 4}}
    assert revoked == {T: {0: 3}, U: {0: 3}}, "it no longer subscribes to u"


def test_what_another_member_holds_is_not_added() -> None:
    kept = {T: {1: 4}}
    target = {T: frozenset({0, 1, 2}), U: frozenset({0})}
    assert add_released(kept, target, {T}, 5, lambda partition: partition == (T, 0))
    assert kept == {T: {1: 4, 2: 5}}
    assert not add_released(kept, target, {T}, 6, lambda _: False)
    assert kept == {T: {0: 6, 1: 4, 2: 5}}


def test_tasks_are_split_and_added_by_subtopology() -> None:
    kept, revoked = split({"0": {0: 2, 1: 2}, "1": {3: 2}}, {"0": [1, 2]}, {"0", "1"})
    assert (kept, revoked) == ({"0": {1: 2}}, {"0": {0: 2}, "1": {3: 2}})
    assert not add_released(kept, {"0": [1, 2]}, {"0", "1"}, 4, lambda _: False)
    assert kept == {"0": {1: 2, 2: 4}}


def test_topics_without_a_subscription() -> None:
    assert without_unsubscribed({T: {0: 1}, U: {0: 1}}, {U}) == ({U: {0: 1}}, {T: {0: 1}})


def test_what_a_member_says_it_owns() -> None:
    held = {T: {0: 1, 1: 1}}
    assert owns_any(None, held) and not owns_only(None, held), "it does not say"
    assert owns_any({T: [1, 5]}, held) and not owns_only({T: [1, 5]}, held)
    assert not owns_any({U: [0], T: []}, held) and owns_only({T: [1]}, held)
    assert not owns_any({}, held) and owns_only({}, held)


def test_only_targets_that_changed_are_written() -> None:
    before = {"a": 1, "b": 2, "old": 3}
    computed = {"new": 3, "b": 5, "a": 1, "c": 0}
    assert list(changed(computed, before, "c", None)) == [("b", 5), ("c", 0), ("new", 3)]
    assert list(changed(computed, before, "new", "old")) == [("b", 5), ("c", 0)], "a static member came back"
