"""Sessions of brokers, where no transcript shows them."""

from __future__ import annotations

from headrace.controller.sessions import BrokerSessions
from headrace.metadata.image import Broker, ClusterImage


def image(*brokers: tuple[int, bool, bool]) -> ClusterImage:
    """Brokers of epoch 10 + id, as (id, fenced, in controlled shutdown), at offset 50."""
    made = [Broker(i, 10 + i, bytes(16), (), (), None, fenced, stops, ()) for i, fenced, stops in brokers]
    return ClusterImage(offset=50, brokers={each.id: each for each in made})


def test_a_new_controller_waits_for_those_that_were_up_alone() -> None:
    sessions = BrokerSessions(9_000)
    sessions.begin(image((1, False, False), (2, True, False)), 100)
    assert sessions.is_live(1, 9_099)
    assert not sessions.is_live(1, 9_100)
    assert not sessions.is_live(2, 100)


def test_a_session_is_that_of_one_registration() -> None:
    sessions = BrokerSessions(9_000)
    sessions.registered(1, 11, 12, 0)
    assert not sessions.heard(1, 10, 40, 8_000)
    assert not sessions.is_live(1, 9_000)
    assert sessions.heard(1, 11, 40, 8_000)
    assert sessions.is_live(1, 9_000)
    sessions.forget(1, 10)
    assert sessions.is_live(1, 9_000)
    sessions.forget(1, 11)
    assert not sessions.is_live(1, 9_000)


def test_what_is_late_does_not_turn_a_session_back() -> None:
    sessions = BrokerSessions(9_000)
    sessions.begin(image((1, False, False)), 0)
    sessions.heard(1, 11, 45, 5_000)
    sessions.heard(1, 11, 44, 4_000)
    assert sessions.is_live(1, 13_999)
    assert sessions.slowest_active_offset(image((1, False, False))) == 45


def test_checks_are_rare_and_end_with_the_sessions() -> None:
    sessions = BrokerSessions(8_000)
    assert sessions.next_check_ms(0) is None
    sessions.registered(1, 11, 12, 0)
    assert sessions.next_check_ms(0) == 8_000
    assert sessions.next_check_ms(7_999) == 8_999
    assert sessions.expired(image((1, True, False)), 8_000) == []
    assert sessions.next_check_ms(8_000) is None
    sessions.registered(1, 11, 12, 0)
    assert sessions.expired(image((1, False, False)), 8_000) == [(1, 11)]
    assert sessions.next_check_ms(8_000) == 9_000


def test_a_broker_that_nobody_has_heard_of_is_expired() -> None:
    assert BrokerSessions(9_000).expired(image((1, False, False), (2, True, False)), 0) == [(1, 11)]


def test_who_stops_waits_for_active_brokers() -> None:
    sessions = BrokerSessions(9_000)
    cluster = image((1, False, True), (2, False, False), (3, True, False), (4, False, True))
    sessions.begin(cluster, 0)
    assert not sessions.may_go(cluster, 1)
    sessions.heard(2, 12, 49, 0)
    assert not sessions.may_go(cluster, 1)
    sessions.heard(2, 12, 50, 0)
    assert sessions.may_go(cluster, 1)
    assert not sessions.may_go(cluster, 2)
    assert sessions.may_go(image((1, False, True)), 1)
