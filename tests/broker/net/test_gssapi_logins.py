"""Clients that show tickets of Kerberos: good ones, and those that somebody made, stole, kept too long or cut."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from broker.raw import Raw, create_topic
from broker.sasl import FIXED_TEXT, handshake, open_port, token
from peers import gssapi_package
from peers.kerberos import SKEW_S, Realm, realm
from peers.waiting import until

from headrace.client.cluster import Client
from headrace.client.kerberos import LoginContext, library
from headrace.client.login import NotLoggedInError
from headrace.client.producer import Producer
from headrace.client.security import security_of
from headrace.config import ConfigError
from headrace.security.gssapi import TOKEN_BYTES_MAX, GssapiClient
from headrace.security.login import Errand, LoginFailedError
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k03_metadata import MetadataRequest
from headrace.wire.messages.k36_sasl_authenticate import SaslAuthenticateRequest

why = gssapi_package.missing()
pytestmark = pytest.mark.skipif(bool(why), reason=why)
FAILED = ErrorCode.SASL_AUTHENTICATION_FAILED
PATIENCE_S = 60.0
FIRST = """
import gssapi, sys
keytab, principal, service = sys.argv[1:]
kind = gssapi.NameType.kerberos_principal
who = gssapi.Name(principal, kind)
mine = gssapi.Credentials(name=who, usage="initiate", store={"client_keytab": keytab, "ccache": "MEMORY:x"})
context = gssapi.SecurityContext(
    name=gssapi.Name(service, kind), creds=mine, usage="initiate", mech=gssapi.MechType.kerberos
)
print(context.step().hex())
"""


class Place:
    """A realm with a service and clients, and a broker in it."""

    def __init__(self, realm: Realm) -> None:
        self.realm = realm
        self.service = realm.keytab("kafka/localhost")
        self.ann = realm.keytab("ann")
        self.settings = {
            "listeners": "CLIENTS://127.0.0.1:0,INSIDE://127.0.0.1:0",
            "advertised.listeners": "CLIENTS://localhost:0,INSIDE://localhost:0",
            "inter.broker.listener.name": "INSIDE",
            "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,INSIDE:PLAINTEXT",
            "sasl.enabled.mechanisms": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "sasl.kerberos.principal.to.local.rules": "RULE:[2:$1-$2](app-.*)s/app-//,DEFAULT",
            "listener.name.clients.gssapi.sasl.jaas.config": realm.jaas("kafka/localhost", self.service),
            "connection.failed.authentication.delay.ms": "20",
        }
        self.broker: TestBroker

    def client(self, principal: str = "ann", keytab: Path | None = None) -> GssapiClient:
        """A client's side of a login, of our own make."""
        found = library("")
        initiator = found.Initiator(f"{principal}@{self.realm.name}", str(keytab or self.ann), "")
        return GssapiClient(LoginContext(initiator.begin("kafka", "localhost"), found.KerberosError))

    def first(self, principal: str = "ann", keytab: Path | None = None, service: str = "kafka/localhost") -> bytes:
        """The first token of a client with new tickets, made in a process of its own."""
        return first_token(self.realm, principal, keytab or self.ann, service)

    @property
    def principals(self) -> set[str]:
        """Who is connected."""
        return self.broker.call(lambda inside: {each.client.principal for each in inside.server.connections})


def first_token(of: Realm, principal: str, keytab: Path, service: str) -> bytes:
    done = subprocess.run(
        [sys.executable, "-c", FIRST, str(keytab), principal, service],
        check=True, capture_output=True, text=True, env={**os.environ, **of.environment}, timeout=PATIENCE_S,
    )  # fmt: skip
    return bytes.fromhex(done.stdout)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    gssapi_package.use()
    with realm(tmp_path_factory.mktemp("realm")) as made, pytest.MonkeyPatch.context() as patch:
        for name, text in made.environment.items():
            patch.setenv(name, text)
        found = Place(made)
        with running_broker(found.settings) as found.broker:
            yield found


def done(step: bytes | Errand[bytes]) -> bytes:
    return step.work() if isinstance(step, Errand) else step


def offered(raw: Raw, client: GssapiClient) -> bytes:
    """Goes as far as the server's offer of layers, and returns it."""
    assert handshake(raw, "GSSAPI").error_code == 0
    answer = token(raw, done(client.first()))
    assert answer.error_code == 0, answer.error_message
    empty = done(client.respond(answer.auth_bytes))
    assert empty == b""
    return bytes(token(raw, empty).auth_bytes)


def begin(raw: Raw, client: GssapiClient) -> bytes:
    """Goes as far as the choice of layers, which it returns unsent."""
    return done(client.respond(offered(raw, client)))


def refused(place: Place, data: bytes) -> None:
    """A first token is refused by the fixed text, and nothing comes of the connection."""
    with Raw(place.broker.port) as raw:
        assert handshake(raw, "GSSAPI").error_code == 0
        answer = token(raw, data)
        assert (answer.error_code, answer.error_message) == (FAILED, FIXED_TEXT.format("GSSAPI"))
        assert raw.is_closed()


def chosen(place: Place, choice: bytes) -> Any:
    """The last answer to a client that wraps this for its choice of layers."""
    with Raw(place.broker.port) as raw:
        client = place.client()
        offered(raw, client)
        answer = token(raw, client._context.wrap(choice))
        return answer, place.principals if not answer.error_code else set()


# --- good ones


def test_our_client_logs_in_and_writes(place: Place) -> None:
    security = security_of(place.realm.client("ann", place.ann))
    create_topic(open_port(place.broker), "written")
    with Client(f"localhost:{place.broker.port}", timeout_s=PATIENCE_S, security=security) as client:
        with Producer(client) as producer:
            producer.send("written", b"x")
            producer.flush()
            assert producer.records_delivered == 1
        assert "User:ann" in place.principals


def test_rules_say_what_a_principal_is_called(place: Place) -> None:
    for principal, name in (("app/orders", "User:orders"), ("carol", "User:carol")):
        with Raw(place.broker.port) as raw:
            last = begin(raw, place.client(principal, place.realm.keytab(principal)))
            answer = token(raw, last)
            assert (answer.error_code, answer.auth_bytes, answer.session_lifetime_ms) == (0, b"", 0)
            assert name in place.principals
            assert raw.ask(MetadataRequest(topics=[]), 9).brokers


def test_tokens_that_come_as_they_are(place: Place) -> None:
    """After SaslHandshake 0; the last of them has no answer, as Java's server gives none."""
    with Raw(place.broker.port) as raw:
        assert handshake(raw, "GSSAPI", version=0).error_code == 0
        client = place.client()

        def said(data: bytes) -> None:
            raw.socket.sendall(len(data).to_bytes(4, "big") + data)

        said(done(client.first()))
        said(done(client.respond(raw.receive_frame())))
        said(done(client.respond(raw.receive_frame())))
        assert raw.ask(MetadataRequest(topics=[]), 9).brokers
        assert "User:ann" in place.principals


def test_requests_behind_a_token_wait_for_the_worker(place: Place) -> None:
    with Raw(place.broker.port) as raw:
        client = place.client()
        last = begin(raw, client)
        raw.socket.sendall(raw.frame(SaslAuthenticateRequest(last), 2) + raw.frame(MetadataRequest(topics=[]), 9))
        assert raw.receive(36, 2)[1].error_code == 0
        assert raw.receive(3, 9)[1].brokers
    with Raw(place.broker.port) as raw:
        assert handshake(raw, "GSSAPI").error_code == 0
        raw.socket.sendall(
            raw.frame(SaslAuthenticateRequest(done(place.client().first())), 2)
            + raw.frame(MetadataRequest(topics=[]), 9)
        )
        assert raw.receive(36, 2)[1].error_code == 0
        assert raw.is_closed()  # nobody has logged in yet


def test_the_loop_does_not_wait_for_the_library(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []
    real = LoginContext.step

    def step(self: LoginContext, data: bytes) -> bytes:
        threads.append(threading.current_thread().name)
        return real(self, data)

    monkeypatch.setattr(LoginContext, "step", step)
    with Raw(place.broker.port) as raw:
        token(raw, begin(raw, place.client()))
    assert any(name.startswith("headrace-errand") for name in threads)
    assert "headrace-broker" not in threads


# --- attacks


def test_what_is_no_token(place: Place) -> None:
    good = place.first()
    for data in (b"", b"\x60", b"garbage", os.urandom(600), good[:-1], good[: len(good) // 2], good + b"x", good[3:]):
        refused(place, data)
    refused(place, good[:-40] + bytes(40))
    refused(place, b"\x60\x84\xff\xff\xff\xff" + good[4:])
    refused(place, good.ljust(TOKEN_BYTES_MAX + 1, b"\0"))


def test_a_ticket_for_another_service(place: Place) -> None:
    place.realm.keytab("http/localhost")
    place.realm.keytab("kafka/elsewhere")
    for service in ("http/localhost", "kafka/elsewhere"):
        refused(place, place.first(service=service))


def test_a_ticket_of_another_kdc(place: Place, tmp_path: Path) -> None:
    """It calls itself the same realm, and its clients as it likes."""
    for name in (place.realm.name, "OTHER.TEST"):
        with realm(tmp_path / name, name) as other:
            other.keytab("kafka/localhost")
            refused(place, first_token(other, "ann", other.keytab("ann"), "kafka/localhost"))


@pytest.mark.soak
def test_a_ticket_whose_time_is_up(place: Place) -> None:
    short = place.realm.keytab("brief", "-maxlife", "2sec")
    late = place.first("brief", short)
    time.sleep(2 + SKEW_S + 1)
    with Raw(place.broker.port) as raw:
        assert handshake(raw, "GSSAPI").error_code == 0
        assert token(raw, late).error_code == FAILED


def test_a_token_that_was_shown_before_ends_the_connection_without_a_word(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    stolen = place.first()
    with Raw(place.broker.port) as raw:
        assert handshake(raw, "GSSAPI").error_code == 0
        assert token(raw, stolen).error_code == 0
    with Raw(place.broker.port) as raw, caplog.at_level(logging.INFO, "headrace"):
        assert handshake(raw, "GSSAPI").error_code == 0
        raw.send(SaslAuthenticateRequest(stolen), 2)
        assert raw.is_closed()
    assert "replay" in caplog.text.lower()


def test_whom_a_client_wants_to_be_is_not_listened_to(place: Place) -> None:
    for authzid in (b"", b"ann", b"admin", b"kafka@localhost"):
        answer, names = chosen(place, b"\x01\0\0\0" + authzid)
        assert answer.error_code == 0
        assert "User:ann" in names and "User:admin" not in names


@pytest.mark.parametrize("choice", [b"\x02\0\0\0", b"\x04\xff\xff\xff", b"\x07\0\0\0", b"\0\0\0\0", b"\x01", b""])
def test_a_layer_that_is_not_offered(place: Place, choice: bytes) -> None:
    answer, _ = chosen(place, choice)
    assert (answer.error_code, answer.error_message) == (FAILED, FIXED_TEXT.format("GSSAPI"))


def test_a_choice_that_is_not_wrapped_or_of_another_context(place: Place) -> None:
    other = place.client()
    with Raw(place.broker.port) as raw:
        stolen = begin(raw, other)
    for data in (b"\x01\0\0\0", stolen, b""):
        with Raw(place.broker.port) as raw:
            begin(raw, place.client())
            assert token(raw, data).error_code == FAILED


def test_tokens_after_the_login(place: Place) -> None:
    with Raw(place.broker.port) as raw:
        last = begin(raw, place.client())
        assert token(raw, last).error_code == 0
        assert token(raw, last).error_code == ErrorCode.ILLEGAL_SASL_STATE


def test_the_proof_is_answered_by_nothing(place: Place) -> None:
    with Raw(place.broker.port) as raw:
        assert handshake(raw, "GSSAPI").error_code == 0
        assert token(raw, done(place.client().first())).error_code == 0
        assert token(raw, b"something").error_code == FAILED


def test_a_login_that_takes_its_time_holds_up_no_disk(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that asks slow servers for a name: more logins than there are workers wait for it."""
    tokens = [done(place.client().first()) for _ in range(8)]
    began, let, read = threading.Event(), threading.Event(), threading.Event()
    step = LoginContext.step

    def slow(context: LoginContext, token: bytes) -> bytes:
        began.set()
        assert let.wait(PATIENCE_S)
        return step(context, token)

    monkeypatch.setattr(LoginContext, "step", slow)
    with contextlib.ExitStack() as stack:
        stack.callback(let.set)
        raws = [stack.enter_context(Raw(place.broker.port)) for _ in tokens]
        for raw, first in zip(raws, tokens, strict=True):
            assert handshake(raw, "GSSAPI").error_code == 0
            raw.send(SaslAuthenticateRequest(first), 2)
        assert began.wait(PATIENCE_S)
        until(lambda: place.broker.call(lambda inside: inside.server.shared.logins._errands) == len(tokens), "all wait")
        place.broker.call(lambda inside: inside.node.workers.submit(read.set))
        assert read.wait(5)
        let.set()
        for raw in raws:
            assert raw.receive(36, 2)[1].error_code == 0


def test_a_client_that_leaves_while_a_worker_looks_at_its_token(place: Place) -> None:
    for _ in range(20):
        with Raw(place.broker.port) as raw:
            assert handshake(raw, "GSSAPI").error_code == 0
            raw.send(SaslAuthenticateRequest(done(place.client().first())), 2)
    until(lambda: not place.broker.call(lambda inside: inside.server.shared.logins._errands), "no login waits")
    assert place.broker.call(lambda inside: (inside.server.shared.logins._errands, inside.node.defects.count)) == (0, 0)


# --- clients, and settings


def test_a_client_hears_why_in_one_line(place: Place, tmp_path: Path) -> None:
    good = place.realm.client("ann", place.ann)
    for changed, words in (
        ({"sasl.kerberos.service.name": "nobody"}, "not found in Kerberos database"),
        ({"sasl.jaas.config": place.realm.jaas("ann", tmp_path / "none.keytab")}, "none.keytab"),
        ({"sasl.jaas.config": place.realm.jaas("bob", place.ann)}, "no login at localhost"),
    ):
        security = security_of({**good, **changed})
        with (
            Client(f"localhost:{place.broker.port}", timeout_s=PATIENCE_S, security=security) as client,
            pytest.raises(NotLoggedInError) as failed,
        ):
            client.refresh([])
        assert words in str(failed.value) and "\n" not in str(failed.value) and failed.value.mechanism == "GSSAPI"


@pytest.mark.soak
def test_tickets_are_renewed_before_their_end(place: Place) -> None:
    keytab = place.realm.keytab("short", "-maxlife", "4sec")
    ends = time.monotonic() + 4 + SKEW_S + 2
    while time.monotonic() < ends:
        with Raw(place.broker.port) as raw:
            assert token(raw, begin(raw, place.client("short", keytab))).error_code == 0
        time.sleep(0.5)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"sasl.kerberos.service.name": ""}, "sasl.kerberos.service.name"),
        ({"sasl.kerberos.principal.to.local.rules": "RULE:nonsense"}, "is no rule"),
        ({"jaas": "useTicketCache=true"}, "a listener needs useKeyTab"),
        ({"jaas": 'useKeyTab=true keyTab="/nowhere" principal="kafka/localhost"'}, "/nowhere cannot be used"),
    ],
)
def test_settings_that_cannot_be(place: Place, changed: dict[str, str], words: str) -> None:
    settings = {**place.settings, **changed}
    options = settings.pop("jaas", None)
    if options is not None:
        line = f"com.sun.security.auth.module.Krb5LoginModule required {options};"
        settings["listener.name.clients.gssapi.sasl.jaas.config"] = line
    with pytest.raises(ConfigError) as failed, running_broker(settings):
        pass
    assert words in str(failed.value) and "\n" not in str(failed.value)


def test_a_keytab_without_the_principal(place: Place) -> None:
    line = place.realm.jaas("kafka/localhost", place.ann)
    assert "ann.keytab" in line
    with (
        pytest.raises(ConfigError, match="cannot be used for kafka/localhost"),
        running_broker({**place.settings, "listener.name.clients.gssapi.sasl.jaas.config": line}),
    ):
        pass


def test_a_ticket_of_a_name_that_is_no_text_is_refused_and_no_defect(place: Place) -> None:
    """A KDC takes any bytes for a name."""
    import gssapi

    name = gssapi.Name(f"j\xfcrg@{place.realm.name}".encode("latin-1"), gssapi.NameType.kerberos_principal)
    found = library("")
    context = found.Context(SimpleNamespace(initiator_name=name))
    with pytest.raises(LoginFailedError, match="not UTF-8"):
        assert LoginContext(context, found.KerberosError).initiator
