"""What a connection keeps of a request between its effect and its answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.wire.primitives import Part

if TYPE_CHECKING:
    from headrace.broker.net.client_quotas import Meter


class Reply:
    """A request that has taken effect and whose answer has not left the connection's queue."""

    __slots__ = ("abandon", "began", "correlation_id", "held", "hurry", "kept", "key", "meter", "parts", "version")

    def __init__(self, key: int, version: int, correlation_id: int, held: int, meter: Meter | None = None) -> None:
        self.key = key
        self.version = version
        self.correlation_id = correlation_id
        self.held = held
        self.meter = meter  # of a client with quotas
        self.kept = 0  # bytes of an answer that waits for those before it
        self.began = 0.0  # when the request arrived, once its answer is waited for
        self.parts: list[Part] | None = None
        self.abandon: Callable[[], None] | None = None
        self.hurry: Callable[[], None] | None = None
