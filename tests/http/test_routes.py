"""Which handler a request gets, and who may send it."""

from __future__ import annotations

import pytest

from headrace.http.auth import BearerToken
from headrace.http.messages import Head, Refused, Request, Response
from headrace.http.routes import Routes


def head(method: str, path: str, query: str = "", **headers: str) -> Head:
    return Head(method, path, query, headers)


def routes() -> Routes:
    async def handler(_: Request) -> Response:
        return Response(200)

    made = Routes()
    made.add("GET", "/", handler)
    made.add("GET", "/subjects/{subject}/versions/{version}", handler)
    made.add("POST", "/subjects/{subject}/versions/{version}", handler, body_bytes_max=10)
    made.add("GET", "/subjects/all/versions/latest", handler)
    made.add("DELETE", "/subjects/{name}", handler)
    return made


def test_named_segments_are_decoded() -> None:
    _, parameters = routes().find(head("GET", "/subjects/a%2Fb%20%C3%A9/versions/1"))
    assert parameters == {"subject": "a/b \u00e9", "version": "1"}
    assert routes().find(head("GET", "/subjects/all/versions/latest"))[1] == {}
    assert routes().find(head("POST", "/subjects/x/versions/1"))[0].body_bytes_max == 10


@pytest.mark.parametrize(
    ("method", "path", "status", "allow"),
    [
        ("GET", "/subjects", 404, None),
        ("GET", "/subjects//versions/1", 404, None),
        ("GET", "/subjects/%FF/versions/1", 400, None),
        ("PUT", "/subjects/x/versions/1", 405, "GET, POST, HEAD"),
        ("GET", "/subjects/x", 405, "DELETE"),
        ("HEAD", "/subjects/x", 405, "DELETE"),
    ],
)
def test_what_is_not_there(method: str, path: str, status: int, allow: str | None) -> None:
    with pytest.raises(Refused) as refused:
        routes().find(head(method, path))
    response = refused.value.response
    assert (response.status, response.headers.get("Allow")) == (status, allow)


def test_head_is_answered_by_get() -> None:
    made = routes()
    assert made.find(head("HEAD", "/")) == made.find(head("GET", "/"))


def test_a_query_is_read() -> None:
    assert Request(head("GET", "/", "a=1&b=%C3%A9&a=2&c")).query() == {"a": "2", "b": "\u00e9", "c": ""}
    for bad in ("a=%FF", "&".join(f"a{number}=1" for number in range(200))):
        with pytest.raises(Refused):
            Request(head("GET", "/", bad)).query()


@pytest.mark.parametrize("shown", ["Bearer open", "bearer open-sesame", "open-sesame", "Bearer open-sesame ", "\u00e9"])
def test_another_token(shown: str) -> None:
    with pytest.raises(Refused) as refused:
        BearerToken("open-sesame").principal(head("GET", "/", authorization=shown))
    assert refused.value.response.headers == {"WWW-Authenticate": "Bearer"}


def test_the_token() -> None:
    shown = head("GET", "/", authorization="Bearer open-sesame")
    assert BearerToken("open-sesame", "scraper").principal(shown) == "scraper"
