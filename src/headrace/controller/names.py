"""Checks of topic names: which are allowed, and which collide."""

from __future__ import annotations

import re
from collections.abc import Iterable

MAX_NAME_LENGTH = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+\Z")

METADATA_TOPIC = "__cluster_metadata"
METADATA_TOPIC_ID = bytes(15) + b"\x01"
"""The reserved topic id of the metadata log (KIP-516)."""


def illegal_name(name: str) -> str | None:
    """Returns why a topic may not have this name, or None. Its directory has the same name, hence the limit."""
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
    """Returns whether metric names may confuse the topic with another: `.` and `_` are the same character there."""
    return "." in name or "_" in name


def collision_key(name: str) -> str:
    """Returns a key that is equal for two names that collide."""
    return name.replace(".", "_")


class Collisions:
    """Finds colliding names; scans the existing ones once, and only for a name that can collide."""

    def __init__(self, existing: Iterable[str]) -> None:
        self._existing = existing
        self._by_key: dict[str, str] | None = None

    def find(self, name: str) -> str | None:
        """Returns an existing topic whose name differs from this one only in `.` and `_`, or None."""
        if not has_collision_characters(name):
            return None
        if self._by_key is None:
            self._by_key = {}
            for each in self._existing:
                self.add(each)
        return self._by_key.get(collision_key(name))

    def add(self, name: str) -> None:
        """Adds a name that exists from now on."""
        if self._by_key is not None and has_collision_characters(name):
            self._by_key.setdefault(collision_key(name), name)
