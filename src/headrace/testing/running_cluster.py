"""A cluster of real brokers inside a test, each on an event loop in a thread of its own, and what can befall it.

Every node is a broker and a controller, at ports that it keeps. What a node does not survive in production it does not
survive here: `kill` ends it as `kill -9` does, without a last word, a checkpoint or a marked shutdown.
"""

from __future__ import annotations

import gc
import os
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from headrace.broker.broker import Broker
from headrace.broker.quorum.metadata_start import format_storage
from headrace.broker.requests.apis import CLUSTER, SERVED
from headrace.broker.requests.registry import handler_of
from headrace.config import BrokerConfig
from headrace.env.posix import PosixEnvironment
from headrace.env.posix_node import PosixNode
from headrace.metadata.meta_properties import FILE_NAME, decode_meta_properties
from headrace.testing.faults import Faults, FaultyNetwork
from headrace.testing.running import SETTINGS, STOP_PATIENCE_S, DefectError, SettingValue, TestBroker
from headrace.wire import uuids

if TYPE_CHECKING:
    from headrace.client.cluster import Client
    from headrace.env.network import Stream
    from headrace.metadata.image import ClusterImage

T = TypeVar("T")

HOST: Final = "127.0.0.1"
REPLICAS: Final = 3
"""Replicas of a topic that is created without a count, where there are so many brokers."""

CLUSTER_SETTINGS: Final[Mapping[str, str]] = {
    **SETTINGS,
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.election.timeout.ms": "100",
    "controller.quorum.election.backoff.max.ms": "100",
    "controller.quorum.fetch.timeout.ms": "2000",
    "controller.quorum.request.timeout.ms": "600",
    "broker.heartbeat.interval.ms": "100",
    "broker.session.timeout.ms": "6000",
    "replica.fetch.wait.max.ms": "100",
    "replica.fetch.backoff.ms": "50",
    "replica.lag.time.max.ms": "6000",
    "replica.socket.timeout.ms": "1000",
    "request.timeout.ms": "3000",
}
"""What the nodes of a test's cluster have other than the defaults: as `SETTINGS`, and timers in proportion to a test.
A dead broker is fenced at once, and a dead controller replaced; a silent broker after 6 s (Kafka: 9 s), a silent
controller after 2 s (as Kafka's), as a busy machine may silence any for a second or two. A test that waits until a
silent one is fenced, or out of sync, asks for less."""

LOOK_AGAIN_S: Final = 0.005


class _Node(PosixNode):
    """This machine, with a network that can be made to fail."""

    def __init__(self, faults: Faults) -> None:
        super().__init__()
        self.network = FaultyNetwork(self.network, faults)  # type: ignore[assignment]


class TestNode(TestBroker):
    """One life of a node of a cluster: `restart` puts another in its place."""

    __test__ = False

    def __init__(self, node_id: int, data: Path, settings: Mapping[str, SettingValue], faults: Faults) -> None:
        super().__init__(data, settings)
        self.id = node_id
        self.faults = faults
        self._node: _Node | None = None
        self._killed = False
        self._goes_on: threading.Event | None = None

    @property
    def is_running(self) -> bool:
        """Whether it was started, and neither stopped nor killed."""
        return self._broker is not None

    @property
    def is_paused(self) -> bool:
        return self._goes_on is not None

    def _make(self, config: BrokerConfig) -> Broker:
        self._node = _Node(self.faults)
        return Broker(config, self._node)

    def faults_changed(self) -> None:
        """Returns when the node has seen that its faults are others; one that is paused sees it when it goes on."""
        if self._loop is None or not self.is_running:
            return
        if self.is_paused:
            self._loop.call_soon_threadsafe(self.faults.changed)
        else:
            self.call(lambda _: self.faults.changed())

    def pause(self) -> None:
        """Its loop does nothing more, as after SIGSTOP: the system still accepts connections and bytes for it. What a
        worker thread has begun it finishes."""
        assert self._loop is not None, "it was never started"
        assert not self.is_paused, f"node {self.id} is paused already"
        paused, goes_on = threading.Event(), threading.Event()

        def pause() -> None:
            paused.set()
            goes_on.wait()
            if self._killed:
                self._die()

        self._loop.call_soon_threadsafe(pause)
        if not paused.wait(STOP_PATIENCE_S):
            raise RuntimeError(f"the loop of node {self.id} does not turn")
        self._goes_on = goes_on

    def resume(self) -> None:
        """Goes on, as after SIGCONT."""
        if self._goes_on is not None:
            self._goes_on.set()
            self._goes_on = None

    def kill(self) -> None:
        """Ends it without any cleaning up. Raises DefectError where it had met a defect before."""
        assert self._loop is not None and self._node is not None and self._broker is not None, "it does not run"
        node, broker = self._node, self._broker
        defect = node.defects.first
        self._killed = True
        if self.is_paused:
            self.resume()
        else:
            self._loop.call_soon_threadsafe(self._die)
        self._await_end()
        node.workers.close()  # a thread in a system call ends with the call
        node.syncs.close()
        node.errands.close()
        broker.logs.unlock()  # as the system does for a process that is gone
        if broker.quorum.lock is not None:
            broker.quorum.lock.release()
        self._loop.set_exception_handler(None)  # it is the node's, and connections that are held up keep the loop
        self._node = None
        del node, broker
        gc.collect()  # its files are closed with the last reference
        if defect is not None:
            raise DefectError(f"node {self.id} met a defect") from defect

    def _die(self) -> None:
        assert self._node is not None and self._stop is not None
        self._node.kill()
        self._stop.set()

    async def _end(self, broker: Broker) -> None:
        if not self._killed:
            await super()._end(broker)


class TestCluster:
    """Brokers that run in threads of this process, and form one cluster."""

    __test__ = False

    def __init__(
        self,
        brokers: int,
        settings: Mapping[str, SettingValue],
        data: Path,
        nodes: Mapping[int, Mapping[str, SettingValue]],
    ) -> None:
        """Nothing runs before `start`. Raises TypeError for a setting that is no such value."""
        self.data = data
        self._of_nodes = nodes
        self._process = os.getpid()
        self._settings = settings
        ids = range(1, brokers + 1)
        self._held = [_hold_a_port() for _ in range(2 * brokers)]
        ports = [held.getsockname()[1] for held in self._held]
        self._ports = {node_id: (ports[2 * at], ports[2 * at + 1]) for at, node_id in enumerate(ids)}
        peers = {port: node_id for node_id, both in self._ports.items() for port in both}
        self._unfinished: list[Stream] = []
        self._faults = {node_id: Faults(peers, self._unfinished) for node_id in ids}
        self._defects: list[BaseException] = []
        self._nodes = {node_id: self._new_node(node_id) for node_id in ids}

    def _new_node(self, node_id: int) -> TestNode:
        count = len(self._ports)
        replicas = str(min(REPLICAS, count))
        client_port, controller_port = self._ports[node_id]
        voters = ",".join(f"{other}@{HOST}:{ports[1]}" for other, ports in self._ports.items())
        settings: dict[str, SettingValue] = {
            **CLUSTER_SETTINGS,
            "default.replication.factor": replicas,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "min.insync.replicas": "2" if count >= REPLICAS else "1",
            **self._settings,
            "node.id": str(node_id),
            "listeners": f"PLAINTEXT://{HOST}:{client_port},CONTROLLER://{HOST}:{controller_port}",
            "controller.quorum.voters": voters,
            **self._of_nodes.get(node_id, {}),
        }
        return TestNode(node_id, self.data / str(node_id), settings, self._faults[node_id])

    # --- what it is

    def __repr__(self) -> str:
        running = sum(node.is_running for node in self._nodes.values())
        return f"<TestCluster at {self.bootstrap}: {running} of {len(self._nodes)} nodes running>"

    @property
    def nodes(self) -> Mapping[int, TestNode]:
        """The nodes by their ids, from 1 on. A restarted node is another `TestNode`."""
        return self._nodes

    @property
    def bootstrap(self) -> str:
        """What clients are given as bootstrap servers: every node."""
        return ",".join(f"{HOST}:{ports[0]}" for ports in self._ports.values())

    def client(self, *, timeout_s: float = 30.0) -> Client:
        """A client of this cluster; the caller closes it."""
        from headrace.client.cluster import Client

        return Client(self.bootstrap, client_id="headrace-test", timeout_s=timeout_s)

    def leader(self, topic: str, partition: int, *, timeout_s: float = STOP_PATIENCE_S) -> int:
        """The node that leads a partition, as the newest metadata of the running nodes have it. Waits for one where the
        topic, or its leader, is not there yet; raises TimeoutError."""

        def led_by() -> int | None:
            found = self._newest_image().topics.partition(topic, partition)
            return None if found is None or found.leader < 0 else found.leader

        return _wait_for(led_by, timeout_s, f"{topic}-{partition} has no leader")

    def controller(self, *, timeout_s: float = STOP_PATIENCE_S) -> int:
        """The node that is the active controller: of several that believe it, the one with the newest epoch. Waits for
        one; raises TimeoutError."""

        def active() -> int | None:
            found = [(node.call(lambda b: (b.quorum.decides, b.quorum.epoch)), node.id) for node in self._awake()]
            return max(((epoch, id_) for (decides, epoch), id_ in found if decides), default=(0, None))[1]

        return _wait_for(active, timeout_s, "no controller is active")

    def _awake(self) -> list[TestNode]:
        return [node for node in self._nodes.values() if node.is_running and not node.is_paused]

    def _newest_image(self) -> ClusterImage:
        images = [node.call(lambda inside: inside.image) for node in self._awake()]
        assert images, "no node runs"
        return max(images, key=lambda image: image.offset)

    # --- what can befall it

    def kill(self, node: int) -> None:
        """Ends a node as `kill -9` does: nothing is cleaned up, and nothing of it runs when this returns."""
        try:
            self._running(node).kill()
        except DefectError as error:
            self._defects.append(error)

    def stop(self, node: int) -> None:
        """A clean shutdown of one node. Raises DefectError where it met a defect meanwhile."""
        self._running(node).stop()

    def restart(self, node: int) -> TestNode:
        """Starts a node again at its ports, with what its disk has; one that runs is stopped cleanly before. Returns
        when it serves clients."""
        if self._nodes[node].is_running:
            self.stop(node)
        fresh = self._nodes[node] = self._new_node(node)
        fresh.start()
        return fresh

    def partition(self, a: int, b: int) -> None:
        """Nothing passes between two nodes until `heal`; clients reach both. More than one pair may be apart."""
        assert a != b, "a node is never apart from itself"
        for node, other in ((a, b), (b, a)):
            self._faults[node].apart |= {other}
        self._tell([a, b])

    def heal(self) -> None:
        """Every two nodes reach each other again: what was under way between them arrives."""
        for faults in self._faults.values():
            faults.apart = frozenset()
        self._tell(self._nodes)
        while self._unfinished:
            self._unfinished.pop().close()

    def slow(self, node: int, delay_s: float) -> None:
        """Everything to and from a node takes so much longer each way, clients' too; 0 ends that."""
        if delay_s < 0:
            raise ValueError(f"a delay is not negative: {delay_s}")
        self._faults[node].delay_s = delay_s
        self._tell([node])

    def pause(self, node: int) -> None:
        """A node does nothing until `resume`, as after SIGSTOP."""
        self._running(node).pause()

    def resume(self, node: int) -> None:
        """A paused node goes on, as after SIGCONT."""
        self._nodes[node].resume()

    def _running(self, node: int) -> TestNode:
        found = self._nodes[node]
        if not found.is_running:
            raise ValueError(f"node {node} does not run")
        return found

    def _tell(self, nodes: Iterable[int]) -> None:
        for node in nodes:
            self._nodes[node].faults_changed()

    # --- life

    def start(self) -> None:
        """Returns when every node serves clients. Raises what a node's start raises."""
        for key in sorted({*SERVED, *CLUSTER}):
            # Here, and not by each node's thread when a request comes: pytest parses what is imported under it, and
            # Python 3.11 fails now and then where two threads parse at once (SystemError, "AST constructor recursion").
            handler_of(key)
        try:
            self._format()
            for node in self._nodes.values():
                node.begin()
            for node in self._nodes.values():
                node.await_ready()
            _wait_for(self._all_are_seen, STOP_PATIENCE_S, "a node does not see all others")
        except BaseException:
            self._end(lambda _: None)
            raise

    def _all_are_seen(self) -> bool | None:
        """True if the metadata of every node have every other as a broker that serves clients; else None."""
        seen = [node.call(lambda b: {known.id for known in b.image.online_brokers()}) for node in self._nodes.values()]
        return all(ids == self._nodes.keys() for ids in seen) or None

    def _format(self) -> None:
        env = PosixEnvironment()
        cluster_id = self._cluster_id(env)
        for node in self._nodes.values():
            format_storage(env, BrokerConfig.load(node.settings), cluster_id)

    def _cluster_id(self, env: PosixEnvironment) -> str:
        """That of the directories, where they are formatted."""
        for node in self._nodes.values():
            path = str(node.data / FILE_NAME)
            if env.disk.exists(path):
                return decode_meta_properties(env.disk.read_file(path)).cluster_id
        return uuids.to_text(env.entropy.uuid())

    def close(self) -> None:
        """Stops every node cleanly. Raises DefectError where any node met a defect.

        In a fork there is nothing to stop.
        """
        if os.getpid() != self._process:
            return
        failures: list[BaseException] = list(self._defects)
        self._end(failures.append)
        if failures:
            raise failures[0]

    def _end(self, failed: Callable[[BaseException], object]) -> None:
        for node in self._nodes.values():
            node.resume()
        self.heal()
        for node in self._nodes.values():
            node.ask_to_stop()
        for node in self._nodes.values():
            try:
                node.join()
            except Exception as error:
                failed(error)
        for held in self._held:
            held.close()


def _hold_a_port() -> socket.socket:
    """A free port that nobody else gets while the socket is open; a node can listen there all the same."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind((HOST, 0))
    return held


def _wait_for(look: Callable[[], T | None], timeout_s: float, failure: str) -> T:
    last = time.monotonic() + timeout_s
    while (found := look()) is None:
        if time.monotonic() >= last:
            raise TimeoutError(f"{failure} within {timeout_s:g} s")
        time.sleep(LOOK_AGAIN_S)
    return found


@contextmanager
def cluster(
    brokers: int = 3,
    settings: Mapping[str, SettingValue] | None = None,
    *,
    data: Path | str | None = None,
    nodes: Mapping[int, Mapping[str, SettingValue]] | None = None,
) -> Iterator[TestCluster]:
    """A running cluster; stopped, and its files removed, at the end of the block.

    `settings` are those of every node, and win over `CLUSTER_SETTINGS`; `nodes` are those of single ones, by their ids,
    and win over all others: `nodes={1: {"broker.rack": "a"}}`. With `data` the nodes use directories in that
    one, format them where they are fresh, and leave them. Topics have three replicas where there are three brokers, and
    two of them must be in sync.

    A defect that any node met fails the end of the block. A fork that leaves the block leaves the cluster to the
    process that entered it.
    """
    if brokers < 1:
        raise ValueError(f"a cluster has at least one broker, not {brokers}")
    directory = Path(tempfile.mkdtemp(prefix="headrace-test-")) if data is None else Path(data)
    process = os.getpid()
    try:
        running = TestCluster(brokers, settings or {}, directory, nodes or {})
        running.start()
        try:
            yield running
        finally:
            running.close()
    finally:
        if data is None and os.getpid() == process:
            shutil.rmtree(directory, ignore_errors=True)
