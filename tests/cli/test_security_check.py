"""`headrace security check`, and what `headrace serve` says of listeners that are open."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cli.test_serve import serving
from click.testing import CliRunner
from peers.certificates import Authority
from security.test_keytab import entry, keytab

from headrace.cli import main
from headrace.config.security_table import STANDARD_AUTHORIZER

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def check(tmp_path: Path, settings: dict[str, str], code: int) -> str:
    path = tmp_path / "server.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    done = CliRunner().invoke(main, ["security", "check", str(path)])
    assert done.exit_code == code, (done.output, done.exception)
    again = CliRunner().invoke(main, ["security", "check", str(path), "--json"])
    assert again.exit_code == code and bool(json.loads(again.stdout)["open"]) == (code == 1)
    return done.stdout


BASE = {"process.roles": "broker,controller", "node.id": "1"}


def test_what_is_open(tmp_path: Path) -> None:
    said = check(
        tmp_path, {**BASE, "listeners": "PLAINTEXT://0.0.0.0:9092", "advertised.listeners": "PLAINTEXT://h:1"}, 1
    )
    assert said.splitlines() == [
        "Listener PLAINTEXT at 0.0.0.0:9092 is not encrypted. Anyone who reaches it is let in, as User:ANONYMOUS. "
        "Other machines can reach it.",
        "There is no authorizer: every client may do everything.",
        "No super users are named.",
        "The node is alone in its cluster, and connects to no other node.",
        "Open beyond this machine, without a login: PLAINTEXT.",
    ]


@pytest.mark.parametrize(
    ("host", "is_open"),
    [("127.0.0.1", False), ("localhost", False), ("[::1]", False), ("127.9.9.9", False), ("", True), ("[::]", True),
     ("broker.example", True), ("[::ffff:127.0.0.1]", False), ("10.0.0.1", True), ("localhost.example", True)],
)  # fmt: skip
def test_what_is_this_machine(tmp_path: Path, host: str, is_open: bool) -> None:
    settings = {**BASE, "listeners": f"PLAINTEXT://{host}:9092", "advertised.listeners": "PLAINTEXT://h:1"}
    check(tmp_path, settings, 1 if is_open else 0)


def tls(tmp_path: Path, **more: str) -> dict[str, str]:
    return {
        **BASE,
        "listeners": "SSL://0.0.0.0:9093",
        "advertised.listeners": "SSL://h:1",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(tmp_path / "server.pem"),
        **{name.replace("_", "."): value for name, value in more.items()},
    }


@pytest.mark.parametrize(
    ("asked", "words", "code"),
    [
        ("none", "Anyone who reaches it is let in, as User:ANONYMOUS", 1),
        ("requested", "without one as User:ANONYMOUS", 1),
        ("required", "Clients need a certificate that the trust store vouches for", 0),
    ],
)
def test_tls_alone_asks_nobody_who_they_are(tmp_path: Path, asked: str, words: str, code: int) -> None:
    said = check(tmp_path, tls(tmp_path, ssl_client_auth=asked), code)
    assert "is encrypted (TLS)" in said and words in said


def test_logins_rights_and_nodes(tmp_path: Path) -> None:
    settings = {
        **BASE,
        "listeners": "OUT://:9094,IN://:9095,CTL://10.0.0.1:9096",
        "advertised.listeners": "OUT://h:1,IN://h:2",
        "listener.security.protocol.map": "OUT:SASL_PLAINTEXT,IN:SASL_SSL,CTL:SSL",
        "listener.name.ctl.ssl.client.auth": "required",
        "controller.listener.names": "CTL",
        "controller.quorum.voters": "1@10.0.0.1:9096",
        "inter.broker.listener.name": "IN",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "ssl.keystore.location": "x",
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:admin;User:node",
        "allow.everyone.if.no.acl.found": "true",
        "listener.name.out.plain.sasl.jaas.config": f'{PLAIN} required user_a="hunter2";',
        "metrics.listener": "0.0.0.0:9404",
    }
    said = check(tmp_path, settings, 0)
    assert "hunter2" not in said
    for words in (
        "Listener OUT at 0.0.0.0:9094 is not encrypted: PLAIN sends passwords that others can read. Clients log in by "
        "PLAIN or SCRAM-SHA-256.",
        "Listener IN at 0.0.0.0:9095 is encrypted (TLS). Clients log in by",
        "Listener CTL at 10.0.0.1:9096 is encrypted (TLS). Clients need a certificate",
        "Everyone may use what no ACL names",
        "Super users may do everything: User:admin, User:node.",
        "brokers use listener IN: encrypted (TLS), and nodes log in by SCRAM-SHA-256.",
        "controllers use listener CTL: encrypted (TLS), and nodes show certificates.",
        "Metrics are served at 0.0.0.0:9404 over HTTP",
        "Nothing beyond this machine is open to clients without a login.",
    ):
        assert words in said, said


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({}, "over HTTP, to anyone who reaches them; they name topics."),
        ({"metrics.token": "hunter2"}, "over HTTP, to clients that send the token."),
        ({"metrics.token": "hunter2", "metrics.protocol": "SSL"}, "over HTTPS, to clients that send the token."),
    ],
)
def test_who_may_read_the_metrics(tmp_path: Path, settings: dict[str, str], sentence: str) -> None:
    tls = {"listener.name.metrics.ssl.keystore.location": str(tmp_path / "x")}
    said = check(tmp_path, {**BASE, "metrics.listener": "0.0.0.0:9404", **tls, **settings}, 0)
    assert f"Metrics are served at 0.0.0.0:9404 {sentence}" in said
    assert "hunter2" not in said


KERBEROS = "com.sun.security.auth.module.Krb5LoginModule"


def said_of_keytab(tmp_path: Path, options: str | None) -> str:
    """What is said of a listener whose JAAS line has these options, behind who may reach it."""
    settings = {
        **BASE,
        "listeners": "OUT://:9094",
        "advertised.listeners": "OUT://h:1",
        "listener.security.protocol.map": "OUT:SASL_SSL",
        "ssl.keystore.location": "x",
        "sasl.enabled.mechanisms": "GSSAPI,SCRAM-SHA-256",
        "sasl.kerberos.service.name": "kafka",
    }
    if options is not None:
        settings["listener.name.out.gssapi.sasl.jaas.config"] = f"{KERBEROS} required {options};"
    return check(tmp_path, settings, 0).splitlines()[0].partition("Other machines can reach it.")[2].strip()


def test_keytabs_that_listeners_name(tmp_path: Path) -> None:
    path = tmp_path / "kafka.keytab"
    options = f'useKeyTab=true storeKey=true keyTab="{path}" principal="kafka/h@R"'
    nobody = f"With the keytab {path} nobody can log in by Kerberos: "
    assert said_of_keytab(tmp_path, options) == nobody + "it is missing."
    path.write_bytes(keytab(entry("ann"), entry("kafka", "other")))
    lacks = "it has no key of kafka/h@R; it has keys of ann@R, kafka/other@R."
    assert said_of_keytab(tmp_path, options) == nobody + lacks
    path.write_bytes(keytab(*(entry(f"user-{n}") for n in range(9))))
    assert said_of_keytab(tmp_path, options).endswith("user-4@R and 4 more.")
    path.write_bytes(keytab())
    assert said_of_keytab(tmp_path, options).endswith("it has keys of nobody.")
    path.write_bytes(b"-----BEGIN CERTIFICATE-----")
    assert said_of_keytab(tmp_path, options) == nobody + "it is no keytab."
    path.write_bytes(keytab(entry("kafka", "h")))
    assert said_of_keytab(tmp_path, options) == said_of_keytab(tmp_path, options.replace("@R", "")) == ""
    path.unlink()
    path.mkdir()
    assert said_of_keytab(tmp_path, options) == nobody + "it cannot be read: Is a directory."


def test_a_listener_of_kerberos_without_a_keytab(tmp_path: Path) -> None:
    nobody = "Nobody can log in by Kerberos: "
    assert said_of_keytab(tmp_path, None).startswith(nobody)
    assert "a listener needs useKeyTab=true" in said_of_keytab(tmp_path, "useTicketCache=true")


def test_a_file_that_no_broker_would_take(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("listeners=SSL://0.0.0.0:9093\n")
    done = CliRunner().invoke(main, ["security", "check", str(path)])
    assert done.exit_code == 2 and "needs listener.name.ssl.ssl.keystore.location" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert CliRunner().invoke(main, ["security", "check", str(tmp_path / "none")]).exit_code == 4


def refused(*arguments: str) -> str:
    command = [sys.executable, "-m", "headrace.cli", "serve", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and done.stdout == ""
    return done.stderr.splitlines()[-1]


OPEN = ("--listen", "0.0.0.0:0", "--advertise", "127.0.0.1:9092", "--set", "metrics.listener=-1")


def test_serve_names_a_listener_that_is_open(tmp_path: Path) -> None:
    with serving("--data", str(tmp_path / "a"), *OPEN) as (process, _):
        process.terminate()
        _, errors = process.communicate(timeout=30)
    lines = [line for line in errors.splitlines() if "lets in anyone who reaches it" in line]
    assert len(lines) == 1 and "listener PLAINTEXT at 0.0.0.0:0" in lines[0]
    with serving("--data", str(tmp_path / "b"), "--listen", "127.0.0.1:0") as (process, _):
        process.terminate()
        _, errors = process.communicate(timeout=30)
    assert "lets in anyone who reaches it" not in errors


def test_strict_refuses_it(tmp_path: Path) -> None:
    line = refused("--data", str(tmp_path), *OPEN, "--set", "security.strict=true")
    assert "lets in anyone who reaches it, without a login, and security.strict=true refuses that" in line
    assert not (tmp_path / "meta.properties").exists()


def test_strict_serves_what_asks(tmp_path: Path) -> None:
    Authority.new().server().write_pem(tmp_path / "server.pem")
    settings: dict[str, Any] = {
        **tls(tmp_path), "listeners": "SASL_SSL://0.0.0.0:0", "advertised.listeners": "SASL_SSL://localhost:0",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256", "security.strict": "true", "metrics.listener": "-1",
        "log.dirs": str(tmp_path / "data"),
    }  # fmt: skip
    path = tmp_path / "server.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    with serving(str(path)) as (process, port):
        assert port
        process.terminate()
