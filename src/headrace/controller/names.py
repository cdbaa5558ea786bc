"""Which topic names are allowed, and which ones collide."""

from __future__ import annotations

import re
from collections.abc import Iterable

MAX_NAME_LENGTH = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+\Z")

METADATA_TOPIC = "__cluster_metadata"
METADATA_TOPIC_ID = bytes(15) + b"\x01"
"""The reserved topic id of the metadata log (KIP-516)."""


def illegal_name(name: str) -> str | None:
    """Why a topic may not be called that, or None. A directory is named after it, hence the limit."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in (".", ".."):
        return f"Topic name is invalid: '{name}' is not allowed"
    if len(name) > MAX_NAME_LENGTH:
        return f"Topic name is invalid: the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}"
    if not _LEGAL.match(name):
        return (
            f"Topic name is invalid: '{name}' contains one or more characters other than ASCII alphanumerics, "
            "'.', '_' and '-'"
        )
    return None


def has_collision_characters(name: str) -> bool:
    """Whether metric names may confuse the topic with another: `.` and `_` are one character there."""
    return "." in name or "_" in name


def collision_key(name: str) -> str:
    """Equal for two names that collide."""
    return name.replace(".", "_")


class Collisions:
    """Finds names that collide; looks through the existing ones once, and only when a name could collide at all."""

    def __init__(self, existing: Iterable[str]) -> None:
        self._existing = existing
        self._by_key: dict[str, str] | None = None

    def find(self, name: str) -> str | None:
        """An existing topic whose name differs from this one only in `.` and `_`."""
        if not has_collision_characters(name):
            return None
        if self._by_key is None:
            self._by_key = {}
            for each in self._existing:
                self.add(each)
        return self._by_key.get(collision_key(name))

    def add(self, name: str) -> None:
        """Takes in a name that exists from now on."""
        if self._by_key is not None and has_collision_characters(name):
            self._by_key.setdefault(collision_key(name), name)
