"""Endpoints of new leaders in error responses, so that a client need not refresh its metadata first (KIP-951)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from headrace.metadata.image import ClusterImage


class _NodeEndpoint(Protocol):
    def __init__(self, node_id: int = 0, host: str = "", port: int = 0, rack: str | None = None) -> None: ...


N = TypeVar("N", bound=_NodeEndpoint)


def endpoints_of(image: ClusterImage, leaders: Iterable[int], listener: str, make: type[N]) -> list[N]:
    """Returns the endpoint of each unfenced leader, on the listener that the client uses."""
    found: list[N] = []
    for node_id in sorted(set(leaders)):
        broker = image.brokers.get(node_id)
        endpoint = None if broker is None or broker.fenced else broker.endpoint(listener)
        if broker is not None and endpoint is not None:
            found.append(make(node_id=node_id, host=endpoint.host, port=endpoint.port, rack=broker.rack))
    return found
