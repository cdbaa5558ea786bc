"""Sessions of Fetch belong to who opened them: another client that knows the number of one finds none there. Whoever
may read nothing opens none, so that there is room for those who may."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from broker.guarded import CLIENT, OPEN_WITHOUT_ACLS, OWNER, acl, create, everything
from broker.raw import Raw, batch, create_topic, fetch, produce
from broker.sasl import PLAIN_ANN, PLAIN_BOB, SETTINGS, open_port, plain
from broker.short_paths import note_short_fetches
from peers.waiting import until

from headrace.replicas.sessions import EVICTION_MS, SessionCache
from headrace.security.authorizer import Operation, ResourceType
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker
from headrace.wire.batch import iter_headers
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k01_fetch import ReplicaState

VERSION = 11
RECORDS = 3


@pytest.fixture(scope="module")
def guarded() -> Iterator[TestBroker]:
    with running_broker(SETTINGS) as broker:
        yield broker


def logged_in(broker: TestBroker, message: bytes) -> Raw:
    raw = Raw(broker.port)
    assert plain(raw, message).error_code == 0
    return raw


@pytest.fixture
def ann(guarded: TestBroker) -> Iterator[Raw]:
    with logged_in(guarded, PLAIN_ANN) as raw:
        yield raw


@pytest.fixture
def bob(guarded: TestBroker) -> Iterator[Raw]:
    with logged_in(guarded, PLAIN_BOB) as raw:
        yield raw


def filled(broker: TestBroker, name: str) -> str:
    """A topic of three records, each a batch."""
    create_topic(open_port(broker), name)
    with Raw(open_port(broker)) as raw:
        for _ in range(RECORDS):
            write(raw, name)
    return name


def write(raw: Raw, name: str) -> None:
    assert raw.ask(produce(name, batch(b"x")), 9).responses[0].partition_responses[0].error_code == 0


def opened_by(raw: Raw, name: str, offset: int) -> int:
    """The number of a new session."""
    number = raw.ask(fetch(name, offset, session_epoch=0, max_wait_ms=0), VERSION).session_id
    assert number > 0
    return int(number)


def asked(name: str, offset: int, number: int, epoch: int, max_wait_ms: int = 0) -> Any:
    return fetch(name, offset, session_id=number, session_epoch=epoch, max_wait_ms=max_wait_ms)


def offsets(answer: Any) -> list[int]:
    """Where the batches of the only partition begin."""
    assert answer.error_code == 0
    (partition,) = answer.responses[0].partitions
    return [header.base_offset for _, header in iter_headers(partition.records)]


def test_nobody_turns_a_fetch_that_waits_to_another_offset(guarded: TestBroker, ann: Raw, bob: Raw) -> None:
    """Its answer would leave out records, or bring some twice, and nothing would say so."""
    name = filled(guarded, "turned")
    number = opened_by(ann, name, RECORDS)
    ann.send(asked(name, RECORDS, number, 1, max_wait_ms=20_000), VERSION)
    until(lambda: guarded.call(lambda broker: broker.fetches.waiting) == 1, "nobody waits")
    told = bob.ask(asked(name, 0, number, 2), VERSION)
    with Raw(open_port(guarded)) as writer:
        write(writer, name)
    assert offsets(ann.receive(1, VERSION)[1]) == [RECORDS]
    assert (told.error_code, told.responses) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])


def test_nobody_goes_on_with_it_the_short_way(
    guarded: TestBroker, ann: Raw, bob: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = filled(guarded, "short")
    taken = note_short_fetches(guarded, monkeypatch)
    own = opened_by(bob, name, 0)
    assert offsets(bob.ask(asked(name, 0, own, 1), VERSION)) == [0, 1, 2]
    assert taken() == [True]
    number = opened_by(ann, name, 0)
    assert bob.ask(asked(name, 0, number, 1), VERSION).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert offsets(ann.ask(asked(name, 1, number, 1), VERSION)) == [1, 2]
    assert taken() == [True, False, True]


@pytest.mark.parametrize("epoch", [-1, 0])
def test_nobody_ends_it(guarded: TestBroker, ann: Raw, bob: Raw, epoch: int) -> None:
    name = filled(guarded, f"ended{epoch}")
    number = opened_by(ann, name, 0)
    assert offsets(bob.ask(asked(name, 0, number, epoch), VERSION)) == [0, 1, 2]
    assert offsets(ann.ask(asked(name, 2, number, 1), VERSION)) == [2]


def test_who_opened_it_goes_on_over_another_connection(guarded: TestBroker, ann: Raw) -> None:
    name = filled(guarded, "again")
    number = opened_by(ann, name, 0)
    with logged_in(guarded, PLAIN_ANN) as again:
        assert offsets(again.ask(asked(name, 1, number, 1), VERSION)) == [1, 2]
        again.ask(asked(name, 1, number, -1), VERSION)
        gone = again.ask(asked(name, 1, number, 2), VERSION)
    assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_no_number_says_what_the_generator_draws(guarded: TestBroker, ann: Raw) -> None:
    """From 624 numbers that are drawn one after the other all that follow could be told."""
    name = filled(guarded, "drawn")
    copy = random.Random()
    copy.setstate(guarded.call(lambda broker: broker.random.getstate()))
    words = [copy.getrandbits(32) for _ in range(64)]
    drawn = {(word >> 1) + more for word in words for more in (0, 1)}
    assert not {opened_by(ann, name, 0) for _ in range(5)} & drawn


def test_who_may_read_nothing_takes_no_place() -> None:
    """Neither of a topic that is there, nor of ids that are drawn; what cannot be read makes no session larger."""
    with running_broker({**OPEN_WITHOUT_ACLS, "max.incremental.fetch.session.cache.slots": 2}) as broker:
        with Raw(broker.port) as owner:
            assert create(owner, *everything(OWNER), acl(ResourceType.TOPIC, "open", Operation.READ)) == [0] * 5
        ids = {name: create_topic(broker.port, name, 2) for name in ("open", "closed")}

        def number(raw: Raw, name: str, version: int, *, topic_id: bytes | None = None, **fields: Any) -> int:
            fetched = fetch(name, session_epoch=0, max_wait_ms=0, topic_id=topic_id or ids[name], **fields)
            return int(raw.ask(fetched, version).session_id)

        with Raw(broker.port, source=CLIENT) as stranger, Raw(broker.port) as owner:
            for version in (7, 11, 12, 13, 18):
                assert not number(stranger, "closed", version)
                follower = {"replica_state": ReplicaState(1, -1)} if version >= 15 else {"replica_id": 1}
                assert not number(stranger, "closed", version, **follower)
            assert not number(stranger, "", 18, topic_id=b"drawn".ljust(16))
            assert not number(stranger, "open", 12, partitions=(7, 8, 9))
            assert broker.call(lambda inside: len(inside.fetch_sessions)) == 0
            assert number(stranger, "open", 18) and number(owner, "closed", 18)
            broker.call(lambda inside: age(inside.fetch_sessions, EVICTION_MS + 1))
            assert not number(stranger, "open", 18, partitions=(0, 7, 8, 9)), "it has no more to read than the others"
            assert number(owner, "closed", 18, partitions=(0, 1))


def age(sessions: SessionCache, ms: int) -> None:
    """They were made so long ago, and are in use."""
    for session in sessions.sessions.values():
        session.created_ms -= ms
