"""The record of a request between its effect and its answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.wire.primitives import Part

if TYPE_CHECKING:
    from headrace.broker.net.client_quotas import Meter


class Reply:
    """A request whose answer has not left the connection's queue."""

    __slots__ = ("abandon", "began", "correlation_id", "held", "hurry", "kept", "key", "meter", "parts", "version")

    def __init__(self, key: int, version: int, correlation_id: int, held: int, meter: Meter | None = None) -> None:
        """`held`: the bytes of the request, which count against the budget until the answer is queued. `meter` counts
        for the quotas of the client, if it has some."""
        self.key = key
        self.version = version
        self.correlation_id = correlation_id
        self.held = held
        self.meter = meter
        self.kept = 0
        """Bytes of the answer while it waits for those before it."""
        self.began = 0.0
        """When the request arrived, if its answer comes later."""
        self.parts: list[Part] | None = None
        """The encoded answer, once it is known."""
        self.abandon: Callable[[], None] | None = None
        """Ends the work on the answer: the connection has closed."""
        self.hurry: Callable[[], None] | None = None
        """Asks for the answer soon: other requests wait behind it."""
