"""Clients that show tokens: good ones, those that somebody made, and keys that come, go and change."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broker.bearer import MODULE, SETTINGS, UNSECURED, Published, current, message, published, signed, token
from broker.raw import Raw
from broker.sasl import FIXED_TEXT, handshake
from broker.sasl import token as send_token
from cryptography.hazmat.primitives import serialization
from peers.waiting import until
from security.oauthbearer.issuing import encoded, forged, forgers_key, issued, jwk, jwks, key_set, private_keys

from headrace.broker.telemetry.pace import SUBJECT_LINES_PER_S
from headrace.config import BrokerConfig, ConfigError
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k03_metadata import MetadataRequest
from headrace.wire.messages.k36_sasl_authenticate import SaslAuthenticateRequest

FAILED = ErrorCode.SASL_AUTHENTICATION_FAILED
INVALID = '{"status":"invalid_token"}'
PATIENCE_S = 60.0


def login(port: int, text: str, authzid: str = "") -> Any:
    """The last answer to a whole login; a refused one is heard out."""
    with Raw(port) as raw:
        assert handshake(raw, "OAUTHBEARER").error_code == 0
        answer = send_token(raw, message(text, authzid))
        if answer.auth_bytes:
            assert answer.error_code == 0
            answer = send_token(raw, b"\x01")
            assert raw.is_closed()
        elif not answer.error_code:
            assert raw.ask(MetadataRequest(topics=[]), 9).brokers
        return answer


def refused(port: int, text: str) -> None:
    answer = login(port, text)
    assert (answer.error_code, answer.error_message) == (FAILED, INVALID)


@pytest.fixture(scope="module")
def issuer() -> Iterator[Published]:
    with published() as state:
        yield state


@pytest.fixture(scope="module")
def served(issuer: Published) -> Iterator[TestBroker]:
    with running_broker(signed(issuer.url)) as running:
        yield running


def by_the_public_key() -> str:
    """A token whose HMAC has the issuer's public key for its secret, as libraries took it that went by the header."""
    public = private_keys()["rsa"].public_key()
    pem = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    said = f"{encoded({'alg': 'HS256', 'kid': 'rsa'})}.{encoded(current())}"
    return f"{said}.{encoded(hmac.digest(pem, said.encode(), hashlib.sha256))}"


def test_tokens_of_the_issuer(served: TestBroker) -> None:
    for key_id, algorithm in (("rsa", "RS256"), ("p256", "ES256"), ("ed", "EdDSA")):
        answer = login(served.port, issued(current(), key_id, algorithm))
        assert (answer.error_code, answer.error_message, answer.auth_bytes) == (0, "", b"")
        assert 590_000 < answer.session_lifetime_ms <= 600_000
    with Raw(served.port) as raw:
        assert handshake(raw, "OAUTHBEARER").error_code == 0
        assert send_token(raw, message(token(sub="carol"))).error_code == 0
        named = served.call(lambda inside: [each.client.principal for each in inside.server.connections])
        assert "User:carol" in named


@pytest.mark.parametrize(
    "bad",
    [
        token(iss="https://another"),
        token(aud="something else"),
        token(exp=int(time.time()) - 31, iat=int(time.time()) - 100),
        token(exp=None),
        token(sub=None),
        forged({"alg": "none"}, current()),
        forged({"alg": "None", "kid": "rsa"}, current()),
        by_the_public_key(),
        issued(current(), "rsa", "RS256", forgers_key()),
        token() + "x",
        "not-a-token",
    ],
    ids=["issuer", "audience", "expired", "endless", "nobody", "none", "None", "HS256", "forged", "torn", "text"],
)
def test_other_tokens(served: TestBroker, bad: str) -> None:
    refused(served.port, bad)


def test_another_authzid_than_the_token_says(served: TestBroker) -> None:
    assert login(served.port, token(), "a=ann").error_code == 0
    answer = login(served.port, token(), "a=bob")
    assert answer.error_code == FAILED and "authorization id" in answer.error_message


def test_who_is_refused_must_say_goodbye(served: TestBroker) -> None:
    with Raw(served.port) as raw:
        assert handshake(raw, "OAUTHBEARER").error_code == 0
        assert send_token(raw, message(token(iss="https://another"))).auth_bytes == INVALID.encode()
        answer = send_token(raw, message(token()))
        assert (answer.error_code, answer.error_message) == (FAILED, FIXED_TEXT.format("OAUTHBEARER"))
        assert raw.is_closed()


def test_a_refused_token_counts_where_the_client_leaves(served: TestBroker, caplog: pytest.LogCaptureFixture) -> None:
    def failed() -> float:
        return served.call(lambda inside: inside.metrics.counter("logins.failed").value)

    count, another = 60, token(iss="https://another")
    with caplog.at_level(logging.INFO, "headrace"):
        refused_with_a_line(served, another, caplog)
        before = failed()
        for _ in range(count):
            with Raw(served.port) as raw:
                assert handshake(raw, "OAUTHBEARER").error_code == 0
                raw.send(SaslAuthenticateRequest(message(another)), 2)
        until(lambda: failed() == before + count, "all are counted")
    refusals = [line for line in caplog.messages if line.startswith("token refused")]
    seconds = len({int(record.created) for record in caplog.records}) + 1
    assert 0 < len(refusals) <= SUBJECT_LINES_PER_S * seconds
    logged = [line for line in caplog.messages if line.startswith("login failed")]
    assert logged and all("the token is of another issuer" in line for line in logged)
    refused(served.port, another)
    assert failed() == before + count + 1, "one that is heard out counts once"


def refused_with_a_line(served: TestBroker, bad: str, caplog: pytest.LogCaptureFixture) -> None:
    """Shows a token until its refusal is logged: other tests may have used up the lines of this second."""
    last = time.monotonic() + 90
    while not {"token refused", "login failed"} <= {line[:13].rstrip() for line in caplog.messages}:
        assert time.monotonic() < last
        refused(served.port, bad)


def test_the_log_says_why_and_shows_no_token(served: TestBroker, caplog: pytest.LogCaptureFixture) -> None:
    bad = token(iss="https://another")
    with caplog.at_level(logging.DEBUG, "headrace"):
        refused_with_a_line(served, bad, caplog)
    assert "the token is of another issuer" in caplog.text
    assert bad[:40] not in caplog.text and bad.split(".")[1] not in caplog.text


@pytest.mark.slow
def test_a_session_ends_with_its_token(served: TestBroker) -> None:
    now = time.time()
    with Raw(served.port) as raw:
        assert handshake(raw, "OAUTHBEARER").error_code == 0
        answer = send_token(raw, message(token(exp=int(now) + 3)))
        assert answer.error_code == 0 and answer.session_lifetime_ms <= 3000
        assert raw.ask(MetadataRequest(topics=[]), 9).brokers
        time.sleep(answer.session_lifetime_ms / 1000 + 0.05)
        raw.send(MetadataRequest(topics=[]), 9)
        assert raw.is_closed()


def keys_known(broker: TestBroker) -> list[str | None]:
    def look(inside: Any) -> list[str | None]:
        opened = next(each for each in inside.server.listeners if each.login_terms is not None)
        return [key.key_id for key in opened.login_terms.sources[0].keys.keys]

    return broker.call(look)


def wait_for_key(broker: TestBroker, key_id: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while key_id not in keys_known(broker):
        assert time.monotonic() < deadline, f"the key {key_id} was not fetched"
        time.sleep(0.02)


def test_a_new_key_is_fetched_when_its_first_token_comes() -> None:
    with published() as issuer, running_broker(signed(issuer.url)) as broker:
        fresh = issued(current(), "new", "RS256", forgers_key())
        issuer.body = key_set(jwk(private_keys()["rsa"], "rsa"), jwk(forgers_key(), "new"))
        refused(broker.port, fresh)
        wait_for_key(broker, "new")
        assert login(broker.port, fresh).error_code == 0
        asked = issuer.asked
        for number in range(20):
            refused(broker.port, issued(current(), f"made-up-{number}", "RS256", forgers_key()))
        assert issuer.asked <= asked + 1, "strangers do not make the broker fetch"


def test_known_keys_stay_while_the_issuer_is_away_and_those_that_it_withdraws_go() -> None:
    paces = {
        "sasl_oauthbearer_jwks_endpoint_refresh_ms": "1000",
        "sasl_oauthbearer_jwks_endpoint_retry_backoff_ms": "50",
        "sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms": "200",
    }
    with published() as issuer, running_broker(signed(issuer.url, **paces)) as broker:
        issuer.status = 503
        asked, deadline = issuer.asked, time.monotonic() + PATIENCE_S
        while issuer.asked < asked + 3:
            assert time.monotonic() < deadline, "the broker tries again"
            time.sleep(0.02)
        assert login(broker.port, token()).error_code == 0
        issuer.body, issuer.status = b'{"keys": []}', 200
        time.sleep(0.3)
        assert login(broker.port, token()).error_code == 0, "a set without keys is no set"
        issuer.body = key_set(jwk(forgers_key(), "new"))
        wait_for_key(broker, "new")
        refused(broker.port, token())


def test_a_broker_starts_while_its_issuer_is_away_and_lets_clients_in_when_it_is_back() -> None:
    with published() as issuer:
        issuer.status = 500
        pace = {"sasl_oauthbearer_jwks_endpoint_retry_backoff_ms": "50"}
        with running_broker(signed(issuer.url, **pace)) as broker:
            refused(broker.port, token())
            issuer.status = 200
            wait_for_key(broker, "rsa")
            assert login(broker.port, token()).error_code == 0


def test_keys_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "keys of the issuer.json"
    path.write_bytes(jwks())
    with running_broker(signed(path.as_uri(), sasl_oauthbearer_sub_claim_name="preferred_username")) as broker:
        assert login(broker.port, token(preferred_username="dora")).error_code == 0
        refused(broker.port, token())


def test_unsecured_tokens_where_the_file_asks_for_them(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "headrace"), running_broker(UNSECURED) as broker:
        assert "takes tokens that nobody has signed" in caplog.text
        assert login(broker.port, forged({"alg": "none"}, current())).error_code == 0
        refused(broker.port, token())
        refused(broker.port, forged({"alg": "none"}, current(exp=int(time.time()) - 1, iat=None)))


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"listener.name.clients.oauthbearer.sasl.server.callback.handler.class": ""}, "signed tokens; a listener"),
        ({"listener.name.clients.oauthbearer.sasl.server.callback.handler.class": "com.my.Handler"}, "is not known"),
        ({"sasl.oauthbearer.expected.audience": ""}, "expected.audience.*allow.unverified.audience=true"),
        ({"sasl.oauthbearer.expected.issuer": ""}, "expected.issuer.*allow.unverified.issuer=true"),
        ({"sasl.oauthbearer.allowed.urls": ""}, "it is not allowed: sasl.oauthbearer.allowed.urls must name it too"),
        ({"sasl.oauthbearer.jwks.endpoint.url": ""}, "signed tokens need the address"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "ftp://a/b"}, "must begin with https://, http:// or file:"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "https://ann:pw@a/b"}, "nobody's password"),
        ({"sasl.oauthbearer.token.endpoint.url": "ftp://issuer/token"}, "must begin with https://, http:// or file:"),
        (
            {"listener.name.clients.oauthbearer.sasl.jaas.config": MODULE.replace(";", ' ssl.truststore.type="X";')},
            "ssl.truststore.type",
        ),
    ],
)
def test_settings_that_cannot_be(changed: dict[str, str], why: str) -> None:
    settings = {**signed("http://127.0.0.1:1/keys"), **changed}
    with pytest.raises(ConfigError, match=why), running_broker(settings):
        pass


def test_what_asks_for_tokens_is_not_served() -> None:
    for name in ("assertion.file", "jwt.retriever.class"):
        with pytest.raises(ConfigError, match="by nothing else"):
            BrokerConfig.load({f"sasl.oauthbearer.{name}": "x"}, lambda _: None)


def test_a_file_of_keys_that_is_not_there(tmp_path: Path) -> None:
    url = (tmp_path / "missing.json").as_uri()
    with pytest.raises(ConfigError, match="the file cannot be read: No such file"), running_broker(signed(url)):
        pass


def test_audience_and_issuer_may_be_left_open_by_name() -> None:
    with published() as issuer:
        settings = signed(
            issuer.url,
            sasl_oauthbearer_expected_audience="",
            sasl_oauthbearer_allow_unverified_audience="true",
            sasl_oauthbearer_expected_issuer="",
            sasl_oauthbearer_allow_unverified_issuer="true",
        )
        with running_broker(settings) as broker:
            assert login(broker.port, token(aud=None, iss="https://another")).error_code == 0
            refused(broker.port, token(aud="somebody else"))


def test_each_listener_has_settings_of_its_own() -> None:
    named = {
        "listener.name.clients.oauthbearer.sasl.oauthbearer.expected.audience": "streams",
        "listener.name.clients.sasl.oauthbearer.expected.audience": "not this",
        "sasl.oauthbearer.expected.audience": "nor this",
    }
    config = BrokerConfig({**SETTINGS, **named})
    assert config.of_listener("CLIENTS").mechanism("OAUTHBEARER").names("sasl.oauthbearer.expected.audience") == (
        "streams",
    )
    assert config.of_listener("INSIDE").mechanism("OAUTHBEARER").names("sasl.oauthbearer.expected.audience") == (
        "nor this",
    )


def test_a_claim_set_that_is_no_json_is_refused(served: TestBroker) -> None:
    refused(served.port, forged({"alg": "RS256", "kid": "rsa"}, json.dumps([1]).encode(), b"x"))
