"""Clients that have not logged in yet: what all of them together may hold, and how long they may take.

An unauthenticated client gets little: a few KB of memory of its own and a share of one budget, one absolute deadline
for the TLS handshake and the whole login that no byte prolongs, and after a failure a delay before its answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from headrace.broker.net.client_networks import network_of
from headrace.security.login import ServerMechanism

if TYPE_CHECKING:
    from headrace.broker.telemetry.metrics import Registry
    from headrace.env import Owner
    from headrace.env.owner import Timer

FREE_BYTES: Final = 4096
"""Bytes that a client may send before it has logged in without drawing on the budget: enough for a password."""
LOGIN_BYTES_MAX: Final = 16 * 1024 * 1024
"""Bytes that all of them together may hold beyond that."""
ADDRESS_LOGIN_BYTES_MAX: Final = LOGIN_BYTES_MAX // 16
"""The same, of those at one address (of IPv6: in one network), so that logins of other addresses find room: the largest
ones are tokens and Kerberos tickets of some KB."""
SWEEP_S: Final = 0.05
"""Deadlines are looked at so often at most: there may be many clients, each with a deadline of its own."""
ERRANDS_MAX: Final = 256
"""How many logins wait for a worker at once, each with one token of at most 64 KB; further clients are closed."""
ADDRESS_ERRANDS_MAX: Final = ERRANDS_MAX // 4
"""The same, of clients at one address."""
DELAYED_MAX: Final = 1000
"""How many failures are delayed at once; the connection of a further one is closed without an answer."""


class Source(Protocol):
    """The source of a mechanism's keys or users, which change while the node runs."""

    async def ready(self) -> None:
        """Returns once it was looked there for the first time, with success or without; soon in any case."""
        ...

    def close(self) -> None:
        """Stops refreshing."""
        ...


@dataclass(frozen=True, slots=True)
class Offer:
    """A mechanism of a listener, what it lives on, and the settings that it was made by."""

    mechanism: ServerMechanism
    source: Source | None
    made_by: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class LoginTerms:
    """How a listener lets clients in: what it offers, by the names of the mechanisms, the largest frame that it takes
    before a login is done, and how long a failure waits."""

    offers: Mapping[str, Offer]
    frame_bytes_max: int
    failed_delay_ms: int

    @property
    def mechanisms(self) -> dict[str, ServerMechanism]:
        """The mechanisms by name, in the order in which they are offered."""
        return {name: offer.mechanism for name, offer in self.offers.items()}

    @property
    def sources(self) -> list[Source]:
        """The sources of the mechanisms."""
        return [offer.source for offer in self.offers.values() if offer.source is not None]

    def close_sources(self, others: LoginTerms | None = None) -> None:
        """Nobody looks at what the mechanisms live on any longer, but for what other terms live on too."""
        kept = () if others is None else others.sources
        for source in self.sources:
            if not any(source is each for each in kept):
                source.close()


class Candidate(Protocol):
    """A connection that logs in."""

    def close(self, why: str) -> None:
        """Ends it."""
        ...


class Logins:
    """Of one server."""

    def __init__(
        self, owner: Owner, monotonic: Callable[[], float], timeout_ms: Callable[[], int], metrics: Registry
    ) -> None:
        """`timeout_ms` is `connection.login.timeout.ms` as of now."""
        self._owner = owner
        self._monotonic = monotonic
        self._timeout_ms = timeout_ms
        self._deadlines: dict[Candidate, float] = {}
        self._timer: Timer | None = None
        self._held = 0
        self._held_at: dict[str, int] = {}
        """The same by address, of those that hold anything."""
        self._errands_at: dict[str, int] = {}
        self._delayed = 0
        self._errands = 0
        self.succeeded = metrics.counter("logins.succeeded")
        self.failed = metrics.counter("logins.failed")
        metrics.gauge("logins.open", lambda: len(self._deadlines))
        metrics.gauge("logins.bytes_held", lambda: self._held)

    # --- time

    def begin(self, candidate: Candidate) -> None:
        """From now on it has so long to log in."""
        self._deadlines.pop(candidate, None)
        self._deadlines[candidate] = self._monotonic() + self._timeout_ms() / 1000
        if self._timer is None:
            self._await_first()

    def end(self, candidate: Candidate) -> None:
        """It has logged in, or is gone; harmless where it was neither."""
        self._deadlines.pop(candidate, None)

    def _await_first(self) -> None:
        first = min(self._deadlines.values(), default=None)
        if first is not None:
            self._timer = self._owner.later(max(SWEEP_S, first - self._monotonic()), self._sweep)

    def _sweep(self) -> None:
        self._timer = None
        now = self._monotonic()
        for candidate in [each for each, deadline in self._deadlines.items() if deadline <= now]:
            self.end(candidate)
            candidate.close("it did not shake hands and log in within connection.login.timeout.ms")
        self._await_first()

    # --- memory

    def hold(self, host: str, before: int, after: int) -> bool:
        """A client at an address that held `before` bytes holds `after`; False, and nothing is counted, where that is
        too much."""
        more = max(0, after - FREE_BYTES) - max(0, before - FREE_BYTES)
        if not more:
            return True
        network = network_of(host)
        held = self._held_at.get(network, 0) + more
        if more > 0 and (self._held + more > LOGIN_BYTES_MAX or held > ADDRESS_LOGIN_BYTES_MAX):
            return False
        self._held += more
        _set(self._held_at, network, held)
        return True

    # --- errands

    def begin_errand(self, host: str) -> bool:
        """A login goes to a worker; False, and nothing is counted, where too many wait there."""
        network = network_of(host)
        here = self._errands_at.get(network, 0) + 1
        if self._errands >= ERRANDS_MAX or here > ADDRESS_ERRANDS_MAX:
            return False
        self._errands += 1
        _set(self._errands_at, network, here)
        return True

    def end_errand(self, host: str) -> None:
        """It is back."""
        self._errands -= 1
        network = network_of(host)
        _set(self._errands_at, network, self._errands_at[network] - 1)

    def end_errand_later(self, host: str, delay_ms: int) -> None:
        """It is back, and failed, and the client has left: its address has its place back after the wait that it would
        have had."""
        self._owner.later(delay_ms / 1000, self.end_errand, host)

    # --- failures

    def delay(self, delay_ms: int, callback: Callable[[], None]) -> Timer | None:
        """Calls back after the delay that follows a failure; None, without a call, if too many wait. If the caller
        cancels the timer it calls `undelayed`."""
        if self._delayed >= DELAYED_MAX:
            return None
        self._delayed += 1
        return self._owner.later(delay_ms / 1000, self._waited, callback)

    def undelayed(self) -> None:
        """A wait was called off."""
        self._delayed -= 1

    def _waited(self, callback: Callable[[], None]) -> None:
        self._delayed -= 1
        callback()


def _set(counts: dict[str, int], key: str, count: int) -> None:
    if count:
        counts[key] = count
    else:
        counts.pop(key, None)
