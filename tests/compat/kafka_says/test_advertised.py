"""`advertised.listeners` in DescribeConfigs: a static broker config where the file names it, null where it does not.

Clients look there for the address that a broker was told to give out. Where nobody told it, Kafka makes none up.
"""

from __future__ import annotations

from typing import Any

import pytest
from peers.headrace import HeadracePeer
from peers.kafka import KafkaPeer

from headrace.wire.config_source import ConfigSource
from headrace.wire.messages.k32_describe_configs import DescribeConfigsRequest, DescribeConfigsResource

from .conftest import Both, Side

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

ADVERTISED = "advertised.listeners"


class Unadvertised(KafkaPeer):
    """A node whose file does not say what clients are told."""

    def properties(self) -> dict[str, str]:
        return {name: value for name, value in super().properties().items() if name != ADVERTISED}


def described(side: Side) -> Any:
    resource = DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=[ADVERTISED])
    answer = side.ask(DescribeConfigsRequest(resources=[resource], include_synonyms=True), 4)
    (entry,) = answer.results[0].configs
    synonyms = [(each.name, each.source) for each in entry.synonyms]
    return entry.value, entry.read_only, entry.config_source, entry.is_sensitive, entry.config_type, synonyms


def test_without_it_in_the_file() -> None:
    with Unadvertised() as kafka, HeadracePeer() as ours:
        kafkas = described(Side(kafka))
        assert kafkas[:3] == (None, True, ConfigSource.DEFAULT)
        assert described(Side(ours)) == kafkas


def test_with_it_in_the_file(both: Both) -> None:
    address = f"PLAINTEXT://127.0.0.1:{both.kafka.port}"
    kafkas = described(both.kafka)
    assert kafkas[:3] == (address, True, ConfigSource.STATIC_BROKER)
    with HeadracePeer(settings={ADVERTISED: address}) as ours:
        assert described(Side(ours)) == kafkas
