"""What is called healthy, and what is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.client.describe import QuorumDescription, QuorumReplica
from headrace.client.health import BEHIND_MS, BrokerHealth, Health, voters_behind
from headrace.client.metadata import Node

NOW_MS = 1_000_000


def broker(id_: int, leaders: int, *, fenced: bool = False) -> BrokerHealth:
    return BrokerHealth(Node(id_, "h", 1), fenced, leaders, leaders, leaders)


WELL = Health(
    cluster_id="c", partitions=6, offline=(), under_replicated=(), below_min_isr=(), moving=(("t", 1),),
    not_preferred=(("t", 1),), brokers=(broker(1, 4), broker(2, 2)), quorum=None, behind=(), silent=(), failed_dirs=(),
)  # fmt: skip


def test_moves_and_other_leaders_are_no_illness() -> None:
    assert WELL.healthy


@pytest.mark.parametrize(
    "wrong",
    [
        {"offline": (("t", 0),)},
        {"under_replicated": (("t", 0),)},
        {"below_min_isr": (("t", 0),)},
        {"behind": (3,)},
        {"silent": (3,)},
        {"failed_dirs": ((1, "/d"),)},
        {"brokers": (broker(1, 4), broker(2, 0, fenced=True))},
    ],
)
def test_each_of_these_is_one(wrong: dict[str, object]) -> None:
    assert not replace(WELL, **wrong).healthy  # type: ignore[arg-type]


def test_skew_is_the_busiest_above_the_mean() -> None:
    assert WELL.skew == pytest.approx(1 / 3)
    assert replace(WELL, brokers=(broker(1, 3), broker(2, 0, fenced=True))).skew == 0, "who is down leads nothing"
    assert replace(WELL, brokers=(broker(1, 0),)).skew == 0


def test_a_voter_is_behind_by_the_clock_of_the_leader() -> None:
    """An observer may be; the leader is not, even where it says nothing of itself."""

    def replica(id_: int, caught_up_ms: int, *, voter: bool = True) -> QuorumReplica:
        return QuorumReplica(id_, voter, 5, caught_up_ms, caught_up_ms)

    late = NOW_MS - BEHIND_MS - 1
    quorum = QuorumDescription(
        1, 7, 9, (replica(1, -1), replica(2, NOW_MS), replica(3, late), replica(4, late, voter=False))
    )
    assert voters_behind(quorum) == (3,)
    assert voters_behind(replace(quorum, replicas=quorum.replicas[:2])) == ()


def test_the_lag_is_counted_from_the_leaders_end() -> None:
    ends = tuple(QuorumReplica(id_, True, end, 0, 0) for id_, end in ((1, 12), (2, 10), (3, -1)))
    quorum = QuorumDescription(1, 7, 9, ends)
    assert [quorum.lag(each) for each in ends] == [0, 2, None]
