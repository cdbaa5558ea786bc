"""SCRAM users of a cluster: made, given another password, listed, deleted.

A password does not leave this process: the broker gets the salted one, from which it derives what it keeps. That is as
good as the password for a login to this cluster, so the connection to it has to be encrypted all the same. Every broker
takes these and has the controller decide. Source: KIP-554.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.client.conversation import Steps
from headrace.client.errors import BrokerError
from headrace.client.operations import operation
from headrace.client.routing import Router
from headrace.wire.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.wire.messages.k51_alter_user_scram_credentials import AlterUserScramCredentialsRequest

MECHANISMS: Final[Mapping[str, int]] = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""The codes of the wire."""
HASHES: Final[Mapping[str, str]] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16_384
"""What brokers take."""
SALT_BYTES: Final = 24


@dataclass(frozen=True, slots=True)
class Credential:
    """That a user can log in by a mechanism, and how often its password was hashed."""

    user: str
    mechanism: str
    iterations: int


@operation
def set_password(
    router: Router, user: str, password: str, mechanism: str = "SCRAM-SHA-512", *, iterations: int = ITERATIONS_MIN
) -> Steps[None]:
    """Let a user log in by a mechanism with this password, and with no other one. Raises `BrokerError`.

    Hashing takes some milliseconds of CPU.
    """
    from headrace.wire.messages import k51_alter_user_scram_credentials as k51

    salt = os.urandom(SALT_BYTES)
    salted = hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)
    change = k51.ScramCredentialUpsertion(user, MECHANISMS[mechanism], iterations, salt, salted)
    yield from _alter(router, k51.AlterUserScramCredentialsRequest([], [change]), user)


@operation
def delete_password(router: Router, user: str, mechanism: str) -> Steps[None]:
    """Delete a user's credential of a mechanism. Raises `BrokerError`, RESOURCE_NOT_FOUND if there is none."""
    from headrace.wire.messages import k51_alter_user_scram_credentials as k51

    change = k51.ScramCredentialDeletion(user, MECHANISMS[mechanism])
    yield from _alter(router, k51.AlterUserScramCredentialsRequest([change], []), user)


def _alter(router: Router, request: AlterUserScramCredentialsRequest, user: str) -> Steps[None]:
    from headrace.wire.messages.k51_alter_user_scram_credentials import AlterUserScramCredentialsResponse

    yield from router.checked(
        request,
        AlterUserScramCredentialsResponse,
        lambda r: (r.results[0].error_code, r.results[0].error_message),
        f"user {user}",
    )


@operation
def list_credentials(router: Router, users: Iterable[str] | None = None) -> Steps[list[Credential]]:
    """What these users, or all, log in by, sorted. One that is not there is left out. Raises `BrokerError`."""
    from headrace.wire.messages import k50_describe_user_scram_credentials as k50

    wanted = None if users is None else [k50.UserName(name) for name in dict.fromkeys(users)]
    response = yield from router.checked(
        k50.DescribeUserScramCredentialsRequest(wanted),
        k50.DescribeUserScramCredentialsResponse,
        lambda r: (r.error_code, r.error_message or None),
        "users",
    )
    found: list[Credential] = []
    for result in response.results:
        if result.error_code == ErrorCode.RESOURCE_NOT_FOUND:
            continue
        if result.error_code:
            raise BrokerError(result.error_code, f"user {result.user}", result.error_message)
        found += [Credential(result.user, _name(c.mechanism), c.iterations) for c in result.credential_infos]
    return sorted(found, key=lambda each: (each.user, each.mechanism))


def _name(code: int) -> str:
    return next((name for name, each in MECHANISMS.items() if each == code), f"unknown-{code}")
