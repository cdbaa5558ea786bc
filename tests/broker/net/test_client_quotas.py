"""Clients with quotas: the answer leaves at once and says how long to wait, and then nothing is read from the client.

Nothing is timed here. A client is muted for hours or not at all: quotas are so small, or are altered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from broker.raw import Raw, batch, create_topic, fetch, produce
from compat.kafka_says.quotas import Changes, Parts, alter
from peers.waiting import until

from headrace.broker.net.client_quotas import ClientLimits, ClientQuotas, Meter
from headrace.broker.requests.produce_run import ProduceRun
from headrace.broker.requests.short_fetch import ShortFetch
from headrace.config import BrokerConfig
from headrace.security.authorizer import UNCACHED, OpenAuthorizer, Operation, ResourceType
from headrace.security.quotas.lookup import BucketName, Limit
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker
from headrace.wire.errors import ErrorCode
from headrace.wire.frame import RequestHeader, encode_request
from headrace.wire.messages.k01_fetch import FetchRequest, ReplicaState
from headrace.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from headrace.wire.messages.k15_describe_groups import DescribeGroupsRequest
from headrace.wire.messages.k17_sasl_handshake import SaslHandshakeRequest
from headrace.wire.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from headrace.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from headrace.wire.messages.k24_add_partitions_to_txn import AddPartitionsToTxnRequest
from headrace.wire.messages.k36_sasl_authenticate import SaslAuthenticateRequest
from headrace.wire.messages.k37_create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from headrace.wire.messages.k19900_headrace_group_end_txn import HeadraceGroupEndTxnRequest

PATIENCE_S = 60.0
ANYONE: Parts = [("user", None)]
USER: Parts = [("user", "ANONYMOUS")]
FAST: Parts = [("client-id", "fast")]
SLOW: Parts = [("client-id", "slow")]
HOURS_MS = 3_600_000
NOBODY = ("User:nobody", b"")


class Client(Raw):
    """A connection whose requests name a client."""

    def __init__(self, port: int, client_id: str | None = "slow") -> None:
        super().__init__(port, PATIENCE_S)
        self.client_id = client_id

    def frame(self, request: Any, version: int) -> bytes:
        self.correlation_id += 1
        return encode_request(RequestHeader(request.API_KEY, version, self.correlation_id, self.client_id), request)


@pytest.fixture(scope="module")
def held() -> Iterator[TestBroker]:
    with running_broker() as broker:
        create_topic(broker.port, "t", 1)
        with Raw(broker.port) as raw:
            produced = raw.ask(produce("t", *[batch(b"x" * 1000)]), 9)
            assert produced.responses[0].partition_responses[0].error_code == 0
        yield broker


@pytest.fixture
def served(held: TestBroker) -> Iterator[TestBroker]:
    """Without quotas and without anything that was used, before and after."""
    yield held
    with Client(held.port, "operator") as raw:
        known = held.call(lambda inside: [entity for entity, _ in inside.image.kept.quotas])
        for entity in dict.fromkeys(known):
            parts = [(kind, None if is_default else name) for kind, name, is_default in entity]
            keys = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
            assert alter(raw, [(parts, [(key, None) for key in keys])])[0][0] == 0
    until(lambda: held.call(lambda inside: inside.server.shared.quotas is None and not len(inside.server.shared.mutes)))
    held.call(lambda inside: inside.quotas.rates._used.clear())
    held.call(lambda inside: inside.quotas.tokens._used.clear())


def limit(broker: TestBroker, parts: Parts, *changes: tuple[str, float | None]) -> None:
    with Client(broker.port, "operator") as raw:
        assert alter(raw, [(parts, list(changes))]) == [(0, sorted(parts))]


def muted(broker: TestBroker) -> int:
    return broker.call(lambda inside: len(inside.server.shared.mutes))


def asked(broker: TestBroker, name: str = "metadata") -> int:
    return broker.call(lambda inside: inside.metrics.counter(f"requests.{name}").value)


def is_silent(broker: TestBroker, held: Client) -> bool:
    """Whether nothing comes for a client that another one, which asks afterwards, is not kept waiting for."""
    with Client(broker.port, "other") as other:
        for _ in range(3):
            other.ask(MetadataRequest(topics=[]), 9)
    held.socket.setblocking(False)
    try:
        return not held.socket.recv(1)
    except BlockingIOError:
        return True
    finally:
        held.socket.settimeout(PATIENCE_S)


@pytest.mark.parametrize("acks", [1, -1])
def test_a_producer_over_its_quota_is_answered_and_then_not_read_from(served: TestBroker, acks: int) -> None:
    limit(served, SLOW, ("producer_byte_rate", 1.0))
    with Client(served.port) as slow, Client(served.port, "fast") as fast:
        answer = slow.ask(produce("t", batch(b"y" * 5000), acks=acks), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0
        assert answer.throttle_time_ms > HOURS_MS
        assert muted(served) == 1
        before = asked(served)
        slow.send(MetadataRequest(topics=[]), 9)
        assert is_silent(served, slow)
        assert asked(served) == before + 3
        assert fast.ask(produce("t", batch(b"z"), acks=acks), 9).throttle_time_ms == 0
        limit(served, SLOW, ("producer_byte_rate", None))
        assert slow.receive(3, 9)[0] == 2
        assert muted(served) == 0


def test_within_its_burst_a_producer_does_not_wait(served: TestBroker) -> None:
    limit(served, SLOW, ("producer_byte_rate", 1000.0))
    with Client(served.port) as slow:
        assert slow.ask(produce("t", batch(b"y" * 5000)), 9).throttle_time_ms == 0
        assert muted(served) == 0
        assert slow.ask(produce("t", batch(b"y" * 50_000)), 9).throttle_time_ms > 0


def test_without_acks_a_producer_is_muted_without_an_answer(served: TestBroker) -> None:
    limit(served, SLOW, ("producer_byte_rate", 1.0))
    with Client(served.port) as slow:
        slow.send(produce("t", batch(b"y" * 5000), acks=0), 9)
        until(lambda: muted(served) == 1)
        slow.send(MetadataRequest(topics=[]), 9)
        assert is_silent(served, slow)
        limit(served, SLOW, ("producer_byte_rate", None))
        assert slow.receive(3, 9)[0] == 2


def test_requests_that_arrived_together_wait_behind_the_first_that_is_over(served: TestBroker) -> None:
    """All in one piece: those behind are in the broker's memory, and are handled in their order once it reads on."""
    limit(served, SLOW, ("producer_byte_rate", 1.0))
    with Client(served.port) as slow:
        end = served.call(lambda inside: inside.replicas.by_name["t", 0].log.end_offset)
        frames = [slow.frame(produce("t", batch(b"%d" % n * 100)), 9) for n in range(6)]
        slow.socket.sendall(b"".join(frames))
        assert slow.receive(0, 9)[1].throttle_time_ms > 0
        assert is_silent(served, slow)
        assert served.call(lambda inside: inside.replicas.by_name["t", 0].log.end_offset) == end + 1
        limit(served, SLOW, ("producer_byte_rate", None))
        for n in range(2, 7):
            number, answer = slow.receive(0, 9)
            assert number == n
            assert answer.responses[0].partition_responses[0].base_offset == end + n - 1


def test_a_client_does_not_get_away_by_another_name_or_connection(served: TestBroker) -> None:
    limit(served, SLOW, ("producer_byte_rate", 1.0))
    with Client(served.port, "fast") as first, Client(served.port) as second:
        assert first.ask(produce("t", batch(b"a")), 9).throttle_time_ms == 0
        first.client_id = "slow"
        assert first.ask(produce("t", batch(b"y" * 5000)), 9).throttle_time_ms > HOURS_MS
        assert second.ask(produce("t", batch(b"b")), 9).throttle_time_ms > HOURS_MS
        assert muted(served) == 2


@pytest.mark.parametrize(
    ("parts", "client_id"),
    [
        (ANYONE, "c"),
        (USER, "c"),
        ([("client-id", "c")], "c"),
        ([("client-id", None)], "c"),
        ([("client-id", "c"), ("user", "ANONYMOUS")], "c"),
        ([("client-id", None), ("user", None)], "c"),
        (USER, None),
        ([("client-id", None)], None),
    ],
)
def test_quotas_of_users_clients_and_both_hold(served: TestBroker, parts: Parts, client_id: str | None) -> None:
    limit(served, parts, ("producer_byte_rate", 1.0))
    with Client(served.port, client_id) as client:
        assert client.ask(produce("t", batch(b"y" * 5000)), 9).throttle_time_ms > 0


def test_a_quota_of_a_user_is_shared_and_a_default_is_not(served: TestBroker) -> None:
    limit(served, [("client-id", None)], ("producer_byte_rate", 1000.0))
    with Client(served.port, "a") as one, Client(served.port, "b") as other:
        assert one.ask(produce("t", batch(b"y" * 20_000)), 9).throttle_time_ms > 0
        assert other.ask(produce("t", batch(b"y")), 9).throttle_time_ms == 0
    limit(served, USER, ("producer_byte_rate", 1000.0))
    with Client(served.port, "c") as one, Client(served.port, "d") as other:
        assert one.ask(produce("t", batch(b"y" * 20_000)), 9).throttle_time_ms > 0
        assert other.ask(produce("t", batch(b"y")), 9).throttle_time_ms > 0


def test_a_consumer_over_its_quota_gets_nothing_and_keeps_its_session(served: TestBroker) -> None:
    limit(served, SLOW, ("consumer_byte_rate", 100_000.0))
    with Client(served.port) as slow:
        full = slow.ask(fetch("t", session_epoch=0), 11)
        assert full.throttle_time_ms == 0 and full.session_id > 0 and full.responses
        limit(served, SLOW, ("consumer_byte_rate", 1.0))
        again = fetch("t", session_id=full.session_id, session_epoch=1)
        answer = slow.ask(again, 11)
        assert (answer.error_code, answer.session_id, answer.responses) == (0, full.session_id, [])
        assert answer.throttle_time_ms > 0
        assert muted(served) == 1
        limit(served, SLOW, ("consumer_byte_rate", None))
        again = fetch("t", session_id=full.session_id, session_epoch=2)
        answer = slow.ask(again, 11)
        assert (answer.error_code, answer.session_id, answer.throttle_time_ms) == (0, full.session_id, 0)
        assert answer.responses[0].partitions[0].records


def test_a_session_that_was_refused_its_answer_has_not_heard_of_it(served: TestBroker) -> None:
    """The high watermark moves while the client is over its quota: it is told of it afterwards, without records."""
    create_topic(served.port, "moved", 1)
    limit(served, SLOW, ("consumer_byte_rate", 1e6))
    with Client(served.port) as slow:
        first = slow.ask(fetch("moved", session_epoch=0, max_wait_ms=0), 11)
        with Client(served.port, "fast") as fast:
            fast.ask(produce("moved", batch(b"z")), 9)
        limit(served, SLOW, ("consumer_byte_rate", 1.0))
        held = slow.ask(fetch("moved", 1, session_id=first.session_id, session_epoch=1, max_wait_ms=0), 11)
        assert held.throttle_time_ms > 0 and not held.responses
        limit(served, SLOW, ("consumer_byte_rate", None))
        told = slow.ask(FetchRequest(session_id=first.session_id, session_epoch=2, max_bytes=1 << 20), 11)
        assert [each.high_watermark for each in told.responses[0].partitions] == [1]


def test_an_answer_has_no_more_than_the_window_allows(served: TestBroker) -> None:
    create_topic(served.port, "many", 1)
    with Client(served.port, "fast") as fast:
        for _ in range(20):
            fast.ask(produce("many", batch(b"z" * 1000)), 9)
    limit(served, SLOW, ("consumer_byte_rate", 500.0))
    with Client(served.port) as slow:
        answer = slow.ask(fetch("many"), 11)
        assert 0 < len(answer.responses[0].partitions[0].records) <= 5000


def test_a_batch_that_is_larger_than_the_window_comes_at_last(served: TestBroker) -> None:
    limit(served, SLOW, ("consumer_byte_rate", 1.0))
    with Client(served.port) as slow, Client(served.port) as again, Client(served.port) as third:
        answer = slow.ask(fetch("t", partition_max_bytes=1000), 11)
        assert 1000 < len(answer.responses[0].partitions[0].records) < 1500
        assert 900_000 < answer.throttle_time_ms < 1_700_000
        for refused in (again, third):
            # What was not sent does not count: it would add up.
            answer = refused.ask(fetch("t", partition_max_bytes=1000), 11)
            assert 1_900_000 < answer.throttle_time_ms < 2_900_000 and not answer.responses
        assert muted(served) == 3


def test_followers_are_exempt(served: TestBroker) -> None:
    limit(served, ANYONE, ("consumer_byte_rate", 1.0), ("request_percentage", 1e-9))
    topic_id = served.call(lambda inside: inside.image.topics.by_name("t").id)  # type: ignore[union-attr]
    with Client(served.port, "fast") as fast:
        request = fetch("t", topic_id=topic_id)
        request.replica_state = ReplicaState(replica_id=2, replica_epoch=-1)
        assert fast.ask(request, 15).throttle_time_ms == 0
        assert muted(served) == 0


def test_the_time_of_the_loop_counts(served: TestBroker) -> None:
    limit(served, SLOW, ("request_percentage", 1e-9))
    names = [f"n{number}" for number in range(9000)]  # in pieces, decoded and encoded on a worker
    for request, version in (
        (MetadataRequest(topics=None), 9),
        (fetch("t"), 11),
        (produce("t", batch(b"y")), 9),
        (DescribeGroupsRequest(names), 5),
        (DescribeGroupsRequest(names[:1000]), 5),
        (MetadataRequest([MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False), 9),
    ):
        with Client(served.port) as slow, Client(served.port, "fast") as fast:
            # One sample at most, however little the quota is.
            assert 0 < slow.ask(request, version).throttle_time_ms <= 1000
            assert fast.ask(request, version).throttle_time_ms == 0


class Clock:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


def test_the_time_of_handlers_counts_and_their_waiting_does_not() -> None:
    clock = Clock()
    quotas = ClientQuotas(clock, lambda: BrokerConfig.load({}), lambda _: None)  # type: ignore[arg-type]
    bucket = Limit(BucketName("request_percentage", "u", None), 1e9)
    used: list[float] = []

    def use(limit: Limit, amount: float) -> None:
        assert limit == bucket
        used.append(amount)

    quotas.use = use  # type: ignore[method-assign]

    async def handler(waits: asyncio.Future[int]) -> int:
        clock.now += 1
        found = await waits
        clock.now += 2
        return found

    async def run() -> int:
        meter = quotas.meter(ClientLimits(NOBODY, None, None, bucket, None), 19, 100)
        clock.now += 4
        meter.handled()
        clock.now += 8
        quotas.finished()
        waits: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        done = asyncio.ensure_future(_awaited(meter, handler(waits)))
        await asyncio.sleep(0)
        clock.now += 1000
        waits.set_result(7)
        found: int = await done
        clock.now += 1000
        assert meter.answered(MetadataResponse()) == 0
        return found

    assert asyncio.run(run()) == 7
    assert sum(used) == 1500, "percent of a second"


async def _awaited(meter: Meter, work: Any) -> Any:
    return await meter.timed(work)


def test_a_handler_that_is_cancelled_or_fails_hears_of_it() -> None:
    quotas = ClientQuotas(Clock(), lambda: BrokerConfig.load({}), lambda _: None)  # type: ignore[arg-type]
    heard: list[str] = []

    async def handler(waits: Any) -> None:
        try:
            await waits
        except asyncio.CancelledError:
            heard.append("cancelled")
            raise
        except ValueError:
            heard.append("failed")
            raise

    async def run(how: str) -> None:
        waits = asyncio.get_running_loop().create_future()
        meter = quotas.meter(ClientLimits(NOBODY, None, None, None, None), 19, 100)
        done = asyncio.ensure_future(_awaited(meter, handler(waits)))
        await asyncio.sleep(0)
        if how == "cancelled":
            done.cancel()
        else:
            waits.set_exception(ValueError())
        await asyncio.wait([done])
        assert done.cancelled() or isinstance(done.exception(), ValueError)

    for how in ("cancelled", "failed"):
        asyncio.run(run(how))
    assert heard == ["cancelled", "failed"]


def test_changes_of_topics_are_paid_for_in_partitions(served: TestBroker) -> None:
    limit(served, SLOW, ("controller_mutation_rate", 1.0))
    with Client(served.port) as slow, Client(served.port, "fast") as fast:

        def create(name: str, partitions: int, by: Client = slow, version: int = 7) -> tuple[int, int]:
            answer = by.ask(CreateTopicsRequest([CreatableTopic(name, partitions, 1)], timeout_ms=5000), version)
            return answer.topics[0].error_code, answer.throttle_time_ms

        used_up = ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert create("paid", 10) == (0, 0)
        assert create("paid", 10) == (ErrorCode.TOPIC_ALREADY_EXISTS, 0)
        assert create("debt", 40) == (0, 0), "who has no debt yet may go into one"
        code, throttle_ms = create("more", 1)
        assert code == used_up and 30_000 < throttle_ms <= 39_000
        assert create("more", 1, fast) == (0, 0)
    grow = CreatePartitionsRequest([CreatePartitionsTopic("paid", 11, None)], 5000)
    with Client(served.port) as slow:
        answer = slow.ask(grow, 3)
        assert answer.results[0].error_code == used_up and answer.throttle_time_ms > 0
    with Client(served.port) as slow:
        answer = slow.ask(grow, 2)
        assert answer.results[0].error_code == 0 and answer.throttle_time_ms > 0, "an old client only waits"
        assert muted(served) > 0
    with Client(served.port) as slow:
        answer = slow.ask(DeleteTopicsRequest([DeleteTopicState("paid", bytes(16))], timeout_ms=5000), 6)
        assert answer.responses[0].error_code == used_up
    with Client(served.port) as slow:
        answer = slow.ask(DeleteTopicsRequest(topic_names=["paid"], timeout_ms=5000), 4)
        assert answer.responses[0].error_code == 0 and answer.throttle_time_ms > 40_000


def test_a_muted_connection_that_the_broker_closes_leaves_nothing(served: TestBroker) -> None:
    limit(served, SLOW, ("producer_byte_rate", 1.0))
    with Client(served.port) as slow:
        slow.ask(produce("t", batch(b"y" * 5000)), 9)
        slow.socket.sendall(slow.frame(produce("t", batch(b"y" * 5000)), 9) * 3)

        def end(inside: Any) -> None:
            (connection,) = inside.server.shared.mutes._muted
            connection.close("enough")

        served.call(end)
        assert muted(served) == 0
        assert slow.is_closed()
    until(lambda: served.call(lambda inside: inside.server.requests_budget.used) == 0)


def test_a_client_that_closes_while_it_is_muted_is_forgotten_afterwards(served: TestBroker) -> None:
    limit(served, SLOW, ("producer_byte_rate", 1.0))
    with Client(served.port) as slow:
        slow.ask(produce("t", batch(b"y" * 5000)), 9)
        slow.socket.sendall(slow.frame(MetadataRequest(topics=[]), 9))
    assert muted(served) == 1
    limit(served, SLOW, ("producer_byte_rate", 2.0))
    until(lambda: served.call(lambda inside: len(inside.server.connections)) == 0)
    assert served.call(lambda inside: inside.server.requests_budget.used) == 0


def test_who_waits_for_another_quota_than_the_altered_one_waits_on(served: TestBroker) -> None:
    limit(served, SLOW, ("producer_byte_rate", 1.0))
    with Client(served.port) as slow:
        slow.ask(produce("t", batch(b"y" * 5000)), 9)
        slow.send(MetadataRequest(topics=[]), 9)
        limit(served, FAST, ("producer_byte_rate", 1.0))
        limit(served, SLOW, ("producer_byte_rate", 1.0))  # as it is
        assert muted(served) == 1
        assert is_silent(served, slow)
        # A nearer quota counts instead.
        limit(served, [("client-id", "slow"), ("user", "ANONYMOUS")], ("producer_byte_rate", 1e6))
        assert slow.receive(3, 9)[0] == 2
        assert muted(served) == 0


def test_a_smaller_quota_holds_for_what_was_used_already(served: TestBroker) -> None:
    limit(served, SLOW, ("producer_byte_rate", 1e9))
    with Client(served.port) as slow:
        assert slow.ask(produce("t", batch(b"y" * 5000)), 9).throttle_time_ms == 0
        limit(served, SLOW, ("producer_byte_rate", 1.0))
        assert slow.ask(produce("t", batch(b"y")), 9).throttle_time_ms > 4 * 1000 * 1000


@pytest.mark.parametrize("quotas", [[], [("request_percentage", 1.0)], [("producer_byte_rate", 1.0)]])
def test_who_is_not_limited_takes_the_short_paths(
    served: TestBroker, monkeypatch: pytest.MonkeyPatch, quotas: Changes
) -> None:
    taken: dict[str, int] = {}
    for kind, name in ((ProduceRun, "add"), (ProduceRun, "add_alike"), (ShortFetch, "answer")):
        original = getattr(kind, name)

        def noted(self: Any, *arguments: Any, way: Callable[..., bool] = original, name: str = name) -> bool:
            done = way(self, *arguments)
            taken[name] = taken.get(name, 0) + done
            return done

        monkeypatch.setattr(kind, name, noted)
    limit(served, SLOW, *quotas)
    # A quota that limits neither of the two leaves them short.
    limit(served, FAST, ("controller_mutation_rate", 1.0))
    with Client(served.port, "fast") as fast:
        for _ in range(4):
            fast.ask(produce("t", batch(b"y")), 9)
            fast.ask(fetch("t"), 11)
    served.call(lambda _: None)  # what answers has come back to its caller
    assert taken == {"add": 1, "add_alike": 3, "answer": 3}


def test_without_quotas_nothing_is_looked_up(served: TestBroker) -> None:
    assert served.call(lambda inside: inside.server.shared.quotas) is None
    limit(served, [("ip", "10.0.0.1")], ("connection_creation_rate", 1.0))
    assert served.call(lambda inside: inside.server.shared.quotas) is None
    limit(served, [("ip", "10.0.0.1")], ("connection_creation_rate", None))


def test_many_client_ids_take_bounded_memory(served: TestBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.broker.net.client_quotas.KNOWN_MAX", 50)
    limit(served, [("client-id", None)], ("producer_byte_rate", 1e6))
    with Client(served.port) as client:
        for number in range(200):
            client.client_id = f"c{number}"
            client.ask(produce("t", batch(b"y")), 9)
    assert served.call(lambda inside: len(inside.quotas._known)) <= 50
    assert served.call(lambda inside: len(inside.quotas.rates)) == 200


def test_who_has_logged_in_has_the_quota_of_that_user() -> None:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{module} required user_ann="a" user_bob="b";',
    }
    with running_broker(settings) as broker:
        plain = broker.call(lambda inside: next(each.port for each in inside.listeners if each.name == "PLAINTEXT"))
        create_topic(plain, "t", 1)

        def logged_in(user: str, password: str) -> Client:
            client = Client(broker.port)
            assert client.ask(SaslHandshakeRequest("PLAIN"), 1).error_code == 0
            token = f"\0{user}\0{password}".encode()
            assert client.ask(SaslAuthenticateRequest(token), 2).error_code == 0
            return client

        with Client(plain, "operator") as operator:
            assert alter(operator, [([("user", "ann")], [("producer_byte_rate", 1.0)])])[0][0] == 0
        with logged_in("ann", "a") as ann, logged_in("bob", "b") as bob, Client(plain) as nobody:
            for client in (bob, nobody):
                assert client.ask(produce("t", batch(b"y" * 5000)), 9).throttle_time_ms == 0
            assert ann.ask(produce("t", batch(b"y" * 5000)), 9).throttle_time_ms > HOURS_MS
            assert muted(broker) == 1
            ann.send(MetadataRequest(topics=[]), 9)
            assert bob.ask(produce("t", batch(b"y")), 9).throttle_time_ms == 0
            with Client(plain, "operator") as operator:
                assert alter(operator, [([("user", "ann")], [("producer_byte_rate", None)])])[0][0] == 0
            assert ann.receive(3, 9)[0] == 4


def test_a_client_id_of_any_length_is_limited_and_not_kept(served: TestBroker) -> None:
    limit(served, [("client-id", None)], ("request_percentage", 1e-9))
    with Client(served.port, "x" * 30_000) as long, Client(served.port, "y" * 30_000) as other:
        for client in (long, other):
            assert client.ask(MetadataRequest(topics=[]), 9).throttle_time_ms > 0
    kept = served.call(lambda inside: [*inside.quotas._known, *inside.quotas.rates._used])
    assert sum(len(part or "") for name in kept for part in name) < 20_000


class NoNode(OpenAuthorizer):
    """Allows everything but what nodes do."""

    generation = UNCACHED

    def authorize(
        self, principal: str, client_host: str, operation: Operation, resource: ResourceType, name: str
    ) -> bool:
        return operation is not Operation.CLUSTER_ACTION


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (HeadraceGroupEndTxnRequest("t", 1, 0, True, []), 0),
        (AddPartitionsToTxnRequest(), 4),
    ],
)
def test_who_only_says_to_be_a_node_is_not_exempt(served: TestBroker, request_: Any, version: int) -> None:
    limit(served, SLOW, ("request_percentage", 1e-9))
    served.call(lambda inside: setattr(inside, "authorizer", NoNode()))
    try:
        with Client(served.port) as slow:
            slow.ask(request_, version)
            assert muted(served) == 1
    finally:
        served.call(lambda inside: setattr(inside, "authorizer", OpenAuthorizer()))


def test_who_only_says_to_follow_is_not_exempt(served: TestBroker) -> None:
    limit(served, SLOW, ("request_percentage", 1e-9))
    served.call(lambda inside: setattr(inside, "authorizer", NoNode()))
    try:
        with Client(served.port) as slow:
            slow.ask(fetch("t", replica_id=5, max_wait_ms=0), 11)
            assert muted(served) == 1
    finally:
        served.call(lambda inside: setattr(inside, "authorizer", OpenAuthorizer()))
