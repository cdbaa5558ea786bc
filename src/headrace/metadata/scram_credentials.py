"""What a cluster keeps of users' passwords: the credentials of SCRAM-SHA-256 and SCRAM-SHA-512.

A password is salted and hashed many times over (the slow step), and two keys are derived. One checks what a client
proves, the other proves to the client that the server knows it. The password cannot be derived from either.
Source: RFC 5802, RFC 7677, KIP-84, KIP-554.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from headrace.wire.messages.metadata_records import UserScramCredentialRecord

ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16_384
"""What Kafka allows for a credential."""
NONCE_BITS: Final = 130

_DIGITS36: Final = "0123456789abcdefghijklmnopqrstuvwxyz"

Random = Callable[[int], bytes]
"""So many fresh random bytes."""


class ScramMechanism(NamedTuple):
    """One of the two: its name, its number in metadata records and requests, and its hash."""

    name: str
    code: int
    hash_name: str


SCRAM_SHA_256: Final = ScramMechanism("SCRAM-SHA-256", 1, "sha256")
SCRAM_SHA_512: Final = ScramMechanism("SCRAM-SHA-512", 2, "sha512")
MECHANISMS: Final = {each.name: each for each in (SCRAM_SHA_256, SCRAM_SHA_512)}
BY_CODE: Final = {each.code: each for each in MECHANISMS.values()}


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What a server keeps of a password: with it a login can be checked, and the password cannot be derived."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


def keyed_hash(mechanism: ScramMechanism, key: bytes, data: bytes) -> bytes:
    """The HMAC of the mechanism's hash."""
    return hmac.digest(key, data, mechanism.hash_name)


def salted_password(mechanism: ScramMechanism, password: bytes, salt: bytes, iterations: int) -> bytes:
    """The slow step, which only clients and the creation of users take."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password, salt, iterations)


def credential_of(mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """The credential of a salted password."""
    stored = hashlib.new(mechanism.hash_name, keyed_hash(mechanism, salted, b"Client Key")).digest()
    return ScramCredential(salt, stored, keyed_hash(mechanism, salted, b"Server Key"), iterations)


def make_credential(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> ScramCredential:
    """The credential of a password."""
    return credential_of(mechanism, salted_password(mechanism, password.encode(), salt, iterations), salt, iterations)


def random_text(random: Random) -> str:
    """A nonce or salt as Kafka draws them: 130 bits in base 36."""
    return nonce_text(random(17))


def nonce_text(drawn: bytes) -> str:
    """The text of 17 random bytes."""
    number, digits = int.from_bytes(drawn, "big") >> (8 * len(drawn) - NONCE_BITS), ""
    while number:
        number, digit = divmod(number, 36)
        digits = _DIGITS36[digit] + digits
    return digits or "0"


def record_of(name: str, mechanism: ScramMechanism, credential: ScramCredential) -> UserScramCredentialRecord:
    """A user's credential as a metadata record."""
    return UserScramCredentialRecord(
        name=name,
        mechanism=mechanism.code,
        salt=credential.salt,
        stored_key=credential.stored_key,
        server_key=credential.server_key,
        iterations=credential.iterations,
    )


def credential_in(record: UserScramCredentialRecord) -> ScramCredential:
    """The credential that a record holds."""
    return ScramCredential(record.salt, record.stored_key, record.server_key, record.iterations)
