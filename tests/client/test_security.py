"""Our own clients over TLS: what their properties say, and a broker that they reach so."""

from __future__ import annotations

import asyncio
import gc
import pickle
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from peers.certificates import PASSWORD, Authority, write_trust_pem, write_trust_pkcs12

from headrace.client.admin import create_topic
from headrace.client.async_client import AsyncClient
from headrace.client.async_connection import AsyncConnection
from headrace.client.async_producer import AsyncProducer
from headrace.client.cluster import Client
from headrace.client.errors import ClientError, HungUpError, UntrustedError
from headrace.client.producer import Producer
from headrace.client.reading import latest_offsets
from headrace.client.security import PLAINTEXT, Security, security_of
from headrace.config import ConfigError
from headrace.env.posix_node import PosixNode
from headrace.env.tls import TlsStream
from headrace.security.jaas import PLAIN_MODULE
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker


class Place:
    """A broker that wants certificates, and the files for it."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority.new()
        self.folder = folder
        self.trust = str(write_trust_pem(folder / "ca.pem", [self.authority]))
        self.ann = str(self.authority.client("ann").write_pkcs12(folder / "ann.p12"))
        self.broker: TestBroker
        self.settings = {
            "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
            "advertised.listeners": "PLAINTEXT://127.0.0.1:0,SSL://localhost:0",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.authority.server().write_pem(folder / "server.pem")),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.trust,
            "ssl.client.auth": "required",
        }

    @property
    def port(self) -> int:
        return self.broker.call(lambda inside: next(each.port for each in inside.listeners if each.name == "SSL"))

    def properties(self, **more: str) -> dict[str, str]:
        return {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.trust,
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": self.ann,
            "ssl.keystore.password": PASSWORD,
            **{name.replace("_", "."): value for name, value in more.items()},
        }

    def client(self, security: Security, host: str = "localhost") -> Client:
        return Client(f"{host}:{self.port}", timeout_s=10, security=security)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    made = Place(tmp_path_factory.mktemp("tls"))
    with running_broker(made.settings) as made.broker:
        yield made


def test_a_client_produces_over_tls(place: Place) -> None:
    """Megabytes both ways, so that the sockets are full at times."""
    with place.client(security_of(place.properties())) as client:
        create_topic(client, "over-tls", partitions=2)
        with Producer(client) as producer:
            for number in range(40):
                producer.send("over-tls", b"%d" % (number % 10) * 100_000)
            producer.flush()
        info = client.topic("over-tls")
        assert len(info.partitions) == 2


def test_what_is_unlike_the_broker_is_said_in_one_line(place: Place) -> None:
    def line(security: Security, kind: type[ClientError]) -> str:
        with place.client(security) as client, pytest.raises(kind) as failed:
            client.refresh([])
        assert "\n" not in str(failed.value)
        return str(failed.value)

    stranger = write_trust_pkcs12(place.folder / "other.p12", [Authority.new()])
    other = place.properties(
        ssl_truststore_type="PKCS12", ssl_truststore_location=str(stranger), ssl_truststore_password=PASSWORD
    )
    assert "the certificate is not believed" in line(security_of(other), UntrustedError)
    assert "closed the connection" in line(PLAINTEXT, HungUpError)


async def test_the_asyncio_client_takes_the_same_properties(place: Place) -> None:
    address = f"localhost:{place.port}"
    async with AsyncClient(address, security=place.properties()) as client:
        await create_topic(client, "over-tls-from-asyncio")
        async with AsyncProducer(client) as producer:
            await producer.send("over-tls-from-asyncio", b"1" * 1_000_000)
        assert await latest_offsets(client, "over-tls-from-asyncio") == {0: 1}
    other = write_trust_pkcs12(place.folder / "fourth.p12", [Authority.new()])
    untrusting = place.properties(
        ssl_truststore_type="PKCS12", ssl_truststore_location=str(other), ssl_truststore_password=PASSWORD
    )
    async with AsyncClient(address, security=untrusting) as client:
        with pytest.raises(UntrustedError, match="the certificate is not believed"):
            await client.topics()
    async with AsyncClient(address) as client:
        with pytest.raises(HungUpError, match="closed the connection"):
            await client.topics()
    async with AsyncClient(address, security=place.properties(ssl_truststore_location="/nowhere")) as client:
        with pytest.raises(ConfigError, match="No such file"):
            await client.topics()


def test_a_name_that_the_certificate_does_not_hold(tmp_path: Path) -> None:
    elsewhere = Place(tmp_path)
    elsewhere.settings["ssl.keystore.location"] = str(
        elsewhere.authority.server(names=["elsewhere.example"]).write_pem(tmp_path / "elsewhere.pem")
    )
    with running_broker(elsewhere.settings) as elsewhere.broker:
        with elsewhere.client(security_of(elsewhere.properties())) as client, pytest.raises(UntrustedError) as failed:
            client.refresh([])
        assert "not believed" in str(failed.value)
        unchecked = elsewhere.properties(ssl_endpoint_identification_algorithm="")
        with elsewhere.client(security_of(unchecked)) as client:
            client.refresh([])


async def test_connections_of_one_loop_share_their_scratch(place: Place) -> None:
    """It is 192 KB, and nothing of it is kept beyond a call."""
    node = PosixNode(worker_threads=1)
    owner = node.owner("test")
    opened = security_of(place.properties()).open()
    links = [
        await AsyncConnection.open(
            node, owner, "localhost", place.port, client_id="node", timeout_s=10, security=opened
        )
        for _ in range(3)
    ]
    assert len({id(link._stream._scratch) for link in links if isinstance(link._stream, TlsStream)}) == 1
    asked = [link.ask_versions(timeout_s=10) for link in links for _ in range(20)]
    assert all(each.api_keys for each in await asyncio.gather(*asked))
    for link in links:
        link.close()
    owner.close()
    await node.close()


def test_a_node_connects_over_tls(place: Place) -> None:
    async def versions(security: Security) -> int:
        node = PosixNode(worker_threads=1)
        owner = node.owner("test")
        try:
            link = await AsyncConnection.open(
                node, owner, "localhost", place.port, client_id="node", timeout_s=10, security=security.open()
            )
            found = len(link.channel.versions)
            link.close()
            return found
        finally:
            owner.close()
            await node.close()

    assert asyncio.run(versions(security_of(place.properties()))) > 30
    with pytest.raises(ClientError):
        asyncio.run(versions(PLAINTEXT))
    anonymous = {k: v for k, v in place.properties().items() if "keystore" not in k}
    with pytest.raises(ClientError):
        asyncio.run(versions(security_of(anonymous)))


def test_it_goes_into_other_processes_and_shows_no_secret(place: Place) -> None:
    security = security_of(place.properties())
    assert pickle.loads(pickle.dumps(security)) == security
    assert PASSWORD not in repr(security) and place.ann not in repr(security)


@pytest.mark.parametrize(
    ("properties", "why"),
    [
        ({"security.protocol": "TLS"}, "String must be one of: PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({"ssl.enabled.protocols": "TLSv1"}, "String must be one of: TLSv1.2, TLSv1.3"),
        ({"ssl.engine.factory.class": "x"}, "a Java class cannot make TLS engines"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_opened(properties: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        security_of({"security.protocol": "SSL", **properties})


def test_a_store_that_is_not_there_is_named() -> None:
    missing = security_of(
        {"security.protocol": "SSL", "ssl.truststore.location": "/nowhere", "ssl.truststore.type": "PEM"}
    )
    with pytest.raises(ConfigError, match=r"/nowhere for configuration ssl.truststore.location: No such file"):
        missing.open()


def test_a_client_takes_properties_or_a_file_of_them(place: Place) -> None:
    file = place.folder / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in place.properties().items()))
    for security in (place.properties(), str(file), file):
        with Client(f"localhost:{place.port}", timeout_s=10, security=security) as client:
            client.refresh([])
    with pytest.raises(ConfigError, match="must be one of"):
        Client("localhost:1", security={"security.protocol": "TLS"})
    with pytest.raises(FileNotFoundError):
        Client("localhost:1", security="/nowhere/client.properties")


def test_a_name_that_is_not_believed_ends_at_once_where_the_cluster_is_known(place: Place) -> None:
    """Not only the bootstrap server's: patience would not make it believed."""
    with Client(f"localhost:{place.port}", timeout_s=60, security=place.properties()) as client:
        client.refresh([])
        client.close()
        stranger = write_trust_pkcs12(place.folder / "third.p12", [Authority.new()])
        more = {"ssl.truststore.type": "PKCS12", "ssl.truststore.location": str(stranger)}
        client.security = security_of({**place.properties(), **more, "ssl.truststore.password": PASSWORD})
        started = time.monotonic()
        with pytest.raises(UntrustedError):
            client.refresh([], auto_create=False)
        assert time.monotonic() - started < 20


def test_other_properties_are_left_alone() -> None:
    assert security_of({"bootstrap.servers": "a:1", "client.id": "x"}) == PLAINTEXT


@pytest.mark.slow
def test_no_password_is_kept_for_the_next_connection(tmp_path: Path) -> None:
    """Neither that of a store nor that of a login, once nobody uses them; the context is."""
    turned = used(tmp_path)
    gc.collect()
    assert not any(turned in text[::-1] for text in held())


def used(folder: Path) -> str:
    """Opens a security twice, of a password that it returns from the last letter to the first."""
    password = secrets.token_hex()
    store = write_trust_pkcs12(folder / "t.p12", [Authority.new()], password)
    given = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{PLAIN_MODULE} required username="ann" password="{password}";',
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.location": str(store),
        "ssl.truststore.password": password,
    }
    first, second = security_of(given).open(), security_of(given).open()
    assert first == second and first.tls is not None and second.tls is not None
    assert first.tls.context is second.tls.context
    assert f"password='{password}'" not in repr(first) and any(password in text for text in held())
    return password[::-1]


def held() -> Iterator[str]:
    """Every text of this process that an object holds."""
    waiting: list[Any] = gc.get_objects()
    seen = {id(waiting)}
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            yield each
        elif id(each) not in seen:
            seen.add(id(each))
            waiting.extend(gc.get_referents(each))
