"""Groups that change their protocol while they have members, told to Apache Kafka and to our machine: the same answers
and the same records, so that either can go on where the other stops.

Every client has a connection of its own, because a JoinGroup may wait. Kafka draws member ids at random: they go by the
names that our machine gives. Members are served in an order that does not hang on them: by the range assignor.
"""

from __future__ import annotations

import dataclasses
import itertools
import select
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest
from compat.kafka_says.test_consumer_groups import PARTITIONS, leaving_nobody, records_of
from groups.consumer.mixed import MixedGroups
from groups.scripted import Client, Waiter, said_record
from peers.kafka import KafkaPeer
from peers.link import Link
from scripts.test_transcripts import FOLDER
from scripts.transcript import Words, commands_of

from headrace.groups.consumer.records import ConsumerRecord, Member
from headrace.groups.modern.epochs import AssignmentEpoch
from headrace.groups.modern.topics import TopicInfo
from headrace.groups.records import GroupRecord, Record, decode
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.frame import RequestHeader, decode_response_header, encode_request
from headrace.wire.messages import response_class
from headrace.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from headrace.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from headrace.wire.messages.k11_join_group import JoinGroupResponse
from headrace.wire.messages.k13_leave_group import LeaveGroupRequest
from headrace.wire.messages.k14_sync_group import SyncGroupRequest
from headrace.wire.messages.k15_describe_groups import DescribeGroupsRequest
from headrace.wire.messages.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatResponse

pytestmark = [pytest.mark.jvm, pytest.mark.soak, pytest.mark.timeout(900)]

SETTINGS = {
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.assignors": "range",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "45000",
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
}
OURS = (
    "initial_rebalance_delay_ms=0 min_session_timeout_ms=1000 consumer.assignment_interval_ms=0 "
    "consumer.assignors=range"
)

OURS_ALONE = {"orphans", "policies", "repeated", "unwritten"}
"""Scripts of partitions that nobody reads in Kafka, of other settings, of data that Kafka refuses, and of a log that
refuses what it is given."""
SCRIPTS = [each for each in sorted((FOLDER / "mixed_groups").glob("*.txt")) if each.stem not in OURS_ALONE]


class Both(MixedGroups):
    """Tells Kafka whatever our machine is told, and notes where an answer is another one."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.port = port
        self.links: dict[str, Link] = {}
        self.waiting: dict[str, deque[tuple[Any, int, int]]] = {}
        """For each client, the requests that Kafka has not answered yet: (class of the request, version, number)."""
        self.theirs: dict[str, str] = {}
        """Our member id -> Kafka's."""
        self.differences: list[str] = []
        self.line = ""
        self.numbers = itertools.count(1)
        self.answered: deque[tuple[Waiter, Any]] = deque()
        """What our machine answered and Kafka has not: which of two members leads, and so whose SyncGroup is answered
        first, may differ."""

    def do(self, line: str) -> list[str]:
        self.line = line
        trace = super().do(line)
        joins = any(key == ApiKey.JOIN_GROUP for asked in self.waiting.values() for key, _, _ in asked)
        if joins and not self.answered:
            self.await_the_same_group(line.split()[1])
        self.compare_what_is_answered()
        return trace

    def await_the_same_group(self, group_id: str) -> None:
        """Somebody's JoinGroup waits: it has to be there before another connection's next one is."""
        link = self.links.setdefault("looks", Link(self.port, 20))
        ours = self.shard.describe_group(group_id)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            theirs = link.ask(DescribeGroupsRequest(groups=[group_id]), 5).groups[0]
            if (theirs.group_state, len(theirs.members)) == (ours.group_state, len(ours.members)):
                return
        self.differences.append(f"{self.line}: Kafka's group is {theirs.group_state}, ours {ours.group_state}")

    def compare_what_is_answered(self) -> None:
        for waiter, response in list(self.answered):
            if select.select([self.links[waiter.client.name].socket], [], [], 1.0)[0]:
                self.answered.remove((waiter, response))
                self.compare(waiter, response)

    # --- Kafka's part ------------------------------------------------------------------------------------------------

    def tell(self, client: Client, what: str, request: Any, version: int) -> None:
        link = self.links.setdefault(client.name, Link(self.port, 20))
        number = next(self.numbers)
        self.waiting.setdefault(client.name, deque()).append((request.API_KEY, version, number))
        header = RequestHeader(request.API_KEY, version, number, self.client_id or client.name)
        link.socket.sendall(encode_request(header, self.as_theirs(request)))
        super().tell(client, what, request, version)

    def as_theirs(self, request: Any) -> Any:
        """The request, with Kafka's member ids."""
        if isinstance(request, LeaveGroupRequest):
            members = [dataclasses.replace(each, member_id=self.their(each.member_id)) for each in request.members]
            return dataclasses.replace(request, members=members)
        if isinstance(request, SyncGroupRequest):
            each = [dataclasses.replace(one, member_id=self.their(one.member_id)) for one in request.assignments]
            request = dataclasses.replace(request, assignments=each)
        return dataclasses.replace(request, member_id=self.their(request.member_id))

    def their(self, member_id: str) -> str:
        return self.theirs.get(member_id, member_id)

    def ours(self, member_id: str) -> str:
        """By what name our machine knows a member of Kafka's."""
        return next((mine for mine, theirs in self.theirs.items() if theirs == member_id), member_id)

    def answer(self, waiter: Waiter, response: Any) -> None:
        self.answered.append((waiter, response))
        super().answer(waiter, response)

    def compare(self, waiter: Waiter, response: Any) -> None:
        """Takes Kafka's answer to what our machine just answered."""
        name = waiter.client.name
        api_key, version, number = self.waiting[name].popleft()
        link = self.links[name]
        frame = link.receive(int.from_bytes(link.receive(4), "big"))
        correlation_id, at = decode_response_header(frame, api_key, version)
        assert correlation_id == number
        theirs = response_class(api_key).decode(frame, version, at)
        member_id = getattr(response, "member_id", None)
        if member_id and theirs.member_id and member_id not in self.theirs:
            self.theirs[member_id] = theirs.member_id
        ours_told, theirs_told = told(response, lambda each: each), told(theirs, self.ours)
        if ours_told != theirs_told:
            self.differences.append(f"{self.line}: {name} {waiter.what}: Kafka {theirs_told}, ours {ours_told}")

    def everything_is_answered(self) -> None:
        """Nobody was answered by one of the two alone."""
        self.compare_what_is_answered()
        self.differences += [f"Kafka does not answer {waiter.client.name}: {ours}" for waiter, ours in self.answered]
        for name, link in self.links.items():
            if not self.waiting.get(name) and select.select([link.socket], [], [], 0)[0]:
                self.differences.append(f"Kafka answers {name}, who asked nothing")

    # --- commands ----------------------------------------------------------------------------------------------------

    def do_pass(self, words: Words) -> None:
        time.sleep(int(words.plain[0]) / 1000)
        super().do_pass(words)

    def do_time(self, words: Words) -> None:
        """The scripts' first lines are set up here once, for all of them."""

    do_topic = do_settings = do_time


def told(response: Any, ours: Callable[[str], str]) -> Any:
    """What a client is told, in any order, without sentences."""
    said = dataclasses.asdict(response)
    said["error_code"] = ErrorCode(response.error_code).name
    # Members that wait for partitions are told by ours to ask sooner.
    for name in ("throttle_time_ms", "error_message", "heartbeat_interval_ms"):
        said.pop(name, None)
    for name in ("member_id", "leader"):
        if said.get(name):
            said[name] = ours(said[name])
    if isinstance(response, ConsumerGroupHeartbeatResponse) and response.assignment is not None:
        assigned = response.assignment.topic_partitions
        said["assignment"] = sorted((each.topic_id, sorted(each.partitions)) for each in assigned)
    if said.get("assignment") and isinstance(said["assignment"], bytes):
        said["assignment"] = sorted(said["assignment"])  # topics come in the order of a hash table
    if "members" in said:
        for each in said["members"]:
            each["member_id"] = ours(each["member_id"])
        said["members"].sort(key=lambda each: each["member_id"])
    if isinstance(response, JoinGroupResponse):
        # Who leads a group that was a consumer group is the first of a hash table.
        del said["leader"], said["members"]
        said["protocol_name"] = said["protocol_name"] or ""  # an error tells none
    return said


def comparable(records: list[Record], ours: Callable[[str], str]) -> list[str]:
    """Records without what differs between any two coordinators: when, by whom, and the order of a hash table."""
    said: list[tuple[tuple[Any, ...], str]] = []
    for record in records:
        if isinstance(record, GroupRecord):
            stored = record.stored
            key: tuple[Any, ...] = ("classic",)
            text = f"{record.group_id} removed"
            if stored is not None:
                members = sorted(
                    (ours(m.member_id), m.group_instance_id, m.rebalance_timeout, m.session_timeout, m.subscription,
                     bytes(sorted(m.assignment)))  # topics come in the order of a hash table
                    for m in stored.members
                )  # fmt: skip
                text = f"{record.group_id} {stored.protocol_type} {stored.generation} {stored.protocol} {members}"
        else:
            assert isinstance(record, ConsumerRecord)
            value = record.value
            if isinstance(value, AssignmentEpoch):
                value = AssignmentEpoch(value.epoch)
            elif isinstance(value, Member):
                value = dataclasses.replace(value, client_id="", client_host="")
            key = (record.kind, value is None)
            named = dataclasses.replace(record, name=ours(record.name), value=value)
            text = f"{said_record(named)} {value if isinstance(value, Member) else ''}"
        said.append((key, text))
    found: list[str] = []
    for _, run in itertools.groupby(said, key=lambda each: each[0]):
        found.extend(sorted(text for _, text in run))
    return found


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaPeer]:
    with KafkaPeer(tmp_path_factory.mktemp("kafka"), SETTINGS) as running:
        yield running


def test_answers_and_records_are_kafkas(kafka: KafkaPeer) -> None:
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": kafka.bootstrap})
    for name, count in PARTITIONS.items():
        admin.create_topics([confluent_kafka.admin.NewTopic(name, count, 1)])[name].result(60)
    link = Link(kafka.port)
    asked = MetadataRequest([MetadataRequestTopic(name=name) for name in PARTITIONS])
    metadata = link.ask(asked, 12)
    while any(topic.error_code for topic in metadata.topics):
        metadata = link.ask(asked, 12)  # it tells of a topic a little after it was made
    both = Both(kafka.port)
    MixedGroups.do_settings(both, Words(OURS.split()))
    both.advance(1000)
    both.topics = {
        topic.name: TopicInfo(topic.name, topic.topic_id, PARTITIONS[topic.name]) for topic in metadata.topics
    }
    both.know_topics()
    while link.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4).coordinators[0].error_code:
        pass  # it makes its topic first
    while link.ask(leaving_nobody(), 1).error_code != ErrorCode.GROUP_ID_NOT_FOUND:
        pass  # and loads it
    for script in SCRIPTS:
        both.clients.clear()
        both.has.clear()
        for line in commands_of(script.read_text()):
            both.do(line)
    both.everything_is_answered()
    kafka.stop()
    theirs = list(records_of(kafka))
    assert "\n".join(both.differences) == ""
    ours = [record for key, value in both.log if (record := decode(key, value)) is not None]
    for group_id in sorted({record.group_id for record in ours}):
        of_ours = comparable([record for record in ours if record.group_id == group_id], lambda each: each)
        of_theirs = comparable([record for record in theirs if record.group_id == group_id], both.ours)
        assert of_ours == of_theirs, group_id
