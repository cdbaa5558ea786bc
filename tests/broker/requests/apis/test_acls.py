"""ACLs over the wire: stored, found, removed, and in force from the next request on, warm or not."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from broker.guarded import (
    ALL,
    ALLOW,
    CLIENT,
    DENY,
    LITERAL,
    MATCH,
    OPEN_WITHOUT_ACLS,
    OWNER,
    PREFIXED,
    acl,
    create,
    delete,
    describe,
    everything,
)
from broker.raw import Raw, batch, create_topic, fetch, produce
from broker.short_paths import note_short_fetches

import headrace.testing
from headrace.broker.requests.produce_run import ProduceRun
from headrace.config.security_table import STANDARD_AUTHORIZER
from headrace.controller.acls import ACLS_MAX, CreateAcls
from headrace.metadata.acls import EVERY_ACL
from headrace.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import k29_describe_acls as k29
from headrace.wire.messages import k30_create_acls as k30
from headrace.wire.messages import k31_delete_acls as k31
from headrace.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.messages.k18_api_versions import ApiVersionsRequest
from headrace.wire.messages.k22_init_producer_id import InitProducerIdRequest

TOPIC = ResourceType.TOPIC
REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
NO_CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
INVALID = ErrorCode.INVALID_REQUEST


@pytest.fixture
def guarded() -> Iterator[TestBroker]:
    """The owner may do everything; others what a test says."""
    with running_broker(OPEN_WITHOUT_ACLS) as broker:
        with Raw(broker.port) as raw:
            assert create(raw, *everything(OWNER)) == [0] * 4
        yield broker


@pytest.fixture
def owner(guarded: TestBroker) -> Iterator[Raw]:
    with Raw(guarded.port) as raw:
        yield raw


@pytest.fixture
def client(guarded: TestBroker) -> Iterator[Raw]:
    with Raw(guarded.port, source=CLIENT) as raw:
        yield raw


# --- stored, found, removed


@pytest.mark.parametrize("version", [1, 2, 3])
def test_what_is_stored_is_found_and_goes(owner: Raw, version: int) -> None:
    before = describe(owner, version).resources
    one, two = acl(TOPIC, "t", Operation.READ), acl(TOPIC, "t", Operation.WRITE, host="*", permission=DENY)
    three = acl(TOPIC, "t", ALL, pattern=PREFIXED, principal="User:CN=é,O=x")
    assert create(owner, one, one, two, version=version) == [0, 0, 0]
    assert create(owner, two, three, version=version) == [0, 0]
    found = describe(owner, version, name="t", pattern_type=LITERAL)
    assert (found.error_code, found.error_message) == (0, "")
    (resource,) = found.resources
    assert (resource.resource_type, resource.resource_name, resource.pattern_type) == (TOPIC, "t", LITERAL)
    assert {(a.principal, a.host, a.operation, a.permission_type) for a in resource.acls} == {
        ("User:ANONYMOUS", CLIENT, Operation.READ, ALLOW),
        ("User:ANONYMOUS", "*", Operation.WRITE, DENY),
    }
    would_apply = describe(owner, version, resource_type=TOPIC, name="tx", pattern_type=MATCH).resources
    assert [(each.resource_name, each.pattern_type) for each in would_apply] == [("*", LITERAL), ("t", PREFIXED)]
    gone = delete(owner, version, name="t")
    assert (gone.error_code, gone.error_message) == (0, None)
    assert sorted((a.operation, a.pattern_type, a.principal) for a in gone.matching_acls) == [
        (ALL, PREFIXED, "User:CN=é,O=x"),
        (Operation.READ, LITERAL, "User:ANONYMOUS"),
        (Operation.WRITE, LITERAL, "User:ANONYMOUS"),
    ]
    assert describe(owner, version).resources == before
    assert delete(owner, version, name="t").matching_acls == []


def test_one_that_is_none_is_refused_alone(owner: Raw) -> None:
    good = acl(TOPIC, "good", Operation.READ)
    bad = acl(TOPIC, "bad", Operation.READ)
    bad.principal = "alice"
    answer = owner.ask(k30.CreateAclsRequest([bad, good, acl(ResourceType.CLUSTER, "mine", ALL)]), 3)
    assert [(each.error_code, each.error_message[:30]) for each in answer.results] == [
        (INVALID, "Could not parse principal from"),
        (0, ""),
        (INVALID, "The only valid name for the CL"),
    ]
    assert len(describe(owner, name="good").resources) == 1


def test_two_filters_name_the_same_and_a_bad_one_names_nothing(owner: Raw) -> None:
    create(owner, acl(TOPIC, "t", Operation.READ))
    named, bad = EVERY_ACL._replace(name="t"), EVERY_ACL._replace(operation=99)
    filters = [k31.DeleteAclsFilter(*each) for each in (named, bad, named)]
    results = owner.ask(k31.DeleteAclsRequest(filters), 3).filter_results
    assert [(each.error_code, len(each.matching_acls)) for each in results] == [(0, 1), (INVALID, 0), (0, 1)]
    assert results[1].error_message == "Unknown entryFilter."


def test_who_may_not_see_or_alter_is_told_so_once_for_each(client: Raw, owner: Raw) -> None:
    assert describe(client).error_code == NO_CLUSTER
    assert create(client, acl(TOPIC, "t", ALL), acl(TOPIC, "u", ALL)) == [NO_CLUSTER] * 2
    assert delete(client).error_code == NO_CLUSTER
    create(owner, acl(ResourceType.CLUSTER, CLUSTER_NAME, Operation.DESCRIBE))
    assert describe(client).error_code == 0
    assert create(client, acl(TOPIC, "t", ALL)) == [NO_CLUSTER]
    create(owner, acl(ResourceType.CLUSTER, CLUSTER_NAME, Operation.ALTER))
    assert create(client, acl(TOPIC, "t", ALL)) == [0]
    assert delete(client, name="t").error_code == 0


@pytest.mark.parametrize(
    "request_",
    [
        k29.DescribeAclsRequest(0, None, 1, None, None, 1, 1),
        k30.CreateAclsRequest([k30.AclCreation(TOPIC, "t", 0, "User:a", "*", 3, 3)]),
        k31.DeleteAclsRequest([k31.DeleteAclsFilter(1, None, 1, None, None, 1, 0)]),
    ],
)
def test_a_code_that_stands_for_unknown_closes_the_connection(owner: Raw, request_: object) -> None:
    owner.send(request_, 3)
    assert owner.is_closed()


def test_so_many_at_once_and_none_more(owner: Raw) -> None:
    many = [acl(TOPIC, f"t{number}", Operation.READ) for number in range(10_001)]
    assert set(create(owner, *many[: ACLS_MAX + 1])) == {ErrorCode.POLICY_VIOLATION}
    assert describe(owner, name="t0").resources == []
    for first in range(0, len(many), ACLS_MAX):
        some = many[first : first + ACLS_MAX]
        assert set(create(owner, *some, *some[:3])) == {0}
    refused = delete(owner, host=CLIENT)
    assert (refused.error_code, refused.matching_acls) == (INVALID, [])
    assert len(describe(owner, host=CLIENT).resources) == 10_001


def test_without_an_authorizer_there_is_no_security() -> None:
    with running_broker() as broker, Raw(broker.port) as raw:
        disabled = ErrorCode.SECURITY_DISABLED
        assert describe(raw).error_code == disabled
        assert create(raw, acl(TOPIC, "t", ALL), acl(TOPIC, "u", ALL)) == [disabled] * 2
        assert delete(raw).error_code == disabled
        keys = {each.api_key for each in raw.ask(ApiVersionsRequest("t", "1"), 4).api_keys}
        assert {29, 30, 31} <= keys


def test_they_are_there_after_a_restart_and_a_snapshot(tmp_path: Path) -> None:
    with running_broker({**OPEN_WITHOUT_ACLS}, data=tmp_path) as broker, Raw(broker.port) as raw:
        create(raw, *everything(OWNER), acl(TOPIC, "t", Operation.READ))
        before = describe(raw).resources
    with running_broker({"authorizer.class.name": STANDARD_AUTHORIZER}, data=tmp_path) as broker:
        with Raw(broker.port) as raw, Raw(broker.port, source=CLIENT) as other:
            assert describe(raw).resources == before
            assert describe(other).error_code == NO_CLUSTER


def test_a_broker_with_an_authorizer_and_no_rules_serves_itself_and_nobody() -> None:
    with running_broker({"authorizer.class.name": STANDARD_AUTHORIZER}) as broker, Raw(broker.port) as raw:
        assert describe(raw).error_code == NO_CLUSTER
    with running_broker({"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}) as broker:
        with Raw(broker.port) as raw:
            assert create(raw, acl(TOPIC, "*", ALL, host="*", permission=DENY)) == [0]
            assert create_topic(broker.port, "t")
            assert raw.ask(produce("t", batch(b"x")), 9).responses[0].partition_responses[0].error_code == 0


def test_an_acl_of_an_ipv6_address_is_as_java_writes_it() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    settings = {**OPEN_WITHOUT_ACLS, "listeners": "PLAINTEXT://127.0.0.1:0,SIX://[::1]:0"}
    settings["listener.security.protocol.map"] = "PLAINTEXT:PLAINTEXT,SIX:PLAINTEXT"
    with running_broker(settings) as broker, Raw(broker.port) as raw:
        create(raw, *everything(OWNER))
        port = broker.call(lambda inside: inside.listeners[1].port)
        with Raw(broker.port) as six:
            six.socket.close()
            six.socket = socket.create_connection(("::1", port), timeout=60.0)
            assert describe(six).error_code == NO_CLUSTER
            create(raw, acl(ResourceType.CLUSTER, CLUSTER_NAME, Operation.DESCRIBE, host="::1"))
            assert describe(six).error_code == NO_CLUSTER
            create(raw, acl(ResourceType.CLUSTER, CLUSTER_NAME, Operation.DESCRIBE, host="0:0:0:0:0:0:0:1"))
            assert describe(six).error_code == 0


# --- in force from the next request on


@pytest.mark.parametrize("partitions", [1, 3])
def test_producing_goes_the_short_way_until_the_right_is_gone(
    guarded: TestBroker, owner: Raw, client: Raw, monkeypatch: pytest.MonkeyPatch, partitions: int
) -> None:
    taken: list[bool] = []
    for way in ("add", "add_alike"):
        original = getattr(ProduceRun, way)

        def noted(self: ProduceRun, *arguments: object, way: Callable[..., bool] = original) -> bool:
            taken.append(way(self, *arguments))
            return taken[-1]

        monkeypatch.setattr(ProduceRun, way, noted)
    create_topic(guarded.port, "t", partitions)

    def codes(count: int) -> list[int]:
        taken.clear()
        client.socket.sendall(
            b"".join(client.frame(produce("t", *[batch(b"%d" % n)] * partitions), 9) for n in range(count))
        )
        answers = [client.receive(0, 9)[1] for _ in range(count)]
        return [answer.responses[0].partition_responses[0].error_code for answer in answers]

    assert codes(2) == [REFUSED] * 2
    create(owner, acl(TOPIC, "t", Operation.WRITE))
    codes(1)  # this one may wait until the leader's epoch is on disk
    for count in (1, 8):
        assert codes(count) == [0] * count
        assert taken.count(True) == count
    create(owner, acl(TOPIC, "other", Operation.WRITE))  # another generation, the same right
    assert codes(8) == [0] * 8
    assert taken == [False, *[True] * 8], "the first is compared anew"
    create(owner, acl(TOPIC, "t", Operation.WRITE, permission=DENY, host="*"))
    assert codes(8) == [REFUSED] * 8
    assert not any(taken)
    assert len(delete(owner, name="t", permission=DENY).matching_acls) == 1
    assert codes(8) == [0] * 8
    assert len(delete(owner, name="t").matching_acls) == 1
    for count in (1, 8):
        assert codes(count) == [REFUSED] * count
    assert guarded.call(lambda inside: inside.replicas.by_name["t", 0].log.end_offset) == 26


def test_what_one_connection_may_another_may_not(guarded: TestBroker, owner: Raw, client: Raw) -> None:
    create_topic(guarded.port, "t")
    for _ in range(3):
        assert owner.ask(produce("t", batch(b"x")), 9).responses[0].partition_responses[0].error_code == 0
        assert client.ask(produce("t", batch(b"x")), 9).responses[0].partition_responses[0].error_code == REFUSED


def test_an_old_request_brings_no_connection_the_right_of_another(guarded: TestBroker, owner: Raw, client: Raw) -> None:
    """What a request of before version 9 leaves nothing to compare with, and what the last one left was another's."""
    for name in ("t", "own"):
        create_topic(guarded.port, name)
    create(owner, acl(TOPIC, "own", Operation.WRITE))

    def code(raw: Raw, name: str, version: int) -> int:
        answer = raw.ask(produce(name, batch(b"x" * 100)), version)
        return int(answer.responses[0].partition_responses[0].error_code)

    for name in ("t", "own"):
        assert code(owner, name, 9) == 0  # an answer may wait until the leader's epoch is on disk
    for version in (3, 8):
        assert code(owner, "t", 9) == 0
        assert code(client, "own", version) == 0
        assert code(client, "t", 9) == REFUSED


@pytest.mark.parametrize("version", [12, 17])
def test_fetching_goes_the_short_way_until_the_right_is_gone(
    guarded: TestBroker, owner: Raw, client: Raw, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    taken = note_short_fetches(guarded, monkeypatch)
    topic_id = create_topic(guarded.port, "t")
    owner.ask(produce("t", batch(b"x")), 9)
    request = fetch("t", topic_id=topic_id, max_wait_ms=10)

    def partition() -> tuple[int, bool]:
        found = client.ask(request, version).responses[0].partitions[0]
        return found.error_code, bool(found.records)

    assert partition() == (REFUSED, False)
    create(owner, acl(TOPIC, "t", Operation.READ))
    assert [partition() for _ in range(3)] == [(0, True)] * 3
    assert taken()[-3:] == [True] * 3
    create(owner, acl(TOPIC, "other", Operation.READ))
    assert partition() == (0, True)
    assert taken()[-1]
    delete(owner, name="t")
    assert [partition() for _ in range(2)] == [(REFUSED, False)] * 2
    assert taken()[-2:] == [False] * 2


def test_a_session_that_loses_a_topic_is_told_so_and_reads_the_others(
    guarded: TestBroker, owner: Raw, client: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = note_short_fetches(guarded, monkeypatch)
    ids = {name: create_topic(guarded.port, name) for name in ("kept", "lost")}
    names = {topic_id: name for name, topic_id in ids.items()}
    create(owner, *[acl(TOPIC, name, Operation.READ) for name in ids])
    part = [FetchPartition(partition=0, partition_max_bytes=1 << 20)]
    opened = FetchRequest(max_wait_ms=10, min_bytes=1, max_bytes=1 << 20, session_epoch=0)
    opened.topics = [FetchTopic("", topic_id, part) for topic_id in names]
    session = client.ask(opened, 17).session_id
    epoch = 0

    def go_on() -> dict[str, tuple[int, bool]]:
        nonlocal epoch
        for name in ids:
            assert owner.ask(produce(name, batch(b"x")), 9).responses[0].partition_responses[0].error_code == 0
        epoch += 1
        request = FetchRequest(max_wait_ms=10, min_bytes=1, max_bytes=1 << 20, session_id=session)
        request.session_epoch = epoch
        request.topics = [
            FetchTopic("", topic_id, [FetchPartition(partition=0, fetch_offset=epoch - 1, partition_max_bytes=1 << 20)])
            for topic_id in names
        ]
        answer = client.ask(request, 17)
        assert answer.error_code == 0
        return {
            names[topic.topic_id]: (each.error_code, bool(each.records))
            for topic in answer.responses
            for each in topic.partitions
        }

    both = {"kept": (0, True), "lost": (0, True)}
    assert [go_on() for _ in range(3)] == [both] * 3
    assert taken()[-1]
    delete(owner, name="lost")
    assert [go_on() for _ in range(2)] == [{"kept": (0, True), "lost": (REFUSED, False)}] * 2
    create(owner, acl(TOPIC, "lost", Operation.READ))
    assert go_on() == both


def test_a_session_of_another_client_gives_no_right(
    guarded: TestBroker, owner: Raw, client: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever guesses its number goes on with it, and is asked for rights of its own."""
    note_short_fetches(guarded, monkeypatch)
    topic_id = create_topic(guarded.port, "t")
    free = create_topic(guarded.port, "free")
    create(owner, acl(TOPIC, "free", Operation.READ))
    for name in ("t", "free"):
        owner.ask(produce(name, batch(b"x")), 9)
    topics = [FetchTopic("", topic_id, [FetchPartition(partition=0, partition_max_bytes=1 << 20)])]
    opened = owner.ask(FetchRequest(max_wait_ms=10, min_bytes=1, max_bytes=1 << 20, session_epoch=0, topics=topics), 17)
    for _ in range(2):  # a connection with a short path of its own
        assert client.ask(fetch("free", topic_id=free, max_wait_ms=10), 17).responses[0].partitions[0].records
    for epoch, raw in ((1, owner), (2, owner), (3, client), (4, owner)):
        request = FetchRequest(max_wait_ms=10, min_bytes=1, max_bytes=1 << 20, session_id=opened.session_id)
        request.session_epoch = epoch
        request.topics = topics
        (partition,) = raw.ask(request, 17).responses[0].partitions
        assert (partition.error_code, bool(partition.records)) == ((REFUSED, False) if raw is client else (0, True))


def test_whoever_may_write_to_one_topic_may_be_idempotent(owner: Raw, client: Raw) -> None:
    request = InitProducerIdRequest(None, 60_000)
    assert client.ask(request, 4).error_code == NO_CLUSTER
    create(owner, acl(TOPIC, "not-there-yet", Operation.WRITE))
    assert client.ask(request, 4).error_code == 0
    create(owner, acl(TOPIC, "not-", ALL, pattern=PREFIXED, permission=DENY))
    assert client.ask(request, 4).error_code == NO_CLUSTER


# --- in a cluster


def test_every_broker_takes_them_and_goes_by_them() -> None:
    settings = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
    with headrace.testing.cluster(settings=settings) as cluster:
        follower = next(id_ for id_ in cluster.nodes if id_ != cluster.controller())
        with Raw(cluster.nodes[follower].port, timeout_s=60.0) as raw:
            assert create(raw, acl(TOPIC, "t", Operation.READ, principal="User:a")) == [0]
        for node in cluster.nodes.values():
            with Raw(node.port) as raw:
                for _ in range(1000):
                    found = describe(raw)
                    if found.resources:
                        break
                assert [each.resource_name for each in found.resources] == ["t"]
        with Raw(cluster.nodes[follower].port, timeout_s=60.0) as raw:
            assert len(delete(raw).matching_acls) == 1
        cluster.restart(follower)
        with Raw(cluster.nodes[follower].port) as raw:
            assert describe(raw).resources == []


# --- many in one request


def test_the_controller_decides_on_each_once(owner: Raw, guarded: TestBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """On all of them in one turn, so that many alike cost it what one costs."""
    one, bad = acl(TOPIC, "t", Operation.READ), acl(TOPIC, "", Operation.READ)
    decided = []
    ask = guarded.inside.controller.ask

    async def counted(asked: Any, *more: Any) -> Any:
        decided.append(len(asked.acls if isinstance(asked, CreateAcls) else asked.filters))
        return await ask(asked, *more)

    monkeypatch.setattr(guarded.inside.controller, "ask", counted)
    assert create(owner, *[one, bad] * 300) == [0, INVALID] * 300
    found = k31.DeleteAclsFilter(TOPIC, "t", LITERAL, one.principal, one.host, Operation.READ, ALLOW)
    results = owner.ask(k31.DeleteAclsRequest([found] * 300), 3).filter_results
    assert [[each.resource_name for each in result.matching_acls] for result in results] == [["t"]] * 300
    assert decided == [2, 1]


def test_too_many_different_ones_change_nothing(owner: Raw, monkeypatch: pytest.MonkeyPatch) -> None:
    for decides in ("k30_create_acls", "k31_delete_acls"):
        monkeypatch.setattr(f"headrace.broker.requests.apis.{decides}.ACLS_MAX", 30)
    before = describe(owner, 3).resources
    many = [acl(TOPIC, f"t{number}", Operation.READ) for number in range(31)]
    assert create(owner, *many) == [ErrorCode.POLICY_VIOLATION] * 31
    assert describe(owner, 3).resources == before
    assert create(owner, *many[:30], many[0]) == [0] * 31
    filters = [k31.DeleteAclsFilter(TOPIC, f"t{number}", LITERAL, None, None, 1, 1) for number in range(31)]
    assert {each.error_code for each in owner.ask(k31.DeleteAclsRequest(filters), 3).filter_results} == {INVALID}
    results = owner.ask(k31.DeleteAclsRequest(filters[:30]), 3).filter_results
    assert [len(each.matching_acls) for each in results] == [1] * 30
