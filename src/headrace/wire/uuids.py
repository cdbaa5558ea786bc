"""Ids as 16 bytes, and their text form: Kafka's 22 characters of URL-safe base64 without padding."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode

ZERO = bytes(16)


def to_text(uuid: bytes) -> str:
    """`uuid` (16 bytes) as text."""
    return urlsafe_b64encode(uuid)[:22].decode("ascii")


def from_text(text: str) -> bytes:
    """The 16 bytes of a text form; raises ValueError where it is not one."""
    if len(text) != 22 or not text.isascii() or not text.replace("-", "a").replace("_", "a").isalnum():
        raise ValueError(f"not an id: {text!r}")
    return urlsafe_b64decode(text + "==")
