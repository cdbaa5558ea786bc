"""Limits how quickly one address may begin TLS handshakes, which cost the server a millisecond and a client nothing.

Connections of an address that exceeds `max.tls.handshake.rate.per.ip` are not read until their turn. If that would take
too long they are closed at once. IPv6 addresses count by their /64 network, which may belong to one machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.broker.net.blocked import Blocked
from headrace.broker.net.client_networks import network_of
from headrace.machine.rates import TokenBucket
from headrace.security.quotas.buckets import Buckets

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.broker.net.ports import ServedConnection
    from headrace.env.owner import Owner, Timer

BURST_MS: Final = 1000
"""Time whose handshakes an address may begin at once."""
IDLE_MS: Final = 60_000
"""Time after which an address without handshakes is forgotten; it would not have to wait."""


class Handshakes:
    """The handshake rates of addresses, and a timer for each connection that waits."""

    def __init__(
        self, owner: Owner, monotonic: Callable[[], float], rate: Callable[[], int], patience_s: Callable[[], float]
    ) -> None:
        """`rate` returns the handshakes allowed per second; no connection waits longer than `patience_s`. `owner` owns
        the timers."""
        self._owner = owner
        self._monotonic = monotonic
        self._rate = rate
        self._patience_s = patience_s
        self._addresses: Buckets[str, TokenBucket] = Buckets(lambda: TokenBucket(BURST_MS), idle_ms=IDLE_MS)
        """Handshakes that each address may begin at once, by network."""
        self._waiting: dict[ServedConnection, Timer] = {}
        """Waiting connections, each with the timer that ends its wait."""

    def __len__(self) -> int:
        """Returns the number of waiting connections."""
        return len(self._waiting)

    def book(self, host: str) -> float | None:
        """Returns in how many seconds the address may begin a handshake; None, without booking it, if the wait would be
        too long."""
        rate, now_ms = self._rate(), self._monotonic() * 1000
        bucket = self._addresses.use(network_of(host), int(now_ms))
        wait_s = bucket.wait_ms(rate, now_ms, needed=1) / 1000
        if wait_s > self._patience_s():
            return None
        bucket.take(1, rate, now_ms)
        return wait_s

    def hold(self, connection: ServedConnection, wait_s: float) -> None:
        """Stops reading from a connection for `wait_s` seconds."""
        connection.block(Blocked.HANDSHAKE)
        self._waiting[connection] = self._owner.later(wait_s, self._let_go, connection)

    def forget(self, connection: ServedConnection) -> None:
        """Forgets a closed connection; harmless if it did not wait."""
        timer = self._waiting.pop(connection, None)
        if timer is not None:
            timer.cancel()

    def expire(self) -> None:
        """Forgets addresses that have not connected recently."""
        self._addresses.expire(int(self._monotonic() * 1000))

    def _let_go(self, connection: ServedConnection) -> None:
        del self._waiting[connection]
        connection.unblock(Blocked.HANDSHAKE)
