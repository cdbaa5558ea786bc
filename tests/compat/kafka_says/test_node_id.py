"""`node.id` and its older name in DescribeConfigs: whichever stands in the file, both are said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from peers.headrace import HeadracePeer
from peers.kafka import KafkaPeer, free_port

from headrace.wire.messages.k32_describe_configs import DescribeConfigsRequest, DescribeConfigsResource

from .conftest import Both, Side

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

NAMES = ("node.id", "broker.id")


class NamedBefore(KafkaPeer):
    """A node whose file has the name that came before `node.id`."""

    def properties(self) -> dict[str, str]:
        found = super().properties()
        return {"broker.id" if name == "node.id" else name: value for name, value in found.items()}


def described(side: Side) -> list[Any]:
    resource = DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=list(NAMES))
    answer = side.ask(DescribeConfigsRequest(resources=[resource], include_synonyms=True), 4)
    found = []
    for each in sorted(answer.results[0].configs, key=lambda entry: entry.name):
        synonyms = [(synonym.name, synonym.value, synonym.source) for synonym in each.synonyms]
        found.append((each.name, each.value, each.read_only, each.config_source, synonyms))
    return found


def test_with_node_id_in_the_file(both: Both) -> None:
    kafkas = described(both.kafka)
    assert [each[:2] for each in kafkas] == [("broker.id", "1"), ("node.id", "1")]
    assert described(both.ours) == kafkas


def test_with_the_older_name_in_the_file(tmp_path: Path) -> None:
    file, port = tmp_path / "server.properties", free_port()
    file.write_text(f"broker.id=1\nlisteners=PLAINTEXT://127.0.0.1:{port}\nlog.dirs={tmp_path / 'data'}\n")
    with NamedBefore() as kafka, HeadracePeer(tmp_path, properties=file, port=port) as ours:
        kafkas = described(Side(kafka))
        assert [each[:2] for each in kafkas] == [("broker.id", "1"), ("node.id", "1")]
        assert described(Side(ours)) == kafkas
