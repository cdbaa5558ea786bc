"""A broker that coordinates groups over logs in memory, which commit when a test says so."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

from headrace.broker.coordinators.group_coordinator import OFFSETS_TOPIC, GroupCoordinator
from headrace.broker.net.context import RequestContext
from headrace.broker.requests.apis import (
    k08_offset_commit,
    k09_offset_fetch,
    k11_join_group,
)
from headrace.broker.telemetry.metrics import Registry
from headrace.config import BrokerConfig
from headrace.env.completion import Completion
from headrace.env.posix_node import PosixNode
from headrace.log.read_results import Local
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

TOPIC_ID = b"\x07" * 16


class MemoryFile:
    """What was in a log when it was read."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def fileno(self) -> int:
        raise AssertionError("memory has no descriptor")

    def read(self, at: int, size: int) -> bytes:
        return self.data[at : at + size]

    def read_ahead(self, at: int, size: int) -> None:
        pass


class MemoryLog:
    """One log: batches in a row."""

    def __init__(self) -> None:
        self.data = b""
        self.log_start_offset = 0
        self.end_offset = 0
        self.config = SimpleNamespace(max_message_bytes=1_048_588)
        self.room = 1 << 30
        self.before_read: Callable[[], None] = lambda: None
        self.reader = self

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
        piece = FileSlice(MemoryFile(self.data), at, end - at)
        return Local(piece, end - at)


class Replicas:
    """Appends to the logs; commits at once, or when the test says so, or never."""

    def __init__(self, node: PosixNode) -> None:
        self.node = node
        self.logs = {index: MemoryLog() for index in range(2)}
        self.refusal: ErrorCode | None = None
        self.appends: list[bytes] = []
        self.origins: list[str] = []
        self.holding = False
        self.held: list[Completion[ErrorCode]] = []
        self.committed = dict.fromkeys(self.logs, 0)
        self.leader_epoch = 0
        self.why_not: ErrorCode | None = None
        """What `find` says instead of a partition."""
        self.takes_appends = True
        self.led: Callable[[int], None] = lambda _: None

    def on_led(self, topic: str, listener: Callable[[int], None]) -> None:
        assert topic == OFFSETS_TOPIC
        self.led = listener

    def when_ready(self, key: tuple[str, int], callback: Callable[[], None], *, for_appends: bool) -> None:
        callback()

    def holds(self, partition: tuple[str, int]) -> bool:
        return partition[1] in self.logs

    def find(self, topic: str, index: int) -> Any:
        assert topic == OFFSETS_TOPIC
        if self.why_not is not None:
            return self.why_not
        log = self.logs[index]
        high_watermark = self.committed[index] if self.holding else log.end_offset
        return SimpleNamespace(
            log=log,
            leader_epoch=self.leader_epoch,
            high_watermark=high_watermark,
            takes_appends=self.takes_appends,
        )

    def hold(self) -> None:
        """Nothing is committed from here on, until it is released."""
        self.holding = True
        self.committed = {index: log.end_offset for index, log in self.logs.items()}

    def when_committed(self, replica: Any, offset: int) -> Completion[ErrorCode]:
        return self._hold()

    def append_internal(
        self, topic: str, partition: int, appends: Sequence[bytes], origin: str = "coordinator"
    ) -> list[ErrorCode | Completion[ErrorCode]]:
        assert topic == OFFSETS_TOPIC
        return [self._append(partition, batches, origin) for batches in appends]

    def _append(self, partition: int, batches: bytes, origin: str) -> ErrorCode | Completion[ErrorCode]:
        if self.refusal is not None:
            return self.refusal
        base = self.logs[partition].append(batches)
        if isinstance(base, ErrorCode):
            return base
        self.appends.append(batches)
        self.origins.append(origin)
        return self._hold() if self.holding else ErrorCode.NONE

    def _hold(self) -> Completion[ErrorCode]:
        completion: Completion[ErrorCode] = Completion(self.node.completions)
        self.held.append(completion)
        return completion

    async def release(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Commits what was held; returns when it is delivered."""
        self.holding = False
        held, self.held = self.held, []
        for completion in held:
            completion.complete(error)
        await asyncio.sleep(0)


class Clock:
    wall_ms = 1_700_000_000_000
    steady_s = 0.0

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic(self) -> float:
        return self.steady_s

    def sleep(self, seconds: float) -> None:
        raise AssertionError("a coordinator does not sleep")

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
        ids = itertools.count(1)
        self.clock = Clock()
        self.node = PosixNode(worker_threads=1, sync_threads=1)
        self.node.clock = self.clock
        self.replicas = Replicas(self.node)
        self.node.entropy = SimpleNamespace(uuid=lambda: next(ids).to_bytes(16, "big"))
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
        return answer.take() if isinstance(answer, Completion) and answer.done else answer

    def commit(self, position: int, group: str = "g") -> Any:
        asked = [OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition(0, position)])]
        return self.ask(k08_offset_commit, OffsetCommitRequest(group_id=group, topics=asked), 9)

    def fetched(self, group: str = "g") -> list[int]:
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
        # all pieces of the answer at once: there is no loop whose turns they would fill
        context = RequestContext(self.authorizer, client_id="c", api_version=9)
        steps = k09_offset_fetch._batched(cast(Any, self), request, context)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                found = end.value.groups[0]
                break
        assert not found.error_code
        return [p.committed_offset for topic in found.topics for p in topic.partitions]

    def join(self, member_id: str = "") -> Any:
        protocols = [JoinGroupRequestProtocol("range", b"")]
        request = JoinGroupRequest("g", 10_000, 60_000, member_id, None, "consumer", protocols)
        context = RequestContext(self.authorizer, client_id="c", api_version=9)
        return k11_join_group.handle(self, request, context)


def error_of(response: OffsetCommitResponse) -> int:
    return response.topics[0].partitions[0].error_code


def log_index(broker: FakeBroker, group: str = "g") -> int:
    return broker.groups.partition_for(group)


def commit_many(broker: FakeBroker, count: int) -> Any:
    """The answer to a commit of as many partitions, of 200 bytes each."""
    partitions = [OffsetCommitRequestPartition(0, 1)]
    topics = [OffsetCommitRequestTopic("t" * 200 + str(i), partitions=partitions) for i in range(count)]
    request = OffsetCommitRequest(group_id="g", topics=topics)
    return broker.groups.write("g", lambda shard, now_ms: shard.commit(request, 9, now_ms), lambda error: error).take()
