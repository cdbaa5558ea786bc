"""Logins follow the settings that are altered while a broker serves; who has logged in goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from broker.bearer import message, published, signed
from broker.bearer import token as bearer_token
from broker.raw import Raw
from broker.sasl import OFFERED, PLAIN_ANN, PLAIN_BOB, SETTINGS, add_users, handshake, open_port, plain, scram, token

from headrace.client.admin import Resource, alter_configs
from headrace.client.cluster import Client
from headrace.client.errors import BrokerError
from headrace.security.jaas import OAUTHBEARER_MODULE, PLAIN_MODULE
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k03_metadata import MetadataRequest

MECHANISMS = "sasl.enabled.mechanisms"
USERS = "listener.name.clients.plain.sasl.jaas.config"
BOB_ALONE = f'{PLAIN_MODULE} required user_bob="pen" user_eve="hunter2";'
FAILED = ErrorCode.SASL_AUTHENTICATION_FAILED


@pytest.fixture
def served() -> Iterator[TestBroker]:
    with running_broker(SETTINGS) as running:
        yield running


def alter(broker: TestBroker, **values: str | None) -> None:
    """Settings of this broker; double underscores stand for dots, None takes one back."""
    named = {name.replace("__", "."): value for name, value in values.items()}
    set_values = {name: value for name, value in named.items() if value is not None}
    deleted = [name for name, value in named.items() if value is None]
    with Client(f"127.0.0.1:{open_port(broker)}", client_id="test", timeout_s=60) as client:
        alter_configs(client, Resource.BROKER, "1", set_values=set_values, delete=deleted)


def is_served(raw: Raw) -> bool:
    return bool(raw.ask(MetadataRequest(topics=[]), 9).brokers)


def test_new_logins_go_by_the_users_that_are_set_and_open_connections_go_on(served: TestBroker) -> None:
    with Raw(served.port) as ann:
        assert plain(ann, PLAIN_ANN).error_code == 0
        with Raw(served.port) as waiting:
            alter(served, **{USERS: BOB_ALONE})
            assert plain(waiting, PLAIN_ANN).error_code == FAILED, "it began to log in afterwards"
        assert is_served(ann)
    with Raw(served.port) as eve:
        assert plain(eve, b"\0eve\0hunter2").error_code == 0
    alter(served, **{USERS: None})
    with Raw(served.port) as ann:
        assert plain(ann, PLAIN_ANN).error_code == 0
    with Raw(served.port) as eve:
        assert plain(eve, b"\0eve\0hunter2").error_code == FAILED


@pytest.mark.parametrize("prefix", ["", "listener.name.clients."])
def test_new_logins_are_offered_the_mechanisms_that_are_set(served: TestBroker, prefix: str) -> None:
    add_users(served, ann="pencil")
    alter(served, **{prefix + MECHANISMS: "SCRAM-SHA-512,SCRAM-SHA-256"})
    with Raw(served.port) as raw:
        said = handshake(raw)
        assert said.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert said.mechanisms == ["SCRAM-SHA-512", "SCRAM-SHA-256"]
    with Raw(served.port) as raw:
        assert scram(raw, "ann", "pencil").error_code == 0
    alter(served, **{prefix + MECHANISMS: None})
    with Raw(served.port) as raw:
        assert tuple(handshake(raw).mechanisms) == OFFERED
        assert token(raw, PLAIN_ANN).error_code == 0


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        (MECHANISMS, "PLAIN,MADE-UP", "mechanism MADE-UP is not served"),
        (MECHANISMS, "", "offers no mechanism"),
        (MECHANISMS, "PLAIN,", "'sasl.enabled.mechanisms' values must not be empty"),
        (MECHANISMS, "OAUTHBEARER", "for signed tokens"),
        (USERS, "hunter2", "hidden"),
        (USERS, f"{PLAIN_MODULE} required user_ann=hunter2", "a semicolon"),
    ],
)
def test_what_no_login_could_go_by_is_refused(served: TestBroker, name: str, value: str, words: str) -> None:
    with pytest.raises(BrokerError, match="INVALID_REQUEST|INVALID_CONFIG") as refused:
        alter(served, **{name: value})
    assert words in str(refused.value) and "hunter2" not in str(refused.value)
    with Raw(served.port) as raw:
        assert tuple(handshake(raw).mechanisms) == OFFERED
        assert token(raw, PLAIN_BOB).error_code == 0


def test_a_session_goes_on_by_what_is_set_when_its_client_logs_in_again() -> None:
    with running_broker({**SETTINGS, "connections.max.reauth.ms": "600000"}) as served:
        with Raw(served.port) as ann, Raw(served.port) as bob:
            assert plain(ann, PLAIN_ANN).error_code == plain(bob, PLAIN_BOB).error_code == 0
            alter(served, **{USERS: BOB_ALONE})
            assert plain(bob, PLAIN_BOB).error_code == 0 and is_served(bob)
            assert plain(ann, PLAIN_ANN).error_code == FAILED
        with Raw(served.port) as bob:
            assert plain(bob, PLAIN_BOB).error_code == 0
            alter(served, **{MECHANISMS: "SCRAM-SHA-256"})
            assert handshake(bob).error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM


def test_what_is_stored_is_in_force_after_a_restart(tmp_path: Path) -> None:
    with running_broker(SETTINGS, data=tmp_path) as served:
        alter(served, **{USERS: BOB_ALONE, MECHANISMS: "PLAIN"})
    with running_broker(SETTINGS, data=tmp_path) as served:
        with Raw(served.port) as raw:
            assert handshake(raw).mechanisms == ["PLAIN"]
            assert token(raw, PLAIN_ANN).error_code == FAILED
        with Raw(served.port) as raw:
            assert plain(raw, PLAIN_BOB).error_code == 0


def test_what_is_stored_and_cannot_be_leaves_logins_as_the_file_has_them(tmp_path: Path) -> None:
    """A controller that is asked itself, or Apache Kafka before, has stored it."""
    with running_broker(SETTINGS, data=tmp_path) as served:
        alter(served, **{MECHANISMS: "PLAIN"})
    without = {name: value for name, value in SETTINGS.items() if name != USERS}
    with running_broker({**without, MECHANISMS: "SCRAM-SHA-256"}, data=tmp_path) as served:
        with Raw(served.port) as raw:
            assert handshake(raw, "SCRAM-SHA-256").mechanisms == ["SCRAM-SHA-256"]


def test_keys_of_an_issuer_stay_known_when_their_settings_change() -> None:
    with published() as issuer, running_broker(signed(issuer.url)) as served:
        issuer.status = 500
        name = "listener.name.clients.oauthbearer.sasl.jaas.config"
        for value in (f"{OAUTHBEARER_MODULE} required other=a;", None):
            alter(served, **{name: value})
            with Raw(served.port) as raw:
                assert handshake(raw, "OAUTHBEARER").error_code == 0
                assert token(raw, message(bearer_token())).error_code == 0
