"""Quotas by Kafka's own tools and clients, and the same requests asked of Kafka's broker and of ours."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from broker.net.test_client_quotas import Client
from broker.raw import Raw, batch, fetch, produce
from compat.kafka_says.quotas import ALTERATIONS, FILTERS, Entries, alter, describe
from confluent_kafka import Consumer, Producer
from peers.headrace import HeadracePeer
from peers.kafka import KafkaPeer, kafka_tool, missing
from peers.settling import settle_peer

from headrace.wire.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from headrace.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from headrace.wire.messages.k37_create_partitions import CreatePartitionsRequest, CreatePartitionsTopic

pytestmark = [pytest.mark.jvm, pytest.mark.slow]


def said(peer: HeadracePeer | KafkaPeer) -> list[object]:
    """What a broker answers to everything, in order."""
    with Raw(peer.port, 60.0) as raw:
        altered: list[object] = [(entries, alter(raw, entries)) for entries in ALTERATIONS]
        unseen = [([("user", "unseen")], [("producer_byte_rate", 5.0)])]
        altered.append(alter(raw, unseen, validate_only=True))  # type: ignore[arg-type]
        settle_peer(peer)
        return [*altered, *((asked, describe(raw, *asked)) for asked in FILTERS)]


def test_both_brokers_answer_alike() -> None:
    reason = missing()
    if reason:
        pytest.skip(reason)
    with HeadracePeer() as ours, KafkaPeer() as theirs:
        for mine, kafkas in zip(said(ours), said(theirs), strict=True):
            assert mine == kafkas


def throttled(peer: HeadracePeer | KafkaPeer) -> list[object]:
    """What a broker says to a client over its quotas, asked over connections of their own: each is muted afterwards."""
    heard: list[object] = []
    name, port = "over", peer.port
    with Client(port, "fast") as fast:
        create = CreateTopicsRequest([CreatableTopic(name, 1, 1)], timeout_ms=30_000)
        assert fast.ask(create, 7).topics[0].error_code == 0
        until_led(fast, name)
        quotas: Entries = [
            (
                [("client-id", "slow")],
                [("producer_byte_rate", 1000.0), ("consumer_byte_rate", 1000.0), ("controller_mutation_rate", 1.0)],
            )
        ]
        assert alter(fast, quotas)[0][0] == 0
        settle_peer(peer)

    def ask(request: Any, version: int) -> Any:
        with Client(port) as slow:
            return slow.ask(request, version)

    last = time.monotonic() + 60
    while not (answer := ask(produce(name, batch(b"x" * 20_000)), 9)).throttle_time_ms:
        assert time.monotonic() < last, "the broker has not heard of the quota, and counts nothing"
    heard.append(round(answer.throttle_time_ms, -3))
    for acks, size in ((1, 30_000), (-1, 10_000)):
        answer = ask(produce(name, batch(b"x" * size), acks=acks), 9)
        heard.append((answer.responses[0].partition_responses[0].error_code, round(answer.throttle_time_ms, -3)))
    for epoch in (-1, 0):
        # The first answer of ours may be full: a client that has used nothing gets its batch.
        ask(fetch(name, session_epoch=epoch), 11)
        answer = ask(fetch(name, session_epoch=epoch), 11)
        heard.append((answer.error_code, answer.session_id, answer.responses, answer.throttle_time_ms > 0))
    for partitions, version in ((40, 7), (1, 7), (1, 5)):
        create = CreateTopicsRequest([CreatableTopic(f"made-{version}-{partitions}", partitions, 1)], timeout_ms=30_000)
        answer = ask(create, version)
        heard.append((answer.topics[0].error_code, round(answer.throttle_time_ms, -4)))
    grown = CreatePartitionsRequest([CreatePartitionsTopic(name, 2, None)], 30_000)
    for version in (3, 2):
        answer = ask(grown, version)
        heard.append((answer.results[0].error_code, round(answer.throttle_time_ms, -4)))
    answer = ask(DeleteTopicsRequest([DeleteTopicState(name, bytes(16))], timeout_ms=30_000), 6)
    heard.append((answer.responses[0].error_code, round(answer.throttle_time_ms, -4)))
    answer = ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000), 4)
    heard.append((answer.responses[0].error_code, round(answer.throttle_time_ms, -4)))
    return heard


def until_led(raw: Raw, topic: str) -> None:
    last = time.monotonic() + 60
    while raw.ask(produce(topic, batch(b"x")), 9).responses[0].partition_responses[0].error_code:
        assert time.monotonic() < last, "nobody leads it"
        time.sleep(0.1)


def test_both_brokers_throttle_alike() -> None:
    reason = missing()
    if reason:
        pytest.skip(reason)
    with HeadracePeer() as ours, KafkaPeer() as theirs:
        assert throttled(ours) == throttled(theirs)


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


def _limited(ours: HeadracePeer, client_id: str, key: str, rate: float | None) -> None:
    with Raw(ours.port) as raw:
        assert alter(raw, [([("client-id", client_id)], [(key, rate)])])[0][0] == 0
    settle_peer(ours)


def test_librdkafka_hears_of_the_throttle_and_loses_nothing(ours: HeadracePeer, fresh: Callable[[str], str]) -> None:
    topic = fresh("throttled")
    heard: list[Any] = []
    """An event with the time of each throttled answer, and one with 0.0 when it is over."""
    _limited(ours, "slow", "producer_byte_rate", 20_000.0)
    _limited(ours, "slow", "consumer_byte_rate", 20_000.0)
    said = {"bootstrap.servers": ours.bootstrap, "client.id": "slow", "throttle_cb": heard.append}
    producer = Producer({**said, "linger.ms": 0, "batch.size": 20_000})
    sent = [b"%d" % n * 2000 for n in range(60)]
    for value in sent:
        producer.produce(topic, value)
    assert producer.flush(60) == 0
    producer.poll(0)
    assert any(event.throttle_time > 0 for event in heard)
    heard.clear()
    consumer = Consumer(
        {
            **said,
            "group.id": fresh("group"),
            "auto.offset.reset": "earliest",
            "fetch.max.bytes": 30_000,
            "message.max.bytes": 30_000,
        }
    )
    consumer.subscribe([topic])
    got: list[bytes | None] = []
    last = time.monotonic() + 120
    while len(got) < len(sent) and time.monotonic() < last:
        message = consumer.poll(1.0)
        if message is not None and not message.error():
            got.append(message.value())
    consumer.close()
    assert got == sent
    assert any(event.throttle_time > 0 for event in heard)
    _limited(ours, "slow", "producer_byte_rate", None)
    _limited(ours, "slow", "consumer_byte_rate", None)


def test_an_admin_client_sets_quotas_and_is_told_of_its_own(ours: HeadracePeer, fresh: Callable[[str], str]) -> None:
    """Java's waits and asks again where its quota of changes is used up."""
    client = fresh("changing")
    _limited(ours, client, "controller_mutation_rate", 5.0)
    tool = "org.apache.kafka.tools.TopicCommand"
    options = ours.directory / "changing.properties"
    options.write_text(f"client.id={client}\nretries=100\n")
    arguments = (
        "--bootstrap-server",
        ours.bootstrap,
        "--command-config",
        str(options),
        "--create",
        "--partitions",
        "40",
    )
    first, second = fresh("changed"), fresh("changed")
    kafka_tool(tool, *arguments, "--topic", first)
    kafka_tool(tool, *arguments, "--topic", second)
    refused = kafka_tool(tool, *arguments, "--topic", fresh("changed"), check=False)
    assert refused.returncode == 0 or "ThrottlingQuotaExceeded" in refused.stdout + refused.stderr
    _limited(ours, client, "controller_mutation_rate", None)
