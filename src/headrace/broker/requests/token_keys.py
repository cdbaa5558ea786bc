"""Keeps the keys of a token issuer up to date: fetches them on a worker, again and again, while a listener needs them.

Known keys stay in force while a fetch fails. A token with an unknown key starts a fetch at once, as far as
`oauthbearer.refresh` allows: that login fails, and the next one finds the key. Source: KIP-768.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.env.workers import Raised
from headrace.security.oauthbearer.keys import KeysError, KeySet, parsed
from headrace.security.oauthbearer.refresh import UnknownKeys

if TYPE_CHECKING:
    from asyncio import Future

    from headrace.env import Node
    from headrace.env.owner import Timer

NO_KEYS: Final = KeySet(())


@dataclass(frozen=True, slots=True)
class Pace:
    """The interval between fetches, and the least and the longest wait after a failure; in ms."""

    refresh_ms: int
    backoff_ms: int
    backoff_max_ms: int

    def after_failures(self, count: int) -> int:
        """Returns the wait after so many failures in a row, in ms: twice as long each time."""
        return min(self.backoff_ms << min(count - 1, 30), max(self.backoff_ms, self.backoff_max_ms))


class TokenKeys:
    """The keys of one issuer, as a `logins.Source`. One fetch is in flight at a time."""

    def __init__(self, node: Node, url: str, pace: Pace, fetch: Callable[[], bytes]) -> None:
        """`fetch` reads the keys at `url`, on a worker; it raises OSError. The first fetch begins at once."""
        self.keys = NO_KEYS
        """Keys in force; none before the first successful fetch."""
        self._node = node
        self._url = url
        self._pace = pace
        self._fetch = fetch
        self._log = node.logger("logins")
        self._owner = node.owner("keys of tokens")
        self._unknown = UnknownKeys()
        self._failures = 0
        self._is_fetching = False
        self._is_closed = False
        self._timer: Timer | None = None
        self._first: Future[None] = node.future()
        self._begin()

    async def ready(self) -> None:
        """Returns when the first fetch has ended, with or without success."""
        await self._first

    def close(self) -> None:
        """Stops fetching."""
        self._is_closed = True
        self._owner.close()
        self._was_looked()

    def unknown(self, key_id: str) -> None:
        """Starts a fetch because of a token with an unknown key, if one is due."""
        if not self._is_fetching and self._unknown.wants_fetch(key_id, int(self._node.clock.monotonic() * 1000)):
            self._begin()

    def _begin(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._is_closed and not self._is_fetching:
            self._is_fetching = True
            fetch = self._fetch
            self._node.workers.submit(lambda: parsed(fetch())).deliver_to(self._fetched)

    def _fetched(self, keys: KeySet | Raised) -> None:
        self._is_fetching = False
        if self._is_closed:
            return
        if not isinstance(keys, Raised):
            self._failures = 0
            self.keys = keys
            self._log.info("keys of tokens fetched", url=self._url, keys=len(keys.keys))
            wait_ms = self._pace.refresh_ms
        else:
            error = keys.error
            self._failures += 1
            wait_ms = self._pace.after_failures(self._failures)
            if isinstance(error, OSError | KeysError):
                known = len(self.keys.keys)
                self._log.warning("keys of tokens cannot be fetched", url=self._url, known=known, why=error)
            else:
                self._node.defects.report(error, "the keys of tokens", url=self._url)
        self._timer = self._owner.later(wait_ms / 1000, self._begin)
        self._was_looked()

    def _was_looked(self) -> None:
        if not self._first.done():
            self._first.set_result(None)
