"""The cache of fetch sessions: epochs, what is told, who gives way."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.replicas import sessions
from headrace.replicas.sessions import ERRORS_MAX, EVICTION_MS, MAX_EPOCH, SessionCache, SessionPartition, Wanted
from headrace.wire.errors import ErrorCode

ZERO = bytes(16)
ANN, BOB = "User:ann", "User:bob"


def partitions(count: int) -> dict[tuple[bytes, str, int], SessionPartition]:
    return {(ZERO, "t", i): SessionPartition("t", ZERO, i) for i in range(count)}


def of(readable: int, errors: int = 0) -> Wanted:
    """What a new session would hold."""
    return Wanted(readable + errors, readable, errors)


def test_epochs_count_up_and_wrap_to_one() -> None:
    cache = SessionCache(5)
    session = cache.open(7, of(1), False, 0, ANN)
    assert session is not None
    assert cache.find(7, 1, False, 0, ANN) is session
    session.next_epoch()
    assert cache.find(7, 1, False, 0, ANN) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert cache.find(7, 2, False, 0, ANN) is session
    session.epoch = MAX_EPOCH
    session.next_epoch()
    assert session.epoch == 1


def test_a_session_does_not_change_how_it_names_topics() -> None:
    cache = SessionCache(5)
    cache.open(7, of(1), True, 0, ANN)
    assert cache.find(7, 1, False, 0, ANN) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_session_is_its_principals_alone() -> None:
    cache = SessionCache(5)
    session = cache.open(7, of(1), False, 0, ANN)
    assert cache.find(7, 1, False, 0, BOB) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    cache.end(7, BOB)
    assert cache.find(7, 1, False, 0, ANN) is session
    cache.end(7, ANN)
    assert cache.find(7, 1, False, 0, ANN) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_an_idle_session_gives_way() -> None:
    cache = SessionCache(2)
    for number in (1, 2):
        opened = cache.open(number, of(3), False, 0, ANN)
        assert opened is not None
        opened.partitions = partitions(3)
    assert cache.open(3, of(3), False, EVICTION_MS, ANN) is None
    assert cache.find(1, 1, False, EVICTION_MS, ANN) is not ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert cache.open(3, of(3), False, EVICTION_MS + 1, ANN) is not None  # the second: the first was just used
    assert set(cache.sessions) == {1, 3}
    assert cache.evictions == 1


def test_a_larger_session_pushes_out_one_that_had_its_time() -> None:
    cache = SessionCache(1)
    first = cache.open(1, of(3), False, 0, ANN)
    assert first is not None
    first.partitions = partitions(3)
    cache.find(1, 1, False, EVICTION_MS + 5, ANN)
    assert cache.open(2, of(3), False, EVICTION_MS + 6, ANN) is None
    assert cache.open(2, of(4), False, EVICTION_MS + 6, ANN) is not None


def test_a_followers_session_takes_the_place_of_a_clients() -> None:
    """Clients fill the cache as they like; followers would ask for all of their partitions each time."""
    cache = SessionCache(2)
    for number in (1, 2):
        assert cache.open(number, of(3), False, 0, ANN) is not None
    assert cache.open(3, of(1), False, 1, BOB, of_follower=True) is not None
    assert set(cache.sessions) == {2, 3}
    assert cache.open(4, of(9), False, 2, ANN) is None
    assert cache.open(4, of(1), False, 2, BOB, of_follower=True) is not None
    assert set(cache.sessions) == {3, 4}
    assert cache.open(5, of(9), False, 3, BOB, of_follower=True) is None
    late = EVICTION_MS + 3
    for number in (3, 4):
        cache.find(number, 1, False, late, BOB)
    assert cache.open(5, of(9), False, late, ANN) is None, "no client's is worth as much, however large"
    assert cache.open(5, of(9), False, late, BOB, of_follower=True) is not None
    assert cache.open(6, of(1), False, 2 * late, ANN) is not None, "those that nobody uses go first, whose they may be"


def test_no_slots_no_sessions() -> None:
    assert SessionCache(0).open(1, of(5), False, 0, ANN) is None
    assert SessionCache(5).open(1, of(0), False, 0, ANN) is None


def test_what_is_answered_with_errors_alone_is_kept_for_nobody() -> None:
    cache = SessionCache(5)
    assert cache.open(1, of(1, ERRORS_MAX + 1), False, 0, ANN) is None
    assert cache.open(1, of(1, ERRORS_MAX), False, 0, ANN) is not None


def test_sessions_have_so_many_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "PARTITIONS_MAX", 10)
    cache = SessionCache(9)
    for number in (1, 2):
        opened = cache.open(number, of(4), False, 0, ANN)
        assert opened is not None
        opened.partitions = partitions(4)
    assert cache.open(3, of(3), False, 1, BOB) is None
    follower = cache.open(4, of(30), False, 1, BOB, of_follower=True)
    assert follower is not None, "a follower's are replicas that exist"
    follower.partitions = partitions(30)
    small = cache.open(5, of(2), False, 2, BOB)
    assert small is not None
    small.partitions = partitions(2)
    assert cache.may_grow(small) and cache.may_grow(follower)
    small.partitions = partitions(3)
    assert not cache.may_grow(small) and cache.may_grow(follower)
    cache.find(2, 1, False, EVICTION_MS + 1, ANN)
    assert cache.open(6, of(3), False, EVICTION_MS + 1, BOB) is not None, "one that is not used gives way"
    assert set(cache.sessions) == {2, 4, 5, 6}


STEPS = st.tuples(st.integers(0, 4), st.integers(0, 4), st.booleans(), st.sampled_from([0, 0, 3]))


@given(st.lists(STEPS, max_size=30))
def test_it_tells_exactly_what_the_client_does_not_know(steps: list[tuple[int, int, bool, int]]) -> None:
    """Against a model of the client: it knows what it was told, and hears of everything else."""
    partition = SessionPartition("t", ZERO, 0)
    known = (-1, -1)
    for mark, start, has_records, error in steps:
        must = partition.must_tell(
            error=error, has_records=has_records, high_watermark=mark, log_start_offset=start, leads_away=False
        )
        assert must == (has_records or error != 0 or (mark, start) != known)
        if must:
            partition.sent(error=error, high_watermark=mark, log_start_offset=start)
            known = (-1 if error else mark, start)


@pytest.mark.parametrize("moved", [[0], [1, 3], []])
def test_rotation_puts_those_with_data_last(moved: list[int]) -> None:
    cache = SessionCache(1)
    session = cache.open(1, of(4), False, 0, ANN)
    assert session is not None
    session.partitions = partitions(4)
    session.rotate((ZERO, "t", i) for i in moved)
    assert [key[2] for key in session.partitions] == [i for i in range(4) if i not in moved] + moved


class Kept:
    """What a shell keeps of a session."""

    ended = 0

    def named(self, partition: SessionPartition) -> None: ...

    def forgotten(self, partition: SessionPartition) -> None: ...

    def served(self, partition: SessionPartition) -> None: ...

    def end(self) -> None:
        self.ended += 1


def test_what_is_kept_of_a_session_ends_with_it() -> None:
    cache, kept = SessionCache(2), Kept()
    session = cache.open(7, Wanted(1, 1, 0), True, 0, "User:a")
    assert session is not None
    session.keep(kept)
    cache.close(8)
    assert (kept.ended, len(cache)) == (0, 1)
    cache.end(7, "User:b")
    assert (kept.ended, len(cache)) == (0, 1)
    cache.end(7, "User:a")
    assert (kept.ended, len(cache)) == (1, 0)
