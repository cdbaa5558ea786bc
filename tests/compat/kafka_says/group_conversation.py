"""What is said to a broker about groups, at every version, and what it answers, made comparable.

Ids that are drawn at random are named by when they first came up; where a broker listens is left out.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.frame import RequestHeader, decode_response_header, encode_request
from headrace.wire.messages import response_class
from headrace.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from headrace.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from headrace.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from headrace.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.wire.messages.k12_heartbeat import HeartbeatRequest
from headrace.wire.messages.k13_leave_group import LeaveGroupRequest, MemberIdentity
from headrace.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from headrace.wire.messages.k15_describe_groups import DescribeGroupsRequest
from headrace.wire.messages.k16_list_groups import ListGroupsRequest
from headrace.wire.messages.k18_api_versions import ApiVersionsRequest
from headrace.wire.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from headrace.wire.messages.k42_delete_groups import DeleteGroupsRequest
from headrace.wire.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
METADATA = b"\x00\x00\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff"
"""A consumer's subscription to the topic `t`."""

RECORDING = Path(__file__).parent / "group_answers.json"
"""What Apache Kafka answered: its versions of the APIs, and its answers."""
OURS_TO_SAY = {
    "find an unknown type v3.error_message": "a sentence of our own",
}
"""Where the answers may differ, and why."""


class Link:
    """One connection: a request, then its answer; or the request now and its answer later."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.waiting: list[tuple[int, int]] = []

    def send(self, request: Any, version: int) -> None:
        key = request.API_KEY
        self.socket.sendall(
            encode_request(RequestHeader(key, version, len(self.waiting), "c"), request.encode(version))
        )
        self.waiting.append((key, version))

    def receive(self) -> Any:
        key, version = self.waiting.pop(0)
        size = int.from_bytes(self._exactly(4), "big")
        frame = self._exactly(size)
        _, at = decode_response_header(frame, key, version)
        return response_class(key).decode(frame, version, at)

    def ask(self, request: Any, version: int) -> Any:
        self.send(request, version)
        return self.receive()

    def close(self) -> None:
        self.socket.close()

    def _exactly(self, size: int) -> bytes:
        parts = []
        while size:
            part = self.socket.recv(size)
            if not part:
                raise ConnectionError("the broker closed the connection")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


@dataclass
class Conversation:
    """Everything that was answered, in order, under a name each."""

    port: int
    versions: dict[int, range]
    answers: dict[str, Any] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    topic_id: bytes = bytes(16)

    def __post_init__(self) -> None:
        self.link = Link(self.port)

    def say(self, name: str, request: Any, version: int) -> Any:
        answer = self.link.ask(request, version)
        self.note(f"{name} v{version}", answer)
        return answer

    def note(self, name: str, answer: Any) -> None:
        assert name not in self.answers, name
        self.answers[name] = self._plain(asdict(answer))

    def _plain(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {
                key: self._plain(each)
                for key, each in value.items()
                if key not in ("host", "port", "node_id", "authorized_operations")
            }
        if isinstance(value, (list, tuple)):
            # The order of results is nobody's promise: Kafka puts refused partitions first, and groups by coordinator.
            return sorted((self._plain(each) for each in value), key=_sort_key)
        if isinstance(value, str):
            return UUID.sub(self._name, value)
        if isinstance(value, int) and not isinstance(value, bool):
            return int(value)
        if isinstance(value, bytes):
            return "id of t" if value == self.topic_id != bytes(16) else value.decode("latin-1")
        return value

    def _name(self, found: re.Match[str]) -> str:
        return self.names.setdefault(found[0], f"#{len(self.names) + 1}")


def flat(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Every leaf of an answer, by its path."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from flat(f"{path}.{key}" if path else key, each)
    elif isinstance(value, list):
        yield f"{path}.count", len(value)
        for index, each in enumerate(value):
            yield from flat(f"{path}[{index}]", each)
    else:
        yield path, value


def differences(ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """path -> (ours, Kafka's) wherever the answers differ and nobody said that they may."""
    missing = object()
    left, right = dict(flat("", ours)), dict(flat("", theirs))
    return {
        path: (left.get(path), right.get(path))
        for path in {**right, **left}
        if left.get(path, missing) != right.get(path, missing) and path not in OURS_TO_SAY
    }


def _sort_key(value: Any) -> str:
    if not isinstance(value, dict):
        return repr(value)
    names = ("name", "topic_id", "partition_index", "group_id", "key", "member_id", "group_instance_id")
    return repr([value[name] for name in names if name in value])


def versions_of(port: int) -> dict[int, range]:
    """The versions of each API that the broker on `port` says it serves."""
    link = Link(port)
    answer = link.ask(ApiVersionsRequest("headrace-tests", "1"), 3)
    link.close()
    return {each.api_key: range(each.min_version, each.max_version + 1) for each in answer.api_keys}


def common_versions(*ports: int) -> dict[int, range]:
    """What all of these brokers serve."""
    said = [versions_of(port) for port in ports]
    keys = set.intersection(*(set(each) for each in said))
    return {
        key: range(max(each[key].start for each in said), min(each[key].stop for each in said)) for key in sorted(keys)
    }


def join(group: str, member_id: str = "", **more: Any) -> JoinGroupRequest:
    """A JoinGroup as a consumer sends it."""
    said: dict[str, Any] = {
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 30_000,
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol("range", METADATA)],
        **more,
    }
    return JoinGroupRequest(group_id=group, member_id=member_id, **said)


def commit(group: str, position: int, generation: int = -1, member_id: str = "", **more: Any) -> OffsetCommitRequest:
    """An OffsetCommit for `t`, partition 0."""
    topics = [OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition(0, position, -1, "said")])]
    return OffsetCommitRequest(group, generation, member_id, topics=topics, **more)


def converse(port: int, versions: dict[int, range]) -> dict[str, Any]:
    """The whole conversation with the broker on `port`, in these versions."""
    talk = Conversation(port, versions)
    _prepare(talk)
    for part in (_coordinators, _lives, _offsets, _deletions, _static, _strangers, _two, _described):
        part(talk)
    talk.link.close()
    return talk.answers


def _until(ask: Callable[[], Any], fine: Callable[[Any], bool]) -> Any:
    deadline = time.monotonic() + 60
    while not fine(answer := ask()):
        assert time.monotonic() < deadline, answer
        time.sleep(0.05)
    return answer


def _prepare(talk: Conversation) -> None:
    """The topic `t`, and the coordinator's own."""
    talk.link.ask(CreateTopicsRequest([CreatableTopic("t", 2, 1)], 10_000), 7)
    found = _until(
        lambda: talk.link.ask(MetadataRequest([MetadataRequestTopic(name="t")]), 12),
        lambda answer: not answer.topics[0].error_code and all(not p.error_code for p in answer.topics[0].partitions),
    )
    talk.topic_id = found.topics[0].topic_id
    _until(
        lambda: talk.link.ask(FindCoordinatorRequest(key="g"), 3), lambda answer: answer.error_code == ErrorCode.NONE
    )
    _until(
        lambda: talk.link.ask(ListGroupsRequest(), 5),
        lambda answer: answer.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    )
    for group in ("g", "h", *(f"life-{version}" for version in range(10))):
        _until(
            lambda group=group: talk.link.ask(_fetch_all(group), 8),  # type: ignore[misc]
            lambda answer: not answer.groups[0].error_code,
        )


def _fetch_all(group: str) -> OffsetFetchRequest:
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])


def _coordinators(talk: Conversation) -> None:
    for version in talk.versions[ApiKey.FIND_COORDINATOR]:
        if version < 4:
            talk.say("find", FindCoordinatorRequest(key="g"), version)
        else:
            talk.say("find", FindCoordinatorRequest(coordinator_keys=["g", "h"]), version)
    talk.say("find an unknown type", FindCoordinatorRequest(key="g", key_type=9), 3)


def _lives(talk: Conversation) -> None:
    """A member from its first JoinGroup to its last LeaveGroup, at each version of each API."""
    for version in talk.versions[ApiKey.JOIN_GROUP]:
        group = f"life-{version}"
        answer = talk.say("join", join(group), version)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            answer = talk.say("join with the id", join(group, answer.member_id), version)
        member_id, generation = answer.member_id, answer.generation_id
        sync_version = min(version, 5)
        names: tuple[str | None, str | None] = ("consumer", "range") if sync_version >= 5 else (None, None)
        assigned = [SyncGroupRequestAssignment(member_id, b"assigned")]
        request = SyncGroupRequest(group, generation, member_id, None, *names, assigned)
        talk.say(f"sync {group}", request, sync_version)
        talk.say(f"sync again {group}", request, sync_version)
        talk.say(f"beat {group}", HeartbeatRequest(group, generation, member_id), min(version, 4))
        talk.say(f"join as it stands {group}", join(group, member_id), version)
        talk.say(f"beat of old {group}", HeartbeatRequest(group, generation, member_id), min(version, 4))
        leave_version = min(version, 5)
        leaving = LeaveGroupRequest(group, member_id=member_id)
        if leave_version >= 3:
            leaving = LeaveGroupRequest(group, members=[MemberIdentity(member_id), MemberIdentity("nobody")])
        talk.say(f"describe while joining {group}", DescribeGroupsRequest([group]), min(version, 6))
        talk.say(f"leave {group}", leaving, leave_version)
        talk.say(f"leave again {group}", leaving, leave_version)


def _offsets(talk: Conversation) -> None:
    for version in talk.versions[ApiKey.OFFSET_COMMIT]:
        request = commit("g", 40 + version)
        if version >= 10:
            request.topics[0].name, request.topics[0].topic_id = "", talk.topic_id
        unknown = OffsetCommitRequestTopic("nowhere", b"\x09" * 16, [OffsetCommitRequestPartition(0, 1)])
        beyond = OffsetCommitRequestPartition(7, 1)
        long = OffsetCommitRequestPartition(1, 1, -1, "x" * 4097)
        request.topics[0].partitions += [beyond, long]
        request.topics.append(unknown)
        talk.say("commit", request, version)
        talk.say("commit of a generation", commit("nobody", 1, 3, "m"), min(version, 9)) if version < 10 else None
    for version in talk.versions[ApiKey.OFFSET_FETCH]:
        if version < 8:
            topics = [OffsetFetchRequestTopic("t", [0, 1, 7]), OffsetFetchRequestTopic("nowhere", [0])]
            talk.say("fetch", OffsetFetchRequest("g", topics), version)
            talk.say("fetch of nobody", OffsetFetchRequest("nobody", topics), version)
            if version >= 2:
                talk.say("fetch all", OffsetFetchRequest("g", None), version)
            continue
        known = OffsetFetchRequestTopics("t", talk.topic_id, [0, 1, 7])
        other = OffsetFetchRequestTopics("nowhere", b"\x09" * 16, [0])
        groups = [OffsetFetchRequestGroup(name, topics=[known, other]) for name in ("g", "nobody")]
        talk.say("fetch", OffsetFetchRequest(groups=groups), version)
        talk.say("fetch all", OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)]), version)
        stable = OffsetFetchRequest(groups=groups, require_stable=True)
        talk.say("fetch stable", stable, version)


def _deletions(talk: Conversation) -> None:
    topics = [
        OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(0), OffsetDeleteRequestPartition(7)]),
        OffsetDeleteRequestTopic("nowhere", [OffsetDeleteRequestPartition(0)]),
    ]
    talk.say("delete offsets", OffsetDeleteRequest("g", topics), 0)
    talk.say("delete offsets of nobody", OffsetDeleteRequest("nobody", topics), 0)
    talk.say("fetch after", OffsetFetchRequest("g", None), 7)
    for version in talk.versions[ApiKey.DELETE_GROUPS]:
        talk.link.ask(commit("h", 1), 9)
        talk.say("delete", DeleteGroupsRequest(["h", "nobody"]), version)


def _static(talk: Conversation) -> None:
    """A static member that comes back, from JoinGroup v5 on."""
    for version in range(5, 10):
        group = f"static-{version}"
        first = talk.say("static join", join(group, group_instance_id="i"), version)
        assigned = [SyncGroupRequestAssignment(first.member_id, b"mine")]
        sync = SyncGroupRequest(group, first.generation_id, first.member_id, "i", "consumer", "range", assigned)
        talk.say(f"static sync {group}", sync, 5)
        back = talk.say("static join again", join(group, group_instance_id="i"), version)
        sync = SyncGroupRequest(group, back.generation_id, back.member_id, "i", "consumer", "range")
        talk.say(f"static sync again {group}", sync, 5)
        talk.say(f"fenced beat {group}", HeartbeatRequest(group, first.generation_id, first.member_id, "i"), 4)
        talk.say(f"static beat {group}", HeartbeatRequest(group, back.generation_id, back.member_id, "i"), 4)
        talk.say(f"fenced join {group}", join(group, first.member_id, group_instance_id="i"), version)
        fenced = commit(group, 1, first.generation_id, first.member_id, group_instance_id="i")
        talk.say(f"fenced commit {group}", fenced, 9)
        talk.say(f"static describe {group}", DescribeGroupsRequest([group]), 5)
        taken_out = LeaveGroupRequest(group, members=[MemberIdentity("", "i"), MemberIdentity("", "j")])
        talk.say(f"taken out {group}", taken_out, 5)


def _strangers(talk: Conversation) -> None:
    """Whoever does not belong."""
    talk.say("join unknown", join("g", "nobody"), 9)
    talk.say("join nowhere", join("none", "nobody"), 9)
    talk.say("join without a name", join(""), 9)
    talk.say("join too briefly", join("g", session_timeout_ms=10), 9)
    talk.say("join with nothing", join("g", protocols=[]), 9)
    talk.say("sync unknown", SyncGroupRequest("none", 1, "nobody", None, "consumer", "range"), 5)
    talk.say("sync without protocols", SyncGroupRequest("none", 1, "nobody"), 5)
    talk.say("sync without a name", SyncGroupRequest("", 1, "nobody"), 4)
    talk.say("beat unknown", HeartbeatRequest("none", 1, "nobody"), 4)
    talk.say("beat without a name", HeartbeatRequest("", 1, "nobody"), 4)
    talk.say("leave unknown", LeaveGroupRequest("none", members=[MemberIdentity("nobody")]), 5)
    talk.say("leave unknown", LeaveGroupRequest("none", member_id="nobody"), 2)
    talk.say("leave without a name", LeaveGroupRequest("", members=[MemberIdentity("nobody")]), 5)
    talk.say("commit without a name", commit("", 5), 9)
    talk.say("fetch without a name", OffsetFetchRequest("", None), 7)
    talk.say("delete without a name", DeleteGroupsRequest([""]), 2)


def _two(talk: Conversation) -> None:
    """A second member comes while the first is stable; then the commits and syncs of each phase."""
    first = talk.link.ask(join("two"), 9)
    first = talk.say("two: a joins", join("two", first.member_id), 9)
    a = first.member_id
    sync = SyncGroupRequest("two", 1, a, None, "consumer", "range", [SyncGroupRequestAssignment(a, b"all")])
    talk.say("two: commit before sync", commit("two", 1, 1, a), 9)
    talk.say("two: a syncs", sync, 5)
    talk.say("two: delete while stable", DeleteGroupsRequest(["two"]), 2)
    subscribed = OffsetDeleteRequest("two", [OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(0)])])
    talk.say("two: delete offsets while stable", subscribed, 0)
    talk.say("two: a simple commit", commit("two", 1), 9)
    second = Link(talk.port)
    b = second.ask(join("two"), 9).member_id
    talk.names.setdefault(UUID.search(b)[0], "b")  # type: ignore[index]
    second.send(join("two", b), 9)
    _until(
        lambda: talk.link.ask(HeartbeatRequest("two", 1, a), 4),
        lambda r: r.error_code == ErrorCode.REBALANCE_IN_PROGRESS,
    )
    talk.say("two: sync while joining", sync, 5)
    talk.say("two: commit while joining", commit("two", 2, 1, a), 9)
    talk.say("two: stranger's protocols", join("two", protocols=[JoinGroupRequestProtocol("other", b"")]), 9)
    talk.say("two: stranger's type", join("two", protocol_type="connect"), 9)
    talk.say("two: a joins again", join("two", a), 9)
    talk.note("two: b joined", second.receive())
    second.send(SyncGroupRequest("two", 2, b, None, "consumer", "range"), 5)
    both = [SyncGroupRequestAssignment(a, b"for a"), SyncGroupRequestAssignment(b, b"for b")]
    talk.say("two: wrong protocol", SyncGroupRequest("two", 2, a, None, "consumer", "other", both), 5)
    talk.say("two: both synced", SyncGroupRequest("two", 2, a, None, "consumer", "range", both), 5)
    talk.note("two: b synced", second.receive())
    talk.say("two: b asks again", join("two", b), 9)
    talk.say("two: described", DescribeGroupsRequest(["two"]), 6)
    talk.say("two: both leave", LeaveGroupRequest("two", members=[MemberIdentity(a), MemberIdentity(b)]), 5)
    talk.say("two: empty", DescribeGroupsRequest(["two"]), 6)
    second.close()


def _described(talk: Conversation) -> None:
    for version in talk.versions[ApiKey.DESCRIBE_GROUPS]:
        talk.say(
            "describe", DescribeGroupsRequest(["g", "nobody"], include_authorized_operations=version >= 3), version
        )
    for version in talk.versions[ApiKey.LIST_GROUPS]:
        talk.say("list", ListGroupsRequest(), version)
    for states, types in (
        (["Empty"], []),
        (["stable"], []),
        ([], ["Classic"]),
        ([], ["consumer"]),
        (["nothing"], ["no"]),
    ):
        talk.say(f"list {states} {types}", ListGroupsRequest(states, types), 5)
