"""What is added up of the partitions that a broker leads, with followers that lag and topics that come and go."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from headrace.broker.telemetry.families import Family
from headrace.broker.telemetry.metrics import Registry
from headrace.broker.telemetry.partition_numbers import PARTITIONS_AT_ONCE, PartitionNumbers
from headrace.broker.telemetry.partition_series import PartitionSeries
from headrace.metadata.image import Partition
from headrace.replicas.partition import PartitionState

ME = 1


def partition(index: int, isr: tuple[int, ...], leader: int = ME, epoch: int = 0) -> Partition:
    return Partition(index, (1, 2, 3), (bytes(16),) * 3, isr, leader, 0, epoch)


def replica(topic: str, index: int, *, isr: tuple[int, ...] = (1, 2, 3), end: int = 100, min_isr: int = 2) -> Any:
    state = PartitionState(ME)
    state.become_leader(partition(index, isr), end, 0, end)
    config = SimpleNamespace(min_insync_replicas=min_isr)
    log = SimpleNamespace(end_offset=end, log_start_offset=10, config=config)
    return SimpleNamespace(topic=topic, index=index, state=state, log=log, bytes_in=0, bytes_out=0)


def numbers(led: list[Any], topics_max: int = 10) -> PartitionNumbers:
    return PartitionNumbers(lambda: led, topics_max, Registry())


def values(of: PartitionNumbers) -> dict[str, Any]:
    """By name without what all share: a number, or numbers by the value of the one label."""
    found: dict[str, Any] = {}
    for family in of.families():
        if isinstance(family, Family):
            plain = {next(iter(labels.values()), ""): value for _, labels, value in family.samples}
            name = family.name.rpartition("kafka_server_")[2].removeprefix("headrace_")
            found[name] = plain[""] if set(plain) == {""} else plain
    return found


def test_in_sync_or_not() -> None:
    led = [
        replica("a", 0),
        replica("a", 1, isr=(1, 3)),
        replica("a", 2, isr=(1,)),
        replica("b", 0, isr=(1, 2), min_isr=1),
        replica("b", 1, isr=(1, 2, 3), min_isr=5),  # more than there are replicas cannot be wanted
    ]
    found = values(numbers(led))
    assert found["replicamanager_leadercount"] == 5
    assert found["replicamanager_underreplicatedpartitions"] == 3
    assert found["replicamanager_underminisrpartitioncount"] == 1
    assert found["replicamanager_atminisrpartitioncount"] == 1


def test_how_far_followers_are() -> None:
    one, two = replica("a", 0), replica("a", 1, isr=(1, 3))
    for each, fetched in ((one, 90), (two, 40)):
        each.state.log_end = 100
        each.state.fetched(2, -1, fetched, 0, 1)
        each.state.fetched(3, -1, 100, 0, 1)
    found = values(numbers([one, two]))
    assert found["follower_lag_max_messages"] == {"2": 60, "3": 0}
    assert found["follower_lag_messages"] == {"2": 70, "3": 0}
    assert found["follower_partitions"] == {"2": 2, "3": 2}
    assert found["follower_partitions_out_of_sync"] == {"2": 1, "3": 0}


def test_followers_that_have_not_fetched_since_the_leader_changed() -> None:
    """In sync they have what is committed; of the others nothing is known, and nobody lacks what is deleted."""
    new = replica("a", 0, isr=(1, 2))
    new.state.high_watermark = 95
    assert values(numbers([new]))["follower_lag_max_messages"] == {"2": 5, "3": 90}


def test_what_topics_take() -> None:
    led = [replica("a", 0), replica("a", 1)]
    counted = numbers(led)
    assert values(counted)["brokertopicmetrics_messagesin"] == {"": 0, "a": 0}
    led[0].log.end_offset, led[0].bytes_in, led[1].bytes_out = 130, 500, 70
    found = values(counted)
    assert found["brokertopicmetrics_messagesin"]["a"] == 30
    assert found["brokertopicmetrics_bytesin"]["a"] == 500
    assert found["brokertopicmetrics_bytesout"]["a"] == 70
    assert found["topic_offsets"] == {"a": 120 + 90}
    assert found["topic_leaders"] == {"a": 2}


def test_what_another_leader_took_is_not_counted() -> None:
    led = [replica("a", 0), replica("a", 1)]
    counted = numbers(led)
    led[1].bytes_in = 40
    values(counted)
    away = led.pop()
    assert values(counted)["topic_leaders"] == {"a": 1}
    away.log.end_offset = 900
    away.state.epoch_start = 900
    led.append(away)
    away.log.end_offset = 905
    found = values(counted)
    assert found["brokertopicmetrics_messagesin"]["a"] == 5
    assert found["brokertopicmetrics_bytesin"]["a"] == 40, "what was counted is not counted again"


def test_a_topic_that_is_gone_leaves_its_place() -> None:
    led = [replica("a", 0), replica("b", 0), replica("c", 0)]
    counted = numbers(led, topics_max=2)
    found = values(counted)
    assert (set(found["topic_leaders"]), found["topics_without_series"]) == ({"a", "b"}, 1)
    del led[0]
    values(counted)
    found = values(counted)
    assert (set(found["topic_leaders"]), found["topics_without_series"]) == ({"b", "c"}, 0)
    assert values(numbers(led, topics_max=0))["topics_without_series"] == 2


def test_thousands_of_partitions_leave_the_loop_its_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more than so many replicas are looked at between two yields, whatever else a section does."""
    looked: list[Any] = []

    led = [replica(f"t{i % 250}", i // 250) for i in range(1000)]
    counted = numbers(led)
    at_once, seen = 0, 0
    monkeypatch.setattr(counted, "_look_at", looked.append)
    for _ in counted.families():
        at_once, seen = max(at_once, len(looked) - seen), len(looked)
    assert len(looked) == 1000
    assert at_once <= PARTITIONS_AT_ONCE


def test_partitions_one_by_one() -> None:
    led = [replica("a", 0), replica("a", 1, isr=(1,)), replica("b", 0, isr=(1, 2)), replica("b", 1)]
    led[0].state.high_watermark = 80
    series = {
        family.name: [(labels["topic"], labels["partition"], value) for _, labels, value in family.samples]
        for family in PartitionSeries(lambda: led, 3).families()
        if family is not None
    }
    assert series["kafka_topic_partition_current_offset"][0] == ("a", "0", 80)
    assert series["kafka_topic_partition_oldest_offset"] == [("a", "0", 10), ("a", "1", 10), ("b", "0", 10)]
    assert [value for _, _, value in series["kafka_cluster_partition_underminisr"]] == [0, 1, 0]
    assert [value for _, _, value in series["kafka_cluster_partition_atminisr"]] == [0, 0, 1]
    many = [replica("a", index) for index in range(PARTITIONS_AT_ONCE * 2)]
    assert sum(family is None for family in PartitionSeries(lambda: many, 1000).families()) == 2
