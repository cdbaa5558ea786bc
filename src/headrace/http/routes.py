"""Finds the handler of a request by its path and method."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from headrace.http.messages import Head, Refused, Request, Response

Handler = Callable[[Request], Awaitable[Response]]


class Route(NamedTuple):
    """What answers one method at one path."""

    handler: Handler
    body_bytes_max: int = 0
    """Of a request; 0: it has no body."""


class Routes:
    """Routes by path and method. A path has segments, and a segment in braces matches any one: `/topics/{topic}`."""

    def __init__(self) -> None:
        self._exact: dict[str, dict[str, Route]] = {}
        self._patterns: list[tuple[tuple[str, ...], dict[str, Route]]] = []

    def add(self, method: str, path: str, handler: Handler, *, body_bytes_max: int = 0) -> None:
        """Adds a route. A path that fits as it is comes before one with named segments, and these in their order."""
        assert path.startswith("/") and method.isupper()
        route = Route(handler, body_bytes_max)
        if "{" not in path:
            methods = self._exact.setdefault(path, {})
        else:
            segments = tuple(path.split("/"))
            known = next((methods for pattern, methods in self._patterns if pattern == segments), None)
            if known is None:
                known = {}
                self._patterns.append((segments, known))
            methods = known
        assert method not in methods, f"{method} {path} has a handler"
        methods[method] = route

    @property
    def paths(self) -> list[str]:
        """All of them."""
        return [*self._exact, *("/".join(pattern) for pattern, _ in self._patterns)]

    def find(self, head: Head) -> tuple[Route, Mapping[str, str]]:
        """Returns the route of a request and the named segments of its path. GET answers HEAD too. Raises Refused."""
        methods, parameters = self._methods(head.path)
        route = methods.get("GET" if head.method == "HEAD" else head.method)
        if route is None:
            allowed = [*methods, *(["HEAD"] if "GET" in methods else [])]
            raise Refused(405, f"{' and '.join(allowed)} are allowed", headers={"Allow": ", ".join(allowed)})
        return route, parameters

    def _methods(self, path: str) -> tuple[dict[str, Route], Mapping[str, str]]:
        exact = self._exact.get(path)
        if exact is not None:
            return exact, {}
        segments = path.split("/")
        for pattern, methods in self._patterns:
            if len(pattern) == len(segments) and all(
                want == got or (want[:1] == "{" and got) for want, got in zip(pattern, segments, strict=True)
            ):
                named = zip(pattern, segments, strict=True)
                return methods, {want[1:-1]: _decoded(got) for want, got in named if want[:1] == "{"}
        raise Refused(404, f"there is no such page; there are {', '.join(self.paths)}")


def _decoded(segment: str) -> str:
    try:
        return unquote_to_bytes(segment).decode()
    except UnicodeDecodeError:
        raise Refused(400, "the path of the request is no UTF-8") from None
