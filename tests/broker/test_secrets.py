"""Passwords and keys are planted wherever settings may hold them, and sought in all that a broker says and leaves."""

from __future__ import annotations

import base64
import http.client
import json
import os
import ssl
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from broker.raw import Raw, create_topic
from click.testing import CliRunner
from peers.certificates import Authority, write_trust_pkcs12

from headrace.broker import self_topics
from headrace.cli import main
from headrace.config import BROKER_SETTINGS, BrokerConfig, ConfigError
from headrace.config.tls import tls_of
from headrace.env.posix_tls import TlsMaterial
from headrace.metadata.scram_credentials import SCRAM_SHA_256, salted_password
from headrace.security.jaas import PLAIN_MODULE, JaasError, parse_jaas
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker
from headrace.wire.messages.k17_sasl_handshake import SaslHandshakeRequest
from headrace.wire.messages.k32_describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from headrace.wire.messages.k36_sasl_authenticate import SaslAuthenticateRequest
from headrace.wire.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.wire.messages.k50_describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from headrace.wire.messages.k51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)

SECRET = "planted-"
STORE, KEY, TRUST, USER, NODE, ALTERED, WRONG = (
    f"{SECRET}{what}" for what in ("store", "key", "trust", "user", "node", "altered", "wrong")
)
SALT = b"planted-salt"
BROKER = 4


@dataclass
class Planted:
    """A broker with secrets everywhere, what must be nowhere, and what it has said so far."""

    broker: TestBroker
    secrets: tuple[bytes, ...]

    def port(self, name: str) -> int:
        return self.broker.call(lambda inside: next(each.port for each in inside.listeners if each.name == name))

    def check(self, data: bytes, where: str) -> None:
        for secret in self.secrets:
            assert secret not in data, f"{where} says {secret!r}"


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planted]:
    folder = tmp_path_factory.mktemp("secrets")
    authority = Authority.new()
    inline = authority.server()
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,FILES://127.0.0.1:0,INLINE://127.0.0.1:0",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,FILES:SASL_SSL,INLINE:SSL",
        "listener.name.files.ssl.keystore.location": str(authority.server().write_pkcs12(folder / "s.p12", STORE)),
        "listener.name.files.ssl.keystore.type": "PKCS12",
        "listener.name.files.ssl.keystore.password": STORE,
        "listener.name.files.ssl.truststore.location": str(write_trust_pkcs12(folder / "t.p12", [authority], TRUST)),
        "listener.name.files.ssl.truststore.type": "PKCS12",
        "listener.name.files.ssl.truststore.password": TRUST,
        "listener.name.inline.ssl.keystore.type": "PEM",
        "listener.name.inline.ssl.keystore.key": inline.key_pem(KEY),
        "listener.name.inline.ssl.keystore.certificate.chain": inline.chain_pem(),
        "listener.name.inline.ssl.key.password": KEY,
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.files.plain.sasl.jaas.config": (
            f'{PLAIN_MODULE} required username="node" password="{NODE}" user_ann="{USER}";'
        ),
        "sasl.jaas.config": f'{PLAIN_MODULE} required username="node" password="{NODE}";',
        "self.topics": "true",
        "metrics.listener": "127.0.0.1:0",
        "connection.failed.authentication.delay.ms": "10",
    }
    salted = salted_password(SCRAM_SHA_256, USER.encode(), SALT, 4096)
    with running_broker(settings) as running:
        with Raw(running.call(lambda inside: inside.listeners[0].port)) as raw:
            made = [ScramCredentialUpsertion("ann", SCRAM_SHA_256.code, 4096, SALT, salted)]
            assert raw.ask(AlterUserScramCredentialsRequest([], made), 0).results[0].error_code == 0
        stored = running.call(lambda inside: next(iter(inside.image.kept.scram.values())))
        body = inline.key_pem(KEY).splitlines()[2].encode()
        keys = [bytes(stored.stored_key), bytes(stored.server_key), salted]
        texts = [base64.b64encode(key) for key in (*keys, SALT)]
        yield Planted(running, (SECRET.encode(), body, *keys, *texts))


def test_answers(planted: Planted) -> None:
    with Raw(planted.port("PLAINTEXT")) as raw:
        resources = [DescribeConfigsResource(BROKER, name, None) for name in ("1", "")]
        raw.send(DescribeConfigsRequest(resources, include_synonyms=True, include_documentation=True), 4)
        described = raw.receive_frame()
        assert b"ssl.keystore.password" in described
        planted.check(described, "DescribeConfigs")
        raw.send(DescribeUserScramCredentialsRequest(None), 0)
        planted.check(raw.receive_frame(), "DescribeUserScramCredentials")


def test_settings_that_are_altered(planted: Planted) -> None:
    sensitive = [name for name, setting in BROKER_SETTINGS.items() if setting.sensitive]
    names = [f"listener.name.files.{name}" for name in sensitive] + sensitive
    with Raw(planted.port("PLAINTEXT")) as raw:
        for name in names:
            changes = [AlterableConfig(name, 0, ALTERED)]
            raw.send(IncrementalAlterConfigsRequest([AlterConfigsResource(BROKER, "1", changes)]), 1)
            planted.check(raw.receive_frame(), f"IncrementalAlterConfigs of {name}")
    test_answers(planted)


def test_logins(planted: Planted, capfd: pytest.CaptureFixture[str]) -> None:
    before = planted.broker.call(lambda inside: inside.server.shared.logins.failed.value)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with Raw(planted.port("FILES")) as plain, context.wrap_socket(plain.socket) as link:
        raw = Raw.over(link)
        assert raw.ask(SaslHandshakeRequest("PLAIN"), 1).error_code == 0
        raw.send(SaslAuthenticateRequest(f"\0ann\0{WRONG}".encode()), 2)
        planted.check(raw.receive_frame(), "SaslAuthenticate")
        assert raw.is_closed()
    assert planted.broker.call(lambda inside: inside.server.shared.logins.failed.value) == before + 1
    said = capfd.readouterr()
    planted.check((said.out + said.err).encode(), "the log")


def test_the_page_of_metrics(planted: Planted) -> None:
    link = http.client.HTTPConnection("127.0.0.1", planted.broker.inside.monitor.port or 0, timeout=60)
    for path in ("/metrics", "/health", "/", "/nothing"):
        link.request("GET", path)
        answer = link.getresponse()
        planted.check(answer.read() + str(answer.headers).encode(), path)
    link.close()


def test_topics_of_its_own(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_topics, "TICK_S", 0.02)
    deadline = time.monotonic() + 60
    while not (files := list(planted.broker.data.glob(f"{self_topics.LOGS_TOPIC}-*/*.log"))):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    for file in files:
        planted.check(file.read_bytes(), str(file))


def test_what_is_said_of_values(planted: Planted) -> None:
    config: BrokerConfig = planted.broker.call(lambda inside: inside.config)
    for listener in ("files", "inline"):
        own = config.of_listener(listener.upper())
        planted.check(repr((own, own.mechanism("PLAIN"), tls_of(own, "SSL"))).encode(), "repr")
    planted.check(repr(TlsMaterial(key=KEY.encode())).encode(), "repr")
    planted.check(repr(config).encode(), "repr")


@pytest.mark.parametrize(
    "line",
    [
        WRONG,
        f"{WRONG} required;",
        f"{PLAIN_MODULE} required password=my {WRONG};",
        f"{PLAIN_MODULE} required password=my {WRONG} =7;",
        f'{PLAIN_MODULE} required password="a"{WRONG}";',
        f"{PLAIN_MODULE} required password={WRONG}",
        f"{PLAIN_MODULE} {WRONG} password=x;",
    ],
)
def test_lines_that_cannot_be_read_are_not_shown(line: str) -> None:
    with pytest.raises(JaasError) as error:
        parse_jaas(line)
    assert WRONG not in str(error.value)


@pytest.mark.parametrize("name", [name for name, setting in BROKER_SETTINGS.items() if setting.sensitive])
def test_settings_that_cannot_be_are_not_shown(name: str) -> None:
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0,LOGIN://127.0.0.1:0",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,LOGIN:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        f"listener.name.ssl.{name}": WRONG,
        f"listener.name.login.plain.{name}" if name == "sasl.jaas.config" else f"listener.name.login.{name}": WRONG,
    }
    with pytest.raises(ConfigError) as error, running_broker(settings):
        pass
    assert WRONG not in str(error.value) and WRONG not in repr(error.value)


def test_files_are_for_nobody_else_and_their_dump_hides_secrets(tmp_path: Path) -> None:
    data = tmp_path / "data"
    before = os.umask(0o022)
    try:
        with running_broker(data=data) as running:
            create_topic(running.port, "kept")
            with Raw(running.port) as raw:
                salted = salted_password(SCRAM_SHA_256, USER.encode(), SALT, 4096)
                made = [ScramCredentialUpsertion("ann", SCRAM_SHA_256.code, 4096, SALT, salted)]
                assert raw.ask(AlterUserScramCredentialsRequest([], made), 0).results[0].error_code == 0
            stored = running.call(lambda inside: next(iter(inside.image.kept.scram.values())))
    finally:
        os.umask(before)
    for path in [data, *data.rglob("*")]:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode & 0o077 == 0, (path, oct(mode))
    segments = sorted((data / "__cluster_metadata-0").glob("*.log"))
    said = "".join(
        CliRunner().invoke(main, ["log", "dump", str(segment), "--json", "--records"]).stdout for segment in segments
    )
    shown = [json.loads(line) for line in said.splitlines() if "UserScramCredentialRecord" in line]
    assert [(each["name"], each["salt"]) for each in shown] == [("ann", "(hidden)")]
    for secret in (stored.stored_key, stored.server_key, SALT):
        assert base64.b64encode(bytes(secret)).decode() not in said and SALT.decode() not in said
