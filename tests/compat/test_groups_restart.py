"""Groups over restarts: of our broker, clean and killed, and from Apache Kafka to ours and back."""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from compat.kafka_says.group_conversation import Link, commit, join
from peers.headrace import HeadracePeer
from peers.kafka import KafkaPeer, java, kafka_tool
from peers.settling import settle_ports

from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k08_offset_commit import OffsetCommitRequestPartition
from headrace.wire.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from headrace.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from headrace.wire.messages.k11_join_group import JoinGroupResponse
from headrace.wire.messages.k12_heartbeat import HeartbeatRequest
from headrace.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from headrace.wire.messages.k15_describe_groups import DescribeGroupsRequest
from headrace.wire.messages.k16_list_groups import ListedGroup, ListGroupsRequest
from headrace.wire.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from headrace.wire.sharding import partition_of

pytestmark = pytest.mark.slow

PATIENCE_S = 30.0
NOT_YET = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)


def ready(port: int, group: str) -> Link:
    """A connection to a broker that serves `group` by now."""
    link = Link(port)
    deadline = time.monotonic() + PATIENCE_S
    while True:
        assert time.monotonic() < deadline
        found = link.ask(FindCoordinatorRequest(coordinator_keys=[group]), 4).coordinators[0]
        if not found.error_code and fetched(link, group) is not None:
            return link
        time.sleep(0.02)


def fetched(link: Link, group: str) -> dict[int, int] | None:
    """partition of `t` -> committed offset; None while the coordinator is not there."""
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=None)])
    found = link.ask(request, 8).groups[0]
    if found.error_code in NOT_YET:
        return None
    assert not found.error_code
    return {p.partition_index: p.committed_offset for topic in found.topics for p in topic.partitions}


def listed(link: Link) -> list[ListedGroup]:
    """Every group, once each coordinator has loaded."""
    deadline = time.monotonic() + PATIENCE_S
    while (answer := link.ask(ListGroupsRequest(), 5)).error_code:
        assert time.monotonic() < deadline and answer.error_code in NOT_YET
        time.sleep(0.02)
    return answer.groups  # type: ignore[no-any-return]


def stable(link: Link, group: str, instance: str | None = None) -> JoinGroupResponse:
    """A group of one, with an assignment."""
    answer = link.ask(join(group, group_instance_id=instance), 9)
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        answer = link.ask(join(group, answer.member_id), 9)
    assert not answer.error_code
    assigned = [SyncGroupRequestAssignment(answer.member_id, b"assigned")]
    names = ("consumer", "range")
    request = SyncGroupRequest(group, answer.generation_id, answer.member_id, instance, *names, assigned)
    assert link.ask(request, 5).assignment == b"assigned"
    return answer  # type: ignore[no-any-return]


def make_topic(link: Link) -> None:
    link.ask(CreateTopicsRequest([CreatableTopic("t", 3, 1)], 10_000), 7)


@pytest.mark.parametrize("flush", ["none", "before-reply"])
@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_groups_survive_a_restart(tmp_path: Path, ending: str, flush: str) -> None:
    """A process that is killed loses nothing that it was answered for: the page cache outlives it."""
    broker = HeadracePeer(tmp_path, settings={"acks.flush": flush})
    broker.start()
    for group in ("s", "simple", "g"):
        link = ready(broker.port, group)
    make_topic(link)
    member = stable(link, "g")
    static = stable(link, "s", "i")
    generation = member.generation_id
    for position in range(200):
        request = commit("g", position, generation, member.member_id)
        request.topics[0].partitions.append(OffsetCommitRequestPartition(1, position * 2))
        assert not link.ask(request, 9).topics[0].partitions[0].error_code
    link.ask(commit("simple", 7), 9)
    getattr(broker, ending)()
    broker.start()
    try:
        link = ready(broker.port, "g")
        assert fetched(link, "g") == {0: 199, 1: 398}
        assert link.ask(HeartbeatRequest("g", generation, member.member_id), 4).error_code == ErrorCode.NONE
        ready(broker.port, "s")
        (described,) = link.ask(DescribeGroupsRequest(["s"]), 6).groups
        assert (described.group_state, described.members[0].member_id) == ("Stable", static.member_id)
        assert described.members[0].member_assignment == b"assigned"
        ready(broker.port, "simple")
        assert fetched(link, "simple") == {0: 7}
        states = {g.group_id: g.group_state for g in listed(link)}
        assert states == {"g": "Stable", "s": "Stable", "simple": "Empty"}
    finally:
        broker.kill()


@pytest.mark.parametrize("flush", [pytest.param("none", marks=pytest.mark.soak), "before-reply"])
def test_no_committed_offset_goes_back(tmp_path: Path, flush: str) -> None:
    """Killed in the middle of commits, again and again: what was answered is there, and nothing older or made up."""
    broker = HeadracePeer(tmp_path, settings={"acks.flush": flush})
    broker.start()
    make_topic(ready(broker.port, "g"))
    chance = random.Random(7)
    position = answered = 0
    try:
        for _ in range(4):
            link = ready(broker.port, "g")
            found = fetched(link, "g") or {0: 0}
            assert answered <= found[0] <= position
            answered = found[0]
            end = position + chance.randrange(50, 1500)
            killer = threading.Timer(chance.uniform(0.01, 0.15), broker.kill)
            killer.start()
            with contextlib.suppress(OSError):
                while position < end:
                    position += 1
                    assert not link.ask(commit("g", position), 9).topics[0].partitions[0].error_code
                    answered = position
            killer.join()
            broker.start()
    finally:
        broker.kill()
    assert answered > 0


def test_groups_survive_compaction(tmp_path: Path) -> None:
    """What the cleaner leaves of many commits is the last of each."""
    settings = {
        "offsets.topic.num.partitions": "1",
        "offsets.topic.segment.bytes": str(1024 * 1024),
        "log.cleaner.backoff.ms": "100",
        "log.cleaner.min.cleanable.ratio": "0.01",
    }
    broker = HeadracePeer(tmp_path, settings=settings)
    broker.start()
    for group in ("simple", "g"):
        link = ready(broker.port, group)
    make_topic(link)
    member = stable(link, "g")
    link.ask(commit("simple", 7), 9)
    for position in range(13_000):
        link.send(commit("g", position, member.generation_id, member.member_id), 9)
        if position % 50 == 49:
            for _ in range(50):
                assert not link.receive().topics[0].partitions[0].error_code
    logs = broker.data / "__consumer_offsets-0"
    before = sum(path.stat().st_size for path in logs.glob("*.log"))
    deadline = time.monotonic() + PATIENCE_S
    while sum(path.stat().st_size for path in logs.glob("*.log")) > before - 900_000:
        assert time.monotonic() < deadline, "nothing was cleaned"
        link.ask(HeartbeatRequest("g", member.generation_id, member.member_id), 4)
        time.sleep(0.1)
    broker.kill()
    broker.start()
    try:
        for group in ("simple", "g"):
            link = ready(broker.port, group)
        assert fetched(link, "g") == {0: 12_999}
        assert fetched(link, "simple") == {0: 7}
        (described,) = link.ask(DescribeGroupsRequest(["g"]), 6).groups
        assert (described.group_state, described.members[0].member_assignment) == ("Stable", b"assigned")
    finally:
        broker.kill()


def test_consumers_outlive_a_restart(tmp_path: Path) -> None:
    """librdkafka's consumers go on where they were when their broker comes back, without a rebalance of their own."""
    broker = HeadracePeer(tmp_path)
    broker.start()
    make_topic(ready(broker.port, "g"))
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": "g",
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": 50,
        "reconnect.backoff.max.ms": 200,
    }
    consumers = [confluent_kafka.Consumer(settings) for _ in range(2)]
    revoked: list[object] = []
    got: set[int] = set()

    def poll_until(count: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while len(got) < count:
            assert time.monotonic() < deadline
            for consumer in consumers:
                message = consumer.poll(0.05)
                if message is not None and message.error() is None:
                    got.add(int(message.value() or b""))

    for consumer in consumers:
        consumer.subscribe(["t"], on_revoke=lambda _, partitions: revoked.extend(partitions))
    try:
        for half, ending in enumerate((broker.kill, broker.stop, None)):
            for number in range(100):
                producer.produce("t", str(half * 100 + number), partition=number % 3)
            assert producer.flush(PATIENCE_S) == 0
            poll_until((half + 1) * 100)
            if half == 0:
                revoked.clear()
            if ending is not None:
                ending()
                broker.start()
        assert got == set(range(300))
        assert revoked == []
    finally:
        for consumer in consumers:
            consumer.close()
        broker.kill()


def newer_group(broker: KafkaPeer) -> None:
    """A member of a KIP-848 group, killed so that it stays in the log."""
    command = java(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", broker.bootstrap, "--topic", "t", "--group", "newer"),
        *("--consumer-property", "group.protocol=consumer"),
    )
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    link = ready(broker.port, "newer")
    deadline = time.monotonic() + PATIENCE_S
    while {g.group_id: g.group_state for g in listed(link)}.get("newer") != "Stable":
        assert time.monotonic() < deadline
        time.sleep(0.1)
    process.kill()
    process.wait()


@pytest.mark.jvm
def test_groups_from_kafka_and_back(tmp_path: Path) -> None:
    kafka = KafkaPeer(tmp_path)
    kafka.start()
    for group in ("s", "simple", "g"):
        link = ready(kafka.port, group)
    make_topic(link)
    settle_ports(kafka.port)
    member = stable(link, "g")
    static = stable(link, "s", "i")
    for asked in (commit("g", 11, member.generation_id, member.member_id), commit("simple", 7)):
        assert link.ask(asked, 9).topics[0].partitions[0].error_code == 0
    newer_group(kafka)
    refused = ready(kafka.port, "newer").ask(join("newer"), 9).error_code
    kafka.stop()

    ours = HeadracePeer(tmp_path, properties=kafka.write_properties(), port=kafka.port)
    ours.start()
    try:
        for group in ("s", "newer", "made-by-us", "made-by-us-simple", "g"):
            link = ready(ours.port, group)
        assert fetched(link, "g") == {0: 11}
        beat = HeartbeatRequest("g", member.generation_id, member.member_id)
        assert link.ask(beat, 4).error_code == ErrorCode.NONE
        back = link.ask(join("s", group_instance_id="i"), 9)
        assert (back.generation_id, back.skip_assignment) == (static.generation_id, True)
        assert (
            link.ask(commit("g", 12, member.generation_id, member.member_id), 9).topics[0].partitions[0].error_code == 0
        )
        assert link.ask(join("newer"), 9).error_code == refused == ErrorCode.MEMBER_ID_REQUIRED
        stable(link, "made-by-us")
        link.ask(commit("made-by-us-simple", 5), 9)
    finally:
        ours.stop()

    assert_kafka_reads(kafka, "g")
    kafka.start()
    try:
        link = ready(kafka.port, "g")
        assert fetched(link, "g") == {0: 12}
        assert link.ask(beat, 4).error_code == ErrorCode.NONE
        ready(kafka.port, "made-by-us-simple")
        assert fetched(link, "made-by-us-simple") == {0: 5}
        ready(kafka.port, "s")
        (described,) = link.ask(DescribeGroupsRequest(["s"]), 5).groups
        assert described.members[0].member_id == back.member_id
        for group in ("newer", "made-by-us"):
            ready(kafka.port, group)  # a coordinator that loads still is left out of the list
        types = {g.group_id: g.group_type for g in listed(link)}
        assert types["newer"] == "consumer" and types["made-by-us"] == "classic"
    finally:
        kafka.stop()


def assert_kafka_reads(kafka: KafkaPeer, group: str) -> None:
    """Kafka's own decoder makes sense of every record of the group's partition, ours among them."""
    directory = kafka.data / f"__consumer_offsets-{partition_of(group, 50)}"
    dumped = kafka_tool(
        "org.apache.kafka.tools.DumpLogSegments",
        *("--offsets-decoder", "--files", str(directory / "00000000000000000000.log")),
    ).stdout
    records = [line for line in dumped.splitlines() if "payload:" in line]
    values: list[Any] = [json.loads(line.split("payload:", 1)[1]) for line in records]
    assert len(values) >= 4
    assert any(value["data"].get("offset") == 12 for value in values)
