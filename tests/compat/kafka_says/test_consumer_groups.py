"""The life of consumer groups (KIP-848), told to Apache Kafka and to our machine: the same answers, the same records.

Heartbeats are sent as requests, without a client in between. Kafka's member ids are in the order of its hash tables
here, which decides who gets what.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest
from groups.consumer.scripted import ConsumerGroups
from groups.scripted import Client, Waiter
from peers.kafka import KafkaPeer
from peers.link import Link

from headrace.groups.consumer.heartbeat import WAITING_SHARE
from headrace.groups.consumer.records import ConsumerRecord, Member
from headrace.groups.modern.epochs import AssignmentEpoch, GroupEpoch
from headrace.groups.modern.topics import TopicInfo
from headrace.groups.records import Record, decode
from headrace.wire.batch import iter_headers
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from headrace.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from headrace.wire.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from headrace.wire.records import decode_batch

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

PARTITIONS = {"t": 4, "u": 3}
CONVERSATION = """
join g a topics=t rebalance=60000
heartbeat g a
heartbeat g a --done
join g b topics=t rebalance=60000
heartbeat g a
heartbeat g b
heartbeat g a
heartbeat g a --done
heartbeat g b
heartbeat g b --done
heartbeat g a epoch=2 --done
heartbeat g a epoch=2
heartbeat g a epoch=9
join g a topics=t rebalance=60000
heartbeat g c epoch=3
heartbeat g b topics=t,u
heartbeat g a --done
heartbeat g b --done
heartbeat g a
heartbeat g b assignor=range
heartbeat g a assignor=range topics=t,u
heartbeat g b --done
heartbeat g a --done
heartbeat g b --done
heartbeat g a --done
heartbeat g b --full
heartbeat g a topics=u
heartbeat g a --done
heartbeat g b --done
heartbeat g a topics=
heartbeat g a --done
join g a topics=t,nowhere rebalance=60000
heartbeat g b --done
leave g a
leave g a
heartbeat g b
leave g b
heartbeat g b epoch=1
join g a topics=t rebalance=60000
leave g a
join s a instance=i1 rebalance=60000
join s b instance=i2 rebalance=60000
heartbeat s a --done instance=i1
heartbeat s a --done instance=i1
heartbeat s b --done instance=i2
join s c instance=i1 rebalance=60000
leave s b instance=i2 --for-a-while
heartbeat s a instance=i1
join s d instance=i2 rebalance=60000
heartbeat s d --done instance=i2
heartbeat s b instance=i2 epoch=3
heartbeat s d instance=i9 epoch=3
leave s d instance=i2 --for-a-while
join s d instance=i2 topics=u rebalance=60000
heartbeat s a --done instance=i1
leave s d instance=i1
leave s d instance=i2
heartbeat s a --done instance=i1
leave s x --for-a-while
heartbeat x a epoch=1
leave x a
join x a rebalance=-1
join x a assignor=nonsense
join x a instance=
heartbeat x a epoch=-5
join h z topics= rebalance=60000
heartbeat h z
leave h z
join h a topics=t assignor=range rebalance=60000
join h b topics=t,u rebalance=60000
join h c topics=u assignor=uniform rebalance=60000
heartbeat h a --done
heartbeat h a --done
heartbeat h b --done
heartbeat h c --done
heartbeat h b --done
heartbeat h c --done
heartbeat h a --done
leave h b
heartbeat h a --done
heartbeat h c --done
"""


class Both(ConsumerGroups):
    """Tells Kafka whatever our machine is told."""

    def __init__(self, link: Link) -> None:
        super().__init__()
        self.link = link
        self.differences: list[str] = []
        self.ours: Any = None

    def send(self, client: Client, request: ConsumerGroupHeartbeatRequest, what: str, version: int = 1) -> None:
        theirs = self.link.ask(request, version)
        super().send(client, request, what, version)
        interval_ms = theirs.heartbeat_interval_ms
        if self.ours.heartbeat_interval_ms == interval_ms // WAITING_SHARE:
            interval_ms //= WAITING_SHARE  # one that waits is told to come sooner than Kafka tells it
        if (*told(theirs), interval_ms) != (*told(self.ours), self.ours.heartbeat_interval_ms):
            said = f"{client.name} {what} {request.group_id}"
            self.differences.append(f"{said}: Kafka {told(theirs)} {theirs.error_message}, ours {told(self.ours)}")

    def answer(self, waiter: Waiter, response: Any) -> None:
        self.ours = response
        super().answer(waiter, response)


def told(response: ConsumerGroupHeartbeatResponse) -> tuple[Any, ...]:
    """What a client is told, in any order of topics; but for when it is to come again."""
    assigned = None
    if response.assignment is not None:
        assigned = sorted((each.topic_id, sorted(each.partitions)) for each in response.assignment.topic_partitions)
    error = ErrorCode(response.error_code).name
    return error, response.member_id, response.member_epoch, assigned


def records_of(kafka: KafkaPeer) -> Iterator[Record]:
    """Every record of a group, in the order of its partition."""
    for directory in sorted(kafka.data.glob("__consumer_offsets-*")):
        for segment in sorted(directory.glob("*.log")):
            buffer = segment.read_bytes()
            for at, _ in iter_headers(buffer):
                for record in decode_batch(buffer, at):
                    value = None if record.value is None else bytes(record.value)
                    found = decode(bytes(record.key or b""), value)
                    assert found is not None
                    yield found


def comparable(record: Record) -> Record:
    """Without what differs between any two coordinators: when, and by whom."""
    assert isinstance(record, ConsumerRecord)
    value = record.value
    if isinstance(value, AssignmentEpoch):
        value = AssignmentEpoch(value.epoch)
    elif isinstance(value, Member):
        value = dataclasses.replace(value, client_id="", client_host="")
    return dataclasses.replace(record, value=value)


def test_answers_and_records_are_kafkas(tmp_path: Path) -> None:
    settings = {"group.consumer.assignment.interval.ms": "0", "offsets.topic.num.partitions": "1"}
    with KafkaPeer(tmp_path / "kafka", settings) as kafka:
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": kafka.bootstrap})
        for name, count in PARTITIONS.items():
            admin.create_topics([confluent_kafka.admin.NewTopic(name, count, 1)])[name].result(60)
        link = Link(kafka.port)
        asked = MetadataRequest([MetadataRequestTopic(name=name) for name in PARTITIONS])
        metadata = link.ask(asked, 12)
        while any(topic.error_code for topic in metadata.topics):
            metadata = link.ask(asked, 12)  # it tells of a topic a little after it was made
        both = Both(link)
        both.client_id = "test"
        both.do("settings consumer.assignment_interval_ms=0")
        both.do("time 1000")
        both.topics = {
            topic.name: TopicInfo(topic.name, topic.topic_id, PARTITIONS[topic.name]) for topic in metadata.topics
        }
        both.know_topics()
        while link.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4).coordinators[0].error_code:
            pass  # it makes its topic first
        while link.ask(leaving_nobody(), 1).error_code != ErrorCode.GROUP_ID_NOT_FOUND:
            pass  # and loads it
        for line in filter(None, CONVERSATION.splitlines()):
            both.do(line)
        kafka.stop()
        theirs = list(map(comparable, records_of(kafka)))
    assert both.differences == []
    ours = [comparable(record) for key, value in both.log if (record := decode(key, value)) is not None]
    for group_id in ("g", "s", "h"):
        of_ours = [record for record in ours if record.group_id == group_id]
        of_theirs = [record for record in theirs if record.group_id == group_id]
        for our_record, their_record in zip(of_ours, of_theirs):
            assert our_record == their_record
        assert len(of_ours) == len(of_theirs)
    assert sum(isinstance(record.value, GroupEpoch) for record in theirs if isinstance(record, ConsumerRecord)) > 15


def leaving_nobody() -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(group_id="nobody", member_id="m", member_epoch=-1)
