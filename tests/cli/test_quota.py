"""`headrace quota` against both brokers."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

from headrace.cli import main


def test_quotas(run: Any, run_json: Any, topic: str) -> None:
    user = ("--user", topic)
    assert "could set" in run("quota", "set", *user, "producer_byte_rate=1000", "--dry-run").stdout
    assert run_json("quota", "list", *user) == []
    said = run("quota", "set", *user, "producer_byte_rate=1048576", "request_percentage=12.5").stdout
    assert said == f"set quotas of user {topic}: producer_byte_rate 1048576, request_percentage 12.5\n"
    run("quota", "set", *user, "--client-id-default", "consumer_byte_rate=2000")
    assert run_json("quota", "list", *user) == [
        {"entity": {"user": topic}, "quotas": {"producer_byte_rate": 1048576.0, "request_percentage": 12.5}},
        {"entity": {"user": topic, "client-id": None}, "quotas": {"consumer_byte_rate": 2000.0}},
    ]
    rows = [line.split() for line in run("quota", "list", *user).stdout.splitlines()]
    assert rows[1] == [topic, "-", "-", "producer_byte_rate", "1048576"]
    assert rows[3] == [topic, "(default)", "-", "consumer_byte_rate", "2000"]
    assert "has no quota consumer_byte_rate" in run("quota", "remove", *user, "consumer_byte_rate", code=4).stderr
    run("quota", "remove", *user, "request_percentage")
    run("quota", "remove", *user)
    assert "has no quotas" in run("quota", "remove", *user, code=4).stderr
    run("quota", "remove", *user, "--client-id-default")
    assert run_json("quota", "list", *user) == []


def test_addresses_and_defaults(run: Any, run_json: Any) -> None:
    run("quota", "set", "--ip", "10.9.8.7", "connection_creation_rate=5")
    run("quota", "set", "--client-id-default", "request_percentage=200")
    found = run_json("quota", "list")
    assert {"entity": {"ip": "10.9.8.7"}, "quotas": {"connection_creation_rate": 5.0}} in found
    assert {"entity": {"client-id": None}, "quotas": {"request_percentage": 200.0}} in found
    removed = run_json("quota", "remove", "--ip", "10.9.8.7")
    assert removed == {"entity": {"ip": "10.9.8.7"}, "removed": ["connection_creation_rate"], "executed": True}
    run("quota", "remove", "--client-id-default")


def test_what_brokers_refuse(run: Any) -> None:
    for arguments in (
        ["--user", "u", "no_such_rate=1"],
        ["--user", "u", "producer_byte_rate=-1"],
        ["--ip", "10.0.0.1", "producer_byte_rate=1"],
    ):
        line = run("quota", "set", *arguments, code=1).stderr
        assert line.startswith("headrace: quotas of ") and len(line.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["set", "producer_byte_rate=1"], "say whose"),
        (["set", "--user", "u", "producer_byte_rate"], "is not KEY=VALUE"),
        (["set", "--user", "u", "producer_byte_rate=much"], "'much' is not a number"),
        (["set", "--user", "u", "producer_byte_rate=inf"], "'inf' is not a number"),
        (["set", "--user", "u", "--user-default", "producer_byte_rate=1"], "choose one of --user and --user-default"),
        (["set", "--user", "u", "--ip", "1.2.3.4", "producer_byte_rate=1"], "give --ip alone"),
        (["remove"], "say whose"),
        (["list", "--user", ""], "--user is empty"),
    ],
)
def test_wrong_usage(arguments: list[str], words: str) -> None:
    done = CliRunner(env={"HEADRACE_BOOTSTRAP": "127.0.0.1:1"}).invoke(main, ["quota", *arguments])
    assert done.exit_code == 2 and words in done.stderr, done.output
