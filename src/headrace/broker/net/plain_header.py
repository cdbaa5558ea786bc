"""A fast path for request headers that repeat the previous client id: most need no decoding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headrace.broker.net.ports import Api
    from headrace.wire.primitives import Buffer

HEADER_BYTES: Final = 10
"""Bytes of the key, version, correlation id and client id length, which every request has."""


def plain_body(frame: memoryview, served: Api, version: int, length: int, client_id: Buffer | None) -> int:
    """Returns the position of the body if the header repeats the last client id and has no tagged fields; else 0."""
    at = HEADER_BYTES + length
    if (
        length < 0
        or at >= len(frame)
        or not served.min_version <= version <= served.max_version
        or frame[HEADER_BYTES:at] != client_id
    ):
        return 0
    if version < served.flexible_from:
        return at
    return 0 if frame[at] else at + 1
