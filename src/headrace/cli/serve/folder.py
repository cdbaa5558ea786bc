"""The data folder of several brokers on one machine: which cluster it holds, at which ports, and each node's own file.

cluster.properties               the cluster id, the number of nodes, their ports: written before anything else
node-1/server.properties         written at each start
node-1/data/                     the node's log directory
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.cli.failures import Failure
from headrace.cli.serve.listeners import BOTH_ROLES, LOOPBACK, ROLES
from headrace.wire.address import address_text

if TYPE_CHECKING:
    from headrace.cli.serve.listeners import Listener, Plan
    from headrace.env import DiskLock
    from headrace.wire.messages.metadata_records import UserScramCredentialRecord

LOCK_FILE: Final = ".lock"
CLUSTER_FILE: Final = "cluster.properties"
NODE_FILE: Final = "server.properties"
MORE_PORTS: Final = "ports."
"""What is kept of further listeners: `ports.INSIDE`."""
REPLICAS: Final = 3
METRICS: Final = "metrics.listener"
SECRET_BYTES: Final = 24
"""Of the password by which nodes log in to each other, drawn at each start."""


@dataclass(frozen=True)
class Layout:
    """A cluster as its folder tells of it. Ports are those of the nodes 1, 2, ... in order; there are none of metrics
    where no node serves them. `more_ports` are those of further listeners, by their names."""

    cluster_id: str
    ports: tuple[int, ...]
    controller_ports: tuple[int, ...]
    metrics_ports: tuple[int, ...] = ()
    metrics_host: str = LOOPBACK
    more_ports: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def node_ids(self) -> range:
        return range(1, len(self.ports) + 1)

    def port(self, plan: Plan, listener: Listener, node_id: int) -> int:
        """Where a node has a listener."""
        if listener is plan.clients:
            return self.ports[node_id - 1]
        if listener is plan.controllers:
            return self.controller_ports[node_id - 1]
        return self.more_ports[listener.name][node_id - 1]

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
        lock = PosixDisk().lock(str(folder / LOCK_FILE))
    except OSError as error:
        raise Failure(f"{error.filename or folder}: {error.strerror}") from error
    if lock is None:
        raise Failure(f"{folder} is in use: another `headrace serve --brokers` or broker runs there")
    return lock


def remove_folder(folder: Path) -> None:
    """Removes a folder whose lock is held, the lock's file last: nobody else comes in before all is gone."""
    import shutil

    with suppress(OSError):
        for each in folder.iterdir():
            if each.is_dir():
                shutil.rmtree(each)
            elif each.name != LOCK_FILE:
                each.unlink()
        (folder / LOCK_FILE).unlink()
        folder.rmdir()


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
        more = {
            name.removeprefix(MORE_PORTS): _ports(text) for name, text in found.items() if name.startswith(MORE_PORTS)
        }
        ports, controller_ports = _ports(found["ports"]), _ports(found["controller.ports"])
        layout = Layout(found["cluster.id"], ports, controller_ports, metrics_ports, more_ports=more)
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
            found = socket.getaddrinfo(
                host.strip("[]") or None, port, type=socket.SOCK_STREAM, flags=0 if host else socket.AI_PASSIVE
            )
            family, _, _, _, address = found[0]
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


def hold_ports(held: HeldPorts, plan: Plan, brokers: int, kept: Layout | None) -> dict[str, tuple[int, ...]]:
    """The ports of each listener, by its name, a node each: from the first node's on, or for 0 those `kept`, or free
    ones. Raises Failure."""
    wanted = {each.name: _wanted(each.port, brokers, _kept(plan, each, kept, brokers)) for each in plan.listeners}
    taken: dict[int, str] = {}
    for listener, ports in wanted.items():
        for port in filter(None, ports):
            other = taken.setdefault(port, listener)
            if other != listener:
                raise Failure(
                    f"the ports of the listeners {other} and {listener} overlap: {wanted[other]} and {ports}; each "
                    f"listener takes {brokers} ports, one a node"
                )
    return {each.name: tuple(held.hold(each.host, port) for port in wanted[each.name]) for each in plan.listeners}


def _kept(plan: Plan, listener: Listener, kept: Layout | None, brokers: int) -> tuple[int, ...] | None:
    if kept is None:
        return None
    if listener is plan.clients:
        return kept.ports
    if listener is plan.controllers:
        return kept.controller_ports
    ports = kept.more_ports.get(listener.name, ())
    return ports if len(ports) == brokers else None


def hold_metrics_ports(
    held: HeldPorts, given: str | None, brokers: int, *, free: bool, others: Sequence[int], kept: Layout | None
) -> tuple[str, tuple[int, ...]]:
    """The host and the ports of the nodes' pages; no ports where `given`, the setting for all, turns them off.

    A given port is the first node's, and the next ones are those of the others. Without one, or where it is 0, they are
    those `kept`, or the default and the next ones (`free`: free ones); a free one takes the place of one that another
    program has. `others` are the ports of all listeners. Raises ConfigError and Failure.
    """
    from headrace.config import BROKER_SETTINGS, parse_value
    from headrace.config.setting import parse_metrics_listener

    setting = BROKER_SETTINGS[METRICS]
    address = parse_metrics_listener(str(setting.default if given is None else parse_value(setting, given)))
    if address is None:
        return "", ()
    host, first = address
    if given is not None and first:
        if first > 65536 - brokers:
            raise Failure(f"{brokers} ports from {first} on are more than there are")
        wanted = _wanted(first, brokers, None)
        if set(wanted) & set(others):
            raise Failure(f"the ports of listeners and of metrics overlap: {others} and {wanted}")
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
            **{f"{MORE_PORTS}{name}": ",".join(map(str, ports)) for name, ports in layout.more_ports.items()},
        },
    )


def write_node_files(folder: Path, layout: Layout, plan: Plan) -> list[Path]:
    """Each node's server.properties. Where nodes log in to each other by credentials of their own, these are new."""
    voters = ",".join(
        f"{node_id}@{address_text(plan.controllers.reached_at, port)}"
        for node_id, port in zip(layout.node_ids, layout.controller_ports, strict=True)
    )
    brokers = len(layout.ports)
    password = _new_password()
    files = []
    for node_id in layout.node_ids:
        directory = node_directory(folder, node_id)
        directory.mkdir(0o700, exist_ok=True)
        places = [(each, layout.port(plan, each, node_id)) for each in plan.listeners]
        properties = {
            ROLES: ",".join(BOTH_ROLES),
            "node.id": str(node_id),
            "listeners": ",".join(f"{each.name}://{address_text(each.host, port)}" for each, port in places),
            "controller.quorum.voters": voters,
            "log.dirs": str((directory / "data").absolute()),
            "broker.rack": socket.gethostname(),
            **replication(brokers),
            **plan.settings,
            **plan.credentials(node_id, brokers, password),
            METRICS: layout.metrics_address(node_id),
        }
        advertised = [
            f"{each.name}://{address_text(each.advertised[0], each.advertised[1] and each.advertised[1] + node_id - 1)}"
            for each in plan.listeners
            if each.advertised
        ]
        if advertised:
            properties["advertised.listeners"] = ",".join(advertised)
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
    """For its owner alone: the settings may hold passwords."""
    from headrace.config.properties import properties_lines
    from headrace.env.posix import PosixDisk

    lines = [f"# {comment}", *properties_lines(properties.items())]
    text = "\n".join(lines) + "\n"
    PosixDisk().write_file_atomically(str(path), text.encode(errors="surrogateescape"))


def format_nodes(files: Sequence[Path], cluster_id: str, users: Sequence[UserScramCredentialRecord]) -> bool:
    """Formats fresh directories, with the first `users` of the cluster; returns whether all were fresh.

    Raises ConfigError, StorageError or OSError, each with one line.
    """
    from headrace.broker.quorum.metadata_start import format_storage
    from headrace.config import BrokerConfig, load_properties_file
    from headrace.env.posix import PosixEnvironment

    env = PosixEnvironment()
    configs = [BrokerConfig.load(load_properties_file(str(file)), lambda _: None) for file in files]
    layouts = [format_storage(env, config, cluster_id, users=users) for config in configs]
    return not any(layout.was_formatted for layout in layouts)


def _new_password() -> str:
    from headrace.env.posix import PosixEntropy

    return PosixEntropy().secret(SECRET_BYTES).hex()


def new_cluster_id() -> str:
    from headrace.env.posix import PosixEntropy
    from headrace.wire import uuids

    return uuids.to_text(PosixEntropy().uuid())
