"""Requests and responses, as handlers see them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl

TEXT: Final = "text/plain; charset=utf-8"
QUERY_FIELDS_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class Head:
    """A request without its body. Names of headers are lower case."""

    method: str
    path: str
    """As it was sent: still percent-encoded."""
    query: str
    headers: Mapping[str, str]
    peer_host: str = ""

    @property
    def has_body(self) -> bool:
        """Whether a body follows, even if its length turns out to be 0."""
        return "transfer-encoding" in self.headers or self.headers.get("content-length", "0").strip("0") != ""


@dataclass(frozen=True, slots=True)
class Request:
    """A request whose body has come whole."""

    head: Head
    body: bytes = b""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """The named segments of the route's path, decoded."""
    principal: str = ""
    """Who sent it, as the server's authenticator says; "" if it asks nobody."""

    def query(self) -> dict[str, str]:
        """Returns the fields of the query, the last one of each name. Raises Refused if they cannot be read."""
        try:
            found = parse_qsl(self.head.query, keep_blank_values=True, max_num_fields=QUERY_FIELDS_MAX, errors="strict")
        except ValueError:
            raise Refused(400, "the query of the request cannot be read") from None
        return dict(found)


@dataclass(frozen=True, slots=True)
class Response:
    """What a handler returns. A body that is a generator is sent piece by piece, chunked if the client can read
    that; if the generator raises, the connection ends, so that the client sees that something is missing."""

    status: int
    body: bytes | AsyncGenerator[bytes, None] = b""
    content_type: str = TEXT
    headers: Mapping[str, str] = field(default_factory=dict)


class Refused(Exception):  # it is the answer to a request, and no defect
    """A request that is answered with an error. `closes`: the connection ends after it, as what follows on it may be
    read differently by the two sides."""

    def __init__(
        self, status: int, why: str, *, closes: bool = False, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(why)
        self.response = Response(status, f"{why}\n".encode(), headers=headers or {})
        self.closes = closes
