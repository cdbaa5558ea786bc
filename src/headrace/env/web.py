"""What others publish under an address of the web, fetched in one piece."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import ssl


class Web(Protocol):
    """Where a node reads what others publish."""

    def fetch(self, url: str, *, bytes_max: int, timeout_s: float, context: ssl.SSLContext | None = None) -> bytes:
        """Returns the content of an `http` or `https` address. To be called on a worker: it waits.

        `context` says whom https believes; None: whom this machine believes. Redirections are followed within the same
        scheme, host and port alone. Raises OSError, one line, also where there are more bytes or it takes longer.
        """
        ...
