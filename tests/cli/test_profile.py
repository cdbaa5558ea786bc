"""`headrace profile`, and where commands find their cluster: options, variables, profiles."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli.commanding import command, one_line
from peers.secured import ROOT_PASSWORD, Secured

from headrace.cli.access import access
from headrace.client.profiles import profiles_path, read_profiles
from headrace.client.security import PLAINTEXT
from headrace.config.client_properties import variable_of

Command = Callable[..., Any]
NOWHERE = "127.0.0.1:1"


@pytest.fixture(autouse=True)
def own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "profiles.json"
    monkeypatch.setenv("HEADRACE_PROFILES", str(path))
    return path


def test_a_profile_from_nothing(secured: Secured, own_file: Path) -> None:
    """It is added, used, shown without secrets, and removed."""
    config = secured.file(secured.root(), "root.properties")
    done = command("profile", "add", "prod", "-b", secured.bootstrap(), "--command-config", config)
    assert done.stdout == "kept profile prod\n"
    assert command("topic", "list", "--profile", "prod").exit_code == 0
    assert command("topic", "list", HEADRACE_PROFILE="prod").exit_code == 0
    command("topic", "list", "--timeout", "1", code=3, HEADRACE_BOOTSTRAP=NOWHERE)
    assert command("profile", "use", "prod").stdout == "profile prod is in use\n"
    assert command("topic", "list").exit_code == 0
    for arguments in (["list"], ["show"], ["show", "prod"], ["list", "--json"], ["show", "--json"]):
        shown = command("profile", *arguments).stdout
        assert secured.bootstrap() in shown and ("(hidden)" in shown or arguments == ["list"])
        assert ROOT_PASSWORD not in shown and "SASL_SSL" in shown
    assert json.loads(command("profile", "show", "--json").stdout)["properties"]["sasl.jaas.config"] == "(hidden)"
    line = one_line(command("profile", "add", "prod", "-b", NOWHERE, code=1))
    assert "there is a profile prod already; --replace" in line
    assert (
        "replaced profile prod, which is in use" in command("profile", "add", "prod", "-b", NOWHERE, "--replace").stdout
    )
    assert read_profiles().named("prod").properties == {"bootstrap.servers": NOWHERE}
    assert "--yes" in one_line(command("profile", "remove", "prod", code=2))
    assert command("profile", "remove", "prod", "-y").stdout == "removed profile prod\n"
    assert read_profiles().in_use is None
    line = one_line(command("topic", "list", "--profile", "prod", code=4))
    assert line == "headrace: there is no profile prod; there are: none; `headrace profile add` makes one"
    assert own_file.exists()


def test_properties_come_from_standard_input_and_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="hunter2";'
    text = f"bootstrap.servers=a:1\nsecurity.protocol=SASL_PLAINTEXT\nclient.id=x\nsasl.jaas.config={jaas}\n"
    command(
        "profile", "add", "dev", "--command-config", "-", "--property", "sasl.mechanism=PLAIN",
        "--property", "ssl.truststore.location=", "--use", stdin=text,
    )  # fmt: skip
    found = read_profiles()
    assert found.in_use == "dev" and set(found.named("dev").properties) == {
        "bootstrap.servers", "security.protocol", "sasl.jaas.config", "sasl.mechanism", "ssl.truststore.location",
    }  # fmt: skip
    (tmp_path / "stores").mkdir()
    command(
        "profile", "add", "tls", "-b", "b:2", "--property", "ssl.truststore.location=stores/ca.pem",
        "--property", "security.protocol=PLAINTEXT",
    )  # fmt: skip
    assert read_profiles().named("tls").properties["ssl.truststore.location"] == str(tmp_path / "stores/ca.pem")
    assert command("profile", "use", "--none").stdout == "no profile is in use\n"
    assert "no profile is in use" in one_line(command("profile", "show", code=2))


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["add", "x"], 2, "the profile is empty"),
        (["add", "a b", "-b", "x:1"], 2, "is no name of a profile"),
        (["add", "x", "-b", "x:y"], 2, "--bootstrap"),
        (["add", "x", "--property", "client.id=1"], 2, "there is no property client.id"),
        (["add", "x", "--property", "sasl.jaas.config=hunter2"], 2, "sasl.jaas.config is a secret"),
        (["add", "x", "--property", "security.protocol=SASL_SSL"], 2, "profile x: "),
        (["add", "x", "--command-config", "/nowhere/x"], 2, "/nowhere/x: No such file"),
        (["use"], 2, "give the NAME"),
        (["use", "x"], 4, "there is no profile x; there are: none"),
        (["show", "x"], 4, "there is no profile x"),
        (["remove", "x", "-y"], 4, "there is no profile x"),
    ],
)
def test_wrong_usage(arguments: list[str], code: int, words: str, own_file: Path) -> None:
    line = one_line(command("profile", *arguments, code=code))
    assert words in line and "hunter2" not in line
    assert not own_file.exists()


def test_a_file_that_cannot_be_used_is_one_line(own_file: Path) -> None:
    own_file.write_text("hunter2")
    for mode, words in ((0o600, "it is damaged"), (0o644, "chmod 600")):
        own_file.chmod(mode)
        for arguments in (["topic", "list"], ["topic", "list", "--profile", "x"], ["profile", "list"]):
            line = one_line(command(*arguments, code=1))
            assert str(own_file) in line and words in line and "hunter2" not in line
        # who says where the cluster is needs no profile
        command("topic", "list", "-b", NOWHERE, "--timeout", "1", code=3)


class Said:
    """What is said in each of the places of `access`, and what comes of it."""

    def __init__(self, folder: Path, environment: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.environment = environment

    def profile(self, name: str, **properties: str) -> None:
        pairs = [f"{key.replace('_', '.')}={text}" for key, text in properties.items()]
        command("profile", "add", name, *(part for pair in pairs for part in ("--property", pair)))

    def file(self, name: str, **properties: str) -> str:
        path = self.folder / name
        path.write_text("".join(f"{key.replace('_', '.')}={text}\n" for key, text in properties.items()))
        return str(path)

    def variable(self, name: str, text: str) -> None:
        self.environment.setenv(name, text)


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Said:
    return Said(tmp_path, monkeypatch)


def test_the_command_line_goes_before_variables_and_they_before_the_profile_in_use(said: Said) -> None:
    said.profile("used", bootstrap_servers="used:1", ssl_truststore_location="/used", ssl_keystore_location="/used")
    command("profile", "use", "used")

    def found(*given: str | None) -> tuple[str, dict[str, str]]:
        bootstrap, security = access(*given)
        return bootstrap, dict(security.settings)

    assert found(None, None, None) == ("used:1", {"ssl.keystore.location": "/used", "ssl.truststore.location": "/used"})
    # the profile in use is for its own brokers
    assert found("line:1", None, None) == ("line:1", {})
    said.profile("env", bootstrap_servers="env:1", ssl_truststore_location="/env", ssl_truststore_type="PEM")
    said.variable("HEADRACE_PROFILE", "env")
    assert found(None, None, None) == ("env:1", {"ssl.truststore.location": "/env", "ssl.truststore.type": "PEM"})
    said.variable("HEADRACE_COMMAND_CONFIG", said.file("env.properties", ssl_truststore_location="/file"))
    assert found(None, None, None)[1] == {"ssl.truststore.location": "/file", "ssl.truststore.type": "PEM"}
    said.variable("HEADRACE_SSL_TRUSTSTORE_LOCATION", "/variable")
    said.variable("HEADRACE_BOOTSTRAP_SERVERS", "variable:1")
    assert found(None, None, None)[0] == "variable:1"
    assert found(None, None, None)[1]["ssl.truststore.location"] == "/variable"
    said.profile("line", bootstrap_servers="profile:1", ssl_truststore_location="/line")
    assert found(None, None, "line")[0] == "profile:1"
    assert found(None, None, "line")[1]["ssl.truststore.location"] == "/line"
    config = said.file("line.properties", ssl_truststore_location="/config", bootstrap_servers="no:1")
    assert found("line:1", config, "line")[0] == "line:1"
    assert found(None, config, "line") == (
        "profile:1", {"ssl.truststore.location": "/config", "ssl.truststore.type": "PEM"},
    )  # fmt: skip
    said.variable("HEADRACE_BOOTSTRAP", "other:1")
    assert "name different brokers" in one_line(command("topic", "list", code=2))


def test_a_cluster_by_variables_alone(secured: Secured, said: Said) -> None:
    for name, text in secured.root().items():
        said.variable(variable_of(name), text)
    assert command("topic", "list", HEADRACE_BOOTSTRAP_SERVERS=secured.bootstrap()).exit_code == 0
    said.variable("HEADRACE_SASL_JAAS_CONFIG", "password hunter2")
    line = one_line(command("topic", "list", "-b", secured.bootstrap(), code=2))
    assert line.startswith("headrace: HEADRACE_SASL_JAAS_CONFIG: ") and "hunter2" not in line
    said.variable("HEADRACE_SASL_JAS_CONFIG", "hunter2")
    line = one_line(command("topic", "list", code=2))
    assert "HEADRACE_SASL_JAS_CONFIG: there is no property" in line and "hunter2" not in line


def test_help_names_the_variables_and_the_options_of_a_connection() -> None:
    whole, part = command("--help").stdout, command("topic", "list", "--help").stdout
    assert "`headrace --help`" in part
    for option in ("--bootstrap", "--profile", "--command-config", "--timeout"):
        assert option in whole and part.count(option) == (option == "--bootstrap")
    for name in (
        "HEADRACE_BOOTSTRAP_SERVERS",
        "HEADRACE_COMMAND_CONFIG",
        "HEADRACE_PROFILE",
        "HEADRACE_SECURITY_PROTOCOL",
    ):
        assert name in whole


def test_pipelines_take_profiles(said: Said, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    run = ("pipeline", "run", "mirror", "--topics", "a", "--checkpoint", str(tmp_path / "state"), "--timeout", "1")
    assert "give --to-bootstrap" in one_line(command(*run, code=2))
    said.profile("bare", ssl_truststore_type="PEM")
    assert "give --to-bootstrap" in one_line(command(*run, "--to-profile", "bare", code=2))
    said.profile("there", bootstrap_servers=NOWHERE)
    assert "there is no profile none" in one_line(command(*run, "--to-profile", "none", code=4))
    line = one_line(command(*run, "--profile", "there", "--to-profile", "there", code=3))
    assert NOWHERE in line and profiles_path().exists()


def test_who_has_no_home_has_no_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    def home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("HEADRACE_PROFILES")
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setattr(Path, "home", home)
    assert access(None, None, None) == ("127.0.0.1:9092", PLAINTEXT)
    assert "this user has no home directory" in one_line(command("profile", "list", code=1))
    assert "this user has no home directory" in one_line(command("topic", "list", "--profile", "x", code=1))
