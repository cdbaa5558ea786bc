"""The file system of one node's metadata log is full, a real one of a few megabytes: the node confirms nothing that it
has not written, the others go on, and when there is room it catches up by itself."""

from __future__ import annotations

import errno
import shutil
import subprocess
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from durability.promises import Load, assert_kept, make_topic, read_all, until_in_sync
from peers.cluster import HeadraceCluster
from peers.headrace import HeadracePeer
from peers.link import Link
from peers.waiting import until

from headrace.wire.messages import k55_describe_quorum as k55

ROOM = "4m"
BATCH_HEADER_BYTES = 12
"""Base offset and length, which do not count themselves."""
IN_A_FILE_SYSTEM = f'mount -t tmpfs -o size={ROOM} none "$0" && cp -a "$1/." "$0" && shift && exec "$@"'
NO_ROOM = "takes no part in the quorum until there is room"
LETS_LEAD = "has no room to decide, and lets another one lead"
ROOM_AGAIN = "metadata log can be written again"
PARTITIONS = 8


def can_mount(folder: Path) -> bool:
    """Whether this user may have a mount namespace, and a tmpfs in it."""
    if shutil.which("unshare") is None:
        return False
    command = ["unshare", "-Urm", "mount", "-t", "tmpfs", "none", str(folder)]
    return subprocess.run(command, check=False, capture_output=True, timeout=60).returncode == 0


class OnSmallDisk(HeadracePeer):
    """A node whose metadata log lies in a file system of its own, which its process alone sees; it ends with that."""

    def command(self) -> list[str]:
        """How it is started: in the file system is what was formatted."""
        formatted = str(self.metadata)
        mounted = f"{formatted}-small"
        Path(mounted).mkdir(exist_ok=True)
        assert self.file is not None
        text = self.file.read_text()
        self.file.write_text(text.replace(f"metadata.log.dir={formatted}\n", f"metadata.log.dir={mounted}\n"))
        return ["unshare", "-Urm", "sh", "-c", IN_A_FILE_SYSTEM, mounted, formatted, *super().command()]

    @property
    def metadata(self) -> Path:
        """Where the metadata are formatted."""
        return self.directory / "metadata"

    @property
    def inside(self) -> Path:
        """The file system, while the process runs."""
        return Path(f"/proc/{self.pid}/root{self.metadata}-small")

    def fill(self) -> None:
        """Leaves no room."""
        with (self.inside / "filler").open("wb", buffering=0) as filler:
            try:
                while True:
                    filler.write(bytes(4096))
            except OSError as error:
                assert error.errno == errno.ENOSPC

    def make_room(self) -> None:
        (self.inside / "filler").unlink()

    def log_bytes(self) -> bytes:
        """The metadata log as far as it is written."""
        files = sorted((self.inside / "__cluster_metadata-0").glob("*.log"))
        return b"".join(file.read_bytes() for file in files)


class SmallDisks(HeadraceCluster):
    """Nodes of which each has a small disk for its metadata."""

    nodes: dict[int, OnSmallDisk]  # type: ignore[assignment]

    def _process(self, node: int, folder: Path, file: Path, port: int) -> HeadracePeer:
        file.write_text(f"{file.read_text()}metadata.log.dir={folder / 'metadata'}\n")
        peer = OnSmallDisk(folder, properties=file, port=port)
        peer.settings = {}
        return peer


def end_offset(log: bytes) -> int:
    """One behind the last record of the whole batches of a log."""
    at = end = 0
    while len(log) - at >= BATCH_HEADER_BYTES:
        base, size = int.from_bytes(log[at : at + 8], "big"), int.from_bytes(log[at + 8 : at + 12], "big")
        if at + BATCH_HEADER_BYTES + size > len(log):
            break
        end = base + int.from_bytes(log[at + 23 : at + 27], "big") + 1
        at += BATCH_HEADER_BYTES + size
    return end


def quorum(cluster: SmallDisks, asked: int) -> k55.ResponsePartitionData:
    """The metadata quorum, as the active controller describes it to a node that knows which one that is."""
    topic = k55.TopicData(topic_name="__cluster_metadata", partitions=[k55.PartitionData()])
    with Link(cluster.nodes[asked].port) as link:
        answer: k55.DescribeQuorumResponse = link.ask(k55.DescribeQuorumRequest(topics=[topic]), 2)
        return answer.topics[0].partitions[0]


def knows(admin: AdminClient, names: set[str]) -> bool:
    """Whether a node has all of these topics."""
    return names <= admin.list_topics(timeout=30).topics.keys()


class Administrator:
    """Makes topics by way of one node, and notes those that were confirmed."""

    def __init__(self, cluster: SmallDisks, node: int) -> None:
        self._admin = AdminClient(
            {"bootstrap.servers": cluster.nodes[node].bootstrap, "log_level": 0, "socket.timeout.ms": 10_000}
        )
        self._node = node
        self.confirmed: list[str] = []
        self._made = 0

    def make(self) -> bool:
        """Whether another topic was confirmed."""
        self._made += 1
        name = f"by-{self._node}-{self._made}"
        try:
            self._admin.create_topics([NewTopic(name, PARTITIONS, 3)], request_timeout=5)[name].result(20)
        except KafkaException:
            return False
        self.confirmed.append(name)
        return True


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(400)
@pytest.mark.parametrize("leads", [False, True], ids=["a follower", "the leader"])
def test_the_others_go_on_and_it_catches_up(tmp_path: Path, leads: bool) -> None:
    if not can_mount(tmp_path):
        pytest.skip("this user may not mount a tmpfs of its own")
    with SmallDisks(tmp_path, {"offsets.topic.num.partitions": "1"}) as cluster:
        make_topic(cluster)
        active = quorum(cluster, 1).leader_id
        full = active if leads else next(node for node in cluster.nodes if node != active)
        peer, other = cluster.nodes[full], full % 3 + 1
        others, own = Administrator(cluster, other), Administrator(cluster, full)
        with Load(cluster.bootstrap, "load") as load:
            load.goes_on()
            peer.fill()
            until(lambda: others.make() and NO_ROOM in peer.log.read_text(), "it says that its disk is full")
            assert LETS_LEAD in peer.log.read_text() or not leads
            for _ in range(3):
                until(others.make, "the others confirm what they are asked for")
            own.make()
            load.goes_on()
            now = quorum(cluster, other)
            written = end_offset(peer.log_bytes())
            (told,) = (each.log_end_offset for each in now.current_voters if each.replica_id == full)
            assert told <= written, "it has confirmed metadata that it has not written"
            assert now.high_watermark > written, "a majority of the others decides"
            assert now.leader_id != full
            peer.make_room()
            until(lambda: end_offset(peer.log_bytes()) >= quorum(cluster, other).high_watermark, "it catches up")
            assert ROOM_AGAIN in peer.log.read_text()
            until(own.make, "it takes part again")
            load.goes_on()
        confirmed = {*others.confirmed, *own.confirmed}
        for node in cluster.nodes.values():
            admin = AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 0})
            until(partial(knows, admin, confirmed), "all of the confirmed")
        found = read_all(cluster.bootstrap)
        until_in_sync(cluster.bootstrap)
        logs = sorted((node.log_bytes() for node in cluster.nodes.values()), key=len)
        assert all(log.startswith(logs[0]) for log in logs), "the metadata logs differ"
        for node in cluster.nodes.values():
            assert " defect in " not in node.log.read_text()
    assert_kept(cluster, load, found)
