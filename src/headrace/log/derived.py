"""The derived files of a log and their sources: the one table that recovery uses, also in docs/formats/log.md.

A missing or damaged derived file is rebuilt from its source, in the end from the batches. The files that it vouched for
are then suspect too, and are rebuilt as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from headrace.log.filenames import INDEX, LEADER_EPOCHS, LOG, SEAL, SNAPSHOT, TIME_INDEX, TRANSACTION_INDEX, offset_name


class Derived(NamedTuple):
    """One kind of derived file: its source, and the files that lose trust if it is missing or damaged."""

    made_from: tuple[str, ...]
    vouches_for: tuple[str, ...] = ()


DERIVED: Final[dict[str, Derived]] = {
    INDEX: Derived((LOG,), (TIME_INDEX, SEAL)),
    TIME_INDEX: Derived((LOG,), (INDEX, SEAL)),
    TRANSACTION_INDEX: Derived((LOG, SNAPSHOT)),
    SNAPSHOT: Derived((LOG, SNAPSHOT)),
    LEADER_EPOCHS: Derived((LOG,)),
    SEAL: Derived((LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX, LEADER_EPOCHS), (TRANSACTION_INDEX, LEADER_EPOCHS)),
}
"""A snapshot is also made from the one before it, with the batches between them."""

OF_A_SEGMENT: Final = (INDEX, TIME_INDEX, SEAL)
"""The kinds that every closed segment with batches has."""


def suspected(lost: Iterable[str]) -> set[str]:
    """Returns the kinds of files that cannot be trusted if some are missing or damaged: these, and those that they
    vouch for."""
    found: set[str] = set()
    waiting = list(lost)
    while waiting:
        kind = waiting.pop()
        if kind not in found:
            found.add(kind)
            waiting += DERIVED[kind].vouches_for
    return found


def lost_of(base_offset: int, sizes: dict[str, int]) -> list[str]:
    """Returns the derived files that a segment with batches lacks in its folder; a time index of a closed segment is
    never empty."""
    lost = [kind for kind in OF_A_SEGMENT if offset_name(base_offset, kind) not in sizes]
    if TIME_INDEX not in lost and not sizes[offset_name(base_offset, TIME_INDEX)]:
        lost.append(TIME_INDEX)
    return lost
