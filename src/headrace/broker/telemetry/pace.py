"""Limits log lines that clients can cause, per second and per subject. The next line counts those left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headrace.env import LogSink

LINES_PER_S: Final = 50
"""Lines per second of one kind, about all subjects."""
SUBJECT_LINES_PER_S: Final = 10
"""Lines per second about one subject (a group, an address, a principal at one), so that others are seen too."""


class LineLimit:
    """A limit on the rate of lines, in total and per subject."""

    def __init__(
        self, monotonic: Callable[[], float], lines_per_s: int = LINES_PER_S, of_subject: int = SUBJECT_LINES_PER_S
    ) -> None:
        self._monotonic = monotonic
        self._lines_per_s = lines_per_s
        self._of_subject = of_subject
        self._since = float("-inf")
        self._written = 0
        self._subjects: dict[object, int] = {}
        """Lines about each subject in the current second."""
        self._left_out = 0

    def has_room(self, subject: object) -> bool:
        """Returns whether a line about a subject may be written; counts it in either case."""
        now = self._monotonic()
        if now - self._since >= 1:
            self._since, self._written, self._subjects = now, 0, {}
        of_subject = self._subjects.get(subject, 0)
        if self._written >= self._lines_per_s or of_subject >= self._of_subject:
            self._left_out += 1
            return False
        self._written += 1
        self._subjects[subject] = of_subject + 1
        return True

    def left_out(self) -> dict[str, int]:
        """Returns the field with the number of lines left out since the last line, if any."""
        left_out, self._left_out = self._left_out, 0
        return {"left_out": left_out} if left_out else {}


class PacedLines:
    """A log for lines that clients can cause."""

    def __init__(self, log: LogSink, monotonic: Callable[[], float]) -> None:
        self._log = log
        self._limit = LineLimit(monotonic)

    def info(self, subject: object, event: str, /, **fields: object) -> None:
        """Logs at INFO within the limit; `subject` is what the line is about, or the client that caused it."""
        if self._limit.has_room(subject):
            self._log.info(event, **fields, **self._limit.left_out())

    def warning(self, subject: object, event: str, /, **fields: object) -> None:
        """Logs at WARNING within the limit."""
        if self._limit.has_room(subject):
            self._log.warning(event, **fields, **self._limit.left_out())
