"""What one HTTP server gives its clients: connections, bytes and seconds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class HttpLimits:
    """The limits of a server. The defaults are those of a few pages on a node's own network."""

    connections_max: int = 32
    """Open at once. One more takes the place of the oldest that is idle, else of the oldest whose request has not come
    whole, of the address with most of them; else of the oldest of an address that has more of them than its own, or it
    is closed."""
    head_bytes_max: int = 8192
    """Request line and headers of one request."""
    head_s: float = 10.0
    """From the first byte of a request to the end of its head."""
    body_s: float = 30.0
    """From the end of a head to the end of its body."""
    answer_s: float = 30.0
    """For the handler, then again for each piece of a response to leave."""
    idle_s: float = 120.0
    """Between two requests: beyond the usual interval of a scrape."""
    linger_s: float = 1.0
    """After a refusal, what still comes is read and dropped for so long: a close with bytes unread would take the
    response out of the client's hands."""
