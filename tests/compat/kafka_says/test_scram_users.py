"""Users that log in with SCRAM: what Kafka says to whoever makes, deletes and describes them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.wire.messages.k50_describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from headrace.wire.messages.k51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

from .conftest import Both, Side

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

SALTED = hashlib.pbkdf2_hmac("sha256", b"pencil", b"salt", 4096)


def made(name: str, mechanism: int = 1, iterations: int = 4096, salt: bytes = b"salt") -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(name, mechanism, iterations, salt, SALTED)


def by_user(answer: Any) -> Any:
    """The results in one order: Kafka's is that of a hash table."""
    answer.results.sort(key=lambda result: result.user)
    return answer


def test_alter_and_describe(both: Both) -> None:
    def script(side: Side, version: int, name: str) -> Iterator[Any]:
        def alter(deletions: list[ScramCredentialDeletion], upsertions: list[ScramCredentialUpsertion]) -> Any:
            answer = by_user(side.ask(AlterUserScramCredentialsRequest(deletions, upsertions), version))
            return [(each.user.replace(name, "NAME"), each.error_code, each.error_message) for each in answer.results]

        def describe(*names: str) -> Any:
            users = [UserName(each) for each in names]
            answer = by_user(side.ask(DescribeUserScramCredentialsRequest(users), version))
            for result in answer.results:
                result.credential_infos.sort(key=lambda info: info.mechanism)
            return [
                (
                    each.user.replace(name, "NAME"),
                    each.error_code,
                    (each.error_message or "").replace(name, "NAME"),
                    each.credential_infos,
                )
                for each in answer.results
            ]

        yield alter([], [made(name), made(name + "-2", 2, 16384)])
        yield alter([], [made(name, 2, 5000)])
        yield describe(name, name + "-2", "nobody", "nobody-else", "nobody-else")
        yield alter([], [made(name, 1, 4095), made("much", 1, 16385), made("", 1), made("odd", 3), made("none", 0)])
        yield alter([], [made("twice", 1), made("twice", 2)])
        yield alter([ScramCredentialDeletion(name, 1)], [made(name, 2)])
        yield alter([ScramCredentialDeletion("nobody", 1), ScramCredentialDeletion("odd", 7)], [])
        yield alter([ScramCredentialDeletion("twice", 1), ScramCredentialDeletion("twice", 1)], [])
        yield alter([ScramCredentialDeletion("", 1)], [made("no-salt", salt=b"")])
        yield describe("no-salt")
        yield describe(name)
        yield alter([ScramCredentialDeletion(name, 1)], [])
        yield describe(name)
        yield alter([], [])

    both.compare(51, script)
