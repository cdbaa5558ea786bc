"""Apache Kafka's `kafka-features` raises kraft.version to 1 where the files name the voters: on three of our nodes, and
in clusters of both kinds."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from peers.cluster import HeadraceCluster
from peers.kafka import kafka_tool
from peers.waiting import until

from headrace.client import Client, ClientError, describe
from headrace.wire import uuids

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(600)]

TOOLS = "org.apache.kafka.tools."
EVERY = (1, 2, 3)


def tool_of(cluster: HeadraceCluster) -> Callable[..., str]:
    def run(name: str, *arguments: str) -> str:
        done = kafka_tool(TOOLS + name, "--bootstrap-server", cluster.bootstrap, *arguments, check=False)
        return done.stdout + done.stderr

    return run


def voters(cluster: HeadraceCluster) -> tuple[int, dict[int, bytes]]:
    """The leader, and the directory of each voter."""
    with Client(cluster.bootstrap) as client:
        quorum = describe.describe_quorum(client)
    return quorum.leader_id, {each.id: each.directory_id for each in quorum.replicas if each.voter}


@pytest.mark.parametrize(
    "kafkas",
    [
        (),
        pytest.param((1, 2), marks=pytest.mark.soak),
        pytest.param((3,), marks=pytest.mark.soak),
    ],
    ids=["three of ours", "one of ours", "two of ours"],
)
def test_the_metadata_name_the_voters_from_then_on(tmp_path: Path, kafkas: tuple[int, ...]) -> None:
    with HeadraceCluster(tmp_path, kafkas=kafkas) as cluster:
        tool = tool_of(cluster)
        raised = partial(tool, "FeatureCommand", "upgrade", "--feature", "kraft.version=1")
        # A voter is not known to support it before it has registered with the leader.
        until(lambda: "kraft.version was upgraded to 1" in raised(), "every voter supports it")
        assert "kraft.version" in tool("FeatureCommand", "describe")
        leader, found = voters(cluster)
        assert set(found) == set(EVERY)
        # The leader dies, and the others know who votes.
        cluster.nodes[leader].kill()
        until(lambda: voters(cluster)[0] not in (-1, leader), "another one leads", ClientError)
        cluster.nodes[leader].start()
        # A voter goes, which only voters of the metadata can.
        gone = next(node for node in EVERY if node != voters(cluster)[0])
        removal = ("--controller-id", str(gone), "--controller-directory-id", uuids.to_text(found[gone]))
        said = tool("MetadataQuorumCommand", "remove-controller", *removal)
        assert f"KRaft controller {gone} with directory id" in said, said
        until(lambda: set(voters(cluster)[1]) == set(EVERY) - {gone}, "it is no voter any more", ClientError)
        # Every process starts again, with all three in its file still.
        for node in EVERY:
            cluster.nodes[node].stop()
            cluster.nodes[node].start()
            until(lambda: voters(cluster)[0] != -1, "one leads", ClientError)
        assert set(voters(cluster)[1]) == set(EVERY) - {gone}
