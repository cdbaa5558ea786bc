"""Dates and times as texts and as numbers, as far as PostgreSQL's calendar goes, and without end."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.spark.schemas import TIMESTAMP, TIMESTAMP_NTZ
from headrace_pipelines.tables.times import (
    DAYS_BEGINNING,
    DAYS_END,
    MICROS_BEGINNING,
    MICROS_END,
    days_of,
    days_within,
    micros_of,
    micros_within,
    text_of_days,
    text_of_micros,
    texts,
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@given(st.dates())
def test_pythons_dates(day: date) -> None:
    assert days_of(str(day)) == (day - EPOCH.date()).days
    assert text_of_days((day - EPOCH.date()).days) == str(day)


@given(st.datetimes(timezones=st.just(UTC)), st.integers(-14 * 60, 14 * 60))
def test_pythons_times(at: datetime, ahead_min: int) -> None:
    micros = (at - EPOCH) // timedelta(microseconds=1)
    sign, (hours, minutes) = "-" if ahead_min < 0 else "+", divmod(abs(ahead_min), 60)
    assert micros_of(at.isoformat()) == micros
    assert micros_of(f"{at:%H:%M}") is None
    ahead = f"{at.replace(tzinfo=None).isoformat(' ')}{sign}{hours:02}:{minutes:02}"
    assert micros_of(ahead) == micros - ahead_min * 60_000_000
    assert text_of_micros(micros, zoned=True) == f"{at.replace(tzinfo=None).isoformat(' ', 'microseconds')}Z"


@given(st.integers(DAYS_BEGINNING, DAYS_END), st.integers(MICROS_BEGINNING, MICROS_END), st.booleans())
def test_what_is_written_is_read(days: int, micros: int, zoned: bool) -> None:
    assert days_of(text_of_days(days)) == days
    assert micros_of(text_of_micros(micros, zoned=zoned)) == micros


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("0001-01-01", -719_162), ("0001-12-31 BC", -719_163), ("0000-12-31", -719_163), ("0044-03-15 BC", -735_160),
        ("10000-01-01", 2_932_897), ("infinity", DAYS_END), ("-infinity", DAYS_BEGINNING), ("2000-02-29", 11_016),
        ("1900-02-29", None), ("2026-13-01", None), ("2026-00-01", None), ("2026-01-00", None), ("2026-04-31", None),
        ("26-01-01", None), ("0000-01-01 BC", None), ("2026-1-1", None), ("Infinity", None), ("", None),
        ("9999999-01-01", None), ("٢٠٢٦-01-01", None), ("2026-01-01T00:00:00", None),
    ],
)  # fmt: skip
def test_days(text: str, days: int | None) -> None:
    assert days_of(text) == days


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("1970-01-01", 0), ("1970-01-01T00:00", 0), ("1970-01-01 00:00:01.5", 1_500_000), ("1970-01-01T01:00+01", 0),
        ("1969-12-31T23:59:59.999999Z", -1), ("1970-01-01T00:00:00-00:00:01", 1_000_000),
        ("0001-12-31T23:59:59+00:00 BC", -719_162 * 86_400_000_000 - 1_000_000),
        ("infinity", MICROS_END), ("-infinity", MICROS_BEGINNING), ("294248-01-01", None),
        ("1970-01-01T24:00:00", None), ("1970-01-01T00:60:00", None), ("1970-01-01T00:00:60", None),
        ("1970-01-01T00:00:00.1234567", None), ("1970-01-01T", None), ("1970-01-01T00:00:00+24", None), ("0", None),
    ],
)  # fmt: skip
def test_moments(text: str, micros: int | None) -> None:
    assert micros_of(text) == micros


def test_columns_as_texts() -> None:
    """Also where Arrow's own texts are wrong, from the year 10000 on."""
    for kind, zone in ((TIMESTAMP, "Z"), (TIMESTAMP_NTZ, "")):
        plain = pa.array([0, None], kind)
        assert texts(plain).to_pylist() == [f"1970-01-01 00:00:00.000000{zone}", None]
        far = pa.array([0, None, MICROS_END, MICROS_BEGINNING, 1 << 62], kind)
        assert texts(far).to_pylist()[2:] == ["infinity", "-infinity", f"148108-07-06 14:00:27.387904{zone}"]
        assert texts(plain.slice(0, 0)).to_pylist() == []
    days = pa.array([0, None, DAYS_END, -719_163], pa.date32())
    assert texts(days).to_pylist() == ["1970-01-01", None, "infinity", "0001-12-31 BC"]
    assert texts(pa.nulls(1, pa.date32())).to_pylist() == [None]


def test_within_the_calendar() -> None:
    assert [text_of_days(days_within(days)) for days in (DAYS_END, 0, DAYS_BEGINNING)] == [
        "9999-12-31", "1970-01-01", "0001-01-01",
    ]  # fmt: skip
    assert [text_of_micros(micros_within(at), zoned=False) for at in (MICROS_END, 5, MICROS_BEGINNING)] == [
        "9999-12-31 23:59:59.999999", "1970-01-01 00:00:00.000005", "0001-01-01 00:00:00.000000",
    ]  # fmt: skip
