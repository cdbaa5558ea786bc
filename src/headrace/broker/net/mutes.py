"""Stops reading from connections whose clients have exceeded their quotas.

The answer has been sent, with the throttle time in it; later requests are handled after that time (KIP-219). Each muted
connection has one timer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from headrace.broker.net.blocked import Blocked

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.broker.net.client_quotas import ClientLimits
    from headrace.broker.net.ports import ServedConnection
    from headrace.env.owner import Owner, Timer


class _Muted(NamedTuple):
    until: float
    timer: Timer
    limits: ClientLimits


class Mutes:
    """The muted connections of a server."""

    def __init__(self, owner: Owner, monotonic: Callable[[], float]) -> None:
        """`owner` owns the timers."""
        self._owner = owner
        self._monotonic = monotonic
        self._muted: dict[ServedConnection, _Muted] = {}

    def __len__(self) -> int:
        return len(self._muted)

    def mute(self, connection: ServedConnection, throttle_ms: int, limits: ClientLimits) -> None:
        """Stops reading from a connection for `throttle_ms`; if it is muted already, until the later of both ends.

        `limits` are the limits that its client has exceeded.
        """
        delay_s = throttle_ms / 1000
        until = self._monotonic() + delay_s
        known = self._muted.get(connection)
        if known is not None:
            if known.until >= until:
                return
            known.timer.cancel()
        self._muted[connection] = _Muted(until, self._owner.later(delay_s, self._end, connection), limits)
        connection.block(Blocked.THROTTLED)

    def forget(self, connection: ServedConnection) -> None:
        """Forgets a closed connection; harmless if it was not muted."""
        known = self._muted.pop(connection, None)
        if known is not None:
            known.timer.cancel()

    def look_again(self, limits_now: Callable[[tuple[str, bytes]], ClientLimits]) -> None:
        """Unmutes the connections of clients whose limits have changed."""
        for connection, muted in list(self._muted.items()):
            if limits_now(muted.limits.client) != muted.limits:
                muted.timer.cancel()
                self._end(connection)

    def _end(self, connection: ServedConnection) -> None:
        del self._muted[connection]
        connection.active = True
        connection.unblock(Blocked.THROTTLED)
