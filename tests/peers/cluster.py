"""Several brokers, each a controller too, each a process of its own: one cluster, of Headrace's nodes or with some of
Apache Kafka's among them."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Collection, Mapping
from itertools import permutations
from pathlib import Path
from types import TracebackType
from typing import Self

from headrace.wire.messages.k03_metadata import MetadataRequest

from .headrace import START_PATIENCE_S, HeadracePeer
from .kafka import HEAP, free_port, java, kafka_tool
from .link import Link
from .ways import Ways

CLUSTER_ID = "c2V2ZXJhbC1icm9rZXJzLg"


class KafkaNode(HeadracePeer):
    """Apache Kafka on the file of a node."""

    def command(self) -> list[str]:
        """How it is started."""
        return java("kafka.Kafka", str(self.file), heap=HEAP)


class HeadraceCluster:
    """Nodes 1 to `size`, of which those in `kafkas` are Apache Kafka's; `settings` go into the file of each. Within a
    `with` block all of them run."""

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        size: int = 3,
        kafkas: Collection[int] = (),
    ) -> None:
        self.directory = directory
        self.kafkas = set(kafkas)
        self.ports = {node: (free_port(), free_port()) for node in range(1, size + 1)}
        self._settings = dict(settings or {})
        self.nodes = {node: self._peer(node) for node in self.ports}

    @property
    def bootstrap(self) -> str:
        """All of them, for clients."""
        return ",".join(f"127.0.0.1:{port}" for port, _ in self.ports.values())

    def data(self, node: int) -> Path:
        """A node's log directory."""
        return self.directory / str(node) / "data"

    def log_of(self, node: int, topic: str, partition: int) -> bytes:
        """A node's whole log of a partition, whatever its segments."""
        files = sorted((self.data(node) / f"{topic}-{partition}").glob("*.log"))
        return b"".join(file.read_bytes() for file in files)

    def _peer(self, node: int) -> HeadracePeer:
        client, controller = self.ports[node]
        folder = self.directory / str(node)
        folder.mkdir(parents=True)
        settings = {
            "process.roles": "broker,controller",
            "node.id": str(node),
            "listeners": f"PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{client}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "controller.quorum.voters": ",".join(
                f"{n}@127.0.0.1:{port}" for n, port in self._voters_of(node).items()
            ),
            "log.dirs": str(self.data(node)),
            "default.replication.factor": "3",
            "min.insync.replicas": "2",
            **self._listeners_of(node),
            **self._settings,
        }
        file = folder / "server.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        kind = KafkaNode if node in self.kafkas else HeadracePeer
        peer = kind(folder, properties=file, port=client)
        peer.settings = {}
        return peer

    def _voters_of(self, node: int) -> dict[int, int]:
        """The ports at which a node finds the controllers."""
        return {each: controller for each, (_, controller) in self.ports.items()}

    def _listeners_of(self, node: int) -> dict[str, str]:
        """Settings of a node's listeners, where they are not as usual."""
        return {}

    def format(self) -> None:
        """Formats every node, as an operator does."""
        for node, peer in self.nodes.items():
            arguments = ("format", "-t", CLUSTER_ID, "-c", str(peer.file))
            if node in self.kafkas:
                kafka_tool("kafka.tools.StorageTool", *arguments)
            else:
                command = [sys.executable, "-m", "headrace.cli", "storage", *arguments]
                subprocess.run(command, check=True, timeout=60, capture_output=True)

    def start(self) -> None:
        """Starts all, and waits until each serves, and knows of all the others."""
        for peer in self.nodes.values():
            peer.launch()
        for peer in self.nodes.values():
            peer.wait()
        last = time.monotonic() + START_PATIENCE_S
        for peer in self.nodes.values():
            with Link(peer.port) as link:
                while len(link.ask(MetadataRequest(topics=[]), 12).brokers) < len(self.nodes):
                    assert time.monotonic() < last, "the brokers do not find each other"
                    time.sleep(0.05)

    def stop(self) -> None:
        """SIGTERM to all of ours at once; Apache Kafka's are killed: their last would wait for a majority."""
        for node, peer in self.nodes.items():
            peer.kill() if node in self.kafkas else peer.terminate()
        for peer in self.nodes.values():
            assert peer.stop() == 0, "a clean stop"

    def __enter__(self) -> Self:
        self.format()
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def kill(self) -> None:
        """SIGKILL to all."""
        for peer in self.nodes.values():
            peer.kill()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.stop()
        else:
            self.kill()


class ClusterWithWays(HeadraceCluster):
    """Nodes that reach each other through `ways` alone; clients reach each as ever."""

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None, size: int = 3) -> None:
        nodes = range(1, size + 1)
        self.ways = Ways(nodes)
        self._replica_ports = {node: (free_port(), free_port()) for node in nodes}
        """Where a node listens for the others, and where its proxy does."""
        self._ways_to = {pair: free_port() for pair in permutations(nodes, 2)}
        super().__init__(directory, settings, size)

    def _voters_of(self, node: int) -> dict[int, int]:
        own = super()._voters_of(node)
        return {each: port if each == node else self._ways_to[node, each] for each, port in own.items()}

    def _listeners_of(self, node: int) -> dict[str, str]:
        client, controller = self.ports[node]
        own, through = self._replica_ports[node]
        local = "127.0.0.1"
        return {
            "listeners": f"PLAINTEXT://{local}:{client},NODES://{local}:{own},CONTROLLER://{local}:{controller}",
            "advertised.listeners": f"PLAINTEXT://{local}:{client},NODES://{local}:{through}",
            "inter.broker.listener.name": "NODES",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,NODES:PLAINTEXT",
        }

    def start(self) -> None:
        for (source, node), port in self._ways_to.items():
            self.ways.open(port, self.ports[node][1], node, source)
        for node, (own, through) in self._replica_ports.items():
            self.ways.open(through, own, node)
        super().start()

    def kill(self) -> None:
        super().kill()
        self.ways.close()

    def stop(self) -> None:
        self.ways.heal()
        super().stop()
        self.ways.close()
