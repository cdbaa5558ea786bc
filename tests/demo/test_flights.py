"""The flights in the order in which things happened, and the records they become."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from demo import flights
from demo.replay import prepare


def flight(hour: str, minute: int, dep_time: float | None, dep_delay: float | None, number: int) -> dict[str, object]:
    return {
        "origin": "JFK", "dest": "BOS", "carrier": "B6", "flight": number, "tailnum": "N1", "distance": 187,
        "time_hour": hour, "minute": minute, "dep_time": dep_time, "dep_delay": dep_delay,
    }  # fmt: skip


DAY = pd.DataFrame(
    [
        # 23:50 in New York, an hour late: it leaves at 0:50 of the next day, and its clock time says less than noon
        flight("2013-06-02T03:00:00Z", 50, 50.0, 60.0, 1),
        flight("2013-06-02T04:00:00Z", 5, 5.0, 0.0, 2),
        # a few minutes early, across the hour
        flight("2013-06-02T03:00:00Z", 0, 2255.0, -5.0, 3),
        # cancelled: it happens when it should have
        flight("2013-06-02T04:00:00Z", 30, None, None, 4),
        # the same minute as flight 4, and after it in the file
        flight("2013-06-02T04:00:00Z", 0, 30.0, 30.0, 5),
    ]
)


def test_departures_come_when_they_left_and_cancelled_ones_when_they_should_have() -> None:
    ordered = flights.in_order(DAY)
    assert list(ordered["flight"]) == [3, 2, 4, 5, 1]
    assert list(ordered["happened"].dt.strftime("%H:%M")) == ["02:55", "04:05", "04:30", "04:30", "04:50"]


def test_a_record_says_what_is_known_at_departure() -> None:
    year = prepare(DAY)
    first, cancelled = json.loads(year.values[0]), json.loads(year.values[2])
    assert set(first) == set(flights.KNOWN_AT_DEPARTURE)
    assert (first["time_hour"], first["minute"], first["dep_delay"]) == ("2013-06-02T03:00:00Z", 0, -5)
    assert cancelled["dep_delay"] is None and cancelled["dep_time"] is None
    assert year.keys == [b"JFK"] * 5
    assert year.happened_ms[0] == pd.Timestamp("2013-06-02T02:55Z").timestamp() * 1000


@pytest.mark.slow
def test_the_whole_year_is_in_order() -> None:
    table = flights.load_flights()
    year = prepare(table)
    assert len(year) == len(table) == 336_776
    assert year.happened_ms == sorted(year.happened_ms)
    assert set(year.keys) == {b"EWR", b"JFK", b"LGA"}
    ordered = flights.in_order(table)
    left = ordered[ordered["dep_time"].notna()]
    clock = left["happened"].dt.tz_convert(flights.LOCAL_ZONE)
    assert (clock.dt.hour * 100 + clock.dt.minute == left["dep_time"] % 2400).mean() > 0.999
