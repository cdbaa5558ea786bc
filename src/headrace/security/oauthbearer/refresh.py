"""When an unknown key id is a reason to fetch the keys of an issuer again, and when it is not any more.

Anybody may send tokens of key ids that never were. One id causes one fetch a minute, and only the newest ids are
remembered; the fetcher has one fetch in flight at a time, and its own pause between two.
"""

from __future__ import annotations

from typing import Final

REMEMBERED_MAX: Final = 16
ASK_AGAIN_MS: Final = 60_000
FETCH_PAUSE_MS: Final = 10_000
"""How long after a fetch that an unknown key id caused the next one may follow, whatever the ids: sixteen ids are soon
made up. Kafka has no such pause."""


class UnknownKeys:
    """The key ids that were asked for in vain."""

    def __init__(self) -> None:
        self._ask_again_ms: dict[str, int] = {}
        self._fetch_again_ms: int | None = None

    def wants_fetch(self, key_id: str, now_ms: int) -> bool:
        """Whether a token of this unknown key id is a reason to fetch the keys now; if so, that is noted.

        `now_ms` is a clock that never goes back.
        """
        if self._fetch_again_ms is not None and now_ms < self._fetch_again_ms:
            return False
        again_ms = self._ask_again_ms.pop(key_id, None)
        if again_ms is not None and now_ms < again_ms:
            self._ask_again_ms[key_id] = again_ms
            return False
        while len(self._ask_again_ms) >= REMEMBERED_MAX:
            del self._ask_again_ms[next(iter(self._ask_again_ms))]
        self._ask_again_ms[key_id] = now_ms + ASK_AGAIN_MS
        self._fetch_again_ms = now_ms + FETCH_PAUSE_MS
        return True
