"""Reasons for not reading from a connection."""

from __future__ import annotations

from typing import Final


class Blocked:
    """Bits for the reasons; plain ints, because the hot path tests them.

    HANDLER: a handler cannot answer at once. UNANSWERED: too many requests are unanswered. OUTPUT: the client does not
    take its answers. MEMORY: memory for requests is spent. DISK: the disk is behind. THROTTLED: a quota is used up.
    LOGIN: a login failed, or begins again. HANDSHAKE: the address began too many TLS handshakes. OLD_CLIENT: the client
    sent a version that does not exist. TURN: the connection waits for its turn among unauthenticated clients.
    """

    HANDLER: Final = 1
    UNANSWERED: Final = 2
    OUTPUT: Final = 4
    MEMORY: Final = 8
    DISK: Final = 16
    THROTTLED: Final = 32
    LOGIN: Final = 64
    HANDSHAKE: Final = 128
    OLD_CLIENT: Final = 256
    TURN: Final = 512
    AT_WORK: Final = HANDLER | UNANSWERED
    """Reasons that mean a request is at work, so that memory and work are held for the client."""
