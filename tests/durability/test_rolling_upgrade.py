"""Old code and new code in one cluster: three nodes change from one to the other under load, one by one, and back."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import threading
from io import BytesIO
from pathlib import Path

import pytest
from durability.promises import Load, Promises, assert_kept, make_topic, read_all, until_in_sync
from peers.cluster import CLUSTER_ID, HeadraceCluster
from peers.headrace import HeadracePeer

ROOT = Path(__file__).parents[2]
OLD = (
    "8e62293",  # clusters of brokers beside controllers; no transactions yet
    "21d890b",  # transactions; a follower keeps its parked fetch
    "cd14f19",
)
"""Commits that stand for releases, until there are some."""
SETTINGS = {"log.segment.bytes": str(1 << 20), "offsets.topic.num.partitions": "3"}


class ChangingCluster(HeadraceCluster):
    """A cluster whose nodes run the code under `source`, until they `change`."""

    def __init__(self, directory: Path, source: Path) -> None:
        self._environment = {"PYTHONPATH": str(source)}
        self.old = {1, 2, 3}
        super().__init__(directory, SETTINGS)

    def _process(self, node: int, folder: Path, file: Path, port: int) -> HeadracePeer:
        peer = super()._process(node, folder, file, port)
        if node in self.old:
            peer.environment = self._environment
        return peer

    def _format(self, node: int, file: Path, *, joins: bool = False) -> None:
        assert not joins
        command = [sys.executable, "-m", "headrace.cli", "storage", "format", "-t", CLUSTER_ID, "-c", str(file)]
        subprocess.run(command, timeout=60, check=True, env={**os.environ, **self._environment})

    def change(self, node: int) -> None:
        """Stops a node in order, and starts the other code on its directory."""
        before = self.nodes[node]
        assert before.file is not None
        assert before.stop() == 0
        self.old ^= {node}
        self.nodes[node] = self._process(node, before.directory, before.file, before.port)
        self.nodes[node].start()


@pytest.fixture
def source(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Where the code of a commit lies."""
    archive = subprocess.run(["git", "archive", request.param, "src"], cwd=ROOT, capture_output=True, check=True)
    with tarfile.open(fileobj=BytesIO(archive.stdout)) as packed:
        packed.extractall(tmp_path / "old", filter="data")
    return tmp_path / "old" / "src"


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("source", OLD, indirect=True)
def test_a_cluster_changes_its_code_and_goes_back(tmp_path: Path, source: Path) -> None:
    with ChangingCluster(tmp_path, source) as cluster:
        make_topic(cluster)
        promises = Promises(cluster.bootstrap)
        with Load(cluster.bootstrap, "load") as load:
            for _ in range(2):
                for node in cluster.nodes:
                    load.goes_on()
                    promises.killed.clear()
                    worker = threading.Thread(target=promises.keep_until_killed)
                    worker.start()
                    cluster.change(node)
                    promises.killed.set()
                    worker.join()
                    promises.check()
                    until_in_sync(cluster.bootstrap)
            load.goes_on()
        found = read_all(cluster.bootstrap)
        until_in_sync(cluster.bootstrap)
    assert promises.committed > 0 and promises.topics
    assert_kept(cluster, load, found)
