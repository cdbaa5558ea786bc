"""Several brokers, each a process of its own, and each a controller too or beside controllers of their own: one
cluster, of Headrace's nodes or with some of Apache Kafka's among them."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Collection, Mapping
from itertools import permutations
from pathlib import Path
from types import TracebackType
from typing import Self

from headrace.env.posix import PosixEntropy
from headrace.wire import uuids
from headrace.wire.messages import k55_describe_quorum as k55
from headrace.wire.messages.k03_metadata import MetadataRequest

from .headrace import START_PATIENCE_S, HeadracePeer
from .kafka import NODE_HEAP, free_port, java, kafka_tool, quick
from .link import Link
from .ways import Ways

JAVA_TERMINATED = 143
"""Java's exit status after SIGTERM."""
CLUSTER_ID = "c2V2ZXJhbC1icm9rZXJzLg"


class KafkaNode(HeadracePeer):
    """Apache Kafka on the file of a node."""

    flags: tuple[str, ...] | None = None
    """Java's; None for those of a quick start."""

    def command(self) -> list[str]:
        """How it is started."""
        return java("kafka.Kafka", str(self.file), flags=self.flags or quick(NODE_HEAP))


class HeadraceCluster:
    """Nodes 1 to `size`, of which those in `kafkas` are Apache Kafka's; `settings` go into the file of each. Within a
    `with` block all of them run.

    With `controllers` these nodes are brokers alone, and controllers are nodes 101 and on. Several are the voters that
    every file names; a single one votes by its metadata, and brokers know its address. If it is `dynamic`, the metadata
    say who votes in any case, and the files name addresses alone.
    """

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        size: int = 3,
        kafkas: Collection[int] = (),
        controllers: int = 0,
        *,
        dynamic: bool = False,
    ) -> None:
        self.directory = directory
        self.kafkas = set(kafkas)
        self.ports = {node: (free_port(), free_port()) for node in range(1, size + 1)}
        self.controller_ports = {node: free_port() for node in range(101, 101 + controllers)}
        self._settings = dict(settings or {})
        chance = PosixEntropy()  # no id that a tool takes for an option
        voters = self.controller_ports or {node: controller for node, (_, controller) in self.ports.items()}
        self._voters = {
            node: f"{node}@127.0.0.1:{port}:{uuids.to_text(chance.uuid())}" for node, port in voters.items() if dynamic
        }
        """The first voters, as both formatting tools take them; none where the files name them."""
        self.controllers = {node: self._controller(node) for node in self.controller_ports}
        self.nodes = {node: self._peer(node) for node in self.ports}

    @property
    def everybody(self) -> dict[int, HeadracePeer]:
        """All processes."""
        return {**self.controllers, **self.nodes}

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
        own = "" if self.controllers else f",CONTROLLER://127.0.0.1:{controller}"
        settings = {
            "process.roles": "broker" if self.controllers else "broker,controller",
            "listeners": f"PLAINTEXT://127.0.0.1:{client}{own}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{client}",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        }
        return self._node(node, client, settings)

    def _controller(self, node: int) -> HeadracePeer:
        port = self.controller_ports[node]
        settings = {"process.roles": "controller", "listeners": f"CONTROLLER://127.0.0.1:{port}"}
        return self._node(node, port, settings)

    def _quorum(self, node: int) -> dict[str, str]:
        """How a node finds the voters, where it is none of several."""
        voters = self.controller_ports or {n: ports[1] for n, ports in self.ports.items()}
        if self._voters:
            return {"controller.quorum.bootstrap.servers": ",".join(f"127.0.0.1:{port}" for port in voters.values())}
        if len(voters) > 1:
            return {"controller.quorum.voters": ",".join(f"{n}@127.0.0.1:{port}" for n, port in voters.items())}
        addresses = ",".join(f"127.0.0.1:{port}" for port in voters.values())
        is_silent = node in voters and node not in self.kafkas  # Apache Kafka's single controller names itself too
        return {} if is_silent else {"controller.quorum.bootstrap.servers": addresses}

    def _node(self, node: int, port: int, settings: Mapping[str, str]) -> HeadracePeer:
        folder = self.directory / str(node)
        folder.mkdir(parents=True)
        settings = {
            **settings,
            "node.id": str(node),
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.data(node)),
            "default.replication.factor": "3",
            "min.insync.replicas": "2",
            **self._quorum(node),
            **self._settings,
        }
        file = folder / "server.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return self._process(node, folder, file, port)

    def _process(self, node: int, folder: Path, file: Path, port: int) -> HeadracePeer:
        kind = KafkaNode if node in self.kafkas else HeadracePeer
        peer = kind(folder, properties=file, port=port)
        peer.settings = {}
        return peer

    def replace(self, node: int, *, fresh: bool = False) -> None:
        """Stops a node in order, and starts the other kind with its file: on its directory, or on a fresh one. If it is
        dynamic, a node with a fresh directory is another voter."""
        old = self.nodes[node]
        assert old.file is not None
        assert old.stop() in (0, JAVA_TERMINATED)
        self.kafkas ^= {node}
        if fresh and self._voters:
            self._operate("quorum", "remove", str(node), "--yes", "-b", self.bootstrap)
        if fresh:
            shutil.rmtree(self.data(node))
            self._format(node, old.file, joins=True)
        self.nodes[node] = self._process(node, old.directory, old.file, old.port)
        self.nodes[node].start()
        if fresh and self._voters:
            self._operate("quorum", "add", "-c", str(old.file), "-b", self.bootstrap)

    def format(self) -> None:
        """Formats every node, as an operator does."""
        for node, peer in self.everybody.items():
            assert peer.file is not None
            self._format(node, peer.file)

    def format_options(self) -> list[str]:
        """What every node is formatted with besides."""
        return []

    def _format(self, node: int, file: Path, *, joins: bool = False) -> None:
        arguments = ["format", "-t", CLUSTER_ID, "-c", str(file), *self.format_options()]
        if node in self._voters and joins:
            arguments.append("--no-initial-controllers")
        elif node in self._voters:
            arguments += ["--initial-controllers", ",".join(self._voters.values())]
        if node in self.kafkas:
            if list(self.controllers) == [node] and not self._voters:
                arguments.append("--standalone")  # ours is so without being told
            kafka_tool("kafka.tools.StorageTool", *arguments)
        else:
            self._operate("storage", *arguments)

    @staticmethod
    def _operate(*arguments: str) -> None:
        """One of our commands."""
        command = [sys.executable, "-m", "headrace.cli", *arguments]
        done = subprocess.run(command, timeout=60, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (arguments, done.stderr)

    def start(self) -> None:
        """Starts all, and waits until each serves, and knows of all the others."""
        for peer in self.everybody.values():
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
        """SIGTERM to all of ours at once, but to controllers of their own when the brokers are gone; Apache Kafka's are
        killed: their last would wait for a majority."""
        for node, peer in self.nodes.items():
            peer.kill() if node in self.kafkas else peer.terminate()
        for node, peer in [*self.nodes.items(), *self.controllers.items()]:
            if node in self.kafkas:
                peer.kill()
            assert peer.stop() == 0, "a clean stop"

    def quorum(self) -> k55.ResponsePartitionData:
        """The metadata quorum, as a broker that answers hears of it."""
        asked = k55.TopicData(topic_name="__cluster_metadata", partitions=[k55.PartitionData()])
        port = next(peer.port for peer in self.nodes.values() if peer.process is not None)
        with Link(port) as link:
            answer: k55.DescribeQuorumResponse = link.ask(k55.DescribeQuorumRequest(topics=[asked]), 2)
            return answer.topics[0].partitions[0]

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
        for peer in self.everybody.values():
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

    def _peer(self, node: int) -> HeadracePeer:
        client, controller = self.ports[node]
        own, through = self._replica_ports[node]
        local = "127.0.0.1"
        settings = {
            "process.roles": "broker,controller",
            "listeners": f"PLAINTEXT://{local}:{client},NODES://{local}:{own},CONTROLLER://{local}:{controller}",
            "advertised.listeners": f"PLAINTEXT://{local}:{client},NODES://{local}:{through}",
            "inter.broker.listener.name": "NODES",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,NODES:PLAINTEXT",
        }
        return self._node(node, client, settings)

    def _quorum(self, node: int) -> dict[str, str]:
        ports = {each: self._ways_to.get((node, each), controller) for each, (_, controller) in self.ports.items()}
        return {"controller.quorum.voters": ",".join(f"{each}@127.0.0.1:{port}" for each, port in ports.items())}

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
