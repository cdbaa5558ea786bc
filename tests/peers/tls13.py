"""A client of TLS 1.3 that says what it likes: one suite, one group, and no belief in anything.

It shakes hands as RFC 8446 wants it (X25519, TLS_AES_128_GCM_SHA256, no certificate of its own), and then sends records
and messages of every kind: changes of keys, empty records, what is not encrypted. What it does not do is to check who
the server is.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import socket
from typing import Final, Self

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

CHANGE_CIPHER_SPEC: Final = 20
ALERT: Final = 21
HANDSHAKE: Final = 22
DATA: Final = 23

FINISHED: Final = 20
KEY_UPDATE: Final = 24

HASH_BYTES: Final = 32
TAG_BYTES: Final = 16
PLAIN_MAX: Final = 1 << 14


def _vector(data: bytes, size_bytes: int) -> bytes:
    return len(data).to_bytes(size_bytes, "big") + data


def _extension(kind: int, data: bytes) -> bytes:
    return kind.to_bytes(2, "big") + _vector(data, 2)


def handshake_message(kind: int, body: bytes) -> bytes:
    return bytes([kind]) + _vector(body, 3)


def record(kind: int, body: bytes, version: int = 0x0303) -> bytes:
    """A record as it is on the wire, whatever is in it."""
    return bytes([kind]) + version.to_bytes(2, "big") + _vector(body, 2)


def client_hello(share: bytes, *, versions: tuple[int, ...] = (0x0304,), more: bytes = b"") -> bytes:
    """The message, without a record around it; `more` are further extensions."""
    extensions = (
        _extension(0x002B, _vector(b"".join(each.to_bytes(2, "big") for each in versions), 1))
        + _extension(0x000A, _vector(b"\x00\x1d", 2))
        + _extension(0x000D, _vector(b"\x04\x03\x08\x04", 2))
        + _extension(0x0033, _vector(b"\x00\x1d" + _vector(share, 2), 2))
        + more
    )
    body = b"\x03\x03" + os.urandom(32) + b"\x00" + _vector(b"\x13\x01", 2) + b"\x01\x00" + _vector(extensions, 2)
    return handshake_message(1, body)


def _hash(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _extract(salt: bytes, secret: bytes) -> bytes:
    return hmac.digest(salt, secret, "sha256")


def _expand(secret: bytes, label: str, context: bytes, size: int) -> bytes:
    info = size.to_bytes(2, "big") + _vector(b"tls13 " + label.encode(), 1) + _vector(context, 1)
    return hmac.digest(secret, info + b"\x01", "sha256")[:size]


class _Keys:
    """One direction's keys of the moment."""

    def __init__(self, secret: bytes) -> None:
        self.secret = secret
        self._cipher = AESGCM(_expand(secret, "key", b"", 16))
        self._start = int.from_bytes(_expand(secret, "iv", b"", 12), "big")
        self._count = 0

    def _nonce(self) -> bytes:
        nonce = self._start ^ self._count
        self._count += 1
        return nonce.to_bytes(12, "big")

    def seal(self, kind: int, plain: bytes, padding: int = 0) -> bytes:
        inner = plain + bytes([kind]) + bytes(padding)
        head = bytes([DATA]) + b"\x03\x03" + (len(inner) + TAG_BYTES).to_bytes(2, "big")
        return head + self._cipher.encrypt(self._nonce(), inner, head)

    def open(self, head: bytes, sealed: bytes) -> tuple[int, bytes]:
        inner = self._cipher.decrypt(self._nonce(), sealed, head).rstrip(b"\0")
        return inner[-1], inner[:-1]

    def next(self) -> _Keys:
        return _Keys(_expand(self.secret, "traffic upd", b"", HASH_BYTES))


class RawTls:
    """See the module. Every method raises OSError when the other side has gone, `ConnectionError` for an alert."""

    def __init__(self, link: socket.socket) -> None:
        """`link` is connected; `shake_hands` begins."""
        self.socket = link
        self._arrived = b""
        self._send: _Keys | None = None
        self._receive: _Keys | None = None
        self._data = b""

    @classmethod
    def connected(cls, port: int, timeout_s: float = 60.0) -> Self:
        """With the handshake done."""
        made = cls(socket.create_connection(("127.0.0.1", port), timeout=timeout_s))
        made.shake_hands()
        return made

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def _record(self) -> tuple[int, bytes]:
        """The next record, opened: its kind, and what is in it."""
        while len(self._arrived) < 5 or len(self._arrived) < 5 + int.from_bytes(self._arrived[3:5], "big"):
            piece = self.socket.recv(65536)
            if not piece:
                raise ConnectionError("closed")
            self._arrived += piece
        end = 5 + int.from_bytes(self._arrived[3:5], "big")
        head, body, self._arrived = self._arrived[:5], self._arrived[5:end], self._arrived[end:]
        kind = head[0]
        if kind == DATA and self._receive is not None:
            kind, body = self._receive.open(head, body)
        if kind == ALERT:
            raise ConnectionError(f"alert {body.hex()}")
        return kind, body

    def shake_hands(self) -> None:
        """As it should be."""
        private = X25519PrivateKey.generate()
        hello = client_hello(private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw))
        self.socket.sendall(record(HANDSHAKE, hello, 0x0301))
        kind, said = self._record()
        assert kind == HANDSHAKE and said[0] == 2, "no ServerHello"
        at = said.index(b"\x00\x33\x00\x24\x00\x1d\x00\x20") + 8
        shared = private.exchange(X25519PublicKey.from_public_bytes(said[at : at + 32]))
        nothing = _hash(b"")
        early = _extract(bytes(HASH_BYTES), bytes(HASH_BYTES))
        secret = _extract(_expand(early, "derived", nothing, HASH_BYTES), shared)
        transcript = hello + said
        ours = _expand(secret, "c hs traffic", _hash(transcript), HASH_BYTES)
        self._receive = _Keys(_expand(secret, "s hs traffic", _hash(transcript), HASH_BYTES))
        rest = b""
        finished = False
        while not finished:
            kind, body = self._record()
            if kind == CHANGE_CIPHER_SPEC:
                continue
            rest += body
            while len(rest) >= 4 and len(rest) >= (end := 4 + int.from_bytes(rest[1:4], "big")):
                message, rest = rest[:end], rest[end:]
                finished = message[0] == FINISHED
                transcript += message
        main = _extract(_expand(secret, "derived", nothing, HASH_BYTES), bytes(HASH_BYTES))
        key = _expand(ours, "finished", b"", HASH_BYTES)
        proof = hmac.digest(key, _hash(transcript), "sha256")
        self.socket.sendall(_Keys(ours).seal(HANDSHAKE, handshake_message(FINISHED, proof)))
        self._send = _Keys(_expand(main, "c ap traffic", _hash(transcript), HASH_BYTES))
        self._receive = _Keys(_expand(main, "s ap traffic", _hash(transcript), HASH_BYTES))

    def sealed(self, kind: int, plain: bytes, padding: int = 0) -> bytes:
        """A record under the keys of the moment, not sent."""
        assert self._send is not None
        return self._send.seal(kind, plain, padding)

    def key_update(self, *, wants_one: bool, padding: int = 0) -> bytes:
        """A change of our keys as a record, not sent; `wants_one`: and the server is to change its own."""
        made = self.sealed(HANDSHAKE, handshake_message(KEY_UPDATE, bytes([wants_one])), padding)
        assert self._send is not None
        self._send = self._send.next()
        return made

    def send(self, data: bytes) -> None:
        """Plain bytes, in as many records as they need."""
        pieces = [data[at : at + PLAIN_MAX] for at in range(0, len(data), PLAIN_MAX)]
        self.socket.sendall(b"".join(self.sealed(DATA, piece) for piece in pieces))

    def receive(self, size: int) -> bytes:
        """So many plain bytes; what else the server says is taken in."""
        while len(self._data) < size:
            kind, body = self._record()
            if kind == DATA:
                self._data += body
            elif kind == HANDSHAKE and body[0] == KEY_UPDATE:
                assert self._receive is not None
                self._receive = self._receive.next()
        found, self._data = self._data[:size], self._data[size:]
        return found

    def is_closed(self, timeout_s: float = 60.0) -> bool:
        """Whether the server ends the connection, whatever it says before."""
        self.socket.settimeout(timeout_s)
        try:
            while self.socket.recv(65536):
                pass
        except TimeoutError:
            return False
        except OSError:
            return True
        return True
