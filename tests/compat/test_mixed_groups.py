"""The coordinator of a group moves between ours and Apache Kafka's while its members change their protocol, each time
in the middle of a rebalance: everybody goes on, and every record is read once. Minutes long: `make soak`.

Members are Java's. librdkafka's stand still where OffsetFetch hears NOT_COORDINATOR, on every broker (its issue 5586).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from peers.cluster import HeadraceCluster
from peers.moved import SETTINGS, Mover
from peers.rolling import SETTINGS as QUICK_GROUPS
from peers.rolling import JavaMember, roll

pytestmark = [pytest.mark.jvm, pytest.mark.soak, pytest.mark.timeout(900)]

OURS, OTHER, THEIRS = 1, 2, 3
MOVES = {"once": 1, "twice": 2}
"""How often the coordinator moves for each member that changes. With two moves, who coordinates sees it join and not
what comes of that."""


@pytest.fixture
def mixed(tmp_path: Path) -> Iterator[HeadraceCluster]:
    with HeadraceCluster(tmp_path, {**SETTINGS, **QUICK_GROUPS}, kafkas=[THEIRS], controllers=1) as cluster:
        yield cluster


@pytest.mark.parametrize("name", list(MOVES))
def test_a_coordinator_moves_while_members_change(mixed: HeadraceCluster, name: str) -> None:
    mover = Mover(mixed, "coordinators")
    takers = itertools.cycle([THEIRS, OURS])

    def move() -> None:
        for _ in range(MOVES[name]):
            taker = next(takers)
            mover.lead(taker, OURS if taker == THEIRS else THEIRS, OTHER)

    try:
        mover.lead(OURS, THEIRS, OTHER)
        roll(mixed.bootstrap, name, ["classic", *["consumer", "classic"] * 2], "range", JavaMember, move)
    finally:
        mover.close()
    mixed.stop()
    mover.assert_equal_logs()
