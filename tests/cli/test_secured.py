"""Commands against a broker that wants TLS and a login: what they need, and what they say where that is wrong."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli.commanding import Run, command, one_line
from peers.certificates import Authority, write_trust_pem
from peers.secured import Secured

from headrace.cli.failures import failure_of
from headrace.client.login import NotLoggedInError
from headrace.testing.running import broker as running_broker


def test_a_file_of_properties_logs_in(secured: Secured, root: Run, root_json: Callable[..., Any]) -> None:
    root("topic", "create", "in-private", "-p", "2")
    root("produce", "in-private", stdin="a\nb\n")
    assert sorted(root("consume", "in-private").stdout.split()) == ["a", "b"]
    assert "in-private" in [each["topic"] for each in root_json("topic", "list")]
    assert root("cluster", "describe").stdout


def test_the_variable_names_the_file_too(secured: Secured) -> None:
    environment = {
        "HEADRACE_BOOTSTRAP": secured.bootstrap(),
        "HEADRACE_COMMAND_CONFIG": secured.file(secured.root(), "by-variable.properties"),
    }
    command("topic", "list", code=0, stdin=None, **environment)
    environment["HEADRACE_COMMAND_CONFIG"] = ""
    command("topic", "list", "--timeout", "2", code=3, stdin=None, **environment)


def test_a_failed_login_is_one_line_with_a_hint_and_at_once(secured: Secured) -> None:
    started = time.monotonic()
    for name, password in (("root", "not-it"), ("nobody", "not-it")):
        wrong = secured.file(secured.properties(name, password, "PLAIN"), "wrong.properties")
        done = command("topic", "list", "-b", secured.bootstrap(), "--command-config", wrong, code=1)
        line = one_line(done)
        assert line.startswith("headrace: ") and "refuses the login" in line and "not-it" not in line
        assert "check the user and the password in sasl.jaas.config" in line
    assert time.monotonic() - started < 10


def test_a_mechanism_that_is_not_offered_names_those_that_are(tmp_path: Path) -> None:
    made = Secured(tmp_path)
    made.settings["sasl.enabled.mechanisms"] = "PLAIN"
    with running_broker(made.settings) as made.broker:
        config = made.file(made.properties("root", "x", "SCRAM-SHA-256"))
        line = one_line(command("topic", "list", "-b", made.bootstrap(), "--command-config", config, code=1))
    assert "does not log clients in by SCRAM-SHA-256; it serves PLAIN; sasl.mechanism says" in line


def test_the_hint_is_of_the_mechanism(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\nsasl.oauthbearer.token.variable=NOBODYS_TOKEN\n"
    )
    line = one_line(command("topic", "list", "-b", "127.0.0.1:1", "--command-config", str(path), code=1))
    assert "NOBODYS_TOKEN holds no token; check the token: sasl.oauthbearer.token" in line
    for mechanism, words in (
        ("GSSAPI", "check the keytab or the tickets"),
        ("SCRAM-SHA-512", "check the user and the password"),
    ):
        error = pickle.loads(pickle.dumps(NotLoggedInError("no login at x:1", mechanism)))
        failure = failure_of(error)
        assert failure is not None and failure.message.startswith(f"no login at x:1; {words}")


def test_a_certificate_that_is_not_believed_is_one_line_with_a_hint_and_at_once(secured: Secured) -> None:
    other = write_trust_pem(secured.folder / "other.pem", [Authority.new()])
    config = secured.file({**secured.root(), "ssl.truststore.location": str(other)}, "stranger.properties")
    started = time.monotonic()
    line = one_line(command("topic", "list", "-b", secured.bootstrap(), "--command-config", config, code=1))
    assert "the certificate is not believed" in line and "ssl.truststore.location" in line
    host, _, port = secured.bootstrap().partition(":")
    assert time.monotonic() - started < 10 and host == "localhost" and port


def test_without_properties_the_line_says_what_may_be_missing(secured: Secured) -> None:
    line = one_line(command("topic", "list", "-b", secured.bootstrap("SSL"), "--timeout", "3", code=3))
    assert line.endswith("a broker that wants TLS or a login hangs up like that: see --command-config and --profile")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("security.protocol=TLS", "String must be one of: PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ("security.protocol=SSL\nssl.truststore.location=/nowhere/ca.pem\nssl.truststore.type=PEM", "/nowhere/ca.pem"),
        ("security.protocol=SASL_SSL", "GSSAPI"),
        ("security.protocol=SASL_SSL\nsasl.mechanism=PLAIN", "PLAIN needs"),
        ("security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config=x y=hunter2", "sasl.jaas.config"),
        ("ssl.keystore.password=\\uhunter2", "four hexadecimal digits"),
        ("security.protocol=SSL\nssl.keystore.type=PEM\nssl.keystore.key=hunter2", "ssl.keystore"),
    ],
)
def test_a_wrong_value_is_one_line_without_secrets(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "client.properties"
    path.write_text(text)
    line = one_line(command("topic", "list", "-b", "127.0.0.1:1", "--command-config", str(path), code=2))
    assert line.startswith(f"headrace: {path}: ") and words in line and "hunter2" not in line


def test_a_file_that_is_not_there_is_wrong_usage(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        assert str(path) in one_line(command("topic", "list", "--command-config", str(path), code=2))


def test_pipelines_check_their_files_before_spark_starts(tmp_path: Path) -> None:
    wrong = tmp_path / "client.properties"
    wrong.write_text("security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config=password hunter2")
    state = str(tmp_path / "state")
    for arguments in (
        ["surge", "--from", "a", "--to", "b", "--checkpoint", state, "--command-config", str(wrong)],
        ["mirror", "--topics", "a", "--to-bootstrap", "x:1", "--checkpoint", state, "--command-config", str(wrong)],
        ["mirror", "--topics", "a", "--to-bootstrap", "x:1", "--checkpoint", state, "--to-command-config", str(wrong)],
    ):
        line = one_line(command("pipeline", "run", *arguments, code=2))
        assert str(wrong) in line and "hunter2" not in line
