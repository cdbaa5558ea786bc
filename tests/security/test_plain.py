"""PLAIN: what a message may be, and that nothing tells who exists."""

from __future__ import annotations

import pytest

from headrace.security.login import Identity, LoginFailedError, LoginRefused, Proved
from headrace.security.plain import WRONG, PlainClient, PlainServer, PlainUsers

USERS = PlainUsers({"username": "admin", "password": "x", "user_ann": "pencil", "user_empty": "", "user_ü": "ö"})


@pytest.mark.parametrize(
    ("message", "name"),
    [(b"\0ann\0pencil", "ann"), (b"ann\0ann\0pencil", "ann"), ("\0ü\0ö".encode(), "ü")],
)
def test_the_right_password(message: bytes, name: str) -> None:
    assert PlainServer(USERS).respond(message) == Proved(b"", Identity(f"User:{name}"))


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (b"\0ann\0wrong", WRONG),
        (b"\0nobody\0pencil", WRONG),
        (b"\0admin\0x", WRONG),
        (b"\0empty\0x", WRONG),
        (b"bob\0ann\0wrong", WRONG),
        (b"\0\0pencil", "username not specified"),
        (b"\0empty\0", "password not specified"),
        (b"bob\0ann\0pencil", "authorization id"),
        (b"ann\0pencil", "expected 3 tokens, got 2"),
        (b"\0ann\0pencil\0", "expected 3 tokens, got 4"),
        (b"", "expected 3 tokens, got 1"),
    ],
)
def test_refused(message: bytes, text: str) -> None:
    with pytest.raises(LoginRefused, match=text):
        PlainServer(USERS).respond(message)


def test_what_is_no_text() -> None:
    with pytest.raises(LoginFailedError) as error:
        PlainServer(USERS).respond(b"\xff\0ann\0pencil")
    assert not isinstance(error.value, LoginRefused)


def test_the_client() -> None:
    client = PlainClient("ann", "pencil")
    assert isinstance(PlainServer(USERS).respond(client.first()), Proved)
    assert client.respond(b"") == b"" and client.is_done
    with pytest.raises(LoginFailedError):
        PlainClient("ann", "pencil").respond(b"more")


def test_users_show_nothing() -> None:
    assert repr(USERS) == "PlainUsers(3)"
