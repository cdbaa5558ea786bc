"""Users, access rules, delegation tokens and quotas in one cluster of Apache Kafka's nodes and ours: whatever is
changed through a node of one kind while the other kind has the active controller is known and enforced by all."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from peers.cluster import JAVA_TERMINATED
from peers.kept import Kept
from peers.secured_cluster import NODES, SecuredCluster

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.soak]

PATIENCE_S = 90.0
MOVES_MAX = 10
"""Ends of an active controller, until one of the other kind follows."""


def until_equal(asked: dict[int, Callable[[], object]]) -> object:
    """What every node says, once they all say the same: each hears of a change by itself."""
    last = time.monotonic() + PATIENCE_S
    while True:
        found = {node: ask() for node, ask in asked.items()}
        if all(each == found[NODES[0]] for each in found.values()):
            return found[NODES[0]]
        assert time.monotonic() < last, found
        time.sleep(0.5)


def move_controller(cluster: SecuredCluster, *, to_ours: bool) -> int:
    """Stops active controllers in order, until one of the wanted kind has followed. That one."""
    for _ in range(MOVES_MAX):
        leader = settled(cluster, -1)
        if (leader not in cluster.kafkas) == to_ours:
            return leader
        assert cluster.nodes[leader].stop() in (0, JAVA_TERMINATED)
        settled(cluster, leader)
        cluster.nodes[leader].start()
    raise AssertionError("no controller of the other kind has followed")


def settled(cluster: SecuredCluster, gone: int) -> int:
    """The active controller, another one than that which is gone."""
    last = time.monotonic() + PATIENCE_S
    while (leader := cluster.quorum().leader_id) in (-1, gone):
        assert time.monotonic() < last
        time.sleep(0.1)
    return leader


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kafkas", [(2, 3), (3,)], ids=["one of ours", "two of ours"])
def test_each_kind_enforces_what_the_other_has_decided(tmp_path: Path, kafkas: tuple[int, ...]) -> None:
    with SecuredCluster(tmp_path, kafkas) as cluster:
        first = Kept(cluster.ports[1][0], cluster.logins[1], node=1, is_alone=False)
        at = {
            node: Kept(cluster.ports[node][0], cluster.logins[node], first.passwords, first.tokens, node, False)
            for node in NODES
        }
        settled(cluster, -1)
        at[1].make(replicas=3)
        number = 0
        for to_ours in (True, False, True):
            leader = move_controller(cluster, to_ours=to_ours)
            assert (leader not in kafkas) == to_ours
            for through in (min(set(NODES) - set(kafkas)), min(kafkas)):
                at[through].change(number)
                number += 1
                described = until_equal({node: each.described for node, each in at.items()})
                assert f"user-{number - 1}" in str(described) and f"user-{number - 2}'" not in str(described)
                tried = until_equal({node: each.tried for node, each in at.items()})
                assert isinstance(tried, dict)
                waits = tried["waits"]
                assert waits == {
                    "bob": True, "ann": False, "ann, hurried": True, "cy": True, f"user-{number - 1}": True,
                    "127.0.0.7": True, "127.0.0.8": False,
                }, waits  # fmt: skip
