"""Deadlines of strangers, and the rate of their handshakes, on a clock that a test turns."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from headrace.broker.net.client_networks import network_of
from headrace.broker.net.handshakes import BURST_MS, Handshakes
from headrace.broker.net.logins import (
    ADDRESS_ERRANDS_MAX,
    ADDRESS_LOGIN_BYTES_MAX,
    ERRANDS_MAX,
    FREE_BYTES,
    SWEEP_S,
    Logins,
)
from headrace.broker.telemetry.metrics import Registry


class Timer:
    """One call to come."""

    def __init__(self) -> None:
        self.is_off = False

    def cancel(self) -> None:
        self.is_off = True


class Clock:
    """An owner whose time goes on from timer to timer."""

    def __init__(self) -> None:
        self.now = 100.0
        self.turns = 0
        self._calls: list[tuple[float, int, Timer, Callable[..., object], tuple[Any, ...]]] = []
        self._numbers = count()

    def monotonic(self) -> float:
        return self.now

    def later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> Timer:
        timer = Timer()
        heapq.heappush(self._calls, (self.now + delay_s, next(self._numbers), timer, callback, args))
        return timer

    def soon(self, callback: Callable[..., object], *args: Any) -> None:
        self.later(0.0, callback, *args)

    def until(self, end: float) -> None:
        while self._calls and self._calls[0][0] <= end:
            self.now, _, timer, callback, args = heapq.heappop(self._calls)
            if not timer.is_off:
                self.turns += 1
                callback(*args)
        self.now = end


class Candidate:
    """A connection as far as deadlines go."""

    def __init__(self) -> None:
        self.why = ""
        self.blocked = 0

    def close(self, why: str) -> None:
        self.why = why

    def block(self, why: int) -> None:
        self.blocked |= why

    def unblock(self, why: int) -> None:
        self.blocked &= ~why


def test_many_deadlines_cost_few_looks() -> None:
    clock = Clock()
    logins = Logins(clock, clock.monotonic, lambda: 1000, Registry())  # type: ignore[arg-type]
    candidates = [Candidate() for _ in range(5000)]
    for candidate in candidates:
        logins.begin(candidate)
        clock.until(clock.now + 0.0005)
    logins.end(candidates[-1])
    clock.until(clock.now + 2)
    assert all(candidate.why for candidate in candidates[:-1]) and not candidates[-1].why
    assert clock.turns <= 3 / SWEEP_S


def test_a_deadline_is_absolute() -> None:
    clock = Clock()
    logins = Logins(clock, clock.monotonic, lambda: 1000, Registry())  # type: ignore[arg-type]
    early, late = Candidate(), Candidate()
    logins.begin(early)
    clock.until(100.9)
    logins.begin(late)
    clock.until(100.99)
    assert not early.why
    clock.until(101.1)
    assert early.why and not late.why


def test_a_second_of_handshakes_at_once_and_then_one_after_the_other() -> None:
    clock = Clock()
    handshakes = Handshakes(clock, clock.monotonic, lambda: 10, lambda: 0.5)  # type: ignore[arg-type]
    waits = [handshakes.book("192.0.2.1") for _ in range(20)]
    assert waits[:10] == [pytest.approx(0, abs=1e-9)] * 10
    assert [wait for wait in waits[10:] if wait is not None] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5])
    assert waits[15:] == [None] * 5
    assert handshakes.book("192.0.2.2") == 0.0
    clock.until(clock.now + BURST_MS / 1000 + 0.5)
    assert handshakes.book("192.0.2.1") == 0.0


def test_who_waits_is_read_from_in_time_and_forgotten_when_gone() -> None:
    clock = Clock()
    handshakes = Handshakes(clock, clock.monotonic, lambda: 10, lambda: 0.5)  # type: ignore[arg-type]
    stays, goes = Candidate(), Candidate()
    handshakes.hold(stays, 0.2)  # type: ignore[arg-type]
    handshakes.hold(goes, 0.3)  # type: ignore[arg-type]
    assert len(handshakes) == 2 and stays.blocked and goes.blocked
    handshakes.forget(goes)  # type: ignore[arg-type]
    clock.until(101)
    assert len(handshakes) == 0 and not stays.blocked and goes.blocked
    handshakes.forget(stays)  # type: ignore[arg-type]


def test_neighbours_in_a_network_are_one() -> None:
    assert network_of("192.0.2.1") == "192.0.2.1" == network_of("::ffff:192.0.2.1")
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff:1") != network_of("2001:db8:0:1::1")
    assert network_of("fe80::1%eth0") == network_of("fe80::2")


def test_so_many_logins_wait_for_a_worker_and_no_more() -> None:
    clock = Clock()
    logins = Logins(clock, clock.monotonic, lambda: 1000, Registry())  # type: ignore[arg-type]
    hosts = [f"192.0.2.{number // ADDRESS_ERRANDS_MAX}" for number in range(ERRANDS_MAX)]
    assert all(map(logins.begin_errand, hosts))
    assert not logins.begin_errand("192.0.2.99")
    logins.end_errand(hosts[0])
    assert not logins.begin_errand(hosts[-1]), "it has its share"
    assert logins.begin_errand("192.0.2.99") and not logins.begin_errand("192.0.2.99")
    logins.end_errand_later(hosts[1], 500)
    assert not logins.begin_errand("192.0.2.98")
    clock.until(clock.now + 0.5)
    assert logins.begin_errand("192.0.2.98")


def test_one_address_holds_a_share_of_the_memory_for_logins() -> None:
    clock = Clock()
    logins = Logins(clock, clock.monotonic, lambda: 1000, Registry())  # type: ignore[arg-type]
    large = ADDRESS_LOGIN_BYTES_MAX // 2 + FREE_BYTES
    assert logins.hold("192.0.2.1", 0, large) and logins.hold("192.0.2.1", 0, large)
    assert not logins.hold("192.0.2.1", 0, FREE_BYTES + 1)
    assert logins.hold("192.0.2.1", 0, FREE_BYTES), "a password needs none of it"
    assert logins.hold("2001:db8::1", 0, large) and logins.hold("2001:db8::2", 0, large)
    assert not logins.hold("2001:db8::3", 0, large), "a network is one"
    assert logins.hold("192.0.2.2", 0, 64 * 1024), "there is room for a ticket of somebody else's"
    assert logins.hold("192.0.2.1", large, 0) and logins.hold("192.0.2.1", 0, large)
    others = (f"198.51.100.{number}" for number in range(50))
    assert sum(logins.hold(host, 0, ADDRESS_LOGIN_BYTES_MAX + FREE_BYTES) for host in others) < 16
