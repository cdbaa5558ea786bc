"""What a row of a benchmark's table is to reach."""

from __future__ import annotations


class Barred:
    """A row whose ratio is to be at least its `bar`, or at most, where `lower` is better."""

    bar: float
    lower: bool

    @property
    def sign(self) -> str:
        """How the ratio is to stand to the bar."""
        return "<=" if self.lower else ">="

    def holds(self, ratio: float | None) -> bool | None:
        """Whether this ratio is one that was to be reached; None where there is none."""
        if ratio is None:
            return None
        return ratio <= self.bar if self.lower else ratio >= self.bar
