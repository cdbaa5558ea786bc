"""Connections that are not read from for a while, because their clients have used more than their quotas.

The answer has left, with the time to wait in it; what the client sends meanwhile is handled afterwards (KIP-219). There
are never more of them than connections, each with one timer.
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
    """See the module."""

    def __init__(self, owner: Owner, monotonic: Callable[[], float]) -> None:
        """`owner` is that of the timers."""
        self._owner = owner
        self._monotonic = monotonic
        self._muted: dict[ServedConnection, _Muted] = {}

    def __len__(self) -> int:
        return len(self._muted)

    def mute(self, connection: ServedConnection, throttle_ms: int, limits: ClientLimits) -> None:
        """Stops reading from a connection for so long; if it is muted already, until the later one of both ends.

        `limits` are those that its client has exceeded.
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
        """The connection is closed; harmless where it was not muted."""
        known = self._muted.pop(connection, None)
        if known is not None:
            known.timer.cancel()

    def look_again(self, limits_now: Callable[[tuple[str, bytes]], ClientLimits]) -> None:
        """Other quotas are in force: reads again from those whose clients have others, and measures them by these."""
        for connection, muted in list(self._muted.items()):
            if limits_now(muted.limits.client) != muted.limits:
                muted.timer.cancel()
                self._end(connection)

    def _end(self, connection: ServedConnection) -> None:
        del self._muted[connection]
        connection.active = True
        connection.unblock(Blocked.THROTTLED)
