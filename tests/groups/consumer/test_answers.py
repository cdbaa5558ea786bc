"""What a heartbeat is answered beside the assignment, and what a change of one member leaves to the others."""

from __future__ import annotations

from typing import Any

import pytest
from groups.consumer.mixed import MixedGroups
from groups.consumer.scripted import ConsumerGroups
from groups.scripted import Waiter

from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.consumer.heartbeat import WAITING_SHARE
from headrace.groups.records import decode
from headrace.wire.messages.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatResponse

INTERVAL_MS = 5_000


class Intervals(ConsumerGroups):
    """Remembers how soon each client is to ask again."""

    def __init__(self) -> None:
        self.interval_ms: dict[str, int] = {}
        super().__init__()

    def answer(self, waiter: Waiter, response: Any) -> None:
        if isinstance(response, ConsumerGroupHeartbeatResponse) and not response.error_code:
            self.interval_ms[waiter.client.name] = response.heartbeat_interval_ms
        super().answer(waiter, response)


def test_a_member_that_waits_for_partitions_is_to_ask_again_soon() -> None:
    groups = Intervals()
    groups.do(f"settings consumer.heartbeat_interval_ms={INTERVAL_MS} consumer.assignment_interval_ms=0")
    groups.do("time 100000")
    groups.do("topic t 2")
    groups.do("join g a")
    assert groups.interval_ms == {"a": INTERVAL_MS}
    groups.do("join g b")
    assert groups.interval_ms["b"] == INTERVAL_MS // WAITING_SHARE, "a still has what b is to have"
    groups.do("heartbeat g a")
    groups.do("heartbeat g a --done")
    groups.do("heartbeat g b")
    assert groups.interval_ms == {"a": INTERVAL_MS, "b": INTERVAL_MS}


def test_a_regular_expression_stays_for_its_other_readers() -> None:
    groups = ConsumerGroups()
    groups.do("time 100000")
    groups.do("topic orders 2")
    groups.do("join g a regex=o.*")
    groups.do("join g b regex=o.*")
    group = groups.shard.state.modern.latest["g"]
    assert isinstance(group, ConsumerGroup)
    groups.do("heartbeat g a regex=p.*")
    assert "o.*" in group.regexes.latest
    groups.do("heartbeat g b regex=p.*")
    assert "o.*" not in group.regexes.latest, "nobody reads it any longer"


@pytest.mark.parametrize(("generation", "error"), [(-1, "NONE"), (3, "UNKNOWN_MEMBER_ID")])
def test_only_an_administrator_commits_to_a_group_of_a_kind_that_is_not_served(generation: int, error: str) -> None:
    groups = ConsumerGroups()
    record = decode(b"\x00\x0b\x00\x01s", b"\x00\x00anything")
    assert record is not None
    groups.shard.apply(record, 0)
    assert error in " ".join(groups.do(f"commit s a t-0=5 generation={generation} member="))


def test_members_are_taken_over_by_the_protocol_of_their_generation() -> None:
    """They may have joined for the next one by other protocols, which other metadata goes with."""
    groups = MixedGroups()
    groups.do("settings initial_rebalance_delay_ms=0 consumer.assignors=range")
    groups.do("topic t 1")
    groups.do("topic u 1")
    groups.do("time 1000")
    for _ in range(2):
        groups.do("classic-join g a protocols=range,roundrobin topics=t")
    groups.do("classic-sync g a a=t-0")
    classic = groups.shard.state.groups["g"]
    (member,) = classic.members.values()
    assert classic.protocol == "range"
    other = groups.do("classic-join h x protocols=roundrobin topics=u")
    assert other, "another group gives the metadata of a member that reads u"
    groups.do("classic-join h x protocols=roundrobin topics=u")
    (stranger,) = groups.shard.state.groups["h"].members.values()
    member.protocols = {"roundrobin": stranger.protocols["roundrobin"], "range": member.protocols["range"]}
    groups.do("join g b topics=t")
    group = groups.shard.state.modern.latest["g"]
    assert isinstance(group, ConsumerGroup)
    assert group.members.latest[member.id].topics == frozenset({"t"})
