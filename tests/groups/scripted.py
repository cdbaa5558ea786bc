"""One coordinator shard that scripts drive.

A client is a name. It remembers the member id and generation that it was last given, so that a script says only what
matters. Time stands still but for `time`. The log is a list; `hold` keeps appends uncommitted until `committed` or
`fail`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from scripts.transcript import Scripted, Words

from headrace.broker.requests.pieces import at_once
from headrace.groups.consumer.records import ConsumerRecord, CurrentAssignment, Held, Member, Partitions, Resolved
from headrace.groups.consumer.settings import ConsumerSettings
from headrace.groups.group_client import GroupClient
from headrace.groups.modern.epochs import AssignmentEpoch, GroupEpoch
from headrace.groups.records import GroupRecord, OffsetRecord, Record, decode
from headrace.groups.settings import GroupSettings
from headrace.groups.shard import GroupShard
from headrace.groups.subscription import read_assignment
from headrace.machine.outcome import Ending, Note, Outcome
from headrace.machine.runtime import LoadedRecord, LogPiece, RuntimeSettings, ShardRuntime
from headrace.wire.batch import iter_headers
from headrace.wire.errors import ErrorCode
from headrace.wire.markers import EndMarker
from headrace.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from headrace.wire.messages.k09_offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from headrace.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from headrace.wire.messages.k13_leave_group import LeaveGroupResponse, MemberIdentity
from headrace.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from headrace.wire.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from headrace.wire.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from headrace.wire.records import decode_batch

NEVER_MS = 1 << 40

R = TypeVar("R")


@dataclass
class Client:
    """What a client remembers."""

    name: str
    member_id: str = ""
    generation: int = -1


@dataclass
class Waiter:
    """Stands for a request that may be answered later."""

    client: Client
    what: str

    def complete(self, value: Any) -> None:
        raise AssertionError("the runtime gives answers out, it does not resolve them")


def topic_id(name: str) -> bytes:
    """The id of a topic, as scripts have it: its name, a space, and how often it was made anew, if it was."""
    return name.encode().ljust(16, b"\0")


def said_partitions(partitions: Partitions | Held, tells_epochs: bool = False) -> str:
    """Partitions in a few words, t-0 t-1; with the epochs in which they were assigned, t-0@3."""
    told = []
    for each, all_ in sorted(partitions.items()):
        name = each.rstrip(b"\0").decode(errors="backslashreplace")
        for partition in sorted(all_):
            epoch = f"@{all_[partition]}" if tells_epochs and isinstance(all_, dict) else ""
            told.append(f"{name}-{partition}{epoch}")
    return " ".join(told)


def subscription(topics: list[str], tail: bytes = b"") -> bytes:
    """Consumer metadata, version 0, naming these topics."""
    parts = [b"\x00\x00", len(topics).to_bytes(4, "big")]
    parts += [len(topic).to_bytes(2, "big") + topic.encode() for topic in topics]
    return b"".join(parts) + b"\xff\xff\xff\xff" + tail


class Coordinator(Scripted):
    """A shard with a log in memory, which does what the shard's outcomes say."""

    def __init__(self, settings: GroupSettings | None = None) -> None:
        super().__init__()
        self.settings = settings or GroupSettings()
        self.now_ms = 0
        self.log: list[tuple[bytes, bytes | None]] = []
        self.holding = False
        self.refusal: ErrorCode | None = None
        self.questions: list[Any] = []
        self.principal = "User:u"
        ids = itertools.count(1)
        self._new_id: Callable[[], str] = lambda: str(next(ids))
        self.clients: dict[str, Client] = {}
        self.high_watermark = 0
        self.runtime_settings = RuntimeSettings(commit_timeout_ms=NEVER_MS)
        self.reload()

    @property
    def shard(self) -> GroupShard:
        return self.runtime.shard

    # --- the shell's part --------------------------------------------------------------------------------------------

    def run(self, out: Outcome, waiter: Waiter | None = None) -> None:
        """Does what a decision says."""
        self.runtime.decided(out, self.now_ms, waiter, lambda error: error)
        self.drive()

    def drive(self) -> None:
        """Appends what the runtime wants appended, and gives out what it releases."""
        while self.runtime.settle(self.now_ms):
            self.give_out()
            if self.refusal is not None:
                self.runtime.refused(self.refusal)
                continue
            batches = self.runtime.next_append(self.now_ms, 1 << 20)
            for at, header in iter_headers(batches):
                if header.is_control:
                    self.say(f"log: producer {header.producer_id} ends")
                    self.log.append((b"", None))
                    continue
                if header.is_transactional:
                    self.say(f"log: of producer {header.producer_id}@{header.producer_epoch}")
                for record in decode_batch(batches, at):
                    key, value = record.key or b"", record.value
                    decoded = decode(key, value)
                    assert decoded is not None
                    self.say(said_record(decoded))
                    self.log.append((key, value))
            if not self.holding:
                self.high_watermark = len(self.log)
            self.runtime.appended(len(self.log), self.high_watermark)
        self.give_out()

    def give_out(self) -> None:
        outputs, self.runtime.outputs = self.runtime.outputs, []
        for output in outputs:
            if isinstance(output, Note):
                self.say(f"# {' '.join([output.event, *(f'{key}={value}' for key, value in output.fields.items())])}")
            elif isinstance(output, tuple):
                waiter, response = output
                assert isinstance(waiter, Waiter)
                self.answer(waiter, response)
            else:
                self.questions.append(output)
        self.answer_questions()

    def answer_questions(self) -> None:
        """Answers what the shard wants to have found elsewhere."""
        assert not self.questions

    def release(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Everything that was held is committed, or lost."""
        self.holding = False
        if error is ErrorCode.NONE:
            self.high_watermark = len(self.log)
            self.runtime.committed(self.high_watermark)
        else:
            del self.log[self.high_watermark :]
            self.runtime.lost(error, self.now_ms)
        self.drive()

    def advance(self, by_ms: int) -> None:
        """Lets time pass, firing timers when they are due and not later."""
        end_ms = self.now_ms + by_ms
        while (deadline_ms := self.runtime.deadline_ms()) is not None and deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            while self.runtime.tick(self.now_ms):
                with self.at(self.now_ms):
                    self.drive()
        self.now_ms = end_ms

    def reload(self) -> None:
        """Another coordinator takes over with nothing but the log."""
        shard = GroupShard(self.settings, self._new_id)
        self.high_watermark = len(self.log)
        self.runtime = ShardRuntime(0, 0, shard, self.runtime_settings)
        said = []
        for offset, (key, value) in enumerate(self.log):
            record = decode(key, value)
            if record is not None:
                said.append(LoadedRecord(record, offset, -1))
        self.runtime.begin(0, self.high_watermark)
        self.runtime.load(LogPiece(said, len(said), len(self.log)), self.high_watermark)
        while not self.runtime.start(self.now_ms):
            pass
        self.drive()

    def answer(self, waiter: Waiter, response: Any) -> None:
        """Notes an answer, and lets the client remember what it was given."""
        client = waiter.client
        if isinstance(response, ErrorCode):
            self.say(f"{client.name} {waiter.what}: {response.name}")
            return
        self.say(f"{client.name} {waiter.what}: {said(response)}")
        if isinstance(response, JoinGroupResponse):
            if response.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
                client.member_id = response.member_id
                client.generation = response.generation_id
            elif response.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
                client.member_id = ""

    def client(self, name: str) -> Client:
        return self.clients.setdefault(name, Client(name))

    # --- commands ----------------------------------------------------------------------------------------------------

    def do_settings(self, words: Words) -> None:
        self.runtime_settings = RuntimeSettings(commit_timeout_ms=int(words.named.pop("commit_timeout_ms", NEVER_MS)))
        assignors = words.named.pop("consumer.assignors", "")
        numbers = {key: int(value) for key, value in words.named.items()}
        of_consumers: dict[str, Any] = {
            key[9:]: numbers.pop(key) for key in list(numbers) if key.startswith("consumer.")
        }
        if assignors:
            of_consumers["assignors"] = tuple(assignors.split(","))
        given: dict[str, Any] = {**numbers, "consumer": ConsumerSettings(**of_consumers)}
        self.settings = GroupSettings(**given)
        self.reload()

    def do_principal(self, words: Words) -> None:
        """principal NAME: who all clients are from here on."""
        self.principal = words.plain[0]

    def do_join(self, words: Words) -> None:
        group_id, client = words.plain[0], self.client(words.plain[1])
        topics = words.named.get("topics", "t").split(",")
        names = words.named.get("protocols", "range").split(",")
        metadata = subscription(topics, words.named.get("metadata", "").encode())
        request = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=int(words.named.get("session", 10_000)),
            rebalance_timeout_ms=int(words.named.get("rebalance", 60_000)),
            member_id=words.named.get("member", client.member_id),
            group_instance_id=words.named.get("instance"),
            protocol_type=words.named.get("type", "consumer"),
            protocols=[JoinGroupRequestProtocol(name, metadata) for name in names if name],
        )
        waiter = Waiter(client, "joins")
        sender = GroupClient(client.name, "/127.0.0.1", int(words.named.get("version", 9)), self.principal)
        self.run(self.shard.join(request, sender, waiter, self.now_ms), waiter)

    def do_sync(self, words: Words) -> None:
        client = self.client(words.plain[1])
        assigned = [pair.split(":") for pair in words.named.get("assign", "").split(",") if pair]
        request = SyncGroupRequest(
            group_id=words.plain[0],
            generation_id=int(words.named.get("generation", client.generation)),
            member_id=words.named.get("member", client.member_id),
            group_instance_id=words.named.get("instance"),
            protocol_type=words.named.get("type"),
            protocol_name=words.named.get("protocol"),
            assignments=[SyncGroupRequestAssignment(member_id, data.encode()) for member_id, data in assigned],
        )
        waiter = Waiter(client, "syncs")
        self.run(self.shard.sync(request, waiter, self.now_ms), waiter)

    def do_heartbeat(self, words: Words) -> None:
        client = self.client(words.plain[1])
        error = self.shard.heartbeat(
            words.plain[0],
            words.named.get("member", client.member_id),
            words.named.get("instance"),
            int(words.named.get("generation", client.generation)),
            self.now_ms,
        )
        self.say(f"{client.name} heartbeats: {error.name}")

    def do_leave(self, words: Words) -> None:
        members = [MemberIdentity(self.client(name).member_id, words.named.get("instance")) for name in words.plain[1:]]
        if not members:
            members = [MemberIdentity(words.named.get("member", ""), words.named.get("instance"))]
        waiter = Waiter(self.client(words.plain[1] if len(words.plain) > 1 else "admin"), "leaves")
        self.run(self.shard.leave(words.plain[0], members, self.now_ms), waiter)

    def do_commit(self, words: Words) -> None:
        client = self.client(words.plain[1])
        special = ("generation", "member", "instance", "version", "retention", "metadata", "id")
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for where, position in ((k, v) for k, v in words.named.items() if k not in special):
            topic, partition = where.rsplit("-", 1)
            asked = OffsetCommitRequestPartition(int(partition), int(position), -1, words.named.get("metadata", ""))
            topics.setdefault(topic, []).append(asked)
        topic_id = bytes([int(words.named.get("id", 0))]) * 16
        request = OffsetCommitRequest(
            group_id=words.plain[0],
            generation_id_or_member_epoch=int(words.named.get("generation", client.generation)),
            member_id=words.named.get("member", client.member_id),
            group_instance_id=words.named.get("instance"),
            retention_time_ms=int(words.named.get("retention", -1)),
            topics=[OffsetCommitRequestTopic(topic, topic_id, asked) for topic, asked in topics.items()],
        )
        waiter = Waiter(client, "commits")
        self.run(self.shard.commit(request, int(words.named.get("version", 9)), self.now_ms), waiter)

    def do_txn_commit(self, words: Words) -> None:
        """txn-commit GROUP CLIENT PRODUCER@EPOCH TOPIC-0=OFFSET...: in an open transaction."""
        group_id, name, producer = words.plain
        client, (producer_id, epoch) = self.client(name), producer.split("@")
        special = ("generation", "member", "instance", "version", "metadata")
        topics = []
        for where, position in ((k, v) for k, v in words.named.items() if k not in special):
            topic, partition = where.rsplit("-", 1)
            metadata = words.named.get("metadata", "")
            asked = TxnOffsetCommitRequestPartition(int(partition), int(position), -1, metadata)
            topics.append(TxnOffsetCommitRequestTopic(topic, partitions=[asked]))
        request = TxnOffsetCommitRequest(
            "id",
            group_id,
            int(producer_id),
            int(epoch),
            int(words.named.get("generation", client.generation)),
            words.named.get("member", client.member_id),
            words.named.get("instance"),
            topics,
        )
        waiter = Waiter(client, "commits in a transaction")
        version = int(words.named.get("version", 5))
        self.run(self.shard.commit_in_transaction(request, version, self.now_ms), waiter)

    def do_end(self, words: Words) -> None:
        """end PRODUCER@EPOCH committed|aborted"""
        producer, how = words.plain
        producer_id, epoch = map(int, producer.split("@"))
        ending = Ending(EndMarker(producer_id, epoch, 0, how == "committed"), raises_epoch=False)
        self.run(Outcome(ending=ending))

    def do_fetch(self, words: Words) -> None:
        topic_id = bytes([int(words.named.get("id", 0))]) * 16
        topics = [
            OffsetFetchRequestTopics(where.rsplit("-", 1)[0], topic_id, [int(where.rsplit("-", 1)[1])])
            for where in words.plain[1:]
        ]
        request = OffsetFetchRequestGroup(group_id=words.plain[0], topics=topics if words.plain[1:] else None)
        found = at_once(self.shard.fetching(request, "stable" in words.named))
        for topic in found.topics:
            for each in topic.partitions:
                error = f" {ErrorCode(each.error_code).name}" if each.error_code else ""
                more = f" {each.metadata!r}" if each.metadata else ""
                self.say(f"{topic.name}-{each.partition_index} = {each.committed_offset}{more}{error}")

    def do_delete_offsets(self, words: Words) -> None:
        topics = [
            OffsetDeleteRequestTopic(where.rsplit("-", 1)[0], [OffsetDeleteRequestPartition(int(where[-1]))])
            for where in words.plain[1:]
        ]
        request = OffsetDeleteRequest(words.plain[0], topics)
        self.run(self.shard.delete_offsets(request), Waiter(self.client("admin"), "deletes offsets"))

    def do_delete(self, words: Words) -> None:
        self.run(self.shard.delete_groups(words.plain), Waiter(self.client("admin"), "deletes"))

    def do_forget_topic(self, words: Words) -> None:
        deleted = {words.plain[0]: bytes([int(words.named.get("id", 0))]) * 16}
        for group_ids in self.shard.parts():
            self.run(self.shard.forget_topics(deleted, words.plain[1:], group_ids))

    def do_forget_missing(self, words: Words) -> None:
        """forget-missing ID...: there are only topics of these ids."""
        topic_ids = {bytes([int(each)]) * 16 for each in words.plain}
        for group_ids in self.shard.parts():
            self.run(self.shard.forget_missing(topic_ids, group_ids))

    def do_describe(self, words: Words) -> None:
        group = self.shard.describe_group(words.plain[0])
        if group.error_code:
            self.say(f"{ErrorCode(group.error_code).name}: {group.error_message}")
        self.say(f"{group.group_state} type={group.protocol_type!r} protocol={group.protocol_data!r}")
        for member in group.members:
            instance = f" instance={member.group_instance_id}" if member.group_instance_id else ""
            assignment = member.member_assignment.decode()
            self.say(f"  {member.member_id}{instance} client={member.client_id} assignment={assignment!r}")

    def do_list(self, words: Words) -> None:
        states = {state.lower() for state in words.named.get("states", "").split(",") if state}
        types = {kind.lower() for kind in words.named.get("types", "").split(",") if kind}
        for group in self.shard.list_groups(states, types):
            self.say(f"{group.group_id} {group.group_state} {group.group_type} {group.protocol_type!r}")

    def do_record(self, words: Words) -> None:
        """A record found in the log: key and value in hex ("-" for a tombstone)."""
        value = None if words.plain[1] == "-" else bytes.fromhex(words.plain[1])
        self.log.append((bytes.fromhex(words.plain[0]), value))

    def do_time(self, words: Words) -> None:
        self.advance(int(words.plain[0]))

    def do_hold(self, words: Words) -> None:
        self.holding = True

    def do_committed(self, words: Words) -> None:
        self.release()

    def do_fail(self, words: Words) -> None:
        self.release(ErrorCode[words.plain[0]])

    def do_refuse(self, words: Words) -> None:
        """Appends are not taken from here on; NONE: they are again."""
        self.refusal = None if words.plain[0] == "NONE" else ErrorCode[words.plain[0]]

    def do_reload(self, words: Words) -> None:
        self.reload()

    def do_unload(self, words: Words) -> None:
        self.runtime.resign(self.now_ms)
        self.give_out()


def said_record(record: Record) -> str:
    """A record in one line."""
    if isinstance(record, OffsetRecord):
        where = f"{record.group_id} {record.topic}-{record.partition}"
        return f"log: {where} = {record.offset.position}" if record.offset is not None else f"log: {where} removed"
    if isinstance(record, GroupRecord):
        if record.stored is None:
            return f"log: {record.group_id} removed"
        members = " ".join(f"{m.member_id}:{said_assignment(m.assignment)}" for m in record.stored.members)
        return f"log: {record.group_id} generation={record.stored.generation} members=[{members}]"
    if isinstance(record, ConsumerRecord):
        return said_consumer_record(record)
    return f"log: {record.group_id} record of type {record.kind} {'removed' if record.value is None else 'kept'}"


def said_assignment(data: bytes) -> str:
    """What a leader assigned: a script's own words, or partitions, t-0,t-1."""
    if not data.startswith(b"\0"):
        return data.decode()
    assigned = read_assignment(data).assigned_partitions
    return ",".join(f"{each.topic}-{partition}" for each in assigned for partition in each.partitions)


def said_consumer_record(record: ConsumerRecord) -> str:
    """A record of a consumer group in one line."""
    who = f"log: {record.group_id} {record.name}".rstrip()
    value = record.value
    if value is None:
        return f"{who} {record.kind.name.lower()} removed"
    if isinstance(value, GroupEpoch):
        return f"{who} epoch={value.epoch}"
    if isinstance(value, AssignmentEpoch):
        return f"{who} targets are of epoch {value.epoch}"
    if isinstance(value, Member):
        said = [f"instance={value.instance_id}"] if value.instance_id is not None else []
        said += [f"rack={value.rack_id}"] if value.rack_id is not None else []
        said += [f"topics={','.join(sorted(value.topics))}"] if value.topics or not value.regex else []
        said += [f"regex={value.regex}"] if value.regex else []
        said += [f"assignor={value.assignor}"] if value.assignor is not None else []
        if value.classic is not None:
            said += [f"classic={','.join(each.name for each in value.classic.supported_protocols)}"]
        return f"{who} says {' '.join(said)}"
    if isinstance(value, CurrentAssignment):
        revoking = f" revokes [{said_partitions(value.revoking)}]" if value.revoking else ""
        where = f"epoch={value.epoch} was={value.previous_epoch} {value.state.name}"
        return f"{who} {where} has [{said_partitions(value.assigned, tells_epochs=True)}]{revoking}"
    if isinstance(value, Resolved):
        return f"{who} means [{','.join(sorted(value.topics))}]"
    if isinstance(value, bytes):
        return f"{who} {record.kind.name.lower()} kept"
    return f"{who} shall have [{said_partitions(value)}]"


def said(response: Any) -> str:
    """An answer in one line: the error, or what the client learns."""
    if isinstance(response, JoinGroupResponse):
        if response.error_code:
            member = f" member={response.member_id}" if response.member_id else ""
            return f"{ErrorCode(response.error_code).name}{member}"
        members = " ".join(m.member_id for m in response.members)
        skips = " skip-assignment" if response.skip_assignment else ""
        return (
            f"generation={response.generation_id} protocol={response.protocol_name} leader={response.leader} "
            f"member={response.member_id} members=[{members}]{skips}"
        )
    if isinstance(response, SyncGroupResponse):
        return ErrorCode(response.error_code).name if response.error_code else repr(response.assignment.decode())
    if isinstance(response, LeaveGroupResponse):
        top = ErrorCode(response.error_code).name if response.error_code else ""
        each = [f"{m.member_id or m.group_instance_id} {ErrorCode(m.error_code).name}" for m in response.members]
        return " ".join([top, *each]).strip()
    if isinstance(response, (OffsetCommitResponse, OffsetDeleteResponse, TxnOffsetCommitResponse)):
        code = response.error_code if isinstance(response, OffsetDeleteResponse) else 0
        each = [
            f"{t.name}-{p.partition_index} {ErrorCode(p.error_code).name}"
            for t in response.topics
            for p in t.partitions
        ]
        return " ".join(([ErrorCode(code).name] if code else []) + each)
    return " ".join(f"{result.group_id} {ErrorCode(result.error_code).name}" for result in response)
