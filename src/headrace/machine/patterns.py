"""Regular expressions of clients, in RE2's syntax and with its time bounds, as in Apache Kafka (KIP-848, KIP-1152):
google-re2.

No look-around and no back-references, so a match takes time linear in the text. Patterns that need more memory than
`MEMORY_MAX` are refused like malformed ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import re2

MEMORY_MAX: Final = 1 << 16
"""The memory limit of a pattern in bytes: two thirds are for its program, which bounds the cost of each character of a
text."""
PATTERN_BYTES_MAX: Final = 8_192
"""The longest pattern: a program that fits in `MEMORY_MAX` is shorter, but for sets of characters. To read a pattern
takes time and memory before its program is known to be too large."""
COMPILED_MAX: Final = 256
"""The number of cached compiled patterns."""


class PatternError(ValueError):
    """A malformed or too large regular expression; the text says why."""


def matching(pattern: str, texts: Iterable[str]) -> list[str]:
    """Returns the texts that a pattern matches as a whole. Raises PatternError."""
    compiled = _compiled(pattern)
    return [text for text in texts if compiled.fullmatch(text) is not None]


def check(pattern: str) -> None:
    """Raises PatternError unless the pattern is valid. It may take as long as a match: see `what_is_wrong`."""
    _compiled(pattern)


def what_is_wrong(pattern: str) -> str:
    """Returns why a pattern is invalid; empty if it is valid. To be called on a worker: up to 0.3 s, without the
    GIL."""
    try:
        check(pattern)
    except PatternError as error:
        return str(error)
    return ""


@lru_cache(maxsize=COMPILED_MAX)
def _compiled(pattern: str) -> re2._Regexp:
    import re2  # few brokers ever need it

    if len(pattern.encode(errors="replace")) > PATTERN_BYTES_MAX:
        raise PatternError(f"it has more than {PATTERN_BYTES_MAX} bytes")
    options = re2.Options()
    options.max_mem = MEMORY_MAX
    options.log_errors = False
    options.never_capture = True
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        why = error.args[0]
        raise PatternError(why.decode(errors="replace") if isinstance(why, bytes) else str(why)) from None
