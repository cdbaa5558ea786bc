"""Settings of a server from the environment: their names, and what wins over what."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.cli.serve.environment import setting_name, settings_of, without_settings
from headrace.cli.serve.properties import properties_of


@pytest.mark.parametrize(
    ("variable", "setting"),
    [
        ("LOG_DIRS", "log.dirs"),
        ("NODE_ID", "node.id"),
        ("LISTENER_NAME_CLIENTS_SASL_ENABLED_MECHANISMS", "listener.name.clients.sasl.enabled.mechanisms"),
        ("LISTENER_NAME_A_SCRAM___SHA___256_SASL_JAAS_CONFIG", "listener.name.a.scram-sha-256.sasl.jaas.config"),
        ("A__B", "a_b"),
    ],
)
def test_a_variable_spells_a_setting(variable: str, setting: str) -> None:
    assert setting_name(variable) == setting


def test_variables_of_a_client_and_of_others_are_left() -> None:
    variables = {"HEADRACE_SERVER_NODE_ID": "7", "HEADRACE_PROFILE": "x", "KAFKA_NODE_ID": "8", "HEADRACE_SERVER_": "y"}
    assert settings_of(variables) == {"node.id": "7"}
    assert without_settings(variables) == {"HEADRACE_PROFILE": "x", "KAFKA_NODE_ID": "8"}


def test_they_win_over_the_file_and_options_over_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "server.properties"
    file.write_text("node.id=1\nlog.dirs=/file\nnum.partitions=1\nlisteners=PLAINTEXT://file:1\n")
    monkeypatch.setenv("HEADRACE_SERVER_LOG_DIRS", "/variable")
    monkeypatch.setenv("HEADRACE_SERVER_NUM_PARTITIONS", "2")
    found = properties_of(file, (), None, None, [])
    assert (found["log.dirs"], found["num.partitions"], found["node.id"]) == ("/variable", "2", "1")
    found = properties_of(file, ["/option"], "127.0.0.1:7", None, ["num.partitions=3"])
    assert (found["log.dirs"], found["num.partitions"]) == ("/option", "3")
    assert found["listeners"] == "PLAINTEXT://127.0.0.1:7"


def test_without_a_file_they_say_where_to_listen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_SERVER_LISTENERS", "PLAINTEXT://0.0.0.0:9092")
    monkeypatch.setenv("HEADRACE_SERVER_ADVERTISED_LISTENERS", "PLAINTEXT://here:9092")
    found = properties_of(None, ["/data"], None, None, [])
    assert found["listeners"] == "PLAINTEXT://0.0.0.0:9092"
    assert found["advertised.listeners"] == "PLAINTEXT://here:9092"
    assert found["process.roles"] == "broker,controller"
