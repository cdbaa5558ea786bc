"""Lines that a client can cause: so many a second, and a part of them about one subject. The next line says how many
were left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headrace.env import LogSink

LINES_PER_S: Final = 50
"""Of one kind, about everything."""
SUBJECT_LINES_PER_S: Final = 10
"""About one subject (a group, an address, a principal at one): others are to be seen beside it."""


class LineLimit:
    """Whether there is room for a line."""

    def __init__(
        self, monotonic: Callable[[], float], lines_per_s: int = LINES_PER_S, of_subject: int = SUBJECT_LINES_PER_S
    ) -> None:
        self._monotonic = monotonic
        self._lines_per_s = lines_per_s
        self._of_subject = of_subject
        self._since = float("-inf")
        self._written = 0
        self._subjects: dict[object, int] = {}
        """Of this second; no more than lines."""
        self._left_out = 0

    def has_room(self, subject: object) -> bool:
        """Whether a line about this may be written; it is counted either way."""
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
        """What the line that is written now says of those before it that were not."""
        left_out, self._left_out = self._left_out, 0
        return {"left_out": left_out} if left_out else {}


class PacedLines:
    """A log for lines that a client can cause."""

    def __init__(self, log: LogSink, monotonic: Callable[[], float]) -> None:
        self._log = log
        self._limit = LineLimit(monotonic)

    def info(self, subject: object, event: str, /, **fields: object) -> None:
        """See LogSink.info; `subject` is what the line is about, or who caused it."""
        if self._limit.has_room(subject):
            self._log.info(event, **fields, **self._limit.left_out())

    def warning(self, subject: object, event: str, /, **fields: object) -> None:
        """See LogSink.warning."""
        if self._limit.has_room(subject):
            self._log.warning(event, **fields, **self._limit.left_out())
