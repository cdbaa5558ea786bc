"""What a row of a benchmark's table is to reach."""

from __future__ import annotations


class Barred:
    """A row whose ratio is to be at least its `bar`, or at most, where `lower` is better; None asks for nothing."""

    bar: float | None
    lower: bool

    @property
    def sign(self) -> str:
        """How the ratio is to stand to the bar."""
        return "<=" if self.lower else ">="

    def asked(self, unit: str = "x") -> str:
        """The bar as the table shows it; empty where there is none."""
        return "" if self.bar is None else f"({self.sign} {self.bar:g}{unit})"

    def holds(self, ratio: float | None) -> bool | None:
        """Whether this ratio is one that was to be reached; None where there is none, or no bar."""
        if ratio is None or self.bar is None:
            return None
        return ratio <= self.bar if self.lower else ratio >= self.bar
