"""`--add-scram` of `storage format`: a user whose credential is in the first records of a cluster.

    SCRAM-SHA-256=[name=alice,password=secret,iterations=8192]
    SCRAM-SHA-512=[name="bob",salt="...",saltedpassword="..."]

Salts and salted passwords are base64. As Kafka's StorageTool reads it; source: KIP-900.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Final

from headrace.metadata.scram_credentials import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    MECHANISMS,
    credential_of,
    record_of,
    salted_password,
)
from headrace.wire.messages.metadata_records import UserScramCredentialRecord

_KEYS: Final = ("name", "password", "salt", "saltedpassword", "iterations")


def parse_add_scram(text: str, new_salt: Callable[[], bytes]) -> UserScramCredentialRecord:
    """The record of one user. Raises ValueError, whose text shows no password."""
    named, equals, rest = text.strip().partition("=")
    if not equals:
        raise ValueError("it must read MECHANISM=[name=NAME,password=PASSWORD]")
    mechanism = MECHANISMS.get(named)
    if mechanism is None:
        raise ValueError(f"the mechanism {named} is not supported; there are {' and '.join(MECHANISMS)}")
    given = _pairs(rest)
    name = given.get("name")
    if not name:
        raise ValueError("it must say the name of the user: name=NAME")
    iterations = _iterations(given.get("iterations", str(ITERATIONS_MIN)))
    password, salted = given.get("password"), given.get("saltedpassword")
    if (password is None) == (salted is None):
        raise ValueError("it must say one of password and saltedpassword")
    if salted is not None and "salt" not in given:
        raise ValueError("saltedpassword needs the salt beside it")
    salt = _bytes("salt", given["salt"]) if "salt" in given else new_salt()
    if salted is not None:
        key = _bytes("saltedpassword", salted)
    else:
        key = salted_password(mechanism, str(password).encode(), salt, iterations)
    return record_of(name, mechanism, credential_of(mechanism, key, salt, iterations))


def _pairs(rest: str) -> dict[str, str]:
    if not (rest.startswith("[") and rest.endswith("]")):
        raise ValueError("the part after the mechanism must be in [ and ]")
    given: dict[str, str] = {}
    for part in rest[1:-1].split(","):
        key, equals, value = part.strip().partition("=")
        key, value = key.strip(), value.strip()
        if not equals or key not in _KEYS:
            raise ValueError(f"there are {', '.join(_KEYS)}, each as NAME=VALUE with commas between them")
        if key in given:
            raise ValueError(f"it says {key} twice")
        is_quoted = len(value) >= 2 and value[0] == value[-1] == '"'
        given[key] = value[1:-1] if is_quoted else value
    return given


def _iterations(text: str) -> int:
    if not (text.isascii() and text.isdigit() and ITERATIONS_MIN <= int(text[:9]) <= ITERATIONS_MAX and len(text) < 9):
        raise ValueError(f"iterations must be {ITERATIONS_MIN} to {ITERATIONS_MAX}, not {text[:20]}")
    return int(text)


def _bytes(key: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"{key} must be base64") from None
