"""Every API in every version, asked by clients with one right, with all but one, with none, with all, denied, and by
super users, over listeners of every kind: Apache Kafka and ours say the same, answer by answer."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from broker.raw import Raw
from broker.sasl import scram
from peers.certificates import Authority, write_trust_pem
from peers.kafka import KafkaPeer, free_port
from peers.settling import settle

from headrace.config.security_table import STANDARD_AUTHORIZER
from headrace.metadata.scram_credentials import MECHANISMS, salted_password
from headrace.security.jaas import SCRAM_MODULE
from headrace.testing.running import broker as running_broker
from headrace.wire.apis import APIS, ApiKey
from headrace.wire.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from headrace.wire.messages.k18_api_versions import ApiVersionsRequest
from headrace.wire.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from headrace.wire.messages.k22_init_producer_id import InitProducerIdRequest
from headrace.wire.messages.k30_create_acls import CreateAclsRequest
from headrace.wire.messages.k38_create_delegation_token import CreateDelegationTokenRequest
from headrace.wire.messages.k51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from headrace.wire.messages.k74_list_config_resources import ListConfigResourcesRequest
from headrace.wire.records import Record, build_batch

from .refusals import codes_of
from .rights import (
    BY_NAME,
    DENIED_ROOT,
    ELSEWHERE,
    EVERYTHING,
    GROUP,
    HELD,
    OWNER,
    RIGHTS,
    ROOT,
    THIN,
    TRANSACTION,
    Case,
    Door,
    Rights,
    World,
    acl,
    now_ms,
    seen,
)
from .rights_asked import cases
from .rights_of_nodes import cases_of_controllers, opened
from .test_rights_rows import OURS_ALONE

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

PATIENCE_S = 30.0
PASSWORD = b"pencil"
PROTOCOLS = {Door.PLAINTEXT: "PLAINTEXT", Door.SCRAM: "SASL_PLAINTEXT", Door.CERTIFICATE: "SSL"}
CONTROLLERS = {Door.PLAINTEXT: "CONTROLLER", Door.SCRAM: "CONTROLLER_LOGINS", Door.CERTIFICATE: "CONTROLLER_CERTS"}
SETTINGS = {
    "process.roles": "broker,controller",
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "allow.everyone.if.no.acl.found": "true",
    "super.users": f"User:{ROOT};User:{DENIED_ROOT};User:CN={ROOT};User:CN={DENIED_ROOT}",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.coordinator.rebalance.protocols": "classic,consumer",
    "auto.create.topics.enable": "true",
    "delegation.token.secret.key": "secret",
    "inter.broker.listener.name": "PLAINTEXT",
    "controller.listener.names": ",".join(CONTROLLERS.values()),
    "listener.security.protocol.map": ",".join(
        f"{name}:{PROTOCOLS[door]}" for door in Door for name in (door.value, CONTROLLERS[door])
    ),
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "sasl.mechanism.controller.protocol": "SCRAM-SHA-256",
    "ssl.client.auth": "required",
    "ssl.keystore.type": "PEM",
    "ssl.truststore.type": "PEM",
    **{
        f"listener.name.{name}.scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE} required;"
        for name in (Door.SCRAM.value.lower(), CONTROLLERS[Door.SCRAM].lower())
    },
}

NOT_SERVED = {
    "broker": {
        "share_group_heartbeat",
        "share_group_describe",
        "share_fetch",
        "share_acknowledge",
        "initialize_share_group_state",
        "read_share_group_state",
        "write_share_group_state",
        "delete_share_group_state",
        "read_share_group_state_summary",
        "describe_share_group_offsets",
        "alter_share_group_offsets",
        "delete_share_group_offsets",
        "streams_group_heartbeat",
        "streams_group_describe",
    },
    "controller": frozenset[str](),
}
"""APIs that Apache Kafka has and we do not."""
ANNOUNCED = {(0, 0), (0, 1), (0, 2)}
"""Versions of Produce that both announce for the sake of old librdkafka, and refuse whoever asks."""
NEWER = {
    "broker": {("api_versions", 5), ("txn_offset_commit", 6), ("delete_groups", 3)},
    "controller": {("api_versions", 5)},
}
"""Versions of Apache Kafka 4.4, which 4.3.1 does not know."""
UNLIKE = {
    "broker": frozenset[int](),
    "controller": {ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, ApiKey.DESCRIBE_DELEGATION_TOKEN},
}
"""What Kafka's controllers say that they serve, and answer nobody: UNKNOWN_SERVER_ERROR to all. Ours do answer."""

ASKED_OF_BROKERS = list(cases())
ASKED_OF_CONTROLLERS = list(cases_of_controllers())


# --- the two brokers


@dataclass
class Keys:
    """What clients show on a listener that asks for certificates."""

    folder: Path
    authority: Authority = field(default_factory=Authority.new)

    def server_settings(self) -> dict[str, str]:
        return {
            "ssl.keystore.location": str(self.authority.server().write_pem(self.folder / "server.pem")),
            "ssl.truststore.location": str(write_trust_pem(self.folder / "ca.pem", [self.authority])),
        }

    def connect(self, user: str, link: socket.socket) -> ssl.SSLSocket:
        file = self.folder / f"{user}.pem"
        if not file.exists():
            self.authority.client(user).write_pem(file)
        context = ssl.create_default_context(cafile=str(self.folder / "ca.pem"))
        context.load_cert_chain(file)
        return context.wrap_socket(link, server_hostname="localhost")


@dataclass
class Side:
    """One of the two: where it listens, and what is on it."""

    keys: Keys
    ports: dict[str, int]
    """By listener."""
    is_kafka: bool = False
    world: World = field(default_factory=World)
    served: dict[str, dict[int, range]] = field(default_factory=dict)
    """The versions of each API, by listener."""

    def enter(self, door: Door, rights: Rights, *, controller: bool = False) -> Raw:
        """A connection of whoever has these rights."""
        port = self.ports[CONTROLLERS[door] if controller else door.value]
        if door is Door.PLAINTEXT:
            return Raw(port, PATIENCE_S, source=rights.host)
        raw = Raw(port, PATIENCE_S, source=ELSEWHERE)
        if door is Door.CERTIFICATE:
            return Raw.over(self.keys.connect(rights.user, raw.socket))
        assert scram(raw, rights.user, PASSWORD.decode()).error_code == 0
        return raw

    def owner(self, listener: str = "PLAINTEXT") -> Raw:
        return Raw(self.ports[listener], PATIENCE_S, source=OWNER)

    def settle(self) -> None:
        """What was written is in force; ours needs no wait for it."""
        if self.is_kafka:
            with self.owner() as owner:
                settle(owner.ask)


def until_taken(owner: Raw, request: object, version: int) -> None:
    """Asks until there is no error any more."""
    deadline = time.monotonic() + PATIENCE_S
    while codes_of(owner.ask(request, version)):
        assert time.monotonic() < deadline, request
        time.sleep(0.1)


def versions_of(raw: Raw) -> dict[int, range]:
    """What a listener says that it serves."""
    said = raw.ask(ApiVersionsRequest("tests", "1"), 4).api_keys
    return {each.api_key: range(each.min_version, each.max_version + 1) for each in said}


def make_users(owner: Raw) -> None:
    salt, mechanism = b"salt", MECHANISMS["SCRAM-SHA-256"]
    salted = salted_password(mechanism, PASSWORD, salt, 4096)
    made = [ScramCredentialUpsertion(each.user, mechanism.code, 4096, salt, salted) for each in RIGHTS.values()]
    assert codes_of(owner.ask(AlterUserScramCredentialsRequest([], made), 0)) == ()


@contextmanager
def guarded(side: Side) -> Iterator[Side]:
    """With the topic, the group, the transaction, the users and the rules of all rights."""
    with side.owner() as owner, side.owner(CONTROLLERS[Door.PLAINTEXT]) as of_controller:
        made = owner.ask(CreateTopicsRequest([CreatableTopic(HELD, 2, 1)]), 7).topics[0]
        assert made.error_code == 0
        for key_type, key in ((0, GROUP), (1, TRANSACTION)):
            until_taken(owner, FindCoordinatorRequest("", key_type, [key]), 4)
        batch = memoryview(bytes(build_batch([Record(0, now_ms(), None, b"x")])))
        data = TopicProduceData(HELD, bytes(16), [PartitionProduceData(0, batch)])
        until_taken(owner, ProduceRequest(acks=1, timeout_ms=5000, topic_data=[data]), 9)
        committed = OffsetCommitRequestTopic(HELD, made.topic_id, [OffsetCommitRequestPartition(0, 1)])
        until_taken(owner, OffsetCommitRequest(GROUP, topics=[committed]), 8)
        until_taken(owner, InitProducerIdRequest(TRANSACTION, 60_000), 4)
        make_users(owner)
        acls = [acl(kind, operation, OWNER) for kind, operation, _ in EVERYTHING]
        acls += [each for rights in RIGHTS.values() for each in rights.acls()]
        assert codes_of(owner.ask(CreateAclsRequest(acls), 3)) == ()
        side.settle()
        with side.enter(Door.PLAINTEXT, RIGHTS["nothing"]) as nobody:
            assert codes_of(nobody.ask(ListConfigResourcesRequest(), 1))
        with side.enter(Door.SCRAM, RIGHTS["super user"]) as root:
            token = root.ask(CreateDelegationTokenRequest("", "", max_lifetime_ms=-1), 3)
            assert token.error_code == 0
        side.settle()
        side.world = World(owner, made.topic_id, token.hmac)
        side.served = {"broker": versions_of(owner), "controller": versions_of(of_controller)}
        yield side


def with_ports() -> tuple[dict[str, int], dict[str, str]]:
    """A port for each listener, and the settings that say so."""
    names = [*(door.value for door in Door), *CONTROLLERS.values()]
    ports = {name: free_port() for name in names}
    at = {name: f"{name}://127.0.0.1:{port}" for name, port in ports.items()}
    return ports, {
        "listeners": ",".join(at.values()),
        "advertised.listeners": ",".join(at[door.value] for door in Door),
    }


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    """Kafka's and ours."""
    keys = Keys(tmp_path_factory.mktemp("keys"))
    settings = {**SETTINGS, **keys.server_settings()}
    with ExitStack() as stack:
        ports, at = with_ports()
        theirs = Side(keys, ports, is_kafka=True)
        kafka = KafkaPeer(settings={**settings, **at, "controller.quorum.voters": f"1@127.0.0.1:{ports['CONTROLLER']}"})
        kafka.port, kafka.controller_port = ports["PLAINTEXT"], ports["CONTROLLER"]
        stack.enter_context(kafka)
        ports, at = with_ports()
        mine = Side(keys, ports)
        at["controller.quorum.bootstrap.servers"] = f"127.0.0.1:{ports['CONTROLLER']}"
        stack.enter_context(running_broker({**settings, **at}))
        yield stack.enter_context(guarded(theirs)), stack.enter_context(guarded(mine))


# --- answer by answer


class Talk:
    """One who asks: a connection is made again where the last request ended it."""

    def __init__(self, enter: Callable[[], Raw]) -> None:
        self._enter = enter
        self._raw = enter()

    def ask(self, request: Any, version: int) -> Any:
        """The answer; or that there was none."""
        try:
            return opened(self._raw.ask(request, version))
        except (ConnectionError, TimeoutError) as error:
            self.close()
            self._raw = self._enter()
            return "closed" if isinstance(error, ConnectionError) else "silent"

    def close(self) -> None:
        self._raw.socket.close()


def differences(
    both: tuple[Side, Side], door: Door, name: str, *, controller: bool = False, latest: bool = False
) -> list[str]:
    """What is not the same, a line each; `latest`: of each request in its last version alone."""
    kafka, ours = both
    role = "controller" if controller else "broker"
    asked: Iterable[Case] = ASKED_OF_CONTROLLERS if controller else ASKED_OF_BROKERS
    found: list[str] = []
    with ExitStack() as stack:
        talks = [
            stack.enter_context(closing(Talk(partial(side.enter, door, RIGHTS[name], controller=controller))))
            for side in both
        ]
        for case in asked:
            if case.key in UNLIKE[role]:
                continue
            versions = [v for v in case.versions() if v in kafka.served[role].get(case.key, ())]
            for version in versions[-1:] if latest else versions:
                theirs, mine = (
                    seen(talk.ask(case.make(side.world), version)) for talk, side in zip(talks, both, strict=True)
                )
                if theirs != mine:
                    found.append(f"{case.name} in version {version} with {name}:\n  Kafka {theirs}\n  ours  {mine}")
    kafka.world.tidy()
    ours.world.tidy()
    return found


@pytest.mark.parametrize("role", ["broker", "controller"])
def test_whatever_both_serve_is_asked(both: tuple[Side, Side], role: str) -> None:
    kafka, ours = (side.served[role] for side in both)
    asked = ASKED_OF_CONTROLLERS if role == "controller" else ASKED_OF_BROKERS
    rows = {(case.key, version) for case in asked for version in case.versions()}
    theirs = {(key, version) for key, versions in kafka.items() for version in versions}
    mine = {(key, version) for key, versions in ours.items() for version in versions if key not in OURS_ALONE}
    assert mine - ANNOUNCED <= rows
    assert {APIS[key].name for key, _ in theirs - mine} == NOT_SERVED[role]
    assert {(APIS[key].name, version) for key, version in mine - theirs} == NEWER[role]


@pytest.mark.parametrize("name", THIN)
def test_the_same_is_refused(both: tuple[Side, Side], name: str) -> None:
    found = differences(both, Door.PLAINTEXT, name, latest=True)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", ["nothing", "CLUSTER.CLUSTER_ACTION"])
def test_a_controller_refuses_the_same(both: tuple[Side, Side], name: str) -> None:
    found = differences(both, Door.PLAINTEXT, name, controller=True, latest=True)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("door", [Door.SCRAM, Door.CERTIFICATE])
def test_a_super_user_may_everything_whatever_is_denied(both: tuple[Side, Side], door: Door) -> None:
    found = differences(both, door, "denied super user", latest=True)
    assert not found, "\n".join(found)


@pytest.mark.soak
@pytest.mark.parametrize("controller", [False, True], ids=["broker", "controller"])
@pytest.mark.parametrize("name", [name for name, rights in RIGHTS.items() if rights.host])
def test_the_same_in_every_version(both: tuple[Side, Side], name: str, controller: bool) -> None:
    found = differences(both, Door.PLAINTEXT, name, controller=controller)
    assert not found, "\n".join(found)


@pytest.mark.soak
@pytest.mark.parametrize("controller", [False, True], ids=["broker", "controller"])
@pytest.mark.parametrize("door", [Door.SCRAM, Door.CERTIFICATE])
@pytest.mark.parametrize("name", BY_NAME)
def test_the_same_for_who_has_a_name(both: tuple[Side, Side], name: str, door: Door, controller: bool) -> None:
    found = differences(both, door, name, controller=controller)
    assert not found, "\n".join(found)
