"""Apache Kafka's own tools for operators against three of our nodes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from peers.cluster import HeadraceCluster
from peers.kafka import kafka_tool
from peers.settling import settle_ports
from peers.waiting import until

from headrace.client import Client, admin, describe, health, moves
from headrace.wire import uuids

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

TOOLS = "org.apache.kafka.tools."
VERIFIES_S = 15.0
"""How long the replica verification tool runs: it does not end by itself."""

Tool = Callable[..., str]


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeadraceCluster]:
    with HeadraceCluster(tmp_path_factory.mktemp("three"), dynamic=True) as cluster:
        with Client(cluster.bootstrap) as client:
            for name in ("held", "moved"):
                admin.create_topic(client, name, partitions=3, replication_factor=3)
        yield cluster


@pytest.fixture
def tool(three: HeadraceCluster) -> Tool:
    """Runs a tool against the brokers, and returns all that it said."""

    def run(name: str, *arguments: str, fails: bool = False) -> str:
        where = ("--bootstrap-server", three.bootstrap)
        ordered = (*arguments, *where) if name == "ClusterTool" else (*where, *arguments)
        done = kafka_tool(TOOLS + name, *ordered, check=False)
        said = done.stdout + done.stderr
        assert (done.returncode != 0) == fails, said
        # a broker answers what another one has decided before it has applied it
        settle_ports(*(peer.port for peer in three.nodes.values() if peer.process is not None))
        return said

    return run


def test_features(tool: Tool) -> None:
    """Every node has to know a level before it is finalized."""
    assert "Feature: eligible.leader.replicas.version" in tool("FeatureCommand", "describe")
    name = "group.version"
    assert f"{name} was disabled." in tool("FeatureCommand", "disable", "--feature", name)
    assert f"{name} can be upgraded to 1" in tool("FeatureCommand", "upgrade", "--feature", f"{name}=1", "--dry-run")
    assert f"{name} was upgraded to 1" in tool("FeatureCommand", "upgrade", "--feature", f"{name}=1")
    refused = tool("FeatureCommand", "upgrade", "--feature", f"{name}=9", fails=True)
    assert f"Could not upgrade {name} to 9" in refused and "only supports versions" in refused


def test_log_directories(tool: Tool, three: HeadraceCluster) -> None:
    said = tool("LogDirsCommand", "--describe", "--topic-list", "held", "--broker-list", "1,2,3")
    found = json.loads(next(line for line in said.splitlines() if line.startswith("{")))
    assert {broker["broker"] for broker in found["brokers"]} == {1, 2, 3}
    for broker in found["brokers"]:
        (directory,) = broker["logDirs"]
        assert directory["error"] is None and directory["logDir"] == str(three.data(broker["broker"]))
        assert {each["partition"] for each in directory["partitions"]} == {"held-0", "held-1", "held-2"}


def test_replicas_are_verified(three: HeadraceCluster) -> None:
    """The tool fetches from every replica, compares the checksums, and says how far they are apart."""
    with pytest.raises(subprocess.TimeoutExpired) as ended:
        kafka_tool(
            TOOLS + "ReplicaVerificationTool", "--broker-list", three.bootstrap, "--topics-include", "held",
            "--report-interval-ms", "1000", patience_s=VERIFIES_S,
        )  # fmt: skip
    said = (ended.value.stdout or b"").decode()
    assert "max lag is 0 for partition held-" in said and "among 3 partitions" in said, said


def test_a_move_and_an_election(tool: Tool, three: HeadraceCluster, tmp_path: Path) -> None:
    file = tmp_path / "moves.json"
    file.write_text('{"version": 1, "partitions": [{"topic": "moved", "partition": 0, "replicas": [2, 3]}]}')
    started = tool("reassign.ReassignPartitionsCommand", "--reassignment-json-file", str(file), "--execute")
    assert "Successfully started partition reassignment for moved-0" in started
    with Client(three.bootstrap) as client:
        until(lambda: not moves.list_moves(client), "the move ends")
    verified = tool("reassign.ReassignPartitionsCommand", "--reassignment-json-file", str(file), "--verify")
    assert "Reassignment of partition moved-0 is completed." in verified
    elected = tool("LeaderElectionCommand", "--election-type", "preferred", "--topic", "moved", "--partition", "0")
    assert "moved-0" in elected
    described = tool("MetadataQuorumCommand", "describe", "--replication")
    assert sum(line.split()[-1] in ("Leader", "Follower") for line in described.splitlines()[1:] if line) == 3


def test_a_voter_goes_and_comes_back(tool: Tool, three: HeadraceCluster) -> None:
    def roles() -> dict[int, str]:
        lines = tool("MetadataQuorumCommand", "describe", "--replication").splitlines()
        return {int(line.split()[0]): line.split()[-1] for line in lines if line.split()[-1:] and line[:1].isdigit()}

    with Client(three.bootstrap) as client:
        found = {each.id: each.directory_id for each in describe.describe_quorum(client).replicas}
    directory = ("--controller-directory-id", uuids.to_text(found[2]))
    removed = tool("MetadataQuorumCommand", "remove-controller", "--controller-id", "2", *directory)
    assert "KRaft controller 2 with directory id" in removed
    until(lambda: roles().get(2) == "Observer", "it observes")  # it is none of the three until it has fetched as one
    again = tool("MetadataQuorumCommand", "remove-controller", "--controller-id", "2", *directory, fails=True)
    assert "VoterNotFound" in again
    add = ("MetadataQuorumCommand", "--command-config", str(three.nodes[2].file), "add-controller")
    assert "controller 2 with directory id" in tool(*add)
    assert "DuplicateVoter" in tool(*add, fails=True)
    assert sorted(roles().values()) == ["Follower", "Follower", "Leader"]


def test_a_broker_is_unregistered(tool: Tool, three: HeadraceCluster) -> None:
    assert "BrokerIdNotRegisteredException" in tool("ClusterTool", "unregister", "--id", "9", fails=True)
    three.nodes[3].terminate()
    assert three.nodes[3].stop() == 0
    assert "Broker 3 is no longer registered." in tool("ClusterTool", "unregister", "--id", "3")
    with Client(three.bootstrap) as client:
        until(lambda: [broker.id for broker in describe.describe_cluster(client).brokers] == [1, 2], "two are left")
        three.nodes[3].launch()
        three.nodes[3].wait()
        until(lambda: not health.examine(client).under_replicated, "all is in sync")
