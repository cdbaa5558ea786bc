"""Fetch (1), versions 4-18.

Answers with slices of segment files, which go to the socket without being read into Python. A fetch that finds fewer
than min_bytes waits, up to max_wait_ms. Sessions (v7+, KIP-227) let an answer name only what changed. A full answer
lists every partition asked for, even when max_bytes is spent; the first batch is returned however large.
A follower reads to the end of the log, and counts as having what is before its offset: `fetching.follower`.
A consumer that names its rack is sent to a follower there, where `replica.selector.class` says so, and any follower
serves consumers as far as it knows records to be committed (KIP-392).
A client over its quota gets an empty answer, keeps its session, and is not read from for a while; one that has used
nothing lately gets what it asked for first.
A request of more than 1,000 partitions is read and answered in pieces: `fetching.large_fetch`.
A session of a consumer with many partitions looks at those alone that have news: `resting`. None
holds more than 1,000 partitions that are answered with an error, nor all of them more than 500,000 in all; a client
then goes on with full fetches.
v7 sessions. v9 the leader epoch that the client knows. v11 racks. v12 flexible, diverging epochs. v13 topic ids. v15
replica state as a tag. v16 node endpoints. v17 directory ids, v18 high watermarks, both of followers only.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from headrace.broker.net.context import RequestContext
from headrace.broker.requests.fetching.consumer import ConsumerReader
from headrace.broker.requests.fetching.fetch import MAX_WAIT_MS, Fetch
from headrace.broker.requests.fetching.follower import FollowerReader
from headrace.broker.requests.fetching.large_fetch import LargeFetch
from headrace.broker.requests.fetching.reading import NOT_THERE, Answer, PartitionReader, Reading
from headrace.broker.requests.leader_hints import endpoints_of
from headrace.broker.requests.nearest_replicas import nearest_of
from headrace.broker.requests.pieces import SMALL_PER_STEP, Steps, at_once, parts_of, rest_of
from headrace.broker.requests.quorum_requests import is_node
from headrace.broker.requests.readiness import once_ready
from headrace.broker.requests.registry import handles
from headrace.broker.requests.resting import (
    CONSUMERS_REST_FROM,
    ConsumerReads,
    Resting,
    RestingForConsumer,
    RestingPartitions,
)
from headrace.broker.requests.short_fetch import ShortFetch, reads_of, short_fetch_of
from headrace.env.completion import Completion
from headrace.replicas.sessions import (
    ERRORS_MAX,
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    Key,
    Session,
    SessionPartition,
    Wanted,
)
from headrace.security.authorizer import OPEN_GENERATION, OpenAuthorizer, Operation, ResourceType
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k01_fetch import FetchableTopicResponse, FetchRequest, FetchResponse, NodeEndpoint
from headrace.wire.uuids import ZERO

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services

_TOPIC_IDS_FROM: Final = 13
_REPLICA_STATE_FROM: Final = 15
_ENDPOINTS_FROM: Final = 16
NAMES_AT_ONCE: Final = 1000
"""Topics and partitions of a request that are looked at in one turn of the loop: each costs some 4 to 15 us."""
_SESSION_IDS: Final = 2**31 - 1
_DRAWN_BYTES: Final = 32
_ANSWER_BYTES: Final = 24
_PARTITION_BYTES: Final = 64
"""What an answer has beside the records, for quotas: the least, and of each partition with its topic."""


@handles(ApiKey.FETCH)
def handle(broker: Services, request: FetchRequest, context: RequestContext) -> Any:
    if _names_many(request):
        return _in_pieces(broker, request, context)
    return _opened(broker, request, context, at_once(_session(broker, request, context)))


def _names_many(request: FetchRequest) -> bool:
    """Whether a request has more topics and partitions than are looked at in one turn."""
    topics, forgotten = request.topics, request.forgotten_topics_data
    names = len(topics) + len(forgotten)
    if names > NAMES_AT_ONCE:
        return True
    names += sum([len(topic.partitions) for topic in topics])
    if forgotten:
        names += sum([len(topic.partitions) for topic in forgotten])
    return names > NAMES_AT_ONCE


async def _in_pieces(broker: Services, request: FetchRequest, context: RequestContext) -> Any:
    async with broker.long_answers.turn:
        opened = await rest_of(context, _session(broker, request, context))
    if not isinstance(opened, ErrorCode):
        context.keep(list(opened[0]))
    result = _opened(broker, request, context, opened)
    return await result if isinstance(result, Coroutine) else result


def _opened(broker: Services, request: FetchRequest, context: RequestContext, opened: _Opened | ErrorCode) -> Any:
    """What is fetched, once the partitions are ready, if there is no error of the session."""
    if isinstance(opened, ErrorCode):
        broker.request_errors.count(ApiKey.FETCH, opened)
        return FetchResponse(error_code=opened)
    partitions, _, session = opened
    kept = None if session is None else session.kept
    # Those that rest are ready: they have been read.
    looked_at = kept.awake if isinstance(kept, Resting) else partitions
    keys = ((partition.topic, partition.index) for partition in looked_at)
    return once_ready(broker, keys, lambda: _fetch(broker, request, context, opened))


def _fetch(broker: Services, request: FetchRequest, context: RequestContext, opened: _Opened) -> Any:
    reading = _reading_of(broker, request, context, opened)
    max_wait_ms = min(request.max_wait_ms, MAX_WAIT_MS)
    is_followers = type(reading.reader) is FollowerReader

    def response_of(found: list[Answer]) -> Steps[FetchResponse]:
        return _response_of(request, context, opened, found)

    if reading.names > NAMES_AT_ONCE:
        return LargeFetch(
            broker, context, reading, response_of, max_wait_ms=max_wait_ms, is_followers=is_followers
        ).run()
    fetch = Fetch(broker, reading, max_wait_ms=max_wait_ms, holder=context.holder, is_followers=is_followers)
    found = fetch.run()
    answer: FetchResponse | Completion[FetchResponse]
    if isinstance(found, Completion):
        answer = found.mapped(lambda answers: at_once(response_of(answers)))
    else:
        answer = at_once(response_of(found))
    if not is_followers:
        known = context.client.short_fetch
        assert known is None or isinstance(known, ShortFetch)
        context.client.short_fetch = short_fetch_of(broker, request, context, known)
    return answer


def _reading_of(broker: Services, request: FetchRequest, context: RequestContext, opened: _Opened) -> Reading:
    """Returns what reads the partitions of a request, for the consumer or the follower that asks."""
    partitions, _, session = opened
    version = context.api_version
    if session is not None and broker.fetch_sessions.sessions.get(session.id) is not session:
        session = None  # it gave way to another while the request waited
    follower, broker_epoch = _follower(request, version)
    max_bytes = request.max_bytes
    reader: PartitionReader
    resting: Resting | None = None
    if follower >= 0:
        refuse = _refusal_of_followers(context)
        reader = FollowerReader(broker, refuse, follower=follower, broker_epoch=broker_epoch)
        if session is not None and refuse is _allowed:
            resting = _resting_of_follower(broker, session, follower, broker_epoch)
    else:
        refuse = _refusal(broker, context)
        nearest = nearest_of(broker, request.rack_id, context.listener)
        isolation = request.isolation_level
        reader = ConsumerReader(broker, refuse, version=version, isolation_level=isolation, nearest=nearest)
        if context.meter is not None:
            max_bytes = min(max_bytes, context.meter.fetch_bytes_max)
        if session is not None and nearest is None:
            resting = _resting_of_consumer(broker, session, reads_of(context, isolation), refuse)
    if session is not None and session.kept is not resting:
        session.keep(resting)
    min_bytes = request.min_bytes
    return Reading(
        broker, reader, partitions, version=version, min_bytes=min_bytes, max_bytes=max_bytes, resting=resting
    )


def _response_of(
    request: FetchRequest, context: RequestContext, opened: _Opened, found: list[Answer]
) -> Steps[FetchResponse]:
    """Returns the response for what was read."""
    _, answer, session = opened
    context.keep(found)
    meter = context.meter if _follower(request, context.api_version)[0] < 0 else None
    throttle_ms, is_empty = 0, False
    if meter is not None:
        size = yield from _size_of(found, session)
        throttle_ms, is_empty = meter.throttle_fetch(size)
    if is_empty:
        # The client comes back for the same, and its session was sent nothing.
        response = FetchResponse(session_id=NO_SESSION if session is None else session.id)
    else:
        response = yield from answer(found)
    response.throttle_time_ms = throttle_ms
    return response


def _size_of(answers: list[Answer], session: Session | None) -> Steps[int]:
    """About how many bytes an answer has."""
    size = _ANSWER_BYTES
    for some in parts_of(answers, SMALL_PER_STEP):
        sent = some if session is None else [answer for answer in some if _must_send(answer)]
        size += sum([_PARTITION_BYTES + (len(data.records) if data.records else 0) for _, data in sent])
        yield 1
    return size


def _follower(request: FetchRequest, version: int) -> tuple[int, int]:
    """The broker that fetches as a follower, and its broker epoch (-1: not sent); id -1 if a consumer fetches."""
    if version < _REPLICA_STATE_FROM:
        return request.replica_id, -1
    state = request.replica_state
    return (-1, -1) if state is None else (state.replica_id, state.replica_epoch)


def _resting_of_follower(broker: Services, session: Session, follower: int, broker_epoch: int) -> RestingPartitions:
    """Returns the state of a follower's session."""
    kept = session.kept
    if isinstance(kept, RestingPartitions) and (kept.follower, kept.broker_epoch) == (follower, broker_epoch):
        return kept
    return RestingPartitions(broker.logs.resources, session.partitions.values(), follower, broker_epoch)


def _resting_of_consumer(
    broker: Services, session: Session, reads: ConsumerReads, refuse: Callable[[str], ErrorCode]
) -> RestingForConsumer | None:
    """Returns the state of a consumer's session; None if its partitions may not rest."""
    kept = session.kept
    if isinstance(kept, RestingForConsumer) and kept.reads == reads:
        return kept
    if len(session.partitions) < CONSUMERS_REST_FROM or reads.generation < OPEN_GENERATION:
        return None
    return RestingForConsumer(broker.logs.resources, session.partitions.values(), reads, refuse)


def _allowed(_topic: str) -> ErrorCode:
    return ErrorCode.NONE


def _refusal_of_followers(context: RequestContext) -> Callable[[str], ErrorCode]:
    if is_node(context):
        return _allowed
    return lambda _: ErrorCode.TOPIC_AUTHORIZATION_FAILED


def _refusal(broker: Services, context: RequestContext) -> Callable[[str], ErrorCode]:
    if type(broker.authorizer) is OpenAuthorizer:
        return _allowed

    def refuse(topic: str) -> ErrorCode:
        if context.authorize(Operation.READ, ResourceType.TOPIC, topic):
            return ErrorCode.NONE
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED

    return refuse


_Opened = tuple[Iterable[SessionPartition], Callable[[list[Answer]], Steps[FetchResponse]], Session | None]
"""What is read, how its answer is made, and the session that the request goes on with: of its partitions without news
the answer says nothing."""


def _session(broker: Services, request: FetchRequest, context: RequestContext) -> Steps[_Opened | ErrorCode]:
    """Which session the request belongs to, what it reads, and how its answer is made; or the error of its session."""
    cache = broker.fetch_sessions
    uses_topic_ids = context.api_version >= _TOPIC_IDS_FROM
    if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        if request.session_id != NO_SESSION:
            cache.end(request.session_id, context.principal)
        partitions = yield from _asked(broker, request, uses_topic_ids)
        wanted = request.session_epoch == INITIAL_EPOCH

        def answer_full(answers: list[Answer]) -> Steps[FetchResponse]:
            session = (yield from _open_session(broker, request, context, answers)) if wanted else None
            if session is not None:
                session.partitions = partitions
                yield from _note_sent(answers)
                yield from _rotate(session, answers, uses_topic_ids)
            session_id = session.id if session is not None else NO_SESSION
            return (yield from _response(broker, answers, session_id, context))

        return partitions.values(), answer_full, None

    now_ms = broker.node.clock.now_ms()
    found = cache.find(request.session_id, request.session_epoch, uses_topic_ids, now_ms, context.principal)
    if isinstance(found, ErrorCode):
        return found
    found.next_epoch()
    had = len(found.partitions)
    yield from _update(broker, found, request, uses_topic_ids)
    grew = len(found.partitions) > had
    if not found.partitions:
        # As in Kafka: a session that has nothing left to read ends, and makes room for others.
        cache.close(found.id)
        return (), lambda answers: _response(broker, answers, NO_SESSION, context), None

    def answer_changes(answers: list[Answer]) -> Steps[FetchResponse]:
        changed: list[Answer] = []
        for some in parts_of(answers, SMALL_PER_STEP):
            changed += [answer for answer in some if _must_send(answer)]
            yield 1
        if not changed and not grew:
            return FetchResponse(session_id=found.id)
        _, errors = yield from _errors(changed, of_follower=found.is_followers)
        if errors > ERRORS_MAX or (grew and not cache.may_grow(found)):
            # As in Kafka if a session is evicted: the client goes on with a full fetch.
            cache.close(found.id)
            return (yield from _response(broker, changed, NO_SESSION, context))
        yield from _note_sent(changed)
        yield from _rotate(found, changed, uses_topic_ids)
        return (yield from _response(broker, changed, found.id, context))

    return found.partitions.values(), answer_changes, found


def _note_sent(answers: list[Answer]) -> Steps[None]:
    """Notes what is sent in a session."""
    for some in parts_of(answers, SMALL_PER_STEP):
        for partition, data in some:
            partition.sent(
                error=data.error_code, high_watermark=data.high_watermark, log_start_offset=data.log_start_offset
            )
        yield 1


def _asked(broker: Services, request: FetchRequest, uses_topic_ids: bool) -> Steps[dict[Key, SessionPartition]]:
    """The partitions that a full fetch names, in its order."""
    partitions: dict[Key, SessionPartition] = {}
    for topic in request.topics:
        topic_id, name = _identify(broker, topic.topic_id, topic.topic, uses_topic_ids)
        yield 1
        for some in parts_of(topic.partitions, SMALL_PER_STEP):
            yield 1
            for asked in some:
                key = (topic_id if uses_topic_ids else ZERO, "" if uses_topic_ids else name, asked.partition)
                partition = partitions[key] = SessionPartition(name, topic_id, asked.partition)
                partition.fetch_offset = asked.fetch_offset
                partition.max_bytes = asked.partition_max_bytes
                partition.current_leader_epoch = asked.current_leader_epoch
                partition.last_fetched_epoch = asked.last_fetched_epoch
                partition.follower_log_start = asked.log_start_offset
    return partitions


def _identify(broker: Services, topic_id: bytes, name: str, uses_topic_ids: bool) -> tuple[bytes, str]:
    """A topic's id and name; an empty name where there is no topic of that id."""
    if not uses_topic_ids:
        return ZERO, name
    known = broker.image.topics.by_id(topic_id)
    return topic_id, known.name if known is not None else ""


def _update(broker: Services, session: Session, request: FetchRequest, uses_topic_ids: bool) -> Steps[None]:
    """Takes over what an incremental request adds, changes and forgets."""
    if request.topics:
        named = yield from _asked(broker, request, uses_topic_ids)
        for some in parts_of(list(named.items()), SMALL_PER_STEP):
            for key, asked in some:
                _take_over(session, key, asked)
            yield 1
    for forgotten in request.forgotten_topics_data:
        yield 1
        for indexes in parts_of(forgotten.partitions, SMALL_PER_STEP):
            for index in indexes:
                session.forget((forgotten.topic_id, "", index) if uses_topic_ids else (ZERO, forgotten.topic, index))
            yield 1
    topics = broker.image.topics
    if uses_topic_ids and session.named_by is not topics:
        # A topic may be known by now, or gone.
        session.named_by = topics
        by_id = topics.by_id
        for partition in session.partitions.values():
            topic = by_id(partition.topic_id)
            partition.topic = topic.name if topic is not None else ""


def _take_over(session: Session, key: Key, asked: SessionPartition) -> None:
    known = session.partitions.get(key)
    if known is None:
        known = session.partitions[key] = asked
    else:
        known.topic = asked.topic
        known.fetch_offset = asked.fetch_offset
        known.max_bytes = asked.max_bytes
        known.current_leader_epoch = asked.current_leader_epoch
        known.last_fetched_epoch = asked.last_fetched_epoch
        known.follower_log_start = asked.follower_log_start
    if session.kept is not None:
        session.kept.named(known)


def _new_session_id(broker: Services) -> int:
    """Hashed, since numbers as they are drawn tell those that follow, and so the sessions of others."""
    cache, session_id = broker.fetch_sessions, NO_SESSION
    while session_id == NO_SESSION or session_id in cache.sessions:
        drawn = sha256(broker.random.randbytes(_DRAWN_BYTES)).digest()
        session_id = int.from_bytes(drawn[:4]) & _SESSION_IDS
    return session_id


def _open_session(
    broker: Services, request: FetchRequest, context: RequestContext, answers: list[Answer]
) -> Steps[Session | None]:
    version = context.api_version
    of_follower = _follower(request, version)[0] >= 0
    not_there, errors = yield from _errors(answers, of_follower=of_follower)
    return broker.fetch_sessions.open(
        _new_session_id(broker),
        Wanted(len(answers), len(answers) - not_there, errors),
        version >= _TOPIC_IDS_FROM,
        broker.node.clock.now_ms(),
        context.principal,
        of_follower=of_follower,
    )


def _errors(answers: list[Answer], *, of_follower: bool) -> Steps[tuple[int, int]]:
    """How many partitions there are none of, or not for this client; and how many of a session would be named in each
    of its answers. A follower's may have another leader for a moment, all of them."""
    not_there = errors = 0
    for some in parts_of(answers, SMALL_PER_STEP):
        wrong = [data.error_code for _, data in some if data.error_code]
        errors += len(wrong)
        not_there += sum([code in NOT_THERE for code in wrong])
        yield 1
    return not_there, not_there if of_follower else errors


def _must_send(answer: Answer) -> bool:
    partition, data = answer
    return partition.must_tell(
        error=data.error_code,
        has_records=bool(data.records),
        high_watermark=data.high_watermark,
        log_start_offset=data.log_start_offset,
        leads_away=data.diverging_epoch is not None or data.preferred_read_replica >= 0,
    )


def _rotate(session: Session, answers: list[Answer], uses_topic_ids: bool) -> Steps[None]:
    for some in parts_of(answers, SMALL_PER_STEP):
        session.rotate(
            (partition.topic_id, "", partition.index) if uses_topic_ids else (ZERO, partition.topic, partition.index)
            for partition, data in some
            if data.records
        )
        yield 1


def _response(
    broker: Services, answers: list[Answer], session_id: int, context: RequestContext
) -> Steps[FetchResponse]:
    topics: dict[tuple[bytes, str], FetchableTopicResponse] = {}
    leaders: list[int] = []
    for some in parts_of(answers, SMALL_PER_STEP):
        yield 1
        for partition, data in some:
            key = (partition.topic_id, partition.topic)
            topic = topics.get(key)
            if topic is None:
                topic = topics[key] = FetchableTopicResponse(partition.topic, partition.topic_id)
            topic.partitions.append(data)
            if data.error_code:
                broker.request_errors.count(ApiKey.FETCH, data.error_code)
            if data.current_leader is not None:
                leaders.append(data.current_leader.leader_id)
    response = FetchResponse(session_id=session_id, responses=list(topics.values()))
    if leaders and context.api_version >= _ENDPOINTS_FROM:
        response.node_endpoints = endpoints_of(broker.image, leaders, context.listener, NodeEndpoint)
    return response
