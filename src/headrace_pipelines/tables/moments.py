"""Values of an increasing column: numbers, dates and times; a step back from one, and how one is kept in a file."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Context, Decimal, Inexact
from math import isfinite
from pathlib import Path
from typing import Any, Final

from headrace_pipelines.tables.following import TableError
from headrace_pipelines.whole_files import replace_text

Moment = int | float | Decimal | date | datetime | str
"""A value of the column. A text is a time in ISO 8601, as SQLite keeps times."""

POSITION: Final = "position.json"
LOOK_BACK_TIME: Final = timedelta(minutes=1)
LOOK_BACK_NUMBER: Final = 1000
_EXACT: Final = Context(prec=200_000, traps=[Inexact])
"""More digits than a number of PostgreSQL has, before its point and behind it; Python's own context has 28."""
_UNITS: Final = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_ISO: Final = re.compile(r"(\d{4}-\d\d-\d\d)(?:([T ])(\d\d:\d\d:\d\d).*)?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class LookBack:
    """How far behind the furthest value rows may still appear: a time, a number, or by default whatever fits."""

    time: timedelta | None = LOOK_BACK_TIME
    number: Decimal | None = Decimal(LOOK_BACK_NUMBER)

    def before(self, moment: Moment) -> Moment:
        """The value from which on rows are read again. Raises `TableError` where it is not of the column's kind."""
        if isinstance(moment, (int, float, Decimal)):
            if self.number is None:
                raise TableError("the look-back is a time, and the increasing column holds numbers")
            if isinstance(moment, Decimal):
                return _EXACT.subtract(moment, self.number)
            return moment - (int(self.number) if self.number == int(self.number) else float(self.number))
        if self.time is None:
            raise TableError("the look-back is a number, and the increasing column holds times")
        if isinstance(moment, str):
            return _text_before(moment, self.time)
        if isinstance(moment, datetime):
            return moment - self.time
        return moment - timedelta(days=-(-self.time // timedelta(days=1)))


def look_back_of(text: str | None) -> LookBack:
    """`5m`, `1000`, or the default. Raises ValueError, in one sentence."""
    if text is None:
        return LookBack()
    found = re.fullmatch(r"([0-9]{1,15})(ms|s|m|h|d)?", text)
    if found is None:
        raise ValueError(f"{text!r} is neither a time such as 30s, 5m or 1d, nor a number")
    if found[2] is None:
        return LookBack(None, Decimal(found[1]))
    return LookBack(timedelta(**{_UNITS[found[2]]: int(found[1])}), None)


def _text_before(text: str, back: timedelta) -> str:
    """A text that comes, letter by letter, before every time in the same form that is less than `back` earlier."""
    found = _ISO.fullmatch(text)
    try:
        moment = datetime.fromisoformat(f"{found[1]} {found[3] or '00:00:00'}") if found is not None else None
    except ValueError:
        moment = None
    if found is None or moment is None:
        raise TableError(f"the increasing column holds {text!r}, which is neither a number nor a time in ISO 8601")
    earlier = moment - back
    return earlier.strftime("%Y-%m-%d") if found[2] is None else earlier.isoformat(found[2], "seconds")


def moment_of(value: Any) -> Moment | None:
    """A value of the column, None for one that nothing comes after: an infinity, NaN, or a time that Python has not.

    `kind_of` finds values that no increasing column can have.
    """
    # a decimal may be finite and too large for a float
    if (isinstance(value, float) and not isfinite(value)) or (isinstance(value, Decimal) and not value.is_finite()):
        return None
    found: Moment | None = value
    return found


def kind_of(moment: Any) -> str:
    """Which kind of value it is. Raises `TableError` for one that cannot increase."""
    # a datetime is a date, and a truth an int
    for kind, name in _KINDS:
        if type(moment) is kind:
            return name
    raise TableError(f"the increasing column holds {moment!r}, which is neither a number nor a time")


def sort_of(moment: Any) -> str:
    """Values of one sort are to be compared. Raises `TableError` for one that cannot increase."""
    kind = kind_of(moment)
    if kind == "datetime":
        return "a time without a zone" if moment.tzinfo is None else "a time with a zone"
    return _SORTS[kind]


_KINDS: Final = (
    (int, "int"), (float, "float"), (Decimal, "decimal"), (datetime, "datetime"), (date, "date"), (str, "text"),
)  # fmt: skip
_SORTS: Final = {"int": "a number", "float": "a number", "decimal": "a number", "date": "a date", "text": "a text"}
_READ: Final[dict[str, Any]] = {
    "int": int, "float": float, "decimal": Decimal, "datetime": datetime.fromisoformat, "date": date.fromisoformat,
    "text": str,
}  # fmt: skip


def text_of(moment: Moment) -> str:
    """A value as a text that has all of it."""
    return moment.isoformat() if isinstance(moment, date) else str(moment)


def stored(moment: Moment) -> dict[str, str]:
    """A value as JSON keeps it."""
    return {"kind": kind_of(moment), "value": text_of(moment)}


def moment_from(value: Any) -> Moment:
    """The value that `stored` has kept."""
    moment: Moment = _READ[value["kind"]](value["value"])
    return moment


class Position:
    """The furthest value whose row, and all before it, the brokers have acknowledged; kept in a directory."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / POSITION
        self.moment: Moment | None = None
        if self._path.exists():
            self.moment = moment_from(json.loads(self._path.read_text()))

    def advance(self, moment: Moment) -> None:
        """Go on to a value that is not before the one kept."""
        if moment == self.moment:
            return
        replace_text(self._path, json.dumps(stored(moment)) + "\n")
        self.moment = moment
