"""The defaults of a reader's fetches; apart from `reading`, which imports the messages."""

from __future__ import annotations

from typing import Final

MAX_WAIT_MS: Final = 500
FETCH_SIZE: Final = 16 << 20
PARTITION_FETCH_SIZE: Final = 4 << 20
