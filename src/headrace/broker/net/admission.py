"""How many connections there may be, and how quickly they may come.

An address that connects too often is accepted, held and closed after its throttle time: it would only come back at once
otherwise. Where the broker or a listener has enough, it stops accepting: who knocks waits in the system's queue. The
listener of the brokers themselves goes on: the connection of a client that was not used for the longest time makes room
for theirs. Listeners of controllers have limits of their own only. Source: KIP-402, KIP-612.
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
"""Connections of addresses that connect too often that are held; another one is closed at once."""
MAX_CONNECTIONS: Final = "max.connections"
MAX_RATE: Final = "max.connection.creation.rate"


class AdmittingListener(Protocol):
    """An open listener, as far as admission goes."""

    name: str
    is_controller: bool
    accepts: bool
    listener: Listener | None


class _Limits(NamedTuple):
    """The limits of one listener, from the settings."""

    connections: int
    creation_rate: int
    is_protected: bool
    """Whether the limits of the whole broker do not stop it."""


class _Arrivals:
    """The connections of one listener."""

    __slots__ = ("count", "rate", "rests")

    def __init__(self, rate: Rate) -> None:
        self.count = 0
        self.rate = rate
        self.rests: Timer | None = None
        """While too many have come too quickly."""


class Admission:
    """See the module. `listeners` are the open ones; `give_way` closes the connection of a client that was not used
    for the longest time, False where there is none."""

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
        self._arrivals: dict[str, _Arrivals] = {}
        self._addresses: Buckets[str, Rate] = Buckets(self._make)
        self._held: dict[Stream, Timer] = {}
        self.table: QuotaTable | None = None
        """The rates of addresses that have quotas."""

    @property
    def held(self) -> int:
        """Connections that will be closed."""
        return len(self._held)

    def _now_ms(self) -> int:
        return int(self._monotonic() * 1000)

    # --- one connection

    def holds(self, stream: Stream) -> bool:
        """Whether an address connects too often: the connection is not served, and closed a little later."""
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
        """A connection is served that came in by this listener."""
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
        """One of them is closed."""
        self._of(opened).count -= 1
        self.look()

    # --- listeners

    def look(self) -> None:
        """Accepts where there is room, and makes room where brokers have come. To be called now and then, too: the
        settings may be others."""
        while self._total() > self._config().max_connections and self._give_way():
            pass
        for opened in self._listeners:
            listener = opened.listener
            if listener is not None and opened.accepts:
                listener.pause(self._is_full(opened) or self._of(opened).rests is not None)

    def expire(self) -> None:
        """Forgets addresses that have not connected for long."""
        self._addresses.expire(self._now_ms())

    def close(self) -> None:
        """Closes the connections that are held."""
        for stream, timer in self._held.items():
            timer.cancel()
            stream.close()
        self._held.clear()

    def is_client(self, opened: AdmittingListener) -> bool:
        """Whether the listener is for clients, whose connections make room for those of nodes."""
        return not self._limits_for(opened).is_protected

    def _of(self, opened: AdmittingListener) -> _Arrivals:
        arrivals = self._arrivals.get(opened.name)
        if arrivals is None:
            arrivals = self._arrivals[opened.name] = _Arrivals(self._make())
        return arrivals

    def _limits_for(self, opened: AdmittingListener) -> _Limits:
        """Read once for all connections: thousands a second may come."""
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
        """Returns a setting as a listener sees it; those for all listeners do not apply to controllers'."""
        settings = self._config().of_listener(opened.name)
        if opened.is_controller and settings.own(name) is None:
            return INT_MAX
        return settings.number(name)

    def _rest_ms(self, rate: Rate, bound: int) -> int:
        """Counts a connection; returns for how long no other one may come."""
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
