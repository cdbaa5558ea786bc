"""The parts of a reconciliation: what a member keeps of what it has, what it revokes, and what it gets.

`K` is what numbers belong to: partitions to a topic id, tasks to a subtopology. No number is assigned to a member as
long as another one holds it, that is until its holder has revoked it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping
from typing import TypeVar

K = TypeVar("K", bytes, str)


def split(
    assigned: Mapping[K, Mapping[int, int]], target: Mapping[K, Collection[int]], subscribed: Container[K]
) -> tuple[dict[K, dict[int, int]], dict[K, dict[int, int]]]:
    """Splits the assigned partitions into those that the member keeps, and those that it has to revoke: its target does
    not name it, or the member no longer subscribes to it. Both are by number, with the epoch in which it was assigned.
    """
    kept: dict[K, dict[int, int]] = {}
    revoked: dict[K, dict[int, int]] = {}
    for key, epochs in assigned.items():
        wanted = target.get(key, ()) if key in subscribed else ()
        for number, epoch in epochs.items():
            into = kept if number in wanted else revoked
            into.setdefault(key, {})[number] = epoch
    return kept, revoked


def add_released(
    kept: dict[K, dict[int, int]],
    target: Mapping[K, Collection[int]],
    subscribed: Container[K],
    epoch: int,
    is_unreleased: Callable[[tuple[K, int]], bool],
) -> bool:
    """Adds what the target names beyond `kept`, assigned in `epoch`; what another member holds is left out. Returns
    whether anything was."""
    is_short = False
    for key, numbers in target.items():
        if key not in subscribed:
            continue
        for number in sorted(numbers):
            if number in kept.get(key, ()):
                continue
            if is_unreleased((key, number)):
                is_short = True
            else:
                kept.setdefault(key, {})[number] = epoch
    return is_short


def without_unsubscribed(
    assigned: Mapping[K, Mapping[int, int]], subscribed: Container[K]
) -> tuple[dict[K, Mapping[int, int]], dict[K, Mapping[int, int]]]:
    """Splits the assigned partitions into those that the member subscribes to, and the others."""
    kept = {key: epochs for key, epochs in assigned.items() if key in subscribed}
    gone = {key: epochs for key, epochs in assigned.items() if key not in subscribed}
    return kept, gone


def owns_any(owned: Mapping[K, Collection[int]] | None, held: Mapping[K, Collection[int]]) -> bool:
    """Returns whether a member reports that it owns any of the held partitions, or does not report its partitions
    (None).
    """
    if owned is None:
        return True
    return any(number in held.get(key, ()) for key, numbers in owned.items() for number in numbers)


def owns_only(owned: Mapping[K, Collection[int]] | None, held: Mapping[K, Collection[int]]) -> bool:
    """Returns whether a member says what it owns, and all of it is held."""
    if owned is None:
        return False
    return all(number in held.get(key, ()) for key, numbers in owned.items() for number in numbers)
