"""What the check expects, and what it says where the topic differs."""

from __future__ import annotations

import json

import pandas as pd

from demo import check, flights

FLIGHTS = pd.DataFrame(
    [
        ("JFK", "2013-07-04T21:00:00Z", 0.0),
        ("JFK", "2013-07-04T21:00:00Z", 15.0),  # just in time
        ("JFK", "2013-07-04T21:00:00Z", 16.0),
        ("JFK", "2013-07-04T21:00:00Z", None),  # cancelled: demand, no supply
        ("LGA", "2013-07-04T21:00:00Z", None),
        ("LGA", "2013-07-04T21:00:00Z", 90.0),
    ],
    columns=["origin", "time_hour", "dep_delay"],
)
WEATHER = pd.DataFrame(
    [("JFK", "2013-07-04T21:00:00Z", 80.06, 12.5, 0.0, 10.0)], columns=["origin", "time_hour", *flights.WEATHER]
)


def written(table: pd.DataFrame) -> dict[bytes, bytes]:
    """The records whose last values are this table."""
    values = {}
    for (origin, hour), row in table.iterrows():
        known = {name: value for name, value in row.items() if pd.notna(value)}
        values[f"{origin}|{hour}".encode()] = json.dumps({"origin": origin, "hour": hour, **known}).encode()
    return values


def test_demand_supply_and_surge() -> None:
    table = check.expected(FLIGHTS, WEATHER)
    jfk, lga = table.loc[("JFK", "2013-07-04T21:00:00Z")], table.loc[("LGA", "2013-07-04T21:00:00Z")]
    assert (jfk["demand"], jfk["supply"], jfk["surge"], jfk["temp"]) == (4, 2, 2.0, 80.06)
    assert (lga["demand"], lga["supply"], lga["surge"]) == (2, 0, 2.0)
    assert lga[list(flights.WEATHER)].isna().all()


def test_equal_tables_have_no_differences_and_unequal_ones_say_where() -> None:
    wanted = check.expected(FLIGHTS, WEATHER)
    records = written(wanted)
    assert check.differences(check.as_table(records), wanted) == []

    key = b"JFK|2013-07-04T21:00:00Z"
    records[key] = records[key].replace(b'"supply": 2', b'"supply": 3').replace(b"80.06", b"80.07")
    assert check.differences(check.as_table(records), wanted) == [
        "JFK 2013-07-04T21:00:00Z: supply is 3, should be 2",
        "JFK 2013-07-04T21:00:00Z: temp is 80.07, should be 80.06",
    ]


def test_weather_out_of_nowhere_a_missing_hour_and_one_too_many_are_differences() -> None:
    wanted = check.expected(FLIGHTS, WEATHER)
    table = wanted.drop(("JFK", "2013-07-04T21:00:00Z"))
    table.loc[("LGA", "2013-07-04T21:00:00Z"), "temp"] = 70.0
    table.loc[("EWR", "2013-07-04T21:00:00Z"), :] = table.iloc[0]
    assert check.differences(table, wanted) == [
        "JFK 2013-07-04T21:00:00Z: missing",
        "EWR 2013-07-04T21:00:00Z: no flight was scheduled",
        "LGA 2013-07-04T21:00:00Z: temp is 70, should be nan",
    ]


def test_the_year_as_the_file_has_it() -> None:
    table = check.expected(flights.load_flights(), flights.load_weather())
    assert (len(table), table["demand"].sum()) == (19_486, 336_776)
    assert table[list(flights.WEATHER)].isna().all(axis=1).sum() == 108
    assert table["surge"].min() == 1.0
