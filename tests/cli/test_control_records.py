"""`headrace consume --print-control-records`: the markers of a committed and of an aborted transaction."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from peers.transactions import settled_ends

from headrace.client.cluster import Client


@pytest.fixture
def paid(run: Any, bootstrap: str, topic: str) -> str:
    """Returns a topic of a committed record, its marker, an aborted record, and its marker."""
    run("topic", "create", topic, "-p", "1")
    run("produce", topic, "--transactional-id", topic, stdin="a\n")
    bad = '{"value": "b"}\n{\n'
    run("produce", topic, "--transactional-id", topic, "--format", "json", stdin=bad, code=1)
    with Client(bootstrap) as client:
        settled_ends(client, topic)
    return topic


def test_markers_are_printed_as_what_they_are(run: Any, paid: str) -> None:
    assert run("consume", paid, "-t", "%o %s\n").stdout == "0 a\n2 b\n"
    lines = run("consume", paid, "--print-control-records", "-t", "%o %K %s\n").stdout.splitlines()
    ends = r"producer_id=\d+ producer_epoch=\d+ coordinator_epoch=\d+"
    wanted = ["0 -1 a", rf"1 -1 control record COMMIT {ends}", "2 -1 b", rf"3 -1 control record ABORT {ends}"]
    assert len(lines) == 4
    assert all(re.fullmatch(pattern, line) for pattern, line in zip(wanted, lines, strict=True)), lines


def test_a_reader_of_committed_records_sees_the_markers_too(run: Any, paid: str) -> None:
    lines = run("consume", paid, "--print-control-records", "--committed", "-t", "%o ").stdout
    assert lines == "0 1 3 "
    only = run("consume", paid, "--print-control-records", "--grep", "record ABORT", "-t", "%o ", "-n", "1").stdout
    assert only == "3 "


def test_json_shows_a_control_record_that_produce_refuses(run: Any, paid: str) -> None:
    _, line, *_ = run("consume", paid, "--print-control-records", "--json").stdout.splitlines()
    shown = json.loads(line)
    assert (shown["offset"], shown["control"]["type"]) == (1, "COMMIT")
    assert shown["control"]["producer_id"] >= 0 and "value" not in shown
    assert '"control" is not a field' in run("produce", paid, "--format", "json", stdin=line, code=1).stderr


def test_hex_shows_the_bytes_and_what_they_mean(run: Any, paid: str) -> None:
    _, commit, _, abort = run("consume", paid, "--print-control-records", "--format", "hex").stdout.splitlines()
    assert "key 00000001 value 0000" in commit and "  control record COMMIT producer_id=" in commit
    assert "key 00000000 value 0000" in abort and "  control record ABORT producer_id=" in abort
