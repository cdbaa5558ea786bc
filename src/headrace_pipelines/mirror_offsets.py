"""Offsets of one cluster in the copy of it on another: the known runs of a partition, and the translation of an offset.
Pure.

Offsets of a copy differ from those that were copied: compaction and the markers of transactions leave gaps that the
copy lacks, and a batch that was written again is there twice. So a copy is known by its runs, stretches of records with
where they begin on both sides. An offset becomes one from which on the copy has everything that the source has from the
offset on; where the exact one is not known, an earlier one: then records are read again, and none is passed over.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

RUNS_MAX: Final = 256
"""Runs known of a partition. A source without gaps that was copied without a failure needs one."""
MARK: Final = "headrace mirror, source offset "
"""How the metadata of an offset begins that a mirror has committed; a consumer of the copy writes its own over it."""


@dataclass(frozen=True, slots=True)
class Run:
    """`count` records of offsets from `first` to `last`, which need not all be there, at `target` and what follows."""

    first: int
    last: int
    target: int
    count: int

    @property
    def dense(self) -> bool:
        """Whether every offset from the first to the last has its record."""
        return self.last - self.first + 1 == self.count

    @property
    def end(self) -> int:
        """The offset of the copy after the run."""
        return self.target + self.count


Runs = tuple[Run, ...]
"""The known runs of a partition, whose offsets increase on both sides."""


def extended(runs: Runs, written: Iterable[Run], most: int = RUNS_MAX) -> Runs:
    """The runs after more was written, at most `most` of them.

    Of records that are written again the last copy counts, and what was known of them and of all later ones is
    forgotten: the copy goes on from there. A copy that ends below the known runs is another topic; so it may be if it
    is not known where records went, which is a target of -1.
    """
    kept = list(runs)
    for run in sorted(written, key=lambda run: run.first):
        while kept and (kept[-1].first >= run.first or kept[-1].end > run.target):
            kept.pop()
        if run.target < 0:
            continue
        if kept and kept[-1].last >= run.first:
            kept[-1] = _cut(kept[-1], run.first)
        if kept and _is_one(kept[-1], run):
            last = kept.pop()
            run = Run(last.first, run.last, last.target, last.count + run.count)
        kept.append(run)
        if len(kept) > most:
            del kept[_least_missed(kept)]
    return tuple(kept)


def _cut(run: Run, end: int) -> Run:
    """The part of a run below an offset, with the fewest records that it must have."""
    return Run(run.first, end - 1, run.target, max(run.count - (run.last + 1 - end), 0))


def _least_missed(runs: list[Run]) -> int:
    """Returns the run to drop: the one that costs the fewest repeated reads, for its age."""
    end = runs[-1].last + 1

    def loss(place: int) -> float:
        return (runs[place + 1].first - runs[place - 1].last) / (end - runs[place].first)

    return min(range(1, len(runs) - 1), key=loss)


def _is_one(before: Run, after: Run) -> bool:
    joined = before.last + 1 == after.first and before.end == after.target
    return joined and before.dense and after.dense


def translated(runs: Runs, offset: int) -> int | None:
    """The offset of the copy from which on it has all that the source has from `offset` on, or will have it.

    None for an offset below all that is known, whose records may be anywhere in the copy.
    """
    place = bisect_right(runs, offset, key=lambda run: run.first) - 1
    if place < 0:
        return None
    run = runs[place]
    # if there are gaps, the run has at most as many records left as offsets
    left = max(run.last + 1 - offset, 0)
    return run.target + max(run.count - left, 0)


def mark_of(offset: int) -> str:
    """Returns the metadata to commit with the offset that matches this one of the source."""
    return f"{MARK}{offset}"


def is_due(offset: int, translation: int, there: int, metadata: str | None) -> bool:
    """Whether a group that has committed `there` on the copy is to be moved to the translation of the source's offset.

    Only forward, since a consumer of the copy may be further than those of the source; back only where the mirror
    itself has put the group there and the group has gone back at the source.
    """
    marked = (metadata or "").removeprefix(MARK)
    went_back = metadata != marked and marked.isdecimal() and offset < int(marked)
    return translation != there if went_back else translation > there
