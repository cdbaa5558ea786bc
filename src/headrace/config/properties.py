"""Java properties: the syntax of `server.properties` and `meta.properties`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from string import hexdigits
from typing import Final

_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANK: Final = " \t\f"


def load_properties_file(path: str) -> dict[str, str]:
    """The keys and values of a properties file; of a key named twice the last value holds. Raises OSError."""
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return parse_properties(file.read())


def parse_properties(text: str) -> dict[str, str]:
    """Keys and values as java.util.Properties reads them: `=`, `:` or blanks divide, `#` and `!` begin comments,
    a backslash joins lines and escapes. Raises ValueError for a broken \\u escape."""
    result: dict[str, str] = {}
    for line in _logical_lines(text):
        end = 0
        while end < len(line) and line[end] not in "=:" + _BLANK:
            end += 2 if line[end] == "\\" else 1
        rest = line[end:].lstrip(_BLANK)
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(_BLANK)
        result[_unescape(line[:end])] = _unescape(rest)
    return result


def properties_lines(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yields the lines from which `parse_properties` reads these keys, of which none needs an escape, and values."""
    for key, value in pairs:
        text = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
        yield f"{key}=\\{text}" if text[:1] in (" ", "\f") else f"{key}={text}"


def _logical_lines(text: str) -> Iterator[str]:
    joined = ""
    joining = False
    for raw in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        line = raw.lstrip(_BLANK)
        if not joining and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        joining = backslashes % 2 == 1
        joined += line[:-1] if joining else line
        if not joining:
            yield joined
            joined = ""
    if joined:
        yield joined


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    at = 0
    while at < len(text):
        char = text[at]
        if char != "\\" or at + 1 == len(text):
            out.append(char)
            at += 1
            continue
        escaped = text[at + 1]
        if escaped == "u":
            digits = text[at + 2 : at + 6]
            if len(digits) < 4 or any(digit not in hexdigits for digit in digits):
                # the value may be a secret: it is not shown
                raise ValueError("a \\u is not followed by four hexadecimal digits")
            out.append(chr(int(digits, 16)))
            at += 6
            continue
        out.append(_ESCAPES.get(escaped, escaped))
        at += 2
    return "".join(out)
