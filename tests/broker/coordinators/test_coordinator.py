"""The coordinator's runtime over a log in memory: when answers leave, what a failed append does, and loading."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.broker.coordinators.group_coordinator import OFFSETS_TOPIC, GroupCoordinator
from headrace.broker.net.answers import Pending
from headrace.broker.net.context import RequestContext
from headrace.broker.requests.apis import (
    k08_offset_commit,
    k09_offset_fetch,
    k11_join_group,
    k12_heartbeat,
    k42_delete_groups,
)
from headrace.broker.telemetry.metrics import Registry
from headrace.config import BrokerConfig
from headrace.env.posix_node import PosixNode
from headrace.machine.runtime import ShardState
from headrace.metadata.image import ClusterImage, Partition, Topic, TopicsImage
from headrace.security.authorizer import OpenAuthorizer
from headrace.wire.batch import iter_headers, read_header
from headrace.wire.errors import ErrorCode
from headrace.wire.file_slice import FileSlice
from headrace.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from headrace.wire.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from headrace.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.wire.messages.k12_heartbeat import HeartbeatRequest
from headrace.wire.messages.k42_delete_groups import DeleteGroupsRequest
from headrace.wire.records import Compression

TOPIC_ID = b"\x07" * 16


class MemoryLog:
    """One log: batches in a row, as a file of its own."""

    def __init__(self) -> None:
        self.data = b""
        self.log_start_offset = 0
        self.end_offset = 0
        self.config = SimpleNamespace(max_message_bytes=1_048_588)
        self.room = 1 << 30
        self.before_read: Callable[[], None] = lambda: None

    def append(self, batches: bytes) -> int | ErrorCode:
        """All of it or nothing, like a log's."""
        if len(batches) > self.room:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if any(header.size > self.config.max_message_bytes for _, header in iter_headers(batches)):
            return ErrorCode.MESSAGE_TOO_LARGE
        self.room -= len(batches)
        base = self.end_offset
        for at, header in iter_headers(batches):
            self.data += self.end_offset.to_bytes(8, "big") + batches[at + 8 : at + header.size]
            self.end_offset += header.last_offset_delta + 1
        return base

    def read(self, offset: int, *, max_bytes: int, max_offset: int, min_one: bool) -> Any:
        """From the batch that holds `offset`, cut wherever `max_bytes` falls."""
        self.before_read()
        at = 0
        while read_header(self.data, at).next_offset <= offset:
            at += read_header(self.data, at).size
        size = max(max_bytes, read_header(self.data, at).size) if min_one else max_bytes
        end = min(len(self.data), at + size)
        return SimpleNamespace(error=ErrorCode.NONE, slice=FileSlice(self, at, end - at), size=end - at)

    def fileno(self) -> int:
        raise AssertionError

    def read_at(self, at: int, size: int) -> bytes:
        return self.data[at : at + size]


class MemoryFile(MemoryLog):
    """A log whose slices are read through `read(at, size)`, like a file's."""

    def read(self, offset: int, *args: int, **limits: Any) -> Any:
        if args:
            return self.read_at(offset, args[0])
        return super().read(offset, **limits)


class Replicas:
    """Appends to the logs; commits at once, or when the test says so, or never."""

    def __init__(self) -> None:
        self.logs = {index: MemoryFile() for index in range(2)}
        self.refusal: ErrorCode | None = None
        self.appends: list[bytes] = []
        self.holding = False
        self.held: list[Callable[[ErrorCode], None]] = []
        self.committed = dict.fromkeys(self.logs, 0)
        self.leader_epoch = 0

    def find(self, topic: str, index: int) -> Any:
        assert topic == OFFSETS_TOPIC
        log = self.logs[index]
        high_watermark = self.committed[index] if self.holding else log.end_offset
        return SimpleNamespace(log=log, leader_epoch=self.leader_epoch, high_watermark=high_watermark)

    def hold(self) -> None:
        """Nothing is committed from here on, until it is released."""
        self.holding = True
        self.committed = {index: log.end_offset for index, log in self.logs.items()}

    def when_committed(self, replica: Any, offset: int, callback: Callable[[ErrorCode], None]) -> None:
        self.held.append(callback)

    def append_internal(
        self, topic: str, partition: int, batches: bytes, on_committed: Callable[[ErrorCode, int], None]
    ) -> None:
        assert topic == OFFSETS_TOPIC
        if self.refusal is not None:
            on_committed(self.refusal, -1)
            return
        base = self.logs[partition].append(batches)
        if isinstance(base, ErrorCode):
            on_committed(base, -1)
            return
        self.appends.append(batches)
        if self.holding:
            self.held.append(lambda error: on_committed(error, base))
        else:
            on_committed(ErrorCode.NONE, base)

    def release(self, error: ErrorCode = ErrorCode.NONE) -> None:
        self.holding = False
        held, self.held = self.held, []
        for end in held:
            end(error)


class Clock:
    wall_ms = 1_700_000_000_000
    steady_s = 0.0

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic(self) -> float:
        return self.steady_s

    def pass_ms(self, ms: int) -> None:
        self.wall_ms += ms
        self.steady_s += ms / 1000


def image(leader: int = 1) -> ClusterImage:
    topics = [
        Topic(OFFSETS_TOPIC, b"\x01" * 16, tuple(Partition(i, (1,), (b"",), (1,), leader, 0, 0) for i in range(2))),
        Topic("t", TOPIC_ID, (Partition(0, (1,), (b"",), (1,), leader, 0, 0),)),
    ]
    return ClusterImage(topics=TopicsImage({t.id: t for t in topics}, {t.name: t for t in topics}))


class FakeBroker:
    def __init__(self) -> None:
        self.node_id = 1
        self.image = image()
        self.config = BrokerConfig.load({"group.initial.rebalance.delay.ms": "0"})
        self.replicas = Replicas()
        ids = itertools.count(1)
        self.clock = Clock()
        self.node = PosixNode(worker_threads=1, sync_threads=1)
        self.node.clock = self.clock
        self.node.entropy = SimpleNamespace(uuid=lambda: next(ids).to_bytes(16, "big"))  # type: ignore[assignment]
        self.quorum = SimpleNamespace(on_image=lambda _listener: None)
        self.authorizer = OpenAuthorizer()
        self.metrics = Registry()
        self.on_image = self.quorum.on_image
        self.groups = GroupCoordinator(
            config=lambda: self.config,
            partitions=self.replicas,
            node=self.node,
            node_id=self.node_id,
            metrics=self.metrics,
        )

    def ask(self, handler: Any, request: Any, version: int) -> Any:
        context = RequestContext(self.authorizer, client_id="c", api_version=version)
        answer = handler.handle(self, request, context)
        return answer.value if isinstance(answer, Pending) and answer.resolved else answer

    def commit(self, position: int, group: str = "g") -> Any:
        asked = [OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition(0, position)])]
        return self.ask(k08_offset_commit, OffsetCommitRequest(group_id=group, topics=asked), 9)

    def fetched(self, group: str = "g") -> list[int]:
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
        found = self.ask(k09_offset_fetch, request, 9).groups[0]
        assert not found.error_code
        return [p.committed_offset for topic in found.topics for p in topic.partitions]

    def join(self, member_id: str = "") -> Any:
        protocols = [JoinGroupRequestProtocol("range", b"")]
        request = JoinGroupRequest("g", 10_000, 60_000, member_id, None, "consumer", protocols)
        context = RequestContext(self.authorizer, client_id="c", api_version=9)
        return k11_join_group.handle(self, request, context)  # type: ignore[arg-type]


@pytest.fixture
async def broker() -> Any:
    broker = FakeBroker()
    broker.groups.start(broker)  # type: ignore[arg-type]
    yield broker
    await broker.groups.stop()
    await broker.node.close()


def error_of(response: OffsetCommitResponse) -> int:
    return response.topics[0].partitions[0].error_code


async def test_a_commit_is_answered_at_once_when_it_is_committed_at_once(broker: FakeBroker) -> None:
    assert error_of(broker.commit(5)) == ErrorCode.NONE
    assert broker.fetched() == [5]


async def test_an_answer_waits_for_the_commit(broker: FakeBroker) -> None:
    broker.replicas.hold()
    answer = broker.commit(5)
    assert isinstance(answer, Pending) and not answer.resolved
    assert broker.fetched() == []
    broker.replicas.release()
    assert answer.value is not None and error_of(answer.value) == ErrorCode.NONE
    assert broker.fetched() == [5]


async def test_a_refused_append_changes_nothing(broker: FakeBroker) -> None:
    broker.commit(5)
    broker.replicas.refusal = ErrorCode.KAFKA_STORAGE_ERROR
    assert error_of(broker.commit(6)) == ErrorCode.NOT_COORDINATOR
    broker.replicas.refusal = None
    assert broker.fetched() == [5]


async def test_an_append_that_is_lost_later_is_taken_back_without_a_look_at_the_log(broker: FakeBroker) -> None:
    broker.commit(5)
    broker.replicas.hold()
    answer = broker.commit(6)
    log = broker.replicas.logs[broker.groups.partition_for("g")]
    log.data = log.data[: read_header(log.data).size]  # the log lost its tail
    log.end_offset = 1
    broker.replicas.release(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert error_of(answer.value) == ErrorCode.NOT_COORDINATOR
    assert broker.fetched() == [5]
    assert error_of(broker.commit(7)) == ErrorCode.NONE
    assert broker.fetched() == [7]


async def test_a_log_that_kept_what_was_taken_for_lost_is_loaded_again(broker: FakeBroker) -> None:
    """What its coordinator holds and what the log holds are not the same any more: only the log can tell."""
    broker.commit(5)
    broker.replicas.hold()
    broker.commit(6)
    broker.replicas.release(ErrorCode.KAFKA_STORAGE_ERROR)
    assert broker.fetched() == [5]
    assert error_of(broker.commit(7)) == ErrorCode.NOT_COORDINATOR
    assert error_of(broker.commit(7)) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await broker.groups.loaded()
    assert broker.fetched() == [6]
    assert error_of(broker.commit(7)) == ErrorCode.NONE


async def test_a_commit_that_the_disk_holds_up_is_answered_in_time(broker: FakeBroker) -> None:
    """offsets.commit.timeout.ms: an error that the client tries again; what comes through later counts."""
    broker.config = BrokerConfig.load({"offsets.commit.timeout.ms": "50"})
    broker.groups._take_up(image(leader=2))
    broker.groups._take_up(image())
    broker.replicas.hold()
    answer = broker.commit(5)
    broker.clock.pass_ms(49)
    broker.groups._wake()
    assert not answer.resolved
    broker.clock.pass_ms(1)
    broker.groups._wake()
    assert error_of(answer.value) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert broker.fetched() == []
    broker.replicas.release()
    assert broker.fetched() == [5]


async def test_an_answer_that_waits_too_long_is_woken_for(broker: FakeBroker) -> None:
    """A timer of its own: nothing else happens that would look at the time."""
    broker.config = BrokerConfig.load({"offsets.commit.timeout.ms": "1"})
    broker.groups._take_up(image(leader=2))
    broker.groups._take_up(image())
    broker.replicas.hold()
    answer = broker.commit(5)
    broker.clock.pass_ms(1)
    await asyncio.sleep(0.05)
    assert error_of(answer.value) == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_who_is_deposed_tells_nobody_that_it_worked(broker: FakeBroker) -> None:
    """KAFKA-20634: the end of an append comes after the leader has changed."""
    broker.replicas.hold()
    answer = broker.commit(5)
    broker.groups._take_up(image(leader=2))
    assert error_of(answer.value) == ErrorCode.NOT_COORDINATOR
    broker.replicas.release()
    assert error_of(broker.commit(6)) == ErrorCode.NOT_COORDINATOR


async def test_a_shard_of_another_epoch_appends_nothing(broker: FakeBroker) -> None:
    """The partitions follow the metadata first: what is decided between the two must not be written."""
    broker.replicas.leader_epoch = 1
    assert error_of(broker.commit(5)) == ErrorCode.NOT_COORDINATOR
    assert broker.replicas.logs[log_index(broker)].data == b""


async def test_the_uncommitted_end_of_a_loaded_log_is_not_told(broker: FakeBroker) -> None:
    broker.commit(5)
    broker.replicas.hold()
    broker.commit(6)
    broker.groups._take_up(image(leader=2))
    broker.replicas.held.clear()
    broker.groups._take_up(image())
    await broker.groups.loaded()
    assert broker.fetched() == [5]
    broker.replicas.release()
    assert broker.fetched() == [6]


async def test_the_uncommitted_end_of_a_loaded_log_is_lost_with_the_memory_of_it(broker: FakeBroker) -> None:
    broker.commit(5)
    broker.replicas.hold()
    broker.commit(6)
    broker.groups._take_up(image(leader=2))
    broker.replicas.held.clear()
    broker.groups._take_up(image())
    await broker.groups.loaded()
    log = broker.replicas.logs[log_index(broker)]
    log.data, log.end_offset = log.data[: read_header(log.data).size], 1
    broker.replicas.release(ErrorCode.KAFKA_STORAGE_ERROR)
    await broker.groups.loaded()
    assert broker.fetched() == [5]


async def test_a_defect_in_a_load_is_reported(broker: FakeBroker) -> None:
    broker.commit(5)

    def fail() -> None:
        raise AssertionError("nobody expects this")

    index = log_index(broker)
    broker.replicas.logs[index].before_read = fail
    broker.groups._take_up(image(leader=2))
    broker.groups._take_up(image())
    await broker.groups.loaded()
    assert broker.groups.runtime.shards[index].state is ShardState.FAILED
    assert broker.node.defects.count == 1 and isinstance(broker.node.defects.first, AssertionError)
    assert error_of(broker.commit(6)) == ErrorCode.NOT_COORDINATOR


async def test_an_append_that_fails_the_disk_of_others_is_told_in_turn(broker: FakeBroker) -> None:
    """The partitions end the appends of every log on a failed disk before the one that found out returns."""
    broker.replicas.hold()
    other = next(f"g{i}" for i in itertools.count() if broker.groups.partition_for(f"g{i}") != log_index(broker))
    waiting, also_waiting = broker.commit(1), broker.commit(1, other)

    def fail(topic: str, partition: int, batches: bytes, on_committed: Callable[[ErrorCode, int], None]) -> None:
        broker.replicas.release(ErrorCode.KAFKA_STORAGE_ERROR)
        on_committed(ErrorCode.KAFKA_STORAGE_ERROR, -1)

    broker.replicas.append_internal = fail  # type: ignore[method-assign]
    assert error_of(broker.commit(2)) == ErrorCode.NOT_COORDINATOR
    assert error_of(waiting.value) == error_of(also_waiting.value) == ErrorCode.NOT_COORDINATOR
    assert broker.fetched() == broker.fetched(other) == []


async def test_another_coordinator_finds_everything_in_the_log(broker: FakeBroker) -> None:
    for position in range(3_000):
        broker.commit(position, f"group-{position % 100}")
    broker.image = image(leader=2)
    broker.groups._take_up(broker.image)
    assert error_of(broker.commit(1)) == ErrorCode.NOT_COORDINATOR
    broker.image = image()
    broker.groups._take_up(broker.image)
    assert error_of(broker.commit(1)) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    beat = broker.ask(k12_heartbeat, HeartbeatRequest("g", 1, "m"), 4)
    assert beat.error_code == ErrorCode.NONE
    await broker.groups.loaded()
    assert broker.fetched("group-7") == [2907]


@pytest.mark.parametrize("codec", list(Compression))
async def test_offsets_are_written_compressed_where_that_is_set(broker: FakeBroker, codec: Compression) -> None:
    broker.config = BrokerConfig.load({"offsets.topic.compression.codec": str(int(codec))})
    broker.groups._take_up(image(leader=2))
    broker.groups._take_up(image())
    assert error_of(broker.commit(5)) == ErrorCode.NONE
    assert [read_header(batch).compression for batch in broker.replicas.appends] == [codec]
    broker.groups._take_up(image(leader=2))
    broker.groups._take_up(image())
    await broker.groups.loaded()
    assert broker.fetched() == [5]


async def test_beyond_group_count_max_no_group_is_made(broker: FakeBroker) -> None:
    """The bound is the broker's: it counts the groups of all its partitions."""
    broker.config = BrokerConfig.load({"group.count.max": "3"})
    broker.groups._take_up(image(leader=2))
    broker.groups._take_up(image())
    names = [f"group-{i}" for i in range(5)]
    assert len({broker.groups.partition_for(name) for name in names[:3]}) == 2
    errors = [error_of(broker.commit(1, name)) for name in names]
    assert errors == [ErrorCode.NONE] * 3 + [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    assert error_of(broker.commit(2, names[0])) == ErrorCode.NONE


async def test_a_slow_disk_holds_up_nothing_but_its_own_groups(broker: FakeBroker) -> None:
    """Kafka answers COORDINATOR_LOAD_IN_PROGRESS meanwhile; everybody else is served."""
    broker.commit(5)
    log = broker.replicas.logs[broker.groups.partition_for("g")]
    is_asked, is_read = threading.Event(), threading.Event()

    def wait() -> None:
        assert threading.current_thread() is not threading.main_thread()
        is_asked.set()
        assert is_read.wait(30)

    log.before_read = wait
    broker.groups._take_up(image(leader=2))
    broker.groups._take_up(image())
    assert await asyncio.to_thread(is_asked.wait, 30)
    assert error_of(broker.commit(6)) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    elsewhere = next(f"g{i}" for i in itertools.count() if broker.groups.partition_for(f"g{i}") != log_index(broker))
    assert error_of(broker.commit(1, elsewhere)) == ErrorCode.NONE
    is_read.set()
    await broker.groups.loaded()
    assert broker.fetched() == [5]


async def test_a_partition_that_goes_while_it_is_read_is_not_taken_for_loaded(broker: FakeBroker) -> None:
    broker.commit(5)
    log = broker.replicas.logs[log_index(broker)]
    is_asked, is_read = threading.Event(), threading.Event()

    def wait() -> None:
        is_asked.set()
        assert is_read.wait(30)

    log.before_read = wait
    broker.groups._take_up(image(leader=2))
    broker.groups._take_up(image())
    assert await asyncio.to_thread(is_asked.wait, 30)
    broker.groups._take_up(image(leader=2))
    is_read.set()
    await broker.groups.loaded()
    assert error_of(broker.commit(6)) == ErrorCode.NOT_COORDINATOR
    broker.groups._take_up(image())
    await broker.groups.loaded()
    assert broker.fetched() == [5]


async def test_offsets_of_topics_that_were_deleted_meanwhile_go(broker: FakeBroker) -> None:
    broker.commit(5)
    broker.groups._take_up(image(leader=2))
    broker.image = replace(image(), topics=TopicsImage({b"\x01" * 16: image().topics.topics_by_name[OFFSETS_TOPIC]}))
    broker.groups._take_up(image())
    await broker.groups.loaded()
    assert broker.fetched() == []


async def test_a_deleted_topic_takes_its_offsets_along(broker: FakeBroker) -> None:
    broker.commit(5)
    old, deleted = broker.image, broker.image.topics.topics_by_name["t"]
    topic = broker.image.topics.topics_by_name[OFFSETS_TOPIC]
    broker.image = replace(old, topics=TopicsImage({topic.id: topic}, {topic.name: topic}))
    delta = SimpleNamespace(deleted_topics={deleted.id: deleted})
    broker.groups._image_changed(old, broker.image, delta)  # type: ignore[arg-type]
    await asyncio.sleep(0.01)
    assert broker.fetched() == []


async def test_a_log_that_cannot_be_read_leaves_its_groups_unserved(broker: FakeBroker) -> None:
    broker.commit(1)
    index = broker.groups.partition_for("g")
    log = broker.replicas.logs[index]
    log.data = log.data[:-1] + b"\xff"
    log.data = log.data[:61] + b"\xff" * (len(log.data) - 61)
    broker.groups._take_up(image(leader=2))
    broker.groups._take_up(image())
    await broker.groups.loaded()
    assert broker.groups.runtime.shards[index].state is ShardState.FAILED
    assert error_of(broker.commit(1)) == ErrorCode.NOT_COORDINATOR


async def test_a_join_waits_for_its_rebalance_and_hears_of_the_end(broker: FakeBroker) -> None:
    required = broker.join()
    assert required.resolved and required.value.error_code == ErrorCode.MEMBER_ID_REQUIRED
    waiting = broker.join(required.value.member_id)
    assert not waiting.resolved
    await asyncio.sleep(0.02)
    assert waiting.resolved and waiting.value.generation_id == 1
    again = broker.join(required.value.member_id)
    assert again.value.generation_id == 1
    another = broker.join()
    other = broker.join(another.value.member_id)
    await broker.groups.stop()
    assert other.value.error_code == ErrorCode.NOT_COORDINATOR


async def test_a_clock_that_is_set_ends_no_session(broker: FakeBroker) -> None:
    member = broker.join().value.member_id
    waiting = broker.join(member)
    await asyncio.sleep(0.02)
    assert waiting.resolved
    broker.clock.wall_ms += 3_600_000
    broker.groups._wake()
    beat = HeartbeatRequest("g", 1, member)
    assert broker.ask(k12_heartbeat, beat, 4).error_code == ErrorCode.NONE
    broker.clock.pass_ms(70_000)
    broker.groups._wake()
    assert broker.ask(k12_heartbeat, beat, 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def log_index(broker: FakeBroker, group: str = "g") -> int:
    return broker.groups.partition_for(group)


def commit_many(broker: FakeBroker, count: int) -> Any:
    """The answer to a commit of as many partitions, of 200 bytes each."""
    partitions = [OffsetCommitRequestPartition(0, 1)]
    topics = [OffsetCommitRequestTopic("t" * 200 + str(i), partitions=partitions) for i in range(count)]
    request = OffsetCommitRequest(group_id="g", topics=topics)
    answer: Pending[Any] = Pending()
    broker.groups.write("g", lambda shard, now_ms: shard.commit(request, 9, now_ms), answer, lambda error: error)
    return answer.value


async def test_a_huge_decision_goes_out_in_several_batches_of_one_append(broker: FakeBroker) -> None:
    assert error_of(commit_many(broker, 3_000)) == ErrorCode.NONE
    broker.replicas.hold()
    broker.replicas.appends.clear()
    answer = broker.ask(k42_delete_groups, DeleteGroupsRequest(["g", "nobody"]), 2)
    (appended,) = broker.replicas.appends
    sizes = [header.size for _, header in iter_headers(appended)]
    assert len(sizes) >= 2 and max(sizes) <= 512 * 1024 and not answer.resolved
    broker.replicas.release()
    assert [result.error_code for result in answer.value.results] == [ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND]
    assert broker.fetched() == []


async def test_a_decision_that_finds_no_room_has_no_effect(broker: FakeBroker) -> None:
    log = broker.replicas.logs[log_index(broker)]
    log.room = 600 * 1024  # for the first batch
    assert commit_many(broker, 3_000) == ErrorCode.NOT_COORDINATOR
    assert log.data == b"" and broker.fetched() == []
    log.room = 1 << 20
    assert error_of(commit_many(broker, 3_000)) == ErrorCode.NONE
    assert len(broker.fetched()) == 3_000


async def test_tidying_up_goes_as_far_as_there_is_room_and_on_the_next_time(broker: FakeBroker) -> None:
    commit_many(broker, 3_000)
    index = log_index(broker)
    log, part = broker.replicas.logs[index], broker.groups.runtime.shards[index]
    log.room = 600 * 1024
    nothing_exists: dict[str, bytes] = {}
    deleted = {topic: TOPIC_ID for topic, _ in part.shard.state.offsets.latest["g"].latest}
    broker.groups.decide_alone(part, lambda shard, _: shard.forget_topics(deleted, nothing_exists))
    left = len(broker.fetched())
    assert 0 < left < 3_000
    broker.groups._take_up(image(leader=2))
    broker.groups._take_up(image())
    await broker.groups.loaded()
    assert len(broker.fetched()) == left
    log.room = 1 << 20
    part = broker.groups.runtime.shards[index]
    broker.groups.decide_alone(part, lambda shard, _: shard.forget_topics(deleted, nothing_exists))
    assert broker.fetched() == []


async def test_batches_are_as_small_as_the_topic_wants_them(broker: FakeBroker) -> None:
    log = broker.replicas.logs[log_index(broker)]
    log.config.max_message_bytes = 2_000
    assert error_of(commit_many(broker, 100)) == ErrorCode.NONE
    assert len(broker.fetched()) == 100
    before = log.data
    log.config.max_message_bytes = 200
    assert commit_many(broker, 3) == ErrorCode.UNKNOWN_SERVER_ERROR  # as in Kafka 4
    assert log.data == before and len(broker.fetched()) == 100


async def test_a_step_that_fails_half_way_leaves_its_shard_to_the_log(broker: FakeBroker) -> None:
    """A defect between append and apply: whoever asked hears of it, the next ones find what the log holds."""
    broker.commit(5)
    runtime = broker.groups.runtime.shards[log_index(broker)]

    def fail(*_: object) -> None:
        raise RuntimeError("a defect")

    runtime.shard.apply = fail  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="a defect"):
        broker.commit(6)
    assert error_of(broker.commit(7)) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await broker.groups.loaded()
    assert broker.fetched() == [6]
    assert error_of(broker.commit(7)) == ErrorCode.NONE


async def test_what_cannot_be_written_down_harms_nobody(broker: FakeBroker) -> None:
    """A group id that is longer than Kafka's format can say."""
    name = "g" * 40_000
    assert error_of(broker.commit(1, name)) == ErrorCode.UNKNOWN_SERVER_ERROR  # as in Kafka
    other = next(f"g{i}" for i in itertools.count() if log_index(broker, f"g{i}") == log_index(broker, name))
    assert error_of(broker.commit(1, other)) == ErrorCode.NONE


async def test_a_step_that_fails_on_an_empty_log_is_got_over_too(broker: FakeBroker) -> None:
    log = broker.replicas.logs[log_index(broker)]
    del log.config.max_message_bytes
    with pytest.raises(AttributeError):
        broker.commit(1)
    log.config.max_message_bytes = 1_048_588
    await asyncio.sleep(0)
    assert error_of(broker.commit(1)) == ErrorCode.NONE
