"""How a reader fetches where nothing else is said; apart from `reading`, which imports the messages."""

from __future__ import annotations

from typing import Final

MAX_WAIT_MS: Final = 500
FETCH_SIZE: Final = 16 << 20
PARTITION_FETCH_SIZE: Final = 4 << 20
