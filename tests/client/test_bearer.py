"""Our own clients with tokens: what their properties say, and brokers that take or refuse them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broker.bearer import SIGNED, UNSECURED, published, signed, token
from peers.kafka import free_port
from security.oauthbearer.issuing import jwks

import headrace.testing
from headrace.client.admin import create_topic
from headrace.client.cluster import Client
from headrace.client.login import NotLoggedInError
from headrace.client.producer import Producer
from headrace.client.security import security_of
from headrace.config import ConfigError
from headrace.security.jaas import OAUTHBEARER_MODULE
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker

BEARER = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
URL, VARIABLE = "sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.token.variable"


def own(**options: str) -> dict[str, str]:
    said = "".join(f' {name}="{value}"' for name, value in options.items())
    return {**BEARER, "sasl.jaas.config": f"{OAUTHBEARER_MODULE} required{said};"}


def make_topic(broker: TestBroker, properties: dict[str, str], name: str) -> None:
    with Client(broker.bootstrap, timeout_s=10, security=security_of(properties)) as client:
        create_topic(client, name)
        with Producer(client) as producer:
            producer.send(name, b"x")
            producer.flush()


@pytest.fixture(scope="module")
def taking() -> Iterator[TestBroker]:
    with published() as issuer, running_broker(signed(issuer.url)) as broker:
        yield broker


def test_a_token_of_its_own_making() -> None:
    with running_broker(UNSECURED) as broker:
        make_topic(broker, own(unsecuredLoginStringClaim_sub="ann", unsecuredLoginExtension_trace="1"), "own")


def test_a_token_in_a_file_is_read_at_each_login(taking: TestBroker, tmp_path: Path) -> None:
    path = tmp_path / "token of ann"
    properties = {**BEARER, URL: path.as_uri()}
    with pytest.raises(NotLoggedInError, match="cannot be read: No such file"):
        make_topic(taking, properties, "file")
    path.write_text("two words")
    with pytest.raises(NotLoggedInError, match="is none") as failed:
        make_topic(taking, properties, "file")
    assert "two words" not in str(failed.value)
    path.write_text(token() + "\n")
    make_topic(taking, properties, "file")


def test_a_token_in_the_environment(taking: TestBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    properties = {**BEARER, VARIABLE: "TOKEN_OF_ANN"}
    with pytest.raises(NotLoggedInError, match="TOKEN_OF_ANN holds no token"):
        make_topic(taking, properties, "variable")
    monkeypatch.setenv("TOKEN_OF_ANN", token())
    make_topic(taking, properties, "variable")


def test_a_token_that_is_refused(taking: TestBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = token(iss="https://another")
    monkeypatch.setenv("TOKEN_OF_ANN", bad)
    with pytest.raises(NotLoggedInError, match="invalid_token") as failed:
        make_topic(taking, {**BEARER, VARIABLE: "TOKEN_OF_ANN"}, "refused")
    assert bad not in str(failed.value)


@pytest.mark.slow
def test_a_session_goes_on_with_the_next_token(taking: TestBroker, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(token(exp=int(time.time()) + 3))
    properties = {**BEARER, URL: path.as_uri()}
    with Client(taking.bootstrap, timeout_s=10, security=security_of(properties)) as client:
        create_topic(client, "goes-on")
        until = time.monotonic() + 6
        with Producer(client) as producer:
            while time.monotonic() < until:
                path.write_text(token(exp=int(time.time()) + 3))
                producer.send("goes-on", b"x")
                producer.flush()


@pytest.mark.parametrize(
    ("properties", "why"),
    [
        (BEARER, "OAUTHBEARER needs a token"),
        (own(), "OAUTHBEARER needs a token"),
        (own(unsecuredLoginNumberClaim_sub="7"), "nobody is named"),
        ({**BEARER, URL: "https://issuer/token"}, "allowed.urls must name it too"),
        ({**BEARER, URL: "file:relative"}, "the whole path"),
        ({**BEARER, URL: "file:/a", VARIABLE: "B"}, "only one of it"),
        ({**BEARER, URL: "file:/a", "sasl.login.callback.handler.class": "com.my.Handler"}, "is not known"),
        ({**BEARER, URL: "file:/a", "sasl.oauthbearer.jwt.retriever.class": "com.my.Retriever"}, "is not known"),
        (
            {**BEARER, "sasl.jaas.config": 'org.apache.kafka.common.security.plain.PlainLoginModule required a="s3";'},
            "the login module of OAUTHBEARER",
        ),
    ],
)
def test_properties_that_cannot_be(properties: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why) as refused:
        security_of(properties)
    assert "s3" not in str(refused.value)


def test_kafkas_classes_may_be_named() -> None:
    package = "org.apache.kafka.common.security.oauthbearer"
    named = {
        "sasl.login.callback.handler.class": f"{package}.OAuthBearerLoginCallbackHandler",
        "sasl.oauthbearer.jwt.retriever.class": f"{package}.FileJwtRetriever",
    }
    assert security_of({**BEARER, **named, URL: "file:/a"}).open().credentials is not None


def test_nodes_log_in_to_each_other_by_tokens(tmp_path: Path) -> None:
    keys, ports = tmp_path / "keys.json", {node: free_port() for node in (1, 2, 3)}
    keys.write_bytes(jwks())
    nodes: dict[int, dict[str, Any]] = {}
    for node, port in ports.items():
        path = tmp_path / f"token-{node}"
        path.write_text(token(sub=f"node-{node}"))
        nodes[node] = {
            "controller.quorum.voters": ",".join(f"{each}@localhost:{at}" for each, at in ports.items()),
            "listeners": f"INSIDE://127.0.0.1:0,CONTROLLER://127.0.0.1:{port}",
            "advertised.listeners": "INSIDE://localhost:0",
            "listener.security.protocol.map": "INSIDE:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "INSIDE",
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
            "sasl.mechanism.controller.protocol": "OAUTHBEARER",
            "sasl.server.callback.handler.class": SIGNED,
            "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
            "sasl.oauthbearer.allowed.urls": keys.as_uri(),
            "sasl.oauthbearer.expected.audience": "kafka",
            "sasl.oauthbearer.expected.issuer": "https://issuer",
            URL: path.as_uri(),
        }
    with headrace.testing.cluster(nodes=nodes) as running:
        leader = running.controller()
        others = {f"User:node-{each}" for each in ports if each != leader}
        names = running.nodes[leader].call(lambda broker: {each.client.principal for each in broker.server.connections})
        assert others <= names
