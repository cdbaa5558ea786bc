"""The data folder of several brokers on one machine: which cluster it holds, at which ports, and each node's own file.

cluster.properties               the cluster id, the number of nodes, their ports: written before anything else
node-1/server.properties         written at each start
node-1/data/                     the node's log directory
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.cli.failures import Failure
from headrace.wire.address import address_text

if TYPE_CHECKING:
    from headrace.env import DiskLock

CLUSTER_FILE: Final = "cluster.properties"
NODE_FILE: Final = "server.properties"
CONTROLLER_HOST: Final = "127.0.0.1"
"""Controllers of one machine speak with each other alone."""
CONTROLLERS_FURTHER: Final = 10_000
"""The first controller's port, counted from the first client's."""
REPLICAS: Final = 3
METRICS: Final = "metrics.listener"
OWN: Final = frozenset(
    {
        "advertised.listeners",
        "controller.listener.names",
        "controller.quorum.bootstrap.servers",
        "controller.quorum.voters",
        "listeners",
        "log.dir",
        "log.dirs",
        "metadata.log.dir",
        "node.id",
        "process.roles",
    }
)
"""Settings that each node has of its own: they cannot be given for all."""


@dataclass(frozen=True)
class Layout:
    """A cluster as its folder tells of it. Ports are those of the nodes 1, 2, ... in order; there are none of metrics
    where no node serves them."""

    cluster_id: str
    ports: tuple[int, ...]
    controller_ports: tuple[int, ...]
    metrics_ports: tuple[int, ...] = ()
    metrics_host: str = CONTROLLER_HOST

    @property
    def node_ids(self) -> range:
        return range(1, len(self.ports) + 1)

    def metrics_address(self, node_id: int) -> str:
        """HOST:PORT of a node's pages; -1 where it serves none."""
        return address_text(self.metrics_host, self.metrics_ports[node_id - 1]) if self.metrics_ports else "-1"


def node_directory(folder: Path, node_id: int) -> Path:
    return folder / f"node-{node_id}"


def lock_folder(folder: Path) -> DiskLock:
    """Makes the folder, and keeps other supervisors out. Raises Failure."""
    from headrace.env.posix import PosixDisk

    if "," in str(folder):
        raise Failure(f"{folder} has a comma in its name, which divides directories in a server.properties")
    try:
        folder.mkdir(0o700, parents=True, exist_ok=True)
        lock = PosixDisk().lock(str(folder / ".lock"))
    except OSError as error:
        raise Failure(f"{error.filename or folder}: {error.strerror}") from error
    if lock is None:
        raise Failure(f"{folder} is in use: another `headrace serve --brokers` or broker runs there")
    return lock


def read_layout(folder: Path, brokers: int) -> Layout | None:
    """What an earlier start has written; None in a fresh folder. Raises Failure for a folder of something else."""
    from headrace.config import load_properties_file

    if (folder / "meta.properties").exists():
        raise Failure(f"{folder} holds the data of a single broker; give --brokers another folder with --data")
    path = folder / CLUSTER_FILE
    if not path.exists():
        return None
    found = load_properties_file(str(path))
    try:
        metrics_ports = _ports(found.get("metrics.ports", ""))
        layout = Layout(found["cluster.id"], _ports(found["ports"]), _ports(found["controller.ports"]), metrics_ports)
    except (KeyError, ValueError) as error:
        raise Failure(f"{path} cannot be read: {error}") from error
    if len(layout.ports) != brokers:
        raise Failure(f"{folder} holds a cluster of {len(layout.ports)} brokers, not {brokers}")
    return layout


def _ports(text: str) -> tuple[int, ...]:
    return tuple(int(port) for port in text.split(",") if text)


class HeldPorts:
    """Ports that nobody else gets while they are held; the nodes listen there all the same."""

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []

    def hold(self, host: str, port: int) -> int:
        """The port, or a free one for 0. Raises Failure where another program listens there."""
        where = address_text(host, port)
        try:
            family, _, _, _, address = socket.getaddrinfo(host.strip("[]") or None, port, type=socket.SOCK_STREAM)[0]
            held = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:
            raise Failure(f"cannot listen on {where}: {error.strerror}") from error
        self._sockets.append(held)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            held.bind(address)
        except OSError as error:
            taken = error.errno == errno.EADDRINUSE
            why = "another program listens there" if taken else str(error.strerror)
            hint = "; --listen HOST:PORT, --controller-port and --set metrics.listener=HOST:PORT take other ports"
            hint = hint if taken else ""
            raise Failure(f"cannot listen on {where}: {why}{hint}") from error
        return int(held.getsockname()[1])

    def release(self) -> None:
        for held in self._sockets:
            held.close()


def hold_ports(
    held: HeldPorts, host: str, port: int, controller_port: int | None, brokers: int, kept: Layout | None
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ports for clients and for controllers: from `port` on, or for 0 those `kept`, or free ones.

    Raises Failure.
    """
    last = 65536 - brokers
    if controller_port is None:
        further = port + CONTROLLERS_FURTHER
        controller_port = further if further <= last else port - CONTROLLERS_FURTHER
        controller_port = controller_port if port else 0
    for first in (port, controller_port):
        if first > last:
            raise Failure(f"{brokers} ports from {first} on are more than there are")
    clients = _wanted(port, brokers, kept.ports if kept else None)
    controllers = _wanted(controller_port, brokers, kept.controller_ports if kept else None)
    if set(clients) & set(controllers) - {0}:
        raise Failure(f"the ports of clients and of controllers overlap: {clients} and {controllers}")
    return (
        tuple(held.hold(host, each) for each in clients),
        tuple(held.hold(CONTROLLER_HOST, each) for each in controllers),
    )


def hold_metrics_ports(
    held: HeldPorts, given: str | None, *, free: bool, others: Sequence[int], kept: Layout | None
) -> tuple[str, tuple[int, ...]]:
    """The host and the ports of the nodes' pages; no ports where `given`, the setting for all, turns them off.

    A given port is the first node's, and the next ones are those of the others. Without one, or where it is 0, they are
    those `kept`, or the default and the next ones (`free`: free ones); a free one takes the place of one that another
    program has. `others` are the ports of clients and controllers, of each node. Raises ConfigError and Failure.
    """
    from headrace.config import BROKER_SETTINGS, parse_value
    from headrace.config.setting import parse_metrics_listener

    setting = BROKER_SETTINGS[METRICS]
    address = parse_metrics_listener(str(setting.default if given is None else parse_value(setting, given)))
    if address is None:
        return "", ()
    host, first = address
    brokers = len(others) // 2
    if given is not None and first:
        if first > 65536 - brokers:
            raise Failure(f"{brokers} ports from {first} on are more than there are")
        wanted = _wanted(first, brokers, None)
        if set(wanted) & set(others):
            raise Failure(f"the ports of clients, of controllers and of metrics overlap: {others} and {wanted}")
        return host, tuple(held.hold(host, port) for port in wanted)
    wanted = kept.metrics_ports if kept else ()
    wanted = wanted or _wanted(0 if free or given is not None else first, brokers, None)
    return host, tuple(_hold_or_free(held, host, 0 if port in others else port) for port in wanted)


def _hold_or_free(held: HeldPorts, host: str, port: int) -> int:
    try:
        return held.hold(host, port)
    except Failure:
        return held.hold(host, 0)


def _wanted(first: int, count: int, kept: tuple[int, ...] | None) -> tuple[int, ...]:
    if first:
        return tuple(range(first, first + count))
    return kept or (0,) * count


def write_layout(folder: Path, layout: Layout) -> None:
    """For the next start."""
    _write(
        folder / CLUSTER_FILE,
        "written by headrace serve --brokers",
        {
            "cluster.id": layout.cluster_id,
            "ports": ",".join(map(str, layout.ports)),
            "controller.ports": ",".join(map(str, layout.controller_ports)),
            "metrics.ports": ",".join(map(str, layout.metrics_ports)),
        },
    )


def write_node_files(
    folder: Path, layout: Layout, host: str, advertised: tuple[str, int] | None, given: Mapping[str, str]
) -> list[Path]:
    """Each node's server.properties. `advertised` is the address that clients of the first node connect to, the next
    ports are those of the others; `given` are the settings of all."""
    voters = ",".join(
        f"{node_id}@{CONTROLLER_HOST}:{port}"
        for node_id, port in zip(layout.node_ids, layout.controller_ports, strict=True)
    )
    files = []
    for node_id, port, controller_port in zip(layout.node_ids, layout.ports, layout.controller_ports, strict=True):
        directory = node_directory(folder, node_id)
        directory.mkdir(0o700, exist_ok=True)
        properties = {
            "process.roles": "broker,controller",
            "node.id": str(node_id),
            "listeners": f"PLAINTEXT://{host}:{port},CONTROLLER://{CONTROLLER_HOST}:{controller_port}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": voters,
            "log.dirs": str((directory / "data").absolute()),
            "broker.rack": socket.gethostname(),
            **replication(len(layout.ports)),
            **given,
            METRICS: layout.metrics_address(node_id),
        }
        if advertised is not None:
            properties["advertised.listeners"] = f"PLAINTEXT://{advertised[0]}:{advertised[1] + node_id - 1}"
        files.append(directory / NODE_FILE)
        _write(files[-1], "written by headrace serve --brokers at each start: changes here are lost", properties)
    return files


def replication(brokers: int) -> dict[str, str]:
    """Settings by which a topic outlives the loss of a node, where there are enough of them."""
    replicas = str(min(brokers, REPLICAS))
    settings = {"offsets.topic.replication.factor": replicas}
    if brokers >= REPLICAS:
        settings |= {"default.replication.factor": replicas, "min.insync.replicas": "2"}
    return settings


def _write(path: Path, comment: str, properties: Mapping[str, str]) -> None:
    lines = [f"# {comment}", *(f"{key}={_escaped(value)}" for key, value in properties.items())]
    fresh = path.with_name(f"{path.name}.tmp")
    with open(fresh, "w", encoding="utf-8", errors="surrogateescape", opener=_for_us_alone) as file:
        file.write("\n".join(lines) + "\n")
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def _for_us_alone(path: str, flags: int) -> int:
    """The settings may hold passwords."""
    return os.open(path, flags, 0o600)


def _escaped(value: str) -> str:
    text = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    return f"\\{text}" if text[:1] in (" ", "\f") else text


def format_nodes(files: Sequence[Path], cluster_id: str) -> None:
    """Formats what is fresh. Raises ConfigError, StorageError or OSError, each with one line."""
    from headrace.broker.quorum.metadata_start import format_storage
    from headrace.config import BrokerConfig, load_properties_file
    from headrace.env.posix import PosixEnvironment

    env = PosixEnvironment()
    for file in files:
        format_storage(env, BrokerConfig.load(load_properties_file(str(file)), lambda _: None), cluster_id)


def new_cluster_id() -> str:
    from headrace.env.posix import PosixEntropy
    from headrace.wire import uuids

    return uuids.to_text(PosixEntropy().uuid())
