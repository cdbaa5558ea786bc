"""How much is decoded and encoded at once: without Arrow, whose import takes a tenth of a second."""

from __future__ import annotations

from typing import Final

GROUP_BYTES: Final = 2 << 20
GROUP_ROWS: Final = 64 * 1024
"""Batches are decoded together until they reach one of these: data that is received, checked, copied and written in
turn should stay in a core's cache.
"""
BATCH_BYTES: Final = 512 * 1024
"""Uncompressed bytes of a batch that is encoded; a larger record has one of its own. Brokers take 1 MiB by default."""
