"""The consumer protocol's bytes and the range rule."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.assignment import (
    Subscriber,
    assign_range,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from headrace.client.errors import ClientError


def member(name: str, *topics: str, instance: str | None = None) -> Subscriber:
    return Subscriber(name, instance, frozenset(topics))


def test_ranges_are_contiguous_and_the_first_take_the_rest() -> None:
    assigned = assign_range([member("b", "t"), member("a", "t"), member("c", "t")], {"t": 8})
    assert assigned == {
        "a": [("t", 0), ("t", 1), ("t", 2)],
        "b": [("t", 3), ("t", 4), ("t", 5)],
        "c": [("t", 6), ("t", 7)],
    }


def test_static_members_come_first_by_instance() -> None:
    assigned = assign_range(
        [member("a", "t"), member("z", "t", instance="i2"), member("y", "t", instance="i1")], {"t": 3}
    )
    assert assigned == {"y": [("t", 0)], "z": [("t", 1)], "a": [("t", 2)]}


def test_members_get_only_what_they_subscribed_to() -> None:
    assigned = assign_range([member("a", "t", "u"), member("b", "u")], {"t": 2, "u": 1, "nobody": 5})
    assert assigned == {"a": [("t", 0), ("t", 1), ("u", 0)], "b": []}


@given(
    st.dictionaries(st.sampled_from("tuvw"), st.integers(0, 20)),
    st.lists(st.frozensets(st.sampled_from("tuvw")), min_size=1, max_size=6),
)
def test_every_partition_of_a_wanted_topic_has_one_owner(counts: dict[str, int], wants: list[frozenset[str]]) -> None:
    subscribers = [Subscriber(f"m{number}", None, topics) for number, topics in enumerate(wants)]
    assigned = assign_range(subscribers, counts)
    owned = [at for partitions in assigned.values() for at in partitions]
    wanted = frozenset().union(*wants)
    assert sorted(owned) == sorted((t, p) for t, count in counts.items() if t in wanted for p in range(count))
    for subscriber in subscribers:
        assert {topic for topic, _ in assigned[subscriber.member_id]} <= subscriber.topics


def test_bytes_are_those_of_the_consumer_protocol() -> None:
    # Version 1: topics, null user data, no owned partitions.
    assert encode_subscription(["b", "a"]) == bytes.fromhex("0001 00000002 0001 61 0001 62 ffffffff 00000000")
    assert encode_assignment([("a", 1), ("a", 0)]) == bytes.fromhex(
        "0001 00000001 0001 61 00000002 00000000 00000001 ffffffff"
    )
    # Version 0, as old clients send it, and a version that does not exist yet.
    assert decode_subscription(bytes.fromhex("0000 00000001 0001 61 ffffffff")) == {"a"}
    assert decode_subscription(bytes.fromhex("0009 00000001 0001 61 ffffffff 00000000 00000005 ffff")) == {"a"}
    assert decode_assignment(b"") == []


@given(st.sets(st.tuples(st.sampled_from(["a", "b-c", "d.e"]), st.integers(0, 1000))))
def test_assignments_survive_the_trip(partitions: set[tuple[str, int]]) -> None:
    assert sorted(decode_assignment(encode_assignment(partitions))) == sorted(partitions)


@given(st.binary(max_size=60))
def test_other_bytes_are_refused_in_our_words(data: bytes) -> None:
    for decode in (decode_assignment, decode_subscription):
        try:
            decode(data)
        except ClientError:
            continue


def test_negative_versions_are_refused() -> None:
    with pytest.raises(ClientError):
        decode_subscription(b"\xff\xff\0\0\0\0")
