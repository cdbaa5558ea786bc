"""Numbers and lists on the pages are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from peers.jars import KAFKA_VERSION

from headrace.broker.requests.apis import CLUSTER, SERVED
from headrace.cli import COMMANDS
from headrace.security.mechanisms import MODULE_OF
from headrace.wire.apis import APIS, ApiKey

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
EVIDENCE = (ROOT / "docs" / "evidence.md").read_text(encoding="utf-8")
README_LINES_MAX = 100
LOCAL_COMMANDS = {"serve", "storage", "log"}
"""Commands that look at this machine and not at a cluster."""


def row(name: str) -> str:
    """The row of the page of evidence with this heading."""
    (found,) = (line for line in EVIDENCE.splitlines() if line.startswith(f"| {name} |"))
    return found


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= README_LINES_MAX


def test_the_number_of_apis() -> None:
    ours = {ApiKey.HEADRACE_GROUP_END_TXN}
    served = {*SERVED, *CLUSTER} - ours
    brokers = {key for key in served if "broker" in APIS[key].listeners}
    assert f"{len(brokers)} of Kafka's APIs on the listeners of brokers" in row("Protocol")
    assert f"and {len(served - brokers)} more between nodes" in row("Protocol")


def test_the_list_of_commands() -> None:
    listed = re.search(
        r"\[`headrace`\]\(cli\.md\): ([a-z, ]+); all but ([a-z, ]+) on Apache Kafka", row("Command line")
    )
    assert listed is not None
    assert set(listed[1].split(", ")) == set(COMMANDS)
    assert set(re.split(r", | and ", listed[2])) == LOCAL_COMMANDS


@pytest.mark.parametrize("mechanism", sorted(MODULE_OF))
def test_each_mechanism_is_listed(mechanism: str) -> None:
    assert mechanism in row("Security")


def test_the_version_of_kafka_that_we_compare_with() -> None:
    divergence = (ROOT / "docs" / "divergence.md").read_text(encoding="utf-8")
    for page in (README, EVIDENCE, divergence):
        versions = set(re.findall(r"(?:Apache Kafka|Kafka|[Rr]elease) (\d\.\d\.\d)", page))
        assert versions == {KAFKA_VERSION}
