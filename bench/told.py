"""What the measurement of one row tells besides its own number: it is kept for the rows that come after it."""

from __future__ import annotations

from collections.abc import Callable

from bench.rigs import Rig
from bench.wire_rows import Scale

_kept: dict[tuple[str, str], list[float]] = {}
"""By the name of a side and a key: a value a round."""


def keep_for_later(rig: Rig, key: str, value: float) -> None:
    """Keeps a value that a row below shows."""
    _kept.setdefault((rig.name, key), []).append(value)


def told_before(key: str, measure_both: Callable[[Rig, Scale], float]) -> Callable[[Rig, Scale], float]:
    """What the measurement of the row before told besides; it is made where that row was not asked for."""

    def measure(rig: Rig, scale: Scale) -> float:
        if not _kept.get((rig.name, key)):
            measure_both(rig, scale)
        return _kept[rig.name, key].pop(0)

    return measure
