"""Dates and times of a row as text and as numbers: before the year 1, beyond 9999 and without end too.

A text is ISO 8601, with a T or a space. Where Python's dates and Arrow's texts end, it is as PostgreSQL writes it:
years before 1 as `0044-03-15 BC`, later ones with as many digits as they need, and `infinity` and `-infinity` for a
time without end. A number is days since 1970 (32 bits) or microseconds (64 bits), of which the greatest and the least,
which no calendar reaches, are those without end.
"""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

END: Final = "infinity"
BEGINNING: Final = "-infinity"
DAYS_END: Final = (1 << 31) - 1
DAYS_BEGINNING: Final = -(1 << 31)
MICROS_END: Final = (1 << 63) - 1
MICROS_BEGINNING: Final = -(1 << 63)
DAY_MICROS: Final = 86_400_000_000
_PLAIN_DAYS: Final = (-719_162, 2_932_896)
"""0001-01-01 and 9999-12-31."""
_DAYS_0000_03_01: Final = -719_468
"""A year that begins in March ends with its leap day, and 400 such years always have as many days."""
_DAYS_400_YEARS: Final = 146_097
_DATE: Final = re.compile(r"(\d{4,7})-(\d\d)-(\d\d)( BC)?", re.ASCII)
_TIME: Final = re.compile(
    r"(\d{4,7}-\d\d-\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,6}))?)?"
    r"(Z|([+-])(\d\d)(?::?(\d\d)(?::?(\d\d))?)?)?)?( BC)?",
    re.ASCII,
)


def days_of(text: str) -> int | None:
    """The day that a text says; None for an invalid day."""
    if text in (END, BEGINNING):
        return DAYS_END if text == END else DAYS_BEGINNING
    found = _DATE.fullmatch(text)
    if found is None:
        return None
    year, month, day = int(found[1]), int(found[2]), int(found[3])
    days = _days(1 - year if found[4] else year, month, day)
    if _civil(days)[1:] != (month, day) or (found[4] and not year):
        return None
    return days if DAYS_BEGINNING < days < DAYS_END else None


def micros_of(text: str) -> int | None:
    """The moment that a text says, of UTC where it names no offset; None for an invalid time."""
    if text in (END, BEGINNING):
        return MICROS_END if text == END else MICROS_BEGINNING
    found = _TIME.fullmatch(text)
    days = None if found is None else days_of(found[1] + (found[11] or ""))
    if found is None or days is None:
        return None
    hour, minute, second = (int(part or 0) for part in found.group(2, 3, 4))
    ahead_h, ahead_m, ahead_s = (int(part or 0) for part in found.group(8, 9, 10))
    if hour > 23 or max(minute, second, ahead_m, ahead_s) > 59 or ahead_h > 23:
        return None
    ahead_s += ahead_h * 3600 + ahead_m * 60
    seconds = hour * 3600 + minute * 60 + second + (ahead_s if found[7] == "-" else -ahead_s)
    micros = days * DAY_MICROS + seconds * 1_000_000 + int((found[5] or "").ljust(6, "0"))
    return micros if MICROS_BEGINNING < micros < MICROS_END else None


def text_of_days(days: int) -> str:
    """The day as text."""
    if days in (DAYS_END, DAYS_BEGINNING):
        return END if days == DAYS_END else BEGINNING
    date, era = _date_text(days)
    return date + era


def text_of_micros(micros: int, *, zoned: bool) -> str:
    """The moment as text, with a Z behind it if `zoned`."""
    if micros in (MICROS_END, MICROS_BEGINNING):
        return END if micros == MICROS_END else BEGINNING
    days, rest = divmod(micros, DAY_MICROS)
    date, era = _date_text(days)
    seconds, fraction = divmod(rest, 1_000_000)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:06}"
    return f"{date} {clock}{'Z' * zoned}{era}"


def texts(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """A column of dates or times as text."""
    is_date = pa.types.is_date(column.type)
    numbers = column.cast(pa.int32()).cast(pa.int64()) if is_date else column.cast(pa.int64())
    unit = 1 if is_date else DAY_MICROS
    bounds = pc.min_max(numbers).as_py()
    least, most = _PLAIN_DAYS[0] * unit, (_PLAIN_DAYS[1] + 1) * unit
    if bounds["min"] is None or (bounds["min"] >= least and bounds["max"] < most):
        return column.cast(pa.string())
    zoned = not is_date and column.type.tz is not None
    found = [
        None if number is None else text_of_days(number) if is_date else text_of_micros(number, zoned=zoned)
        for number in numbers.to_pylist()
    ]
    return pa.array(found, pa.string())


def days_within(days: int) -> int:
    """The day, or for one without end the first of the year 1 or the last of 9999."""
    return {DAYS_BEGINNING: _PLAIN_DAYS[0], DAYS_END: _PLAIN_DAYS[1]}.get(days, days)


def micros_within(micros: int) -> int:
    """The moment, or for one without end the first of the year 1 or the last of 9999."""
    ends = {MICROS_BEGINNING: _PLAIN_DAYS[0] * DAY_MICROS, MICROS_END: (_PLAIN_DAYS[1] + 1) * DAY_MICROS - 1}
    return ends.get(micros, micros)


def _days(year: int, month: int, day: int) -> int:
    """Days since 1970 of a date in the Gregorian calendar, which is continued to before it was made."""
    if month <= 2:
        year -= 1
    age, year_of_age = divmod(year, 400)
    day_of_year = (153 * ((month - 3) % 12) + 2) // 5 + day - 1
    day_of_age = year_of_age * 365 + year_of_age // 4 - year_of_age // 100 + day_of_year
    return age * _DAYS_400_YEARS + day_of_age + _DAYS_0000_03_01


def _civil(days: int) -> tuple[int, int, int]:
    """Year, month and day, the reverse of `_days`."""
    age, day_of_age = divmod(days - _DAYS_0000_03_01, _DAYS_400_YEARS)
    leaps = day_of_age // 1460 - day_of_age // 36_524 + day_of_age // 146_096
    year_of_age = (day_of_age - leaps) // 365
    day_of_year = day_of_age - (365 * year_of_age + year_of_age // 4 - year_of_age // 100)
    month_from_march = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month_from_march + 2) // 5 + 1
    month = (month_from_march + 2) % 12 + 1
    return age * 400 + year_of_age + (month <= 2), month, day


def _date_text(days: int) -> tuple[str, str]:
    """Splits a text into the date, its suffix and all else."""
    year, month, day = _civil(days)
    return f"{year if year > 0 else 1 - year:04}-{month:02}-{day:02}", " BC" * (year <= 0)
