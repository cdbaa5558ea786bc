"""The coordinator of transactions moves from ours to Apache Kafka's and back, in the middle of transactions: each ends
as its producer was told. Minutes long: `make soak`; `test_mixed_brokers` has a quick one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from peers.cluster import HeadraceCluster
from peers.moved import SETTINGS, Mover
from peers.transactions import set_transaction_version

pytestmark = [pytest.mark.jvm, pytest.mark.soak, pytest.mark.timeout(900)]

QUICK = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
OURS = 1
CONTROLLER = 101


@pytest.fixture(params=[(3,), (2, 3, CONTROLLER)], ids=["two of ours", "one of ours"])
def mixed(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[HeadraceCluster]:
    with HeadraceCluster(tmp_path, {**QUICK, **SETTINGS}, kafkas=request.param, controllers=1) as cluster:
        yield cluster


def moves(mover: Mover, giver: int, taker: int, third: int) -> dict[str, Callable[[], None]]:
    """The ways in which the coordinator leaves `giver` for `taker`, while the third node is dead."""
    node = mover.cluster.nodes[giver]

    def ended(end: Callable[[], int]) -> Callable[[], None]:
        def move() -> None:
            end()
            mover.until_led(taker)

        return move

    return {
        "elected": lambda: mover.lead(taker, giver, third),
        "reassigned": lambda: mover.lead(taker),
        "stopped": ended(node.stop),
        "killed": ended(node.kill),
    }


@pytest.mark.parametrize("version", [2, 1, 0])
def test_a_coordinator_moves_between_ours_and_kafkas(mixed: HeadraceCluster, version: int) -> None:
    theirs, third = (3, 2) if 2 not in mixed.kafkas else (2, 3)
    mover = Mover(mixed, "moved")
    try:
        set_transaction_version(mover.client, version)
        held = mover.hold()
        for giver, taker in ((OURS, theirs), (theirs, OURS)):
            for way, move in moves(mover, giver, taker, third).items():
                mover.lead(giver, taker, third)
                mover.until_in_sync()
                mover.round(f"{way}-from-{giver}", move, held, third)
                mover.lead(taker, giver, third)
                mover.until_in_sync()
        mover.check(held)
        said = [mixed.nodes[node].log.read_text() for node in mixed.nodes if node not in mixed.kafkas]
    finally:
        mover.close()
    assert not any("defect" in text for text in said)
    mixed.stop()
    mover.assert_equal_logs()
