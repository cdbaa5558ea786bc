"""Several brokers, each a controller too, each a process of its own: one cluster, of Headrace's nodes or with some of
Apache Kafka's among them."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from headrace.wire.messages.k03_metadata import MetadataRequest

from .headrace import START_PATIENCE_S, HeadracePeer
from .kafka import HEAP, free_port, java, kafka_tool
from .link import Link

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
            "controller.quorum.voters": ",".join(f"{n}@127.0.0.1:{ports[1]}" for n, ports in self.ports.items()),
            "log.dirs": str(self.data(node)),
            "default.replication.factor": "3",
            "min.insync.replicas": "2",
            **self._settings,
        }
        file = folder / "server.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        kind = KafkaNode if node in self.kafkas else HeadracePeer
        peer = kind(folder, properties=file, port=client)
        peer.settings = {}
        return peer

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
