"""Limits on the number of connections and on the rate at which they come.

A connection from an address that connects too often is accepted, held, and closed after its throttle time: a client
that is refused at once would reconnect at once. When the broker or a listener is at its limit it stops accepting, and
new connections wait in the system's backlog. The inter-broker listener goes on accepting: the least recently used
client connection is closed to make way for a broker's. Controller listeners have only limits of their own. Source:
KIP-402, KIP-612.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from headrace.config.setting import INT_MAX
from headrace.security.quotas.buckets import Buckets
from headrace.security.quotas.rate import Rate

if TYPE_CHECKING:
    from headrace.config import BrokerConfig
    from headrace.env import Node, Owner
    from headrace.env.network import Listener, Stream
    from headrace.env.owner import Timer
    from headrace.security.quotas.lookup import QuotaTable

HELD_MAX: Final = 1000
"""Bound on the held connections of addresses that connect too often; a further connection is closed at once."""
MAX_CONNECTIONS: Final = "max.connections"
MAX_RATE: Final = "max.connection.creation.rate"


class AdmittingListener(Protocol):
    """The part of an open listener that admission uses."""

    name: str
    is_controller: bool
    accepts: bool
    listener: Listener | None


class _Limits(NamedTuple):
    """Limits that the settings place on one listener."""

    connections: int
    creation_rate: int
    is_protected: bool
    """Whether the broker-wide limits do not apply to this listener."""


class _Arrivals:
    """Count, creation rate and pause timer of one listener's connections."""

    __slots__ = ("count", "rate", "rests")

    def __init__(self, rate: Rate) -> None:
        self.count = 0
        self.rate = rate
        self.rests: Timer | None = None
        """Timer that ends a pause in accepting; set while the creation rate is exceeded."""


class Admission:
    """Decides which connections are served, which are held, and which listeners accept.

    `listeners` are the open listeners. `give_way` closes the least recently used client connection; it returns False if
    there is none.
    """

    def __init__(
        self,
        node: Node,
        owner: Owner,
        config: Callable[[], BrokerConfig],
        listeners: Sequence[AdmittingListener],
        give_way: Callable[[], bool],
    ) -> None:
        settings = config()
        samples, self._sample_ms = settings.quota_window_num, 1000 * settings.quota_window_size_seconds
        self._make: Callable[[], Rate] = lambda: Rate(samples, self._sample_ms)
        self._owner = owner
        self._monotonic = node.clock.monotonic
        self._config = config
        self._listeners = listeners
        self._give_way = give_way
        self._rate = self._make()
        self._limits: dict[str, _Limits] = {}
        self._limits_of: BrokerConfig | None = None
        """Configuration from which `_limits` was read."""
        self._arrivals: dict[str, _Arrivals] = {}
        """Connection counts and rates by listener name."""
        self._addresses: Buckets[str, Rate] = Buckets(self._make)
        """Connection rates by address."""
        self._held: dict[Stream, Timer] = {}
        """Held connections, each with the timer that closes it."""
        self.table: QuotaTable | None = None
        """Quotas of addresses; None if no address has a quota."""

    @property
    def held(self) -> int:
        """Number of held connections, which will be closed."""
        return len(self._held)

    def _now_ms(self) -> int:
        return int(self._monotonic() * 1000)

    # --- one connection

    def holds(self, stream: Stream) -> bool:
        """Returns whether the address connects too often; if so, holds the connection and closes it later, unserved."""
        bound = None if self.table is None else self.table.connection_rate(stream.peer_host)
        if bound is None:
            return False
        now_ms = self._now_ms()
        rate = self._addresses.use(stream.peer_host, now_ms)
        rate.record(1, now_ms)
        throttle_ms = min(rate.throttle_ms(bound, now_ms), self._sample_ms)
        if not throttle_ms:
            return False
        rate.record(-1, now_ms)
        if len(self._held) >= HELD_MAX:
            stream.close()
        else:
            self._held[stream] = self._owner.later(throttle_ms / 1000, self._let_go, stream)
        return True

    def _let_go(self, stream: Stream) -> None:
        del self._held[stream]
        stream.close()

    def came(self, opened: AdmittingListener) -> None:
        """Counts a new connection of a listener, and pauses listeners whose creation rate is exceeded."""
        arrivals = self._of(opened)
        arrivals.count += 1
        rest_ms = self._rest_ms(arrivals.rate, self._limits_for(opened).creation_rate)
        everywhere_ms = 0
        if not self._limits_for(opened).is_protected:
            everywhere_ms = self._rest_ms(self._rate, self._config().max_connection_creation_rate)
        for each in self._listeners:
            wait_ms = rest_ms if each is opened else 0
            if not self._limits_for(each).is_protected:
                wait_ms = max(wait_ms, everywhere_ms)
            if wait_ms:
                self._rest(each, wait_ms)
        self.look()

    def went(self, opened: AdmittingListener) -> None:
        """Removes a closed connection from its listener's count."""
        self._of(opened).count -= 1
        self.look()

    # --- listeners

    def look(self) -> None:
        """Resumes or pauses each listener according to its limits, and closes client connections if brokers need their
        slots. Called periodically too, because settings may change."""
        while self._total() > self._config().max_connections and self._give_way():
            pass
        for opened in self._listeners:
            listener = opened.listener
            if listener is not None and opened.accepts:
                listener.pause(self._is_full(opened) or self._of(opened).rests is not None)

    def expire(self) -> None:
        """Forgets addresses that have not connected recently."""
        self._addresses.expire(self._now_ms())

    def close(self) -> None:
        """Closes the held connections."""
        for stream, timer in self._held.items():
            timer.cancel()
            stream.close()
        self._held.clear()

    def is_client(self, opened: AdmittingListener) -> bool:
        """Returns whether the listener is for clients, whose connections give way to those of nodes."""
        return not self._limits_for(opened).is_protected

    def _of(self, opened: AdmittingListener) -> _Arrivals:
        arrivals = self._arrivals.get(opened.name)
        if arrivals is None:
            arrivals = self._arrivals[opened.name] = _Arrivals(self._make())
        return arrivals

    def _limits_for(self, opened: AdmittingListener) -> _Limits:
        """Returns the limits of a listener, cached per configuration: thousands of connections a second may come."""
        config = self._config()
        if config is not self._limits_of:
            self._limits_of = config
            self._limits = {}
        found = self._limits.get(opened.name)
        if found is None:
            is_brokers = len(config.listeners) > 1 and opened.name == config.inter_broker_listener
            found = self._limits[opened.name] = _Limits(
                self._limit(opened, MAX_CONNECTIONS), self._limit(opened, MAX_RATE), opened.is_controller or is_brokers
            )
        return found

    def _total(self) -> int:
        return sum(self._of(opened).count for opened in self._listeners if not opened.is_controller)

    def _is_full(self, opened: AdmittingListener) -> bool:
        if self._of(opened).count >= self._limits_for(opened).connections:
            return True
        return not self._limits_for(opened).is_protected and self._total() >= self._config().max_connections

    def _limit(self, opened: AdmittingListener, name: str) -> int:
        """Returns a listener's value of a setting; broker-wide values do not apply to controller listeners."""
        settings = self._config().of_listener(opened.name)
        if opened.is_controller and settings.own(name) is None:
            return INT_MAX
        return settings.number(name)

    def _rest_ms(self, rate: Rate, bound: int) -> int:
        """Counts a connection; returns for how many milliseconds no other may come."""
        if bound == INT_MAX:
            return 0
        now_ms = self._now_ms()
        rate.record(1, now_ms)
        return min(rate.throttle_ms(bound, now_ms), self._sample_ms)

    def _rest(self, opened: AdmittingListener, wait_ms: int) -> None:
        arrivals = self._of(opened)
        if arrivals.rests is not None:
            arrivals.rests.cancel()
        arrivals.rests = self._owner.later(wait_ms / 1000, self._rested, arrivals)

    def _rested(self, arrivals: _Arrivals) -> None:
        arrivals.rests = None
        self.look()
