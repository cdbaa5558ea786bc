"""A cluster of three secured processes with many topics and groups, its listeners of every kind, and an ordinary client
beside whoever sends large requests."""

from __future__ import annotations

import socket
import ssl
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from broker.guarded import acl
from broker.raw import Raw
from broker.requests import measured_node
from broker.requests.large import THERE
from broker.requests.measured_node import LongestTurn
from broker.sasl import add_users_at, scram
from peers.headrace import HeadracePeer
from peers.kafka import free_port
from peers.secured_cluster import NODES, SecuredCluster

from headrace.security.authorizer import ResourceType
from headrace.wire.messages import k08_offset_commit as k08
from headrace.wire.messages import k30_create_acls as k30
from headrace.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from headrace.wire.messages.k18_api_versions import ApiVersionsRequest
from headrace.wire.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest

TOPICS: Final = 2000
GROUPS: Final = 1000
USERS: Final = {"nobody": "none", "few rights": "some", "super user": "root"}
"""Users of the test, and their names, which are their passwords too."""
REQUEST_BYTES: Final = 256 << 20
RESPONSE_BYTES: Final = 64 << 20
BUDGETS: Final = {"queued.max.request.bytes": str(REQUEST_BYTES), "queued.max.response.bytes": str(RESPONSE_BYTES)}
EVERY_S: Final = 0.01
PATIENCE_S: Final = 240.0
_ALL: Final = 2


class Listener(NamedTuple):
    """A listener, what is served there, and how one comes in."""

    name: str
    role: str
    protocol: str


LISTENERS: Final = (
    Listener("CONTROLLER", "controller", "SSL"),
    Listener("CSASL", "controller", "SASL_PLAINTEXT"),
    Listener("CPLAIN", "controller", "PLAINTEXT"),
    Listener("LOGINS", "broker", "SASL_PLAINTEXT"),
    Listener("OUTSIDE", "broker", "SASL_SSL"),
    Listener("INSIDE", "broker", "SASL_SSL"),
    Listener("PLAINTEXT", "broker", "PLAINTEXT"),
)


class MeasuredPeer(HeadracePeer):
    """A node that notes its longest turn."""

    @property
    def turns(self) -> Path:
        return self.directory / "turns"

    def command(self) -> list[str]:
        return [sys.executable, measured_node.__file__, str(self.turns), "serve", str(self.file)]


class AttackedCluster(SecuredCluster):
    """Its controllers listen over plaintext and for logins too."""

    def __init__(self, directory: Path) -> None:
        self.more_ports = {node: {"CPLAIN": free_port(), "CSASL": free_port()} for node in NODES}
        super().__init__(directory, more=BUDGETS)

    def _quorum(self, node: int) -> dict[str, str]:
        return {**super()._quorum(node), "controller.listener.names": "CONTROLLER,CPLAIN,CSASL"}

    def _process(self, node: int, folder: Path, file: Path, port: int) -> HeadracePeer:
        lines = dict(line.split("=", 1) for line in file.read_text().splitlines())
        lines["listeners"] += "".join(f",{name}://127.0.0.1:{at}" for name, at in self.more_ports[node].items())
        lines["listener.security.protocol.map"] += ",CPLAIN:PLAINTEXT,CSASL:SASL_PLAINTEXT"
        for mechanism in ("scram-sha-256", "scram-sha-512"):
            lines[f"listener.name.csasl.{mechanism}.sasl.jaas.config"] = lines[
                f"listener.name.logins.{mechanism}.sasl.jaas.config"
            ]
        file.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        peer = MeasuredPeer(folder, properties=file, port=port)
        peer.settings = {}
        return peer

    def port_of(self, node: int, listener: str) -> int:
        client, controller = self.ports[node]
        known = {"PLAINTEXT": client, "CONTROLLER": controller, **self.more_ports[node]}
        known |= {"OUTSIDE": self.outside[node], "LOGINS": self.logins[node]}
        if listener not in known:
            file = self.nodes[node].file
            assert file is not None
            named = next(line for line in file.read_text().splitlines() if line.startswith("listeners="))
            known[listener] = int(named.split(f"{listener}://127.0.0.1:")[1].split(",")[0])
        return known[listener]

    def users_at(self, listener: Listener) -> Sequence[str]:
        """Who can come in there: without a login everybody is a super user."""
        if listener.protocol == "PLAINTEXT":
            return ["super user"]
        if listener.name == "INSIDE":
            return ["nobody", "super user"]
        return ["nobody", "super user"] if listener.protocol == "SSL" else list(USERS)

    @contextmanager
    def entered(self, node: int, listener: Listener, user: str) -> Iterator[Raw]:
        """A connection of a user."""
        link: socket.socket = socket.create_connection(("127.0.0.1", self.port_of(node, listener.name)), PATIENCE_S)
        if listener.protocol in ("SSL", "SASL_SSL"):
            context = ssl.create_default_context(cafile=str(self.trust))
            context.check_hostname = False
            if listener.protocol == "SSL":
                context.load_cert_chain(str(self.store(node) if user == "super user" else self.directory / "none.pem"))
            link = context.wrap_socket(link)
        with Raw.over(link) as raw:
            if listener.protocol.startswith("SASL"):
                # Between brokers one mechanism is offered, for which `node` alone is made with the directories.
                assert scram(raw, USERS[user], USERS[user], "SCRAM-SHA-512").error_code == 0
            yield raw

    def fill(self) -> None:
        """Users, their rights, topics and groups."""
        self.authority.client("none").write_pem(self.directory / "none.pem")
        port = self.ports[1][0]
        add_users_at(port, **{name: name for name in USERS.values()})
        kinds = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
        with Raw(port, timeout_s=PATIENCE_S) as raw:
            acls = [acl(kind, "*", _ALL, host="*", principal="User:some") for kind in kinds]
            assert {each.error_code for each in raw.ask(k30.CreateAclsRequest(acls), 3).results} == {0}
            for first in range(0, TOPICS, 200):
                topics = [CreatableTopic(f"n{i}", 1, 1) for i in range(first, first + 200)]
                topics += [CreatableTopic(THERE, 2, 3)] if not first else []
                answer = raw.ask(CreateTopicsRequest(topics=topics, timeout_ms=60_000), 7)
                assert {each.error_code for each in answer.topics} == {0}, answer
        self._fill_groups([f"n{i}" for i in range(GROUPS)])
        with Raw(port) as raw:
            raw.ask(FindCoordinatorRequest("", 1, ["any"]), 4)

    def _fill_groups(self, groups: list[str]) -> None:
        last = time.monotonic() + PATIENCE_S
        while groups:
            assert time.monotonic() < last, "not all groups could be filled"
            with Raw(self.ports[1][0], timeout_s=PATIENCE_S) as raw:
                found = raw.ask(FindCoordinatorRequest("", 0, groups), 4).coordinators
            left: list[str] = []
            for node, (port, _) in self.ports.items():
                with Raw(port, timeout_s=PATIENCE_S) as raw:
                    for group in (each.key for each in found if each.node_id == node):
                        left += [] if commit(raw, group) else [group]
            left += [each.key for each in found if each.error_code]
            groups = left


def commit(raw: Raw, group: str) -> bool:
    """Commits an offset of a group; whether that is done."""
    topics = [k08.OffsetCommitRequestTopic(THERE, partitions=[k08.OffsetCommitRequestPartition(0, 1)])]
    (topic,) = raw.ask(k08.OffsetCommitRequest(group, topics=topics), 8).topics
    return not topic.partitions[0].error_code


class Bystander:
    """An ordinary client of a node that asks for its versions all the time, and how long it waited at most."""

    def __init__(self, port: int) -> None:
        self.longest_s = 0.0
        self._ends = threading.Event()
        self._raw = Raw(port, timeout_s=PATIENCE_S)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ends.wait(EVERY_S):
            began = time.monotonic()
            self._raw.ask(ApiVersionsRequest("any", "1"), 3)
            self.longest_s = max(self.longest_s, time.monotonic() - began)

    def close(self) -> None:
        self._ends.set()
        self._thread.join()
        self._raw.socket.close()


def resident_bytes(pid: int) -> int:
    """The memory of a process."""
    line = next(each for each in Path(f"/proc/{pid}/status").read_text().splitlines() if each.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


def turns_of_node(cluster: AttackedCluster, node: int) -> LongestTurn:
    """What a node notes."""
    peer = cluster.nodes[node]
    assert isinstance(peer, MeasuredPeer)
    return LongestTurn(peer.turns)
