"""Produce (0), versions 3-13; 0-2 are advertised and answered UNSUPPORTED_VERSION (see `produce_before_v3`).

Checks each batch's header and checksum, and the records of uncompressed ones. A compressed batch is opened where its
topic asks for that; what is large is opened on a worker, and its connection takes no further request meanwhile.
acks=0 is answered by nobody: an error closes the connection. With `acks.flush=before-reply` an answer waits for the
disk, and becomes REQUEST_TIMED_OUT when that takes longer than the client's timeout; the batch stays in the log, as in
Kafka.
A batch of a transaction that is not known to be open in this partition waits until the coordinator has verified that
the partition is in it, or (from v12 on) has added it (KIP-890); its connection takes no further request meanwhile.
This broker's own coordinator mostly answers at once.
v8 errors of single records. v9 flexible. v10 the current leader where ours is not it. v11 TRANSACTION_ABORTABLE.
v12 partitions join their transaction by this request. v13 topic ids.

`requests/produce_run.py` appends plain requests from v7 on together; those of clients with quotas come here.
"""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headrace.broker.net.answers import CloseConnectionError
from headrace.broker.net.client_session import ClientSession
from headrace.broker.net.context import RequestContext
from headrace.broker.partitions.replica import Replica
from headrace.broker.requests.leader_hints import endpoints_of
from headrace.broker.requests.pieces import are_many, in_parts, join_topics, requests_in_parts
from headrace.broker.requests.readiness import once_ready
from headrace.broker.requests.registry import handles
from headrace.broker.requests.verification import (
    ADDS_FROM,
    TRANSACTIONAL,
    check_producers,
    produce_error,
    producers_of,
    sequenced,
)
from headrace.env.completion import Completion, when_known
from headrace.log.client_batches import refusal
from headrace.log.guards import Guard
from headrace.log.producers import Refusal
from headrace.log.validate import ANY_BATCH_BIT, Accepted, Checked, Invalid, check_client_batch
from headrace.security.authorizer import Operation, ResourceType
from headrace.transactions.asks import Partitions
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k00_produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from headrace.broker.coordinators.verifier import PartitionErrors
    from headrace.broker.requests.services import Services
    from headrace.log.append_results import AppendResult
    from headrace.wire.primitives import Buffer, Records

ALL: Final = -1
NONE: Final = 0
ACKS: Final = (ALL, NONE, 1)
ADMIN_CLIENT_ID: Final = "__admin_client"
"""The one client id that Kafka lets write to internal topics."""

_TOPIC_IDS_FROM: Final = 13
_LEADER_FROM: Final = 10
_ZSTD_FROM: Final = 7
_ZSTD: Final = 4
_ATTRIBUTES_AT: Final = 22
_COMPRESSION: Final = 0x07
_STAYS: Final = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
"""Errors that leave the batch where it is."""
_COMES_AGAIN: Final = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
"""Errors with which a client sends the same batch again, also here."""
_MOVED: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


UNANSWERED: Final = "a Produce request with acks=0 failed"
"""Why a connection ends."""


class Waiting:
    """A response in the making: it is finished when every partition's batch is where its acks want it."""

    def __init__(self, broker: Services, version: int, timeout_ms: int, client: ClientSession) -> None:
        """`timeout_ms`: how long `client` waits for the disk."""
        self._broker = broker
        self._client = client
        self._version = version
        self._timeout_ms = timeout_ms
        self._response = ProduceResponse()
        self._pending: Completion[ProduceResponse] | None = None
        self._left = 0
        self._leaders: set[int] = set()
        self.failed = False

    def topic(self, name: str, topic_id: bytes) -> TopicProduceResponse:
        """Adds a topic to the response."""
        topic = TopicProduceResponse(name=name, topic_id=topic_id)
        self._response.responses.append(topic)
        return topic

    def refuse(self, topic: TopicProduceResponse, index: int, error: ErrorCode, message: str | None = None) -> None:
        """Adds a partition to which nothing was appended."""
        partition = PartitionProduceResponse(index=index, error_code=error, base_offset=-1, error_message=message)
        self.failed = True
        self._broker.request_errors.count(ApiKey.PRODUCE, error)
        self._hint(topic.name, partition)
        topic.partition_responses.append(partition)

    def _hint(self, topic: str, partition: PartitionProduceResponse) -> None:
        """Names the leader and its address for a client that came to another broker (KIP-951)."""
        if partition.error_code not in _MOVED or self._version < _LEADER_FROM:
            return
        image = self._broker.image
        known = image.topics.partition(topic, partition.index)
        if known is None:
            return
        partition.current_leader = LeaderIdAndEpoch(leader_id=known.leader, leader_epoch=known.leader_epoch)
        self._leaders.add(known.leader)
        self._response.node_endpoints = endpoints_of(image, self._leaders, self._client.listener, NodeEndpoint)

    def appended(self, topic: TopicProduceResponse, replica: Replica, result: AppendResult, needs_all: bool) -> None:
        """Adds how an append went, and waits until it may be acknowledged (`needs_all`: acks=all)."""
        if result.error:
            self.refuse(topic, replica.index, result.error, result.error_message)
            client = self._client
            self._broker.bad_batches.refused(replica, result, (client.peer_host, client.peer_port))
            partition = topic.partition_responses[-1]
            partition.log_start_offset = result.log_start_offset
            partition.record_errors = [
                BatchIndexAndErrorMessage(batch_index=at, batch_index_error_message=why)
                for at, why in result.record_errors
            ]
            return
        partition = PartitionProduceResponse(
            index=replica.index,
            base_offset=result.base_offset,
            log_append_time_ms=result.log_append_time_ms,
            log_start_offset=result.log_start_offset,
        )
        topic.partition_responses.append(partition)
        if replica.answers_wait:
            appender = self._broker.replicas.appender
            known = appender.acknowledged(replica, result.last_offset + 1, needs_all, self._timeout_ms)
            self._left += 1
            when_known(known, partial(self._committed, topic.name, partition))

    def _committed(self, topic: str, partition: PartitionProduceResponse, error: ErrorCode) -> None:
        if error is not ErrorCode.NONE:
            partition.error_code = error
            self._broker.request_errors.count(ApiKey.PRODUCE, error)
            self._hint(topic, partition)
            if error not in _STAYS:
                partition.base_offset = partition.log_append_time_ms = partition.log_start_offset = -1
        self._left -= 1
        if not self._left and self._pending is not None:
            self._pending.complete(self._response)

    def finish(self) -> ProduceResponse | Completion[ProduceResponse]:
        """The response, or a promise of it; everything was added."""
        if not self._left:
            return self._response
        self._pending = Completion(self._broker.node.completions)
        return self._pending


class _Part:
    """One partition of a request: what is to be appended to it, or why nothing is."""

    __slots__ = ("checked", "error", "guard", "index", "is_late", "is_transactional", "message", "records", "replica")

    def __init__(self, index: int, error: ErrorCode, replica: Replica | None, records: Buffer) -> None:
        self.index = index
        self.error = error
        self.replica = replica
        self.records = records
        self.checked: Checked | None = None
        """Of a batch that its topic has opened."""
        self.is_late = False
        """Whether that takes too long for the event loop."""
        self.is_transactional = False
        """Of a batch that may be appended: then it is `checked`, or late."""
        self.guard: Guard | None = None
        """What it has claimed of its transaction; None where it is not to be verified."""
        self.message: str | None = None
        """The text beside the error."""

    def refuse(self, error: ErrorCode, message: str) -> None:
        """Forgets what was to be appended."""
        self.replica, self.error, self.message = None, error, message


_Plan = list[tuple[str, bytes, list[_Part]]]
"""Name and id of each topic, and its partitions."""


@handles(ApiKey.PRODUCE)
def handle(broker: Services, request: ProduceRequest, context: RequestContext) -> Any:
    if not are_many(request.topic_data, "partition_data"):
        return _once_ready(broker, request, context)
    handle_part = _kept_once_ready
    if context.remains is None:  # its buffer is for the next requests; that of a longer one stays until it is answered
        _keep_records(request)
        handle_part = _once_ready
    parts = requests_in_parts(request, "topic_data", "partition_data")
    return in_parts(broker, context, parts, handle_part, _join)


def _join(whole: ProduceResponse | None, part: ProduceResponse | None) -> None:
    if whole is not None and part is not None:
        join_topics(whole.responses, part.responses, "partition_responses")
        known = {each.node_id for each in whole.node_endpoints}
        whole.node_endpoints += [each for each in part.node_endpoints if each.node_id not in known]


def _keep_records(request: ProduceRequest) -> None:
    """The buffer that they lie in is for the next requests."""
    for data in request.topic_data:
        for each in data.partition_data:
            if each.records is not None:
                each.records = bytes(each.records)  # type: ignore[arg-type]


def _kept_once_ready(broker: Services, request: ProduceRequest, context: RequestContext) -> Any:
    _keep_records(request)
    return _once_ready(broker, request, context)


def _once_ready(broker: Services, request: ProduceRequest, context: RequestContext) -> Any:
    keys = ((_name(broker, data, context), each.index) for data in request.topic_data for each in data.partition_data)
    return once_ready(
        broker,
        keys,
        lambda: _produce(broker, request, context),
        for_appends=True,
        before_waiting=lambda: _keep_records(request),
    )


def _name(broker: Services, data: TopicProduceData, context: RequestContext) -> str:
    """The name of the topic that is meant; empty where there is none of that id."""
    if context.api_version < _TOPIC_IDS_FROM:
        return data.name
    known = broker.image.topics.by_id(data.topic_id)
    return known.name if known is not None else ""


def _produce(
    broker: Services, request: ProduceRequest, context: RequestContext
) -> ProduceResponse | Completion[ProduceResponse] | Coroutine[Any, Any, Any] | None:
    producers = producers_of(request)
    if producers and (refused := check_producers(producers, request, context)):
        return _refuse(broker, request, context, refused)
    plan = [_plan_topic(broker, request, data, context) for data in request.topic_data]
    unverified = _claim(broker, request, context, plan) if producers else {}
    verified = _verify(broker, request, context, unverified) if unverified else {}
    late = [part for _, _, parts in plan for part in parts if part.is_late]
    asked = verified if isinstance(verified, Coroutine) else None
    if not isinstance(verified, Coroutine):
        _take_verified(unverified, verified, context.api_version)
        if not late:
            return _append(broker, request, context, plan)
    for _, _, parts in plan:
        for part in parts:
            part.records = bytes(part.records)  # the buffer that it lies in is for the next requests
            if isinstance(part.checked, Accepted):
                part.checked.data = bytes(part.checked.data)
    return _append_later(broker, request, context, plan, unverified, asked)


def _refuse(
    broker: Services, request: ProduceRequest, context: RequestContext, error: ErrorCode
) -> ProduceResponse | Completion[ProduceResponse] | None:
    """The same error for every partition."""
    waiting = Waiting(broker, context.api_version, request.timeout_ms, context.client)
    for data in request.topic_data:
        topic = waiting.topic(_name(broker, data, context), data.topic_id)
        for partition in data.partition_data:
            waiting.refuse(topic, partition.index, error)
    return _finish(request, waiting)


def _claim(
    broker: Services, request: ProduceRequest, context: RequestContext, plan: _Plan
) -> dict[tuple[str, int], _Part]:
    """Has the transactional batches claim what they have to present; returns those that have to be verified."""
    unverified: dict[tuple[str, int], _Part] = {}
    raises = context.api_version >= ADDS_FROM
    if not raises and not broker.config.transaction_partition_verification_enable:
        return unverified
    transactional_id = request.transactional_id
    assert transactional_id is not None, "what is transactional names its transaction"
    for name, _, parts in plan:
        for part in parts:
            replica = part.replica
            if replica is None or not part.is_transactional or isinstance(part.checked, Invalid):
                continue
            log = replica.log
            now_ms = broker.node.clock.now_ms()
            claimed = log.state.producers.claim(
                *sequenced(part.records),
                log.bounds.end_offset,
                transactional_id=transactional_id,
                raises=raises,
                now_ms=now_ms,
            )
            if isinstance(claimed, Refusal):
                part.refuse(claimed.error, f"{claimed.message} in {log.name}")
                continue
            part.guard = claimed
            if claimed.first_offset < 0:
                unverified[name, part.index] = part
    return unverified


async def _append_later(
    broker: Services,
    request: ProduceRequest,
    context: RequestContext,
    plan: _Plan,
    unverified: dict[tuple[str, int], _Part],
    asked: Coroutine[Any, Any, PartitionErrors] | None,
) -> ProduceResponse | Completion[ProduceResponse] | None:
    """`asked` has the results of those that are not verified yet."""
    if asked is not None:
        _take_verified(unverified, await asked, context.api_version)
    for part in [part for _, _, parts in plan for part in parts if part.is_late]:
        if part.replica is not None:
            assert isinstance(part.records, bytes)
            part.checked = await broker.openings.check(part.replica.log, part.records, broker.node.clock.now_ms())
    return _append(broker, request, context, plan, is_later=True)


def _verify(
    broker: Services, request: ProduceRequest, context: RequestContext, unverified: dict[tuple[str, int], _Part]
) -> PartitionErrors | Coroutine[Any, Any, PartitionErrors]:
    """Asks the coordinator of the transaction."""
    transactional_id = request.transactional_id
    assert transactional_id is not None, "what is transactional names its transaction"
    adds = context.api_version >= ADDS_FROM
    producer_id, epoch, _ = sequenced(next(iter(unverified.values())).records)
    ask = Partitions(transactional_id, producer_id, epoch, frozenset(unverified), 2 if adds else 0)
    return broker.verifier.join(ask, verify_only=not adds)


def _take_verified(unverified: dict[tuple[str, int], _Part], verified: PartitionErrors, version: int) -> None:
    """Refuses what is not in the transaction."""
    for key, part in unverified.items():
        error = verified[key]
        if error:
            message = f"The partition could not be verified to be in the transaction: {error.name}"
            part.refuse(produce_error(error, version), message)


def _append(
    broker: Services, request: ProduceRequest, context: RequestContext, plan: _Plan, *, is_later: bool = False
) -> ProduceResponse | Completion[ProduceResponse] | None:
    """`is_later`: time has passed since the plan was made."""
    waiting = Waiting(broker, context.api_version, request.timeout_ms, context.client)
    for name, topic_id, parts in plan:
        topic = waiting.topic(name, topic_id)
        for part in parts:
            replica = part.replica
            if replica is None:
                waiting.refuse(topic, part.index, part.error, part.message)
                if part.error in _COMES_AGAIN:
                    broker.replicas.come_again(name, topic_id, part.index, part.records)
            elif isinstance(part.checked, Invalid):
                refused = refusal(part.checked, replica.log.bounds.log_start_offset)
                waiting.appended(topic, replica, refused, request.acks == ALL)
            elif is_later and request.acks == ALL and replica.under_min_isr:
                waiting.refuse(topic, part.index, ErrorCode.NOT_ENOUGH_REPLICAS)  # by now
                broker.replicas.come_again(name, topic_id, part.index, part.records)
            else:
                chunk = part.records if part.checked is None else part.checked
                if isinstance(chunk, Accepted):
                    chunk.guard = part.guard
                result = broker.replicas.appender.append_many(replica, (chunk,), broker.node.clock.now_ms())[0]
                waiting.appended(topic, replica, result, request.acks == ALL)
    return _finish(request, waiting)


def _finish(request: ProduceRequest, waiting: Waiting) -> ProduceResponse | Completion[ProduceResponse] | None:
    if request.acks == NONE:
        if waiting.failed:
            raise CloseConnectionError(UNANSWERED)
        return None
    return waiting.finish()


def _plan_topic(
    broker: Services, request: ProduceRequest, data: TopicProduceData, context: RequestContext
) -> tuple[str, bytes, list[_Part]]:
    name = _name(broker, data, context)
    by_id = context.api_version >= _TOPIC_IDS_FROM
    whole = ErrorCode.UNKNOWN_TOPIC_ID if by_id and not name else ErrorCode.NONE
    if whole is ErrorCode.NONE and not context.authorize(Operation.WRITE, ResourceType.TOPIC, name):
        whole = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if whole is ErrorCode.NONE and request.acks not in ACKS:
        whole = ErrorCode.INVALID_REQUIRED_ACKS
    parts: list[_Part] = []
    for partition in data.partition_data:
        error, replica = whole, None
        if error is ErrorCode.NONE:
            error, replica = _check(broker, request, name, partition.index, partition.records, context)
        records = memoryview(partition.records or b"")  # type: ignore[arg-type]
        part = _Part(partition.index, error, replica, records)
        if replica is not None and len(records) > _ATTRIBUTES_AT:
            log = replica.log
            part.is_transactional = records[_ATTRIBUTES_AT] & TRANSACTIONAL != 0
            if part.is_transactional or (records[_ATTRIBUTES_AT] | ANY_BATCH_BIT) & log.opened_bits:
                part.checked = check_client_batch(records, log.state.config, log.state.name, broker.node.clock.now_ms())
                part.is_late = part.checked is None
        parts.append(part)
    return name, data.topic_id, parts


def _check(
    broker: Services, request: ProduceRequest, topic: str, index: int, records: Records, context: RequestContext
) -> tuple[ErrorCode, Replica | None]:
    """The replica to append to, or why not."""
    replica = broker.replicas.find(topic, index)
    if not isinstance(replica, Replica):
        return replica, None
    if replica.internal and context.client_id != ADMIN_CLIENT_ID:
        return ErrorCode.INVALID_TOPIC_EXCEPTION, None
    if request.acks == ALL and replica.under_min_isr:
        return ErrorCode.NOT_ENOUGH_REPLICAS, None
    if not records:
        return ErrorCode.INVALID_RECORD, None
    assert isinstance(records, (bytes, bytearray, memoryview))
    attributes = records[_ATTRIBUTES_AT] if len(records) > _ATTRIBUTES_AT else 0
    if attributes & _COMPRESSION == _ZSTD and context.api_version < _ZSTD_FROM:
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, None
    return ErrorCode.NONE, replica
