"""ACLs as values: what filters find, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.metadata.acls import (
    ANY,
    EVERY_ACL,
    AclBinding,
    AclFilter,
    binding_of,
    record_of,
    refusal_of,
    refusal_of_filter,
)

LITERAL, PREFIXED, MATCH = 3, 4, 2
ACL = AclBinding(2, "orders", LITERAL, "User:a", "*", 3, 3)
PREFIX, WILD = ACL._replace(name="ord", pattern_type=PREFIXED), ACL._replace(name="*")


def changed(fields: dict[str, Any]) -> AclFilter:
    return EVERY_ACL._replace(**fields)


def found(*acls: AclBinding, **fields: object) -> list[AclBinding]:
    wanted = changed(fields)
    return [each for each in acls if wanted.finds(each)]


def test_what_a_filter_does_not_say_finds_all() -> None:
    assert found(ACL, PREFIX, WILD) == [ACL, PREFIX, WILD]


@pytest.mark.parametrize(
    "field", ["resource_type", "name", "pattern_type", "principal", "host", "operation", "permission"]
)
def test_what_a_filter_says_has_to_be_so(field: str) -> None:
    same, other = getattr(ACL, field), {"name": "x", "principal": "User:b", "host": "1.1.1.1"}.get(field, 7)
    assert found(ACL, **{field: same}) == [ACL]
    assert found(ACL, **{field: other}) == []


def test_a_name_is_exact_unless_what_would_apply_to_it_is_asked_for() -> None:
    every = (ACL, PREFIX, WILD, ACL._replace(name="orders2"), PREFIX._replace(name="orders2"))
    assert found(*every, name="orders", pattern_type=ANY) == [ACL]
    assert found(*every, name="ord", pattern_type=ANY) == [PREFIX]
    assert found(*every, name="ord", pattern_type=LITERAL) == []
    assert found(*every, name="orders", pattern_type=MATCH) == [ACL, PREFIX, WILD]
    assert found(*every, name="ord", pattern_type=MATCH) == [PREFIX, WILD]
    assert found(*every, name="*", pattern_type=MATCH) == [WILD]
    assert found(*every, name="*", pattern_type=LITERAL) == [WILD]
    assert found(*every, pattern_type=MATCH) == list(every)


@given(
    st.builds(
        AclBinding,
        *[st.integers(0, 8), st.text(max_size=3), st.integers(0, 5), st.text(max_size=3), st.text(max_size=3)],
        *[st.integers(0, 16), st.integers(0, 4)],
    )
)
def test_the_filter_of_an_acl_finds_it_and_its_record_says_the_same(acl: AclBinding) -> None:
    assert AclFilter(*acl).finds(acl) or acl.pattern_type == MATCH
    assert binding_of(record_of(b"i" * 16, acl)) == acl


@dataclass
class Bad:
    change: dict[str, object]
    why: str


NO_COLON = "Could not parse principal from `alice` (no colon is present separating the principal type from the "
REFUSED = [
    Bad({"resource_type": 4}, "The only valid name for the CLUSTER resource is kafka-cluster"),
    Bad({"resource_type": 4, "name": ""}, "The only valid name for the CLUSTER resource is kafka-cluster"),
    Bad({"name": ""}, "Invalid empty resource name"),
    Bad({"resource_type": 0}, "Invalid resourceType UNKNOWN"),
    Bad({"resource_type": 99}, "Invalid resourceType UNKNOWN"),
    Bad({"resource_type": -1}, "Invalid resourceType UNKNOWN"),
    Bad({"resource_type": 1}, "Invalid resourceType ANY"),
    Bad({"pattern_type": 0}, "Invalid patternType UNKNOWN"),
    Bad({"pattern_type": 1}, "Invalid patternType ANY"),
    Bad({"pattern_type": 2}, "Invalid patternType MATCH"),
    Bad({"operation": 1}, "Invalid operation ANY"),
    Bad({"operation": 77}, "Invalid operation UNKNOWN"),
    Bad({"permission": 1}, "Invalid permissionType ANY"),
    Bad({"permission": 4}, "Invalid permissionType UNKNOWN"),
    Bad({"principal": "alice"}, NO_COLON + "principal name)"),
]


@pytest.mark.parametrize("bad", REFUSED, ids=lambda bad: str(bad.change))
def test_what_is_no_acl_is_refused_in_kafkas_words(bad: Bad) -> None:
    assert refusal_of(ACL) == ""
    assert refusal_of(ACL._replace(**bad.change)) == bad.why  # type: ignore[arg-type]


def test_the_cluster_has_one_name() -> None:
    assert refusal_of(ACL._replace(resource_type=4, name="kafka-cluster")) == ""


def test_a_filter_may_leave_open_what_it_likes_and_not_ask_for_what_there_is_none_of() -> None:
    assert refusal_of_filter(EVERY_ACL) == refusal_of_filter(EVERY_ACL._replace(pattern_type=MATCH)) == ""
    for change in ({"resource_type": 0}, {"resource_type": 9}, {"pattern_type": 0}, {"pattern_type": 5}):
        assert refusal_of_filter(changed(change)) == "Unknown patternFilter."
    for change in ({"operation": 0}, {"operation": 16}, {"permission": 0}, {"permission": 4}):
        assert refusal_of_filter(changed(change)) == "Unknown entryFilter."
