"""A directory of Apache Kafka's with users, access rules, delegation tokens, quotas and an altered listener of TLS:
ours serves it, enforces it, alters each kind and takes a snapshot, and Kafka takes it back. The records are compared
to the byte, both ways round."""

from __future__ import annotations

import base64
import itertools
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from broker.raw import Raw
from metadata.test_kafka_says import canonical, replayed
from peers.certificates import Authority, Identity, write_trust_pem
from peers.headrace import HeadracePeer
from peers.kafka import KafkaPeer, free_port, metadata_shell
from peers.kafka_tools import TOKEN, KafkaTools
from peers.kept import HASTY, SETTINGS, Kept

from headrace.broker.storage.storage_format import parse_snapshot_name
from headrace.metadata.framing import decode_record, encode_record, record_version
from headrace.metadata.snapshot import image_records
from headrace.security.jaas import SCRAM_MODULE
from headrace.testing.running import broker as running_broker
from headrace.wire.batch import iter_headers
from headrace.wire.messages import metadata_records as mr
from headrace.wire.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.wire.records import decode_batch

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

PATIENCE_S = 30.0
SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "1500"}
PREFIX = "listener.name.clients.ssl.keystore."
KEPT = (
    mr.UserScramCredentialRecord, mr.RemoveUserScramCredentialRecord, mr.AccessControlEntryRecord,
    mr.RemoveAccessControlEntryRecord, mr.DelegationTokenRecord, mr.RemoveDelegationTokenRecord,
    mr.ClientQuotaRecord, mr.ConfigRecord,
)  # fmt: skip
IMAGES = ("acls", "scram", "clientQuotas", "delegationToken", "configs")
"""What MetadataShell shows of a snapshot, by its directories."""


class Directory:
    """A node's directory and file, which either broker starts with, and the stores that its TLS has in turn."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.peer = KafkaPeer(folder / "node")
        self.folder = folder
        self.logins, self.clients = free_port(), free_port()
        self.authority = Authority.new()
        self.trust = write_trust_pem(folder / "ca.pem", [self.authority])
        self.stores = [self.authority.server() for _ in range(3)]
        for number, store in enumerate(self.stores):
            store.write_pkcs12(folder / f"{number}.p12", f"password-{number}")
        listeners = (
            f"PLAINTEXT://127.0.0.1:{self.peer.port},LOGINS://127.0.0.1:{self.logins},"
            f"CLIENTS://127.0.0.1:{self.clients}"
        )
        self.peer.settings = {
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{self.peer.controller_port}",
            "advertised.listeners": listeners.replace("CLIENTS://127.0.0.1", "CLIENTS://localhost"),
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,LOGINS:SASL_PLAINTEXT,"
            "CLIENTS:SASL_SSL",
            f"{PREFIX}type": "PKCS12",
            f"{PREFIX}location": str(folder / "0.p12"),
            f"{PREFIX}password": "password-0",
            **SETTINGS,
            **SNAPSHOTS,
        }
        self.kept = Kept(self.peer.port, self.logins)

    def ours(self) -> HeadracePeer:
        """Our broker, with Kafka's file."""
        peer = HeadracePeer(self.folder / "ours", properties=self.peer.write_properties(), port=self.peer.port)
        peer.settings = {}
        return peer

    def store(self, number: int) -> dict[str, str]:
        """Settings of another store."""
        return {f"{PREFIX}location": str(self.folder / f"{number}.p12"), f"{PREFIX}password": f"password-{number}"}

    def shown(self) -> Identity:
        """The store whose certificate the listener shows."""
        with (
            socket.create_connection(("127.0.0.1", self.clients), timeout=PATIENCE_S) as plain,
            ssl.create_default_context(cafile=self.trust).wrap_socket(plain, server_hostname="localhost") as link,
        ):
            found = link.getpeercert(binary_form=True) or b""
        return next(each for each in self.stores if ssl.PEM_cert_to_DER_cert(each.chain_pem()) == found)

    def client(self) -> str:
        """A file for Kafka's tools, of the super user."""
        path = self.folder / "root.properties"
        path.write_text(
            f"security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nssl.truststore.type=PEM\n"
            f"ssl.truststore.location={self.trust}\n"
            f'sasl.jaas.config={SCRAM_MODULE} required username="root" password="root-pencil";\n'
        )
        return str(path)

    @property
    def metadata(self) -> Path:
        """The metadata log."""
        return self.peer.data / "__cluster_metadata-0"

    def log(self) -> bytes:
        """All of it."""
        return b"".join(path.read_bytes() for path in sorted(self.metadata.glob("*.log")))

    def snapshots(self) -> dict[tuple[int, int], bytes]:
        """Those that a broker took while it served, by offset and epoch."""
        found = {path: parse_snapshot_name(path.name) for path in sorted(self.metadata.glob("*.checkpoint"))}
        return {name: path.read_bytes() for path, name in found.items() if name is not None and name[0] > 0}


def records_in(data: bytes) -> Iterator[bytes]:
    """The values of a log or snapshot, those of control batches left out."""
    for at, header in iter_headers(data):
        if not header.is_control:
            yield from (record.value or b"" for record in decode_batch(data, at))


def kept_in(data: bytes) -> list[bytes]:
    """The records of users, rules, tokens, quotas and settings, without what chance and the time have put there. The
    quotas of one entity are in an order of their own: Kafka's is that of a hash table."""
    found: list[tuple[object, bytes]] = []
    for value in records_in(data):
        record: Any = decode_record(value)
        if not isinstance(record, KEPT):
            continue
        version = record_version(record, 30)
        assert encode_record(record, version) == value
        if isinstance(record, mr.AccessControlEntryRecord):
            record.id = bytes(16)
            if record.resource_type == 6:
                record.resource_name = "a token"
        elif isinstance(record, mr.DelegationTokenRecord):
            assert record.max_timestamp - record.issue_timestamp == 604_800_000
            record.expiration_timestamp -= record.issue_timestamp
            record.expiration_timestamp = round(record.expiration_timestamp, -5)  # renewed a moment later
            record.token_id, record.issue_timestamp, record.max_timestamp = "", 0, 0
        entity = [*map(repr, record.entity)] if isinstance(record, mr.ClientQuotaRecord) else len(found)
        found.append((entity, encode_record(record, version)))
    groups = itertools.groupby(found, lambda each: each[0])
    return [value for _, group in groups for value in sorted(value for _, value in group)]


def check_to_the_byte(directory: Directory) -> None:
    """Each record of the log, and each snapshot, is what we make of what it says."""
    log, snapshots = directory.log(), directory.snapshots()
    assert snapshots
    for (end, _), data in snapshots.items():
        image = replayed(log, end, check=True)
        level = image.features.metadata_version
        ours = [encode_record(record, record_version(record, level)) for record in image_records(image)]
        here, there = sorted(map(canonical, ours)), sorted(map(canonical, records_in(data)))
        differ = [
            [decode_record(each) for each in side if each not in other]
            for side, other in ((here, there), (there, here))
        ]
        assert here == there, differ
    assert replayed(log, 1 << 60, check=True).kept


def eventually(expected: object, asked: Callable[[], object]) -> None:
    """A broker learns of some things a moment after it has started."""
    last = time.monotonic() + PATIENCE_S
    while (found := asked()) != expected:
        if time.monotonic() > last:
            assert found == expected
        time.sleep(0.2)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_there_and_back(tmp_path: Path) -> None:
    directory = Directory(tmp_path)
    kept, where = directory.kept, f"localhost:{directory.clients}"
    with KafkaTools(tmp_path) as tools:

        def tool(name: str, *arguments: str) -> str:
            return tools(name, "--bootstrap-server", where, "--command-config", directory.client(), *arguments)

        def said() -> list[list[str]]:
            about: list[tuple[str, ...]] = [("acls", "--list"), ("delegation-tokens", "--describe")]
            about += [("configs", "--describe", "--entity-type", kind) for kind in ("users", "clients", "ips")]
            about += [("configs", "--describe", "--entity-type", "users", "--entity-type", "clients")]
            about += [("configs", "--describe", "--entity-type", "brokers", "--entity-name", "1")]
            return [sorted(re.split(r"[\n,] *| are ", tool(*each))) for each in about]

        with directory.peer:
            kept.make()
            with Raw(kept.operators) as raw:
                changes = [AlterableConfig(name, 0, value) for name, value in directory.store(1).items()]
                asked = IncrementalAlterConfigsRequest([AlterConfigsResource(4, "1", changes)])
                assert raw.ask(asked, 1).responses[0].error_code == 0
            eventually(directory.stores[1], directory.shown)
            before, tried, told = kept.described(), kept.tried(), said()
        assert tried["waits"] == {
            "bob": True, "ann": False, "ann, hurried": True, "cy": True, "slow": True, "any client": False,
            HASTY: True, "127.0.0.8": False,
        }  # fmt: skip
        first = directory.log()
        check_to_the_byte(directory)
        with directory.ours():
            eventually(before, kept.described)
            assert kept.tried() == tried
            assert said() == told
            assert directory.shown() == directory.stores[1]
            of_theirs = set(directory.snapshots())
            alter_each_kind(directory, tool)
            eventually(True, lambda: bool(set(directory.snapshots()) - of_theirs))
            altered, found, told = kept.described(), kept.tried(), said()
            assert all(altered[kind] != before[kind] for kind in before)
            assert found != tried
            assert found["waits"] == {
                "bob": False, "ann": False, "ann, hurried": False, "cy": True, "slow": False, "any client": True,
                HASTY: False, "127.0.0.8": True,
            }  # fmt: skip
            assert directory.shown() == directory.stores[2]
        log = directory.log()
        assert log.startswith(first)
        check_to_the_byte(directory)
        shown = str(shell_of(directory))
        missing = [
            word
            for word in ("ann", "orders-", "producer_byte_rate", f"{PREFIX}location", next(iter(kept.tokens)))
            if word not in shown
        ]
        assert not missing, missing

        with directory.peer:
            eventually(altered, kept.described)
            eventually(directory.stores[2], directory.shown)
            assert kept.tried() == found
            assert said() == told
            of_ours = set(directory.snapshots())
            tool("configs", "--alter", "--entity-type", "clients", "--entity-name", "z", *_much("producer_byte_rate"))
            tool("configs", "--alter", "--entity-type", "clients", "--entity-name", "z", *_gone("producer_byte_rate"))
            for number in range(20):
                tool("topics", "--create", "--topic", f"again-{number}")
                if set(directory.snapshots()) - of_ours:
                    break
        assert directory.log().startswith(log)
        check_to_the_byte(directory)


def _much(name: str) -> tuple[str, str]:
    return "--add-config", f"{name}=1000000000"


def _gone(name: str) -> tuple[str, str]:
    return "--delete-config", name


def alter_each_kind(directory: Directory, tool: Callable[..., str]) -> None:
    """By Kafka's own tools: something of each kind comes, changes and goes."""
    kept = directory.kept
    user = ("configs", "--alter", "--entity-type", "users", "--entity-name")
    tool(*user, "ann", "--add-config", "SCRAM-SHA-256=[iterations=8192,password=another]")
    kept.passwords["ann", "SCRAM-SHA-256"] = "another"
    tool(*user, "dan", "--add-config", "SCRAM-SHA-512=[password=new]")
    kept.passwords["dan", "SCRAM-SHA-512"] = "new"
    tool(*user, "cy", "--delete-config", "SCRAM-SHA-256")
    del kept.passwords["cy", "SCRAM-SHA-256"]

    tool("acls", "--remove", "--force", "--topic", "orders-secret")
    tool("acls", "--add", "--deny-principal", "User:bob", "--operation", "Read", "--topic", "oth", *_PREFIXED)
    tool("acls", "--add", "--allow-principal", "User:dan", "--consumer", "--topic", "*", "--group", "*")
    tool("acls", "--remove", "--force", "--group", "readers-", *_PREFIXED)
    tool("acls", "--add", "--allow-principal", "User:bob", "--operation", "Write", "--transactional-id", "mine")

    quota = ("configs", "--alter", "--entity-type")
    tool(*quota, "users", "--entity-name", "bob", *_much("producer_byte_rate"))
    tool(*quota, "users", "--entity-name", "ann", "--entity-type", "clients", "--entity-name", "hurried",
         *_gone("producer_byte_rate"))  # fmt: skip
    tool(*quota, "clients", "--entity-name", "slow", *_gone("consumer_byte_rate"))
    tool(*quota, "clients", "--entity-name", "slow", *_much("consumer_byte_rate"))
    tool(*quota, "clients", "--entity-default", "--add-config", "consumer_byte_rate=1000")
    tool(*quota, "ips", "--entity-name", HASTY, "--add-config", "connection_creation_rate=100000")
    tool(*quota, "ips", "--entity-name", "127.0.0.8", "--add-config", "connection_creation_rate=2")

    tokens = list(kept.tokens)
    renewed, ended = (base64.b64encode(kept.tokens[each]).decode() for each in tokens[1:])
    tool("delegation-tokens", "--renew", "--renew-time-period", "7200000", "--hmac", renewed)
    tool("delegation-tokens", "--expire", "--expiry-time-period", "-1", "--hmac", ended)
    made = tool("delegation-tokens", "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:dan")
    found = TOKEN.search(made)
    assert found, made
    kept.tokens[found[1]] = base64.b64decode(found[2])

    for name in ("location", "password"):
        assert PREFIX + name in directory.store(2)
    changes = ",".join(f"{name}={value}" for name, value in directory.store(2).items())
    tool("configs", "--alter", "--entity-type", "brokers", "--entity-name", "1", "--add-config", changes)


_PREFIXED = ("--resource-pattern-type", "prefixed")


def shell_of(directory: Directory) -> dict[str, list[str]]:
    """What Kafka's MetadataShell finds in the newest snapshot."""
    newest = max(directory.metadata.glob("*.checkpoint"))
    said = metadata_shell(newest, *(f"tree /image/{name}" for name in IMAGES))
    found: dict[str, list[str]] = {}
    name = ""
    for line in said.splitlines():
        text = re.sub(r"^(>> ?)+", "", line)
        if text.rstrip(":").removeprefix("/image/") in IMAGES:
            name = text
        found.setdefault(name, []).append(text)
    return {name: sorted(lines) for name, lines in found.items()}


def test_the_same_requests_leave_the_same_records(tmp_path: Path) -> None:
    """Made by ours, and by Apache Kafka: to the byte, but for ids, salts of chance and times."""
    theirs = Directory(tmp_path / "theirs")
    with theirs.peer:
        theirs.kept.make()
    settings = {
        **SETTINGS,
        "listeners": "PLAINTEXT://127.0.0.1:0,LOGINS://127.0.0.1:0",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGINS:SASL_PLAINTEXT",
    }
    data = tmp_path / "ours"
    with running_broker(settings, data=data) as running:
        ports = running.call(lambda inside: {each.name: each.port for each in inside.listeners})
        Kept(ports["PLAINTEXT"], ports["LOGINS"]).make()
    written = b"".join(path.read_bytes() for path in sorted((data / "__cluster_metadata-0").glob("*.log")))
    assert kept_in(written) == kept_in(theirs.log())
