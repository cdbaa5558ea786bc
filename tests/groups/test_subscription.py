"""What is read out of a consumer's metadata: what its own codec wrote, at every version; of anything else, nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.groups.subscription import MEMBER_NAMES_MAX, NAMES_MAX, read_subscription, subscribed_topics
from headrace.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from headrace.wire.primitives import DecodeError

TOPICS = st.lists(st.text(st.characters(codec="utf-8"), max_size=20), max_size=5)


@given(TOPICS, st.integers(0, 3), st.binary(max_size=10) | st.none())
def test_topics_of_every_version(topics: list[str], version: int, user_data: bytes | None) -> None:
    said = ConsumerProtocolSubscription(topics=topics, user_data=user_data)
    metadata = version.to_bytes(2, "big") + said.encode(version)
    assert subscribed_topics([metadata]) == frozenset(topics)


@given(TOPICS, st.integers(1, 40))
def test_metadata_that_ends_early_names_nothing(topics: list[str], cut: int) -> None:
    head = (0).to_bytes(2, "big") + ConsumerProtocolSubscription(topics=[*topics, "last"]).encode(0)[:-4]
    assert subscribed_topics([head[:-cut]]) is None or cut > len(head)


@given(st.binary(max_size=60))
def test_garbage_is_no_subscription_or_a_short_one(metadata: bytes) -> None:
    found = subscribed_topics([metadata])
    assert found is None or sum(len(topic.encode()) + 2 for topic in found) <= len(metadata)


def test_one_member_that_cannot_be_read_hides_them_all() -> None:
    fine = b"\x00\x00" + ConsumerProtocolSubscription(topics=["t"]).encode(0)
    assert subscribed_topics([fine, fine]) == frozenset({"t"})
    assert subscribed_topics([fine, b"connect"]) is None


def test_more_names_than_a_turn_looks_through_are_not_known() -> None:
    named = [f"t{number}" for number in range(NAMES_MAX // 2)]
    many = b"\x00\x00" + ConsumerProtocolSubscription(topics=named).encode(0)
    one = b"\x00\x00" + ConsumerProtocolSubscription(topics=["t"]).encode(0)
    assert subscribed_topics([many, many]) == frozenset(named)
    assert subscribed_topics([many, many, one]) is None


def test_a_subscription_to_too_many_topics_is_not_read() -> None:
    for count in (MEMBER_NAMES_MAX, MEMBER_NAMES_MAX + 1):
        named = [f"t{number}" for number in range(count)]
        said = b"\x00\x00" + ConsumerProtocolSubscription(topics=named).encode(0)
        if count <= MEMBER_NAMES_MAX:
            assert read_subscription(said).topics == named
        else:
            with pytest.raises(DecodeError, match="more than"):
                read_subscription(said)
