"""The header of a request like the one before it: most have nothing that is to be decoded again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headrace.broker.net.ports import Api
    from headrace.wire.primitives import Buffer

HEADER_BYTES: Final = 10
"""Key, version, correlation id and the length of the client id: every request has these."""


def plain_body(frame: memoryview, served: Api, version: int, length: int, client_id: Buffer | None) -> int:
    """Returns where the body starts if the header is plain, with the client id of the last one; else 0."""
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
