"""Quotas by Kafka's own tools and clients, and the same requests asked of Kafka's broker and of ours."""

from __future__ import annotations

import pytest
from broker.raw import Raw
from compat.kafka_says.quotas import ALTERATIONS, FILTERS, alter, describe
from peers.headrace import HeadracePeer
from peers.kafka import KafkaPeer, kafka_tool, missing

pytestmark = [pytest.mark.jvm, pytest.mark.slow]


def said(port: int) -> list[object]:
    """What a broker answers to everything, in order."""
    with Raw(port, 60.0) as raw:
        altered: list[object] = [(entries, alter(raw, entries)) for entries in ALTERATIONS]
        unseen = [([("user", "unseen")], [("producer_byte_rate", 5.0)])]
        altered.append(alter(raw, unseen, validate_only=True))  # type: ignore[arg-type]
        return [*altered, *((asked, describe(raw, *asked)) for asked in FILTERS)]


def test_both_brokers_answer_alike() -> None:
    reason = missing()
    if reason:
        pytest.skip(reason)
    with HeadracePeer() as ours, KafkaPeer() as theirs:
        for mine, kafkas in zip(said(ours.port), said(theirs.port), strict=True):
            assert mine == kafkas


def test_kafka_configs_sets_lists_and_removes_quotas(ours: HeadracePeer) -> None:
    def configs(*arguments: str) -> str:
        # Of users the tool asks for SCRAM credentials as well, and fails where these are not served: behind the quotas.
        checks = "--describe" not in arguments
        where = ("--bootstrap-server", ours.bootstrap)
        return kafka_tool("kafka.admin.ConfigCommand", *where, *arguments, check=checks).stdout

    ann = ("--entity-type", "users", "--entity-name", "ann")
    configs("--alter", *ann, "--add-config", "producer_byte_rate=1024,request_percentage=150")
    described = configs("--describe", *ann)
    assert "producer_byte_rate=1024.0" in described and "request_percentage=150.0" in described
    configs("--alter", *ann, "--entity-type", "clients", "--entity-default", "--add-config", "consumer_byte_rate=99")
    assert "consumer_byte_rate=99.0" in configs("--describe", *ann, "--entity-type", "clients")
    configs("--alter", "--entity-type", "users", "--entity-default", "--add-config", "controller_mutation_rate=2.5")
    assert "controller_mutation_rate=2.5" in configs("--describe", "--entity-type", "users", "--entity-default")
    address = ("--entity-type", "ips", "--entity-name", "10.1.2.3")
    configs("--alter", *address, "--add-config", "connection_creation_rate=7")
    assert "connection_creation_rate=7.0" in configs("--describe", "--entity-type", "ips")
    configs("--alter", *ann, "--delete-config", "producer_byte_rate")
    described = configs("--describe", *ann)
    assert "producer_byte_rate" not in described and "request_percentage=150.0" in described
    configs("--alter", *ann, "--delete-config", "request_percentage")
    configs("--alter", *ann, "--entity-type", "clients", "--entity-default", "--delete-config", "consumer_byte_rate")
    configs("--alter", "--entity-type", "users", "--entity-default", "--delete-config", "controller_mutation_rate")
    configs("--alter", *address, "--delete-config", "connection_creation_rate")
    with Raw(ours.port) as raw:
        assert describe(raw, ()) == (0, [])
