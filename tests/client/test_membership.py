"""Consumer groups shared with other clients: librdkafka and ours agree on assignments and on offsets."""

from __future__ import annotations

import time
from threading import Thread
from typing import Any

import pytest
from confluent_kafka import Consumer

from headrace.client import admin, groups
from headrace.client.cluster import Client
from headrace.client.membership import Member
from headrace.client.producer import Producer


def theirs(bootstrap: str, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "range",
            "enable.auto.commit": False,
            "session.timeout.ms": 10_000,
            "heartbeat.interval.ms": 500,
        }
    )


def until(condition: Any, *steps: Any, within_s: float = 60.0) -> None:
    patience = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < patience
        for step in steps:
            step()


@pytest.mark.parametrize("ours_first", [True, False])
def test_a_group_of_two_clients(bootstrap: str, topic: str, ours_first: bool) -> None:
    with Client(bootstrap) as client:
        admin.create_topic(client, topic, partitions=3)
        member = Member(client, topic, [topic], heartbeat_interval_s=0.2)
        consumer = theirs(bootstrap, topic)
        if ours_first:
            member.poll()
            assert len(member.assigned) == 3
            consumer.subscribe([topic])
        else:
            consumer.subscribe([topic])
            until(lambda: len(consumer.assignment()) == 3, lambda: consumer.poll(0.05))
        # A join waits for everybody: each side needs a thread of its own.
        done: list[bool] = []
        thread = Thread(target=lambda: until(lambda: done, member.poll, lambda: time.sleep(0.05)))
        thread.start()
        try:
            until(
                lambda: sorted((len(member.assigned), len(consumer.assignment()))) == [1, 2],
                lambda: consumer.poll(0.05),
            )
        finally:
            done.append(True)
            thread.join()
        both = {*member.assigned, *((at.topic, at.partition) for at in consumer.assignment())}
        assert both == {(topic, index) for index in range(3)}
        consumer.close()
        member.leave()


def test_offsets_that_others_committed(bootstrap: str, topic: str) -> None:
    with Client(bootstrap) as client:
        admin.create_topic(client, topic, partitions=1)
        with Producer(client) as producer:
            for number in range(5):
                producer.send(topic, b"%d" % number, partition=0)
        consumer = theirs(bootstrap, topic)
        consumer.subscribe([topic])
        seen: list[bytes | None] = []

        def take() -> None:
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                seen.append(message.value())

        until(lambda: len(seen) == 5, take)
        assert seen == [b"%d" % number for number in range(5)]
        consumer.commit(asynchronous=False)
        consumer.close()
        assert groups.fetch_offsets(client, topic)[topic, 0].offset == 5
        groups.commit_offsets(client, topic, {(topic, 0): 3})
        again = theirs(bootstrap, topic)
        again.subscribe([topic])
        seen.clear()
        consumer = again
        until(lambda: len(seen) == 2, take)
        assert seen == [b"3", b"4"]
        again.close()


def test_a_static_member_comes_back_as_itself(bootstrap: str, topic: str) -> None:
    with Client(bootstrap) as client:
        admin.create_topic(client, topic, partitions=1)
        first = Member(client, topic, [topic], instance_id="me")
        first.poll()
        generation = first.generation_id
        first.leave()
        assert groups.describe_group(client, topic).state == "Stable"
        second = Member(client, topic, [topic], instance_id="me")
        second.poll()
        assert second.assigned == [(topic, 0)]
        assert second.generation_id == generation
        assert second.member_id != first.member_id


def test_groups_of_the_newer_protocol_are_described(bootstrap: str, topic: str) -> None:
    """Of KIP-848."""
    with Client(bootstrap) as client:
        admin.create_topic(client, topic, partitions=2)
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "group.protocol": "consumer"})
        consumer.subscribe([topic])
        until(lambda: len(consumer.assignment()) == 2, lambda: consumer.poll(0.05))
        until(lambda: groups.describe_group(client, topic).state == "Stable", lambda: consumer.poll(0.05))
        described = groups.describe_group(client, topic)
        assert described.type == "consumer"
        assert [member.assigned for member in described.members] == [((topic, 0), (topic, 1))]
        (listed,) = [found for found in groups.list_groups(client) if found.group_id == topic]
        assert listed.type == "consumer"
        consumer.close()
