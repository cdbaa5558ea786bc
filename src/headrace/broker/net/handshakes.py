"""How quickly one address may begin TLS handshakes: each costs the server a millisecond of work, and a client none.

An address that begins more than `max.tls.handshake.rate.per.ip` waits: its connections are not read until their turn.
Where that would take too long it is closed at once. An IPv6 address counts with its neighbours of the same /64, as one
machine has all of them.
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
"""What an address may begin in this time it may begin at once."""
IDLE_MS: Final = 60_000
"""An address that has begun nothing for so long is forgotten; it would not wait in any case."""


class Handshakes:
    """See the module. Connections that wait have a timer each, and there are never more of them than connections."""

    def __init__(
        self, owner: Owner, monotonic: Callable[[], float], rate: Callable[[], int], patience_s: Callable[[], float]
    ) -> None:
        """`rate`: handshakes a second, as of now; nobody waits longer than `patience_s`. `owner` is the timers'."""
        self._owner = owner
        self._monotonic = monotonic
        self._rate = rate
        self._patience_s = patience_s
        self._addresses: Buckets[str, TokenBucket] = Buckets(lambda: TokenBucket(BURST_MS), idle_ms=IDLE_MS)
        self._waiting: dict[ServedConnection, Timer] = {}

    def __len__(self) -> int:
        """How many connections wait."""
        return len(self._waiting)

    def book(self, host: str) -> float | None:
        """In how many seconds that address may begin a handshake; None, and nothing is booked, where that is too long
        a wait."""
        rate, now_ms = self._rate(), self._monotonic() * 1000
        bucket = self._addresses.use(network_of(host), int(now_ms))
        wait_s = bucket.wait_ms(rate, now_ms, needed=1) / 1000
        if wait_s > self._patience_s():
            return None
        bucket.take(1, rate, now_ms)
        return wait_s

    def hold(self, connection: ServedConnection, wait_s: float) -> None:
        """Nothing is read of a connection for so long."""
        connection.block(Blocked.HANDSHAKE)
        self._waiting[connection] = self._owner.later(wait_s, self._let_go, connection)

    def forget(self, connection: ServedConnection) -> None:
        """The connection is closed; harmless where it did not wait."""
        timer = self._waiting.pop(connection, None)
        if timer is not None:
            timer.cancel()

    def expire(self) -> None:
        """Forgets addresses that have not connected for long."""
        self._addresses.expire(int(self._monotonic() * 1000))

    def _let_go(self, connection: ServedConnection) -> None:
        del self._waiting[connection]
        connection.unblock(Blocked.HANDSHAKE)
