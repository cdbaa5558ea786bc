"""A listener of TLS: unmodified clients produce and consume over it, and strangers get nothing."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from broker.raw import Raw
from confluent_kafka import Consumer, KafkaError, Producer
from cryptography.x509.oid import NameOID
from kafka import KafkaConsumer, KafkaProducer
from peers.certificates import (
    EXPIRED,
    HOSTILE,
    NOT_YET,
    PASSWORD,
    Authority,
    Identity,
    der_of,
    named,
    pem_of,
    subject,
    write_trust_pem,
)

from headrace.config import ConfigError
from headrace.security.names import read, text
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker
from headrace.wire.messages.k18_api_versions import ApiVersionsRequest

PATIENCE_S = 30.0


@dataclass
class Secured:
    """A broker with a listener of TLS, another that wants certificates, and what clients need for them."""

    broker: TestBroker
    authority: Authority
    folder: Path
    trust: Path
    ann: Path

    def port(self, name: str) -> int:
        return self.broker.call(lambda inside: next(each.port for each in inside.listeners if each.name == name))

    def librdkafka(self, listener: str = "SSL", **more: str) -> dict[str, str]:
        return {
            "bootstrap.servers": f"localhost:{self.port(listener)}",
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.trust),
            **more,
        }

    def context(self, client: Path | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.trust)
        if client is not None:
            context.load_cert_chain(client)
        return context


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority.new()
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0,MUTUAL://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,MUTUAL:SSL",
        "advertised.listeners": "PLAINTEXT://127.0.0.1:0,SSL://localhost:0,MUTUAL://localhost:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.server().write_pem(folder / "server.pem")),
        "listener.name.mutual.ssl.keystore.type": "PKCS12",
        "listener.name.mutual.ssl.keystore.location": str(authority.server(kind="rsa").write_pkcs12(folder / "s.p12")),
        "listener.name.mutual.ssl.keystore.password": PASSWORD,
        "listener.name.mutual.ssl.client.auth": "required",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(write_trust_pem(folder / "ca.pem", [authority])),
    }
    ann = authority.client("ann").write_pem(folder / "ann.pem")
    with running_broker(settings) as running:
        yield Secured(running, authority, folder, folder / "ca.pem", ann)


def failures() -> tuple[list[KafkaError], Callable[[KafkaError | None, object], None]]:
    """What could not be delivered, and who notes it."""
    failed: list[KafkaError] = []

    def note(error: KafkaError | None, _: object) -> None:
        if error is not None:
            failed.append(error)

    return failed, note


def test_librdkafka(secured: Secured) -> None:
    failed, note = failures()
    producer = Producer(secured.librdkafka())
    for number in range(2000):
        producer.produce("rdkafka", value=b"%d" % number + b"x" * 1000, on_delivery=note)
    assert producer.flush(PATIENCE_S) == 0
    assert failed == []
    consumer = Consumer({**secured.librdkafka(), "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["rdkafka"])
    seen: list[bytes] = []
    while len(seen) < 2000:
        message = consumer.poll(PATIENCE_S)
        assert message is not None and message.error() is None
        seen.append((message.value() or b"").rstrip(b"x"))
    consumer.close()
    assert seen == [b"%d" % number for number in range(2000)]


def test_large_batches_both_ways(secured: Secured) -> None:
    """Frames larger than any buffer of the way, by a client of another make."""

    async def there_and_back() -> list[bytes]:
        where = {
            "bootstrap_servers": f"localhost:{secured.port('MUTUAL')}",
            "security_protocol": "SSL",
            "ssl_context": secured.context(secured.ann),
        }
        producer = AIOKafkaProducer(**where, max_request_size=1 << 20, max_batch_size=1 << 20)
        await producer.start()
        for number in range(8):
            await producer.send_and_wait("aio", bytes([number]) * 900_000)
        await producer.stop()
        consumer = AIOKafkaConsumer("aio", **where, auto_offset_reset="earliest")
        await consumer.start()
        values = [(await asyncio.wait_for(consumer.getone(), PATIENCE_S)).value for _ in range(8)]
        await consumer.stop()
        return values

    assert asyncio.run(there_and_back()) == [bytes([number]) * 900_000 for number in range(8)]


def test_kafka_python(secured: Secured) -> None:
    where = {
        "bootstrap_servers": f"localhost:{secured.port('MUTUAL')}",
        "security_protocol": "SSL",
        "ssl_cafile": str(secured.trust),
        "ssl_certfile": str(secured.ann),
    }
    producer = KafkaProducer(**where)
    for number in range(10):
        producer.send("python", b"%d" % number).get(PATIENCE_S)
    producer.close()
    consumer = KafkaConsumer("python", **where, auto_offset_reset="earliest", consumer_timeout_ms=20_000)
    values = [next(consumer).value for _ in range(10)]
    consumer.close()
    assert values == [b"%d" % number for number in range(10)]


def errors_of(settings: dict[str, str]) -> list[str]:
    """What librdkafka says when it cannot connect."""
    said: list[str] = []
    producer = Producer({**settings, "error_cb": lambda error: said.append(error.str())})
    producer.produce("never", b"x")
    deadline = 200
    while not said and deadline:
        producer.poll(0.1)
        deadline -= 1
    producer.purge()
    return said


def test_a_client_without_a_certificate_is_refused_where_one_is_wanted(secured: Secured) -> None:
    assert any("handshake" in line.lower() or "ssl" in line.lower() for line in errors_of(secured.librdkafka("MUTUAL")))


def test_a_client_with_an_old_certificate_is_refused(secured: Secured) -> None:
    old: Identity = secured.authority.issue(named("old"), valid=EXPIRED)
    where = str(old.write_pem(secured.folder / "old.pem"))
    settings = secured.librdkafka("MUTUAL", **{"ssl.certificate.location": where, "ssl.key.location": where})
    assert errors_of(settings)


def shown(secured: Secured, identity: Identity, between: bool = True) -> ssl.SSLContext:
    """A client's context with that certificate."""
    path = secured.folder / "shown.pem"
    path.write_text(identity.pem() if between else identity.key_pem() + pem_of([identity.certificate]))
    return secured.context(path)


def is_let_in(secured: Secured, context: ssl.SSLContext) -> bool:
    """Whether the listener that wants certificates answers a request."""
    try:
        with (
            socket.create_connection(("127.0.0.1", secured.port("MUTUAL")), timeout=PATIENCE_S) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as link,
        ):
            return bool(Raw.over(link).ask(ApiVersionsRequest(), 0).api_keys)
    except OSError:
        return False


def expired_authority(authority: Authority) -> Identity:
    return authority.intermediate("old", valid=EXPIRED).client("ann")


NOBODY: dict[str, Callable[[Authority], Identity]] = {
    "expired": lambda own: own.issue(named("ann"), valid=EXPIRED),
    "not yet valid": lambda own: own.issue(named("ann"), valid=NOT_YET),
    "of another authority": lambda _: Authority.new().client("ann"),
    "of another authority of the same name": lambda own: Authority.new(
        own.own.certificate.subject.rfc4514_string()[3:]
    ).client("ann"),
    "signed by itself": lambda _: Authority.new("ann").own,
    "of an authority that has expired": expired_authority,
    "signed by a client": lambda own: Authority(own.client("bob"), own.root).client("ann"),
}
"""Certificates that let nobody in, by what is wrong with them."""


@pytest.mark.parametrize("wrong", NOBODY)
def test_a_certificate_that_lets_nobody_in(secured: Secured, wrong: str) -> None:
    assert is_let_in(secured, shown(secured, secured.authority.client("ann")))
    assert not is_let_in(secured, shown(secured, NOBODY[wrong](secured.authority)))
    assert not {each for each in principals(secured, "MUTUAL") if "ann" in each}


def test_a_certificate_needs_those_between_it_and_the_root(secured: Secured) -> None:
    below = secured.authority.intermediate("below").client("ann")
    assert is_let_in(secured, shown(secured, below))
    assert not is_let_in(secured, shown(secured, below, between=False))


LONG = subject((NameOID.USER_ID, "u" * 20_000), (NameOID.COMMON_NAME, "ann"))


@pytest.mark.parametrize("what", [*HOSTILE, "very long"])
def test_a_hostile_subject_is_a_name_of_its_own(secured: Secured, what: str, caplog: pytest.LogCaptureFixture) -> None:
    """It gets in, under its whole name as Java writes it, and no line of the log is broken by it."""
    hostile = HOSTILE.get(what, LONG)
    with caplog.at_level(logging.DEBUG, "headrace"):
        if what == "empty":  # of nobody
            assert not is_let_in(secured, shown(secured, secured.authority.issue(hostile)))
            return
        context = shown(secured, secured.authority.issue(hostile))
        with (
            socket.create_connection(("127.0.0.1", secured.port("MUTUAL")), timeout=PATIENCE_S) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as link,
        ):
            Raw.over(link).ask(ApiVersionsRequest(), 0)
            (principal,) = principals(secured, "MUTUAL")
            link.sendall(b"\xff\xff\xff\xff")
            assert link.recv(1) == b""
    plain_names = {f"User:CN={name}" for name in ("ann", "admin", "admin.example.org")}
    assert principal not in plain_names and "\0" not in principal
    assert principal == f"User:{text(read(der_of(secured.authority.issue(hostile).certificate)).subject)}"
    for record in caplog.records:
        assert "\n" not in record.getMessage() and "\r" not in record.getMessage()
        assert len(record.getMessage()) < 2000


def principals(secured: Secured, port_of: str) -> set[str]:
    port = secured.port(port_of)
    return secured.broker.call(
        lambda inside: {each.client.principal for each in inside.server.connections if each.listener.port == port}
    )


@pytest.mark.parametrize(("listener", "client", "principal"), [("SSL", False, "ANONYMOUS"), ("MUTUAL", True, "CN=ann")])
def test_a_certificate_names_the_principal(secured: Secured, listener: str, client: bool, principal: str) -> None:
    context = secured.context(secured.ann if client else None)
    with (
        socket.create_connection(("127.0.0.1", secured.port(listener))) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as link,
    ):
        Raw.over(link).ask(ApiVersionsRequest(), 0)
        assert f"User:{principal}" in principals(secured, listener)


@pytest.mark.parametrize(
    "says", [b"GET / HTTP/1.1\r\n\r\n", b"\x00\x00\x00\x10" + bytes(16), b"\x16\x03\x01\x00\x05hello"]
)
def test_what_is_no_tls_is_shown_the_door(secured: Secured, says: bytes) -> None:
    with socket.create_connection(("127.0.0.1", secured.port("SSL")), timeout=PATIENCE_S) as link:
        link.sendall(says)
        answer = b""
        while piece := link.recv(1024):
            answer += piece
        assert len(answer) <= 7 and answer[:1] in (b"", b"\x15")  # an alert at most


def test_a_plaintext_client_hears_no_answer(secured: Secured) -> None:
    said = errors_of({"bootstrap.servers": f"localhost:{secured.port('SSL')}"})
    assert said


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
def test_old_versions_are_refused(secured: Secured, version: ssl.TLSVersion) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = version
    with socket.create_connection(("127.0.0.1", secured.port("SSL"))) as plain, pytest.raises(ssl.SSLError):
        context.wrap_socket(plain)


def test_a_client_that_stops_in_the_middle_of_a_handshake_holds_nobody_up(secured: Secured) -> None:
    halves = []
    for _ in range(50):
        link = socket.create_connection(("127.0.0.1", secured.port("SSL")))
        link.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
        halves.append(link)
    test_librdkafka_small(secured)
    for link in halves:
        link.close()


def test_librdkafka_small(secured: Secured) -> None:
    producer = Producer(secured.librdkafka())
    failed, note = failures()
    producer.produce("small", b"x", on_delivery=note)
    assert producer.flush(PATIENCE_S) == 0 and failed == []


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({}, "listener SSL speaks SSL and needs listener.name.ssl.ssl.keystore.location"),
        ({"ssl.keystore.location": "/nowhere", "ssl.keystore.password": PASSWORD}, "No such file or directory"),
        ({"ssl.keystore.type": "PEM", "ssl.keystore.key": "hunter2", "ssl.keystore.certificate.chain": "x"}, "PEM"),
    ],
)
def test_a_listener_without_its_keys_does_not_open(settings: dict[str, str], why: str) -> None:
    every = {"listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0", **settings}
    with (
        pytest.raises(ConfigError, match=why) as refused,
        running_broker(every),
    ):
        pass
    assert "hunter2" not in str(refused.value) and "\n" not in str(refused.value)
