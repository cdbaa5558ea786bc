"""Bounds for unauthenticated clients: memory, worker tasks, delayed failures, and the time to log in.

An unauthenticated client has a few KB of its own and a share of one budget, one absolute deadline for the TLS handshake
and the whole login, which received bytes do not extend, and after a failure a delay before its answer.
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
"""Bytes that each client may send before it has logged in without drawing on the budget: enough for a password."""
LOGIN_BYTES_MAX: Final = 16 * 1024 * 1024
"""Bytes that all unauthenticated clients together may hold beyond their free ones."""
ADDRESS_LOGIN_BYTES_MAX: Final = LOGIN_BYTES_MAX // 16
"""Bytes that unauthenticated clients of one address (or IPv6 network) may hold, so that others can still log in: the
largest logins are tokens and Kerberos tickets of some KB."""
SWEEP_S: Final = 0.05
"""Shortest time between two checks of the deadlines: each of many clients may have one."""
ERRANDS_MAX: Final = 256
"""Bound on the logins that wait for a worker, each with one token of at most 64 KB; further clients are closed."""
ADDRESS_ERRANDS_MAX: Final = ERRANDS_MAX // 4
"""Bound on the logins of one address that wait for a worker."""
DELAYED_MAX: Final = 1000
"""Bound on the failures that are delayed at once; the connection of a further one is closed without an answer."""


class Source(Protocol):
    """A source of the credentials that a mechanism checks, refreshed while the node runs."""

    async def ready(self) -> None:
        """Returns after the first attempt to read the source, successful or not; soon in any case."""
        ...

    def close(self) -> None:
        """Stops refreshing."""
        ...


@dataclass(frozen=True, slots=True)
class Offer:
    """A mechanism of a listener, its credential source, and the settings that it was made from."""

    mechanism: ServerMechanism
    source: Source | None
    made_by: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class LoginTerms:
    """The login terms of a listener: its mechanisms by name, the largest frame allowed before a login is done, and the
    delay after a failure."""

    offers: Mapping[str, Offer]
    frame_bytes_max: int
    failed_delay_ms: int

    @property
    def mechanisms(self) -> dict[str, ServerMechanism]:
        """Mechanisms by name, in the order in which they are offered."""
        return {name: offer.mechanism for name, offer in self.offers.items()}

    @property
    def sources(self) -> list[Source]:
        """Credential sources of the mechanisms."""
        return [offer.source for offer in self.offers.values() if offer.source is not None]

    def close_sources(self, others: LoginTerms | None = None) -> None:
        """Closes the credential sources, except those that `others` use too."""
        kept = () if others is None else others.sources
        for source in self.sources:
            if not any(source is each for each in kept):
                source.close()


class Candidate(Protocol):
    """A connection that is logging in."""

    def close(self, why: str) -> None:
        """Closes the connection."""
        ...


class Logins:
    """The unauthenticated clients of one server."""

    def __init__(
        self, owner: Owner, monotonic: Callable[[], float], timeout_ms: Callable[[], int], metrics: Registry
    ) -> None:
        """`timeout_ms` returns the current `connection.login.timeout.ms`."""
        self._owner = owner
        self._monotonic = monotonic
        self._timeout_ms = timeout_ms
        self._deadlines: dict[Candidate, float] = {}
        """Monotonic time by which each connection must have logged in."""
        self._timer: Timer | None = None
        self._held = 0
        """Bytes that unauthenticated clients hold beyond their free ones."""
        self._held_at: dict[str, int] = {}
        """Held bytes by address, for addresses that hold any."""
        self._errands_at: dict[str, int] = {}
        """Logins that wait for a worker, by address."""
        self._delayed = 0
        """Number of failures that are being delayed."""
        self._errands = 0
        """Number of logins that wait for a worker."""
        self.succeeded = metrics.counter("logins.succeeded")
        self.failed = metrics.counter("logins.failed")
        metrics.gauge("logins.open", lambda: len(self._deadlines))
        metrics.gauge("logins.bytes_held", lambda: self._held)

    # --- time

    def begin(self, candidate: Candidate) -> None:
        """Starts the deadline of a login."""
        self._deadlines.pop(candidate, None)
        self._deadlines[candidate] = self._monotonic() + self._timeout_ms() / 1000
        if self._timer is None:
            self._await_first()

    def end(self, candidate: Candidate) -> None:
        """Ends the deadline of a client that has logged in or left; harmless if there is none."""
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
        """Counts that a client of an address now holds `after` bytes instead of `before`; returns False, without
        counting, if that exceeds a bound."""
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
        """Counts a login that goes to a worker; returns False, without counting, if too many wait there."""
        network = network_of(host)
        here = self._errands_at.get(network, 0) + 1
        if self._errands >= ERRANDS_MAX or here > ADDRESS_ERRANDS_MAX:
            return False
        self._errands += 1
        _set(self._errands_at, network, here)
        return True

    def end_errand(self, host: str) -> None:
        """Counts the return of a login from a worker."""
        self._errands -= 1
        network = network_of(host)
        _set(self._errands_at, network, self._errands_at[network] - 1)

    def end_errand_later(self, host: str, delay_ms: int) -> None:
        """Frees the place of a failed login, whose client has left, only after the failure delay."""
        self._owner.later(delay_ms / 1000, self.end_errand, host)

    # --- failures

    def delay(self, delay_ms: int, callback: Callable[[], None]) -> Timer | None:
        """Calls back after the failure delay; returns None, without a call, if too many failures wait. A caller that
        cancels the timer calls `undelayed`."""
        if self._delayed >= DELAYED_MAX:
            return None
        self._delayed += 1
        return self._owner.later(delay_ms / 1000, self._waited, callback)

    def undelayed(self) -> None:
        """Counts a cancelled delay."""
        self._delayed -= 1

    def _waited(self, callback: Callable[[], None]) -> None:
        self._delayed -= 1
        callback()


def _set(counts: dict[str, int], key: str, count: int) -> None:
    if count:
        counts[key] = count
    else:
        counts.pop(key, None)
