"""The client that sends a request of the classic protocol."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupClient:
    """The client that sends a JoinGroup, and the API version of the request."""

    client_id: str
    client_host: str
    """The address as Kafka shows it: "/127.0.0.1"."""
    api_version: int
    principal: str = ""
