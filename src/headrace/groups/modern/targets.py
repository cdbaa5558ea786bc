"""The target assignment of a modern group: what each member is to have, computed for a group epoch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

T = TypeVar("T")


def changed(
    computed: Mapping[str, T], before: Mapping[str, T], replacing: str, replaced: str | None
) -> Iterator[tuple[str, T]]:
    """Yields the members whose target differs from the one before, in order of their ids, each with its new target.

    The static member `replacing` goes on with the target of the member `replaced`, if that is not None.
    """
    for member_id, target in sorted(computed.items()):
        known_as = replaced if member_id == replacing and replaced is not None else member_id
        if target != before.get(known_as):
            yield member_id, target
