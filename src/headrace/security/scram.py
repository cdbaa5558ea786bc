"""SCRAM-SHA-256 and SCRAM-SHA-512: both sides of a login.

A login takes four messages: the client's first (name and nonce), the server's first (both nonces, salt, iterations),
the client's proof that it knows the password, and the server's that it knows the credential. The server keeps no
password, and computes three HMACs a login; only the client derives the salted password.

As Kafka has it: no channel binding (`n,`), names are taken as they are, without SASLprep, `,` and `=` in them are
written `=2C` and `=3D`, and the extension `tokenauth=true` says that the name is a delegation token's. The channel
bindings of a client's last message go into its proof, and are not checked. Source: RFC 5802, RFC 7677, KIP-84, KIP-48.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from typing import Final, NamedTuple, Protocol

from headrace.metadata.scram_credentials import (
    ITERATIONS_MIN,
    Random,
    ScramCredential,
    ScramMechanism,
    keyed_hash,
    random_text,
    salted_password,
)
from headrace.security.login import (
    OTHER_AUTHZID,
    Challenge,
    Identity,
    LoginFailedError,
    LoginRefused,
    LoginStep,
    Proved,
)

CLIENT_ITERATIONS_MAX: Final = 131_072
"""The most iterations that a client computes for a server: an unverified server must not keep it busy for minutes."""
MESSAGE_BYTES_MAX: Final = 4096
"""A longer message of a client is refused unread: a server keeps the first one until the last has come, for anybody."""
NONCE_TWICE: Final = "the client says its nonce twice, as librdkafka before 2.6.1 does: it needs a newer version"
"""Apache Kafka refuses that since 3.7.2 (CVE-2024-56128)."""

_B64 = r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==)"
_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_EXTENSIONS = r"((?:,[A-Za-z]+=[\x01-\x2b\x2d-\x7f]+)*)"
_NONCE = r"[\x21-\x2b\x2d-\x7e]+"
_CLIENT_FIRST = re.compile(
    rf"n,(?:a=({_NAME}))?,((?:m=[\x01-\x2b\x2d-\x7f]+,)?n=({_NAME}),r=({_NONCE}){_EXTENSIONS})", re.DOTALL
)
_SERVER_FIRST = re.compile(rf"(?:m=[\x01-\x2b\x2d-\x7f]+,)?r=({_NONCE}),s=({_B64}),i=([0-9]+){_EXTENSIONS}", re.DOTALL)
_CLIENT_FINAL = re.compile(rf"(c={_B64},r=({_NONCE}){_EXTENSIONS}),p=({_B64})", re.DOTALL)
_SERVER_FINAL = re.compile(rf"(?:e=([\x01-\x2b\x2d-\x7f]+)|v=({_B64})){_EXTENSIONS}", re.DOTALL)


class ScramUser(NamedTuple):
    """A credential, and who logs in with it."""

    credential: ScramCredential
    identity: Identity


class ScramUsers(Protocol):
    """Where a server looks credentials up."""

    def find(self, mechanism: ScramMechanism, name: str, *, is_token: bool) -> ScramUser | None:
        """The user of that name, or the owner of the token of that id where `is_token`; None where there is none."""
        ...

    def fake(self, mechanism: ScramMechanism, name: str, *, is_token: bool) -> ScramCredential:
        """Returns a fake credential if there is none: always the same for a name (see scram_fakes)."""
        ...


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


# --- names and extensions


def write_name(name: str) -> str:
    """A name as messages carry it."""
    return name.replace("=", "=3D").replace(",", "=2C")


def read_name(text: str) -> str:
    """The name that `write_name` wrote."""
    return text.replace("=2C", ",").replace("=3D", "=")


def _extensions(text: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in text.split(",") if part)
    return {name: value for name, _, value in pairs}


def _text(token: bytes) -> str:
    """Raises LoginFailedError: messages are ASCII, as names are."""
    try:
        return token.decode("ascii")
    except UnicodeDecodeError:
        raise LoginFailedError("a SCRAM message is not ASCII") from None


# --- the server


class ScramServer:
    """A server's side of one login.

    A user that nobody made takes the same way: a salt that is always the same for the name, the same three HMACs, and
    a failure at the end. What may differ is looked at only when all of it is done.
    """

    def __init__(self, mechanism: ScramMechanism, users: ScramUsers, random: Random) -> None:
        self.mechanism = mechanism
        self._users = users
        self._random = random
        self._user: ScramUser | None = None
        self._credential: ScramCredential | None = None
        self._client_nonce = ""
        self._nonce = ""
        self._first_messages = ""
        self.claimed = ""

    def respond(self, token: bytes) -> LoginStep:
        """See login.ServerLogin."""
        if len(token) > MESSAGE_BYTES_MAX:
            raise LoginFailedError(f"a SCRAM message of more than {MESSAGE_BYTES_MAX} bytes")
        return self._first(token) if self._credential is None else self._final(self._credential, token)

    def _first(self, token: bytes) -> LoginStep:
        match = _CLIENT_FIRST.fullmatch(_text(token))
        if match is None:
            raise LoginFailedError("an unreadable first message")
        authzid, bare, written, nonce, extensions = match.groups()
        name = read_name(written)
        self.claimed = f"User:{name}"
        if authzid is not None and read_name(authzid) != name:
            raise LoginRefused(OTHER_AUTHZID)
        is_token = _extensions(extensions).get("tokenauth", "").lower() == "true"
        fake = self._users.fake(self.mechanism, name, is_token=is_token)
        found = self._users.find(self.mechanism, name, is_token=is_token)
        # A credential that is too weak is as good as none.
        is_good = found is not None and found.credential.iterations >= ITERATIONS_MIN
        self._user = found if is_good else None
        credential = found.credential if found is not None and is_good else fake
        self._credential = credential
        self._client_nonce = nonce
        self._nonce = nonce + random_text(self._random)
        salt = base64.b64encode(credential.salt).decode()
        first = f"r={self._nonce},s={salt},i={credential.iterations}"
        self._first_messages = f"{bare},{first}"
        return Challenge(first.encode())

    def _final(self, credential: ScramCredential, token: bytes) -> LoginStep:
        match = _CLIENT_FINAL.fullmatch(_text(token))
        if match is None:
            raise LoginFailedError("an unreadable last message")
        without_proof, nonce, _, written = match.groups()
        mechanism = self.mechanism
        proof = base64.b64decode(written)
        auth_message = f"{self._first_messages},{without_proof}".encode()
        signature = keyed_hash(mechanism, credential.stored_key, auth_message)
        if len(proof) != len(signature):
            raise LoginFailedError("a proof of another length")
        stored = hashlib.new(mechanism.hash_name, _xor(proof, signature)).digest()
        verifier = keyed_hash(mechanism, credential.server_key, auth_message)
        is_proved = hmac.compare_digest(stored, credential.stored_key)
        is_fresh = hmac.compare_digest(nonce.encode(), self._nonce.encode())
        if nonce == self._client_nonce + self._nonce:
            raise LoginFailedError(NONCE_TWICE)
        if self._user is None or not is_proved or not is_fresh:
            raise LoginFailedError("an unknown user, a wrong password, or a message of another login")
        return Proved(b"v=" + base64.b64encode(verifier), self._user.identity)


# --- the client


class ScramClient:
    """A client's side of one login: `first`, then `respond` twice."""

    def __init__(
        self, mechanism: ScramMechanism, name: str, password: str, random: Random, *, is_token: bool = False
    ) -> None:
        self.mechanism = mechanism
        self.is_done = False
        self._password = password
        self._nonce = random_text(random)
        extension = ",tokenauth=true" if is_token else ""
        self._bare = f"n={write_name(name)},r={self._nonce}{extension}"
        self._verifier: bytes | None = None

    def first(self) -> bytes:
        """What the client says first."""
        return f"n,,{self._bare}".encode()

    def respond(self, token: bytes) -> bytes:
        """The answer to a message of the server, empty to its last. Raises LoginFailedError."""
        if self._verifier is None:
            return self._final(_text(token))
        match = _SERVER_FINAL.fullmatch(_text(token))
        if match is None:
            raise LoginFailedError("an unreadable last message of the server")
        error, verifier, _ = match.groups()
        if error is not None:
            raise LoginFailedError(f"the server refuses the login: {error}")
        if not hmac.compare_digest(base64.b64decode(verifier), self._verifier):
            raise LoginFailedError("the server does not know the password")
        self.is_done = True
        return b""

    def _final(self, first: str) -> bytes:
        match = _SERVER_FIRST.fullmatch(first)
        if match is None:
            raise LoginFailedError("an unreadable first message of the server")
        nonce, salt, digits, _ = match.groups()
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise LoginFailedError("the server answers another login")
        if len(digits) > 9 or not ITERATIONS_MIN <= int(digits) <= CLIENT_ITERATIONS_MAX:
            raise LoginFailedError(f"the server asks for {digits[:10]} iterations; {ITERATIONS_MIN} are the least")
        mechanism = self.mechanism
        salted = salted_password(mechanism, self._password.encode(), base64.b64decode(salt), int(digits))
        without_proof = f"c=biws,r={nonce}"
        auth_message = f"{self._bare},{first},{without_proof}".encode()
        client_key = keyed_hash(mechanism, salted, b"Client Key")
        stored = hashlib.new(mechanism.hash_name, client_key).digest()
        proof = _xor(client_key, keyed_hash(mechanism, stored, auth_message))
        self._verifier = keyed_hash(mechanism, keyed_hash(mechanism, salted, b"Server Key"), auth_message)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()
