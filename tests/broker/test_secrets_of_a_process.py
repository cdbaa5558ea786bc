"""`headrace serve -v` with a secret of each kind: what it writes to its log, answers, serves as pages and leaves on
disk, and what our commands say of it, shows none of them. `test_secrets.py` looks at each place by itself."""

from __future__ import annotations

import base64
import http.client
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from broker.bearer import message
from broker.bearer import token as signed_token
from broker.raw import Raw, create_topic
from broker.sasl import add_users_at, handshake, scram
from broker.sasl import token as send_token
from broker.tokens import create, expire, login_with, renew
from click.testing import CliRunner
from peers.certificates import Authority, write_trust_pkcs12
from peers.headrace import HeadracePeer
from peers.kafka import free_port
from security.oauthbearer.issuing import jwks

from headrace.cli import main
from headrace.client.cluster import Client
from headrace.client.security import security_of
from headrace.config import BROKER_SETTINGS, ConfigError
from headrace.security.jaas import OAUTHBEARER_MODULE, PLAIN_MODULE, SCRAM_MODULE
from headrace.wire import uuids
from headrace.wire.messages.k32_describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from headrace.wire.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

STORE, TRUST, KEY, NODE, PLAIN, SCRAM, TOKENS, METRICS, OAUTH, UNKNOWN, WRONG, ALTERED = (
    f"planted-{what}"
    for what in (
        "store", "trust", "key", "node", "plain", "scram", "tokens", "metrics", "oauth", "unknown", "wrong", "altered",
    )
)  # fmt: skip
"""Passwords, keys and tokens; whoever finds `planted-` anywhere has found one of them."""
SIGNED = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"


@dataclass
class Planted:
    """The broker, and all that was heard so far, by where."""

    peer: HeadracePeer
    ports: dict[str, int]
    folder: Path
    secrets: list[bytes] = field(default_factory=lambda: [b"planted-"])
    heard: dict[str, bytes] = field(default_factory=dict)

    def keep(self, *texts: str | bytes) -> None:
        """Secrets, in text and in base64."""
        for text in texts:
            data = text.encode() if isinstance(text, str) else text
            self.secrets += [data, base64.b64encode(data)]

    def file(self, name: str, text: str) -> str:
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def command(self, *arguments: str) -> None:
        """One of ours, whatever it ends with; its output and its traceback, where there is one, are heard."""
        done = CliRunner().invoke(main, list(arguments))
        trace = "".join(traceback.format_exception(*done.exc_info)) if done.exc_info else ""
        self.heard[" ".join(arguments)[:60]] = (done.output + done.stderr + trace).encode()


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planted]:
    folder = tmp_path_factory.mktemp("planted")
    ports = {name: free_port() for name in ("PLAINTEXT", "LOGINS", "STORES", "INLINE", "metrics")}
    authority = Authority.new()
    inline = authority.server()
    keys = folder / "keys.json"
    keys.write_bytes(jwks())
    inline_key = inline.key_pem(KEY).replace("\n", "\\n")
    settings = {
        "node.id": "1",
        "process.roles": "broker,controller",
        "log.dirs": str(folder / "data"),
        "listeners": ",".join(f"{name}://127.0.0.1:{ports[name]}" for name in ports if name != "metrics"),
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGINS:SASL_PLAINTEXT,STORES:SASL_SSL,INLINE:SSL",
        "listener.name.stores.ssl.keystore.location": str(authority.server().write_pkcs12(folder / "s.p12", STORE)),
        "listener.name.stores.ssl.keystore.type": "PKCS12",
        "listener.name.stores.ssl.keystore.password": STORE,
        "listener.name.stores.ssl.truststore.location": str(write_trust_pkcs12(folder / "t.p12", [authority], TRUST)),
        "listener.name.stores.ssl.truststore.type": "PKCS12",
        "listener.name.stores.ssl.truststore.password": TRUST,
        "listener.name.inline.ssl.keystore.type": "PEM",
        "listener.name.inline.ssl.keystore.key": inline_key,
        "listener.name.inline.ssl.keystore.certificate.chain": inline.chain_pem().replace("\n", "\\n"),
        "listener.name.inline.ssl.key.password": KEY,
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
        **{
            f"listener.name.{each}.plain.sasl.jaas.config": f'{PLAIN_MODULE} required username="node" '
            f'password="{NODE}" user_ann="{PLAIN}";'
            for each in ("logins", "stores")
        },
        "sasl.jaas.config": f'{SCRAM_MODULE} required username="node" password="{NODE}";',
        **{
            f"listener.name.{each}.oauthbearer.sasl.jaas.config": f'{OAUTHBEARER_MODULE} required '
            f'clientId="headrace" clientSecret="{OAUTH}";'
            for each in ("logins", "stores")
        },
        **{
            f"listener.name.{each}.oauthbearer.sasl.server.callback.handler.class": SIGNED
            for each in ("logins", "stores")
        },
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.allowed.urls": keys.as_uri(),
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.expected.issuer": "https://issuer",
        "listener.name.stores.custom.password": UNKNOWN,
        "some.plugin.secret": UNKNOWN,
        "delegation.token.secret.key": TOKENS,
        "metrics.listener": f"127.0.0.1:{ports['metrics']}",
        "metrics.token": METRICS,
        "self.topics": "true",
        "connection.failed.authentication.delay.ms": "10",
    }  # fmt: skip
    file = folder / "server.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    peer = HeadracePeer(folder / "peer", properties=file, port=ports["PLAINTEXT"], options=["-v"])
    peer.settings = {}
    made = Planted(peer, ports, folder)
    made.keep(*(line for line in inline.key_pem(KEY).splitlines()[1:-1]))
    with peer:
        yield made


def use(planted: Planted) -> None:
    """Logins of every kind that succeed and fail, tokens, settings that are altered and described."""
    ports = planted.ports
    create_topic(ports["PLAINTEXT"], "kept")
    add_users_at(ports["PLAINTEXT"], bob=SCRAM)

    def logged_in(raw: Raw, mechanism: str, first: bytes) -> None:
        assert handshake(raw, mechanism).error_code == 0
        send_token(raw, first)

    good, forged = signed_token(), signed_token(key_id=None)
    planted.keep(good.rpartition(".")[2], good, forged.rpartition(".")[2] or forged)
    for mechanism, first in (
        ("PLAIN", f"\0ann\0{PLAIN}"), ("PLAIN", f"\0ann\0{WRONG}"), ("PLAIN", f"{WRONG}\0ann\0{PLAIN}"),
        ("OAUTHBEARER", message(good).decode()), ("OAUTHBEARER", message(good[:-4] + "AAAA").decode()),
        ("OAUTHBEARER", message(forged).decode()), ("OAUTHBEARER", message(WRONG).decode()),
        ("SCRAM-SHA-256", WRONG),
    ):  # fmt: skip
        with Raw(ports["LOGINS"]) as raw:
            logged_in(raw, mechanism, first.encode())
    with Raw(ports["LOGINS"]) as raw:
        assert scram(raw, "bob", WRONG).error_code != 0
    with Raw(ports["LOGINS"]) as raw:
        assert scram(raw, "bob", SCRAM).error_code == 0
        made = create(raw)
        planted.keep(bytes(made.hmac))
        assert renew(raw, made.hmac).error_code == 0
        assert renew(raw, WRONG.encode()).error_code != 0
    with Raw(ports["LOGINS"]) as token:
        assert login_with(token, made.token_id, bytes(made.hmac)).error_code == 0
    with Raw(ports["LOGINS"]) as token:
        assert login_with(token, made.token_id, WRONG.encode()).error_code != 0
    with Raw(ports["LOGINS"]) as raw:
        assert scram(raw, "bob", SCRAM).error_code == 0
        assert expire(raw, made.hmac).error_code == 0
    with Raw(ports["PLAINTEXT"]) as raw:
        sensitive = [name for name, setting in BROKER_SETTINGS.items() if setting.sensitive]
        for name in (*sensitive, *(f"listener.name.stores.{each}" for each in sensitive), "some.plugin.secret"):
            changes = [AlterableConfig(name, 0, ALTERED)]
            raw.send(IncrementalAlterConfigsRequest([AlterConfigsResource(4, "1", changes)]), 1)
            planted.heard[f"altering {name}"] = raw.receive_frame()
        about = [DescribeConfigsResource(4, "1", None), DescribeConfigsResource(4, "", None)]
        raw.send(DescribeConfigsRequest(about, include_synonyms=True, include_documentation=True), 4)
        planted.heard["DescribeConfigs"] = raw.receive_frame()


def ask_pages(planted: Planted) -> None:
    link = http.client.HTTPConnection("127.0.0.1", planted.ports["metrics"], timeout=60)
    for path in ("/metrics", "/livez", "/readyz", "/nothing"):
        for token in (METRICS, WRONG):
            link.request("GET", path, headers={"Authorization": f"Bearer {token}"})
            answer = link.getresponse()
            planted.heard[f"{path} with {token}"] = answer.read() + str(answer.headers).encode()
    link.close()


def run_commands(planted: Planted) -> None:
    """Ours, with what succeeds and with what is wrong."""
    where = ("--bootstrap", f"127.0.0.1:{planted.ports['PLAINTEXT']}")
    planted.command("config", "describe", "broker", "1", *where)
    planted.command("config", "describe", "broker", "1", "--json", *where)
    planted.command("user", "list", *where)
    planted.command("config", "alter", "broker", "1", "--set", f"listener.name.stores.ssl.key.password={WRONG}", *where)
    planted.command("security", "check", str(planted.peer.file))
    planted.command("storage", "info", "--config", str(planted.peer.file))
    for jaas in (
        f'{PLAIN_MODULE} required username="ann" password="{WRONG}";', f"{PLAIN_MODULE} required {WRONG}",
        f'{OAUTHBEARER_MODULE} required clientId="a" clientSecret="{WRONG}";',
    ):  # fmt: skip
        for mechanism in ("PLAIN", "OAUTHBEARER", "SCRAM-SHA-256", "OTHER"):
            text = f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config={jaas}\n"
            text += f"sasl.oauthbearer.client.credentials.client.secret={WRONG}\n"
            file = planted.file("client.properties", text)
            logins = ("--bootstrap", f"127.0.0.1:{planted.ports['LOGINS']}", "--timeout", "2")
            planted.command("topic", "list", "--command-config", file, *logins)
    text = f"security.protocol=SSL\nssl.keystore.location={planted.folder / 's.p12'}\nssl.keystore.password={WRONG}\n"
    file = planted.file("client.properties", text + f"ssl.truststore.certificates={WRONG}\n")
    planted.command("topic", "list", "--command-config", file, *where)
    scrams = ("iterations=1", "iterations=x", "salt=%", "what=1", "saltedpassword=!")
    for each in (f"SCRAM-SHA-256=[name=a,password={WRONG},{more}]" for more in scrams):
        planted.command(
            "storage", "format", "-t", uuids.to_text(bytes(15) + b"1"), "-c", str(planted.peer.file),
            "--add-scram", each,
        )  # fmt: skip


def look_at_values(planted: Planted) -> None:
    """`repr` and errors with their tracebacks, of a client."""
    given: dict[str, str] = {
        "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "ssl.truststore.password": TRUST,
        "ssl.truststore.type": "PKCS12", "ssl.truststore.location": str(planted.folder / "t.p12"),
        "sasl.jaas.config": f'{PLAIN_MODULE} required username="ann" password="{PLAIN}";',
    }  # fmt: skip
    security = security_of(given)
    with Client(f"127.0.0.1:{planted.ports['STORES']}", timeout_s=5, security=security) as client:
        shown: list[Any] = [security, security.open(), security.open().credentials, client, vars(client)]
        planted.heard["repr of a client"] = repr(shown).encode()
    wrong = {
        "sasl.jaas.config": f"{PLAIN_MODULE} required {WRONG}", "ssl.truststore.password": WRONG,
        "ssl.keystore.key": WRONG, "ssl.truststore.certificates": WRONG, "ssl.keystore.certificate.chain": WRONG,
    }  # fmt: skip
    for name, text in wrong.items():
        changed = {**given, name: text}
        if name != "ssl.truststore.password":
            changed |= {"ssl.keystore.type": "PEM", "ssl.truststore.type": "PEM"}
            del changed["ssl.truststore.location"], changed["ssl.truststore.password"]
        with pytest.raises(ConfigError) as error:
            security_of(changed).open()
        planted.heard[f"error of {name}"] = "".join(traceback.format_exception(error.value)).encode()


def dump_everything(planted: Planted) -> None:
    """Logs and snapshots, ours and of the broker's own topics."""
    for path in sorted((planted.folder / "data").rglob("*")):
        if path.suffix in (".log", ".checkpoint"):
            planted.command("log", "dump", str(path), "--records")
            planted.command("log", "dump", str(path), "--records", "--json")
        if path.is_file() and "__cluster_metadata" not in str(path) and path.name != "bootstrap.checkpoint":
            planted.heard[str(path)] = path.read_bytes()


def test_nothing_shows_a_secret(planted: Planted) -> None:
    use(planted)
    ask_pages(planted)
    run_commands(planted)
    look_at_values(planted)
    assert planted.peer.stop() == 0
    dump_everything(planted)
    log = planted.heard["the log"] = planted.peer.log.read_bytes()
    for words in (b"a login failed", b"token refused", b"some.plugin.secret is not a setting"):
        assert words in log
    shown = [(where, secret) for where, data in planted.heard.items() for secret in planted.secrets if secret in data]
    assert not shown
