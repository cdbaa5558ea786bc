"""The reasons for which a connection is not read from."""

from __future__ import annotations

from typing import Final


class Blocked:
    """Bits, and plain ints because the hot path looks at them.

    A handler that cannot answer at once; requests unanswered; answers not taken; memory for requests; the disk; a
    quota that is used up; a login that failed, or begins again; TLS handshakes that its address began too quickly;
    a version that does not exist; a turn among the clients that have not logged in.
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
    """A request of it is at work: memory and work are held for its client."""
