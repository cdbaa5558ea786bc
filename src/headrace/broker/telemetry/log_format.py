"""Formats of the log of `headrace serve`: one line per event, as text or as JSON."""

from __future__ import annotations

import json
import logging
from typing import Any, Final

TEXT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"

INDENT: Final = "    "
"""Indentation of a traceback's lines, which may quote a client, so that none looks like a line of the log."""

OURS: Final = ("time", "level", "logger", "event", "exception")
"""Keys of a JSON line that no field of an event may take; such a field gets a trailing underscore."""


class TextLines(logging.Formatter):
    """Formats an event as a line of text. Unprintable characters are escaped."""

    def format(self, record: logging.LogRecord) -> str:
        """Formats a record. The traceback text cached in the record is kept for other handlers, but not used here,
        because other formatters do not escape it."""
        kept, record.exc_text = record.exc_text, None
        try:
            return super().format(record)
        finally:
            record.exc_text = kept

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # logging's name
        """Returns the escaped message line."""
        return printable(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802  # logging's name
        """Returns the escaped traceback, with each line indented."""
        return "\n".join(INDENT + printable(line) for line in super().formatException(ei).split("\n"))


def printable(text: str) -> str:
    """Returns a text in which control characters, line ends and marks that change how text is shown are escaped."""
    return text if text.isprintable() else "".join(each if each.isprintable() else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "backslashreplace").decode("ascii")


class JsonLines(logging.Formatter):
    """Formats an event as a JSON object: time (milliseconds since 1970), level, logger, event, and the event's
    fields."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": int(record.created * 1000),
            "level": record.levelname,
            "logger": record.name,
            "event": getattr(record, "event", None) or record.getMessage(),
        }
        for key, value in getattr(record, "fields", {}).items():
            plain = isinstance(value, (bool, int, float, str))
            line[f"{key}_" if key in OURS else key] = value if plain else str(value)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def log_to_standard_error(*, as_json: bool, level: int) -> None:
    """Has every logger of this process write to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if as_json else TextLines(TEXT))
    logging.basicConfig(level=level, handlers=[handler])
