"""How `headrace serve` writes its log: one line an event, as text or as JSON."""

from __future__ import annotations

import json
import logging
from typing import Any, Final

TEXT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"

INDENT: Final = "    "
"""Before the lines of a traceback, which may quote a client: none of them looks like a line of the log."""

OURS: Final = ("time", "level", "logger", "event", "exception")
"""The keys of a JSON line that no field of an event may take: such a field gets an underscore behind it."""


class TextLines(logging.Formatter):
    """A line an event, as text. Whatever is no printable character is escaped."""

    def format(self, record: logging.LogRecord) -> str:
        """See logging.Formatter. It keeps the text of a traceback in the record, for all handlers: that of another
        formatter is not escaped."""
        kept, record.exc_text = record.exc_text, None
        try:
            return super().format(record)
        finally:
            record.exc_text = kept

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # logging's name
        """See logging.Formatter."""
        return printable(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802  # logging's name
        """See logging.Formatter: each line is indented."""
        return "\n".join(INDENT + printable(line) for line in super().formatException(ei).split("\n"))


def printable(text: str) -> str:
    """A text without control characters, line ends and marks that change how the rest is shown."""
    return text if text.isprintable() else "".join(each if each.isprintable() else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "backslashreplace").decode("ascii")


class JsonLines(logging.Formatter):
    """An object a line: time (milliseconds since 1970), level, logger, event, and the event's fields beside them."""

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
