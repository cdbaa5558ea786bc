"""`__consumer_offsets` is said to be internal wherever topics are described, as in Kafka."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from headrace.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from headrace.wire.messages.k75_describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest

from .conftest import LEADER_PATIENCE_S, PLAIN, Both, Side

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

OFFSETS = "__consumer_offsets"


def made(side: Side) -> None:
    """A coordinator is looked for, which makes the topic."""
    deadline = time.monotonic() + LEADER_PATIENCE_S
    while side.ask(FindCoordinatorRequest(key="says-group", key_type=0), 3).error_code != 0:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_metadata(both: Both) -> None:
    def script(side: Side, version: int, _name: str) -> Iterator[Any]:
        made(side)
        topics = [MetadataRequestTopic(name=name) for name in (OFFSETS, PLAIN, "__transaction_state", "says-unknown")]
        answer = side.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=version < 4), version)
        internal = {topic.name: topic.is_internal for topic in answer.topics}
        assert internal[OFFSETS] is (version >= 1) and internal[PLAIN] is False
        yield sorted(internal.items())

    both.compare(3, script)


def test_describe_topic_partitions(both: Both) -> None:
    def script(side: Side, version: int, _name: str) -> Iterator[Any]:
        made(side)
        topics = [TopicRequest(name=name) for name in (OFFSETS, PLAIN)]
        answer = side.ask(DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=100), version)
        internal = {topic.name: topic.is_internal for topic in answer.topics}
        assert internal == {OFFSETS: True, PLAIN: False}
        yield sorted(internal.items())

    both.compare(75, script)
