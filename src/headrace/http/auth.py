"""The port for logins: who sent a request, decided from its head alone, before its body is read."""

from __future__ import annotations

from hmac import compare_digest
from typing import Protocol

from headrace.http.messages import Head, Refused


class Authenticator(Protocol):
    """Decides who sent a request."""

    def principal(self, head: Head) -> str:
        """Returns the principal's name. Raises Refused, with 401 and a challenge, if the request shows none."""
        ...


class BearerToken:
    """Admits the requests that show one token."""

    def __init__(self, token: str, name: str = "token") -> None:
        assert token, "an empty token lets everybody in"
        self._wanted = f"Bearer {token}".encode()
        self._name = name

    def principal(self, head: Head) -> str:
        """See Authenticator. The time that it takes depends on nothing of the token."""
        if not compare_digest(head.headers.get("authorization", "").encode("latin-1"), self._wanted):
            why = "this page asks for a token: Authorization: Bearer TOKEN"
            raise Refused(401, why, headers={"WWW-Authenticate": "Bearer"})
        return self._name
