"""The sizes of logs on the page: a series each up to a bound, and a slice that does not grow with their segments."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from headrace.broker.telemetry.log_sizes import SEGMENTS_AT_ONCE, LogSizes


def log(topic: str, index: int, size: int, segments: int = 1) -> Any:
    return SimpleNamespace(topic_partition=(topic, index), segments=range(segments), size_bytes=lambda: size)


def test_a_series_each_up_to_a_bound() -> None:
    sizes = LogSizes(lambda: [log("a", 0, 10), log("a", 1, 20), log("b", 0, 40)], 2)
    each, total, others = [family for family in sizes.families() if family is not None]
    assert each.name == "kafka_log_log_size"
    assert each.samples == [("", {"topic": "a", "partition": "0"}, 10), ("", {"topic": "a", "partition": "1"}, 20)]
    assert [sample[2] for family in (total, others) for sample in family.samples] == [70, 1]


def test_others_have_their_turn() -> None:
    small = LogSizes(lambda: [log("a", index, 1) for index in range(SEGMENTS_AT_ONCE)], 10)
    assert sum(family is None for family in small.families()) == 2, "a log costs something itself"
    large = LogSizes(lambda: [log("a", index, 1, SEGMENTS_AT_ONCE) for index in range(7)], 10)
    assert sum(family is None for family in large.families()) == 7
