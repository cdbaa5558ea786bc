"""What the demo draws: a picture, and a page that holds its data and loads nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from demo import chart, check, flights

NAMES = {"EWR": "Newark Liberty Intl", "JFK": "John F Kennedy Intl", "LGA": "La Guardia"}


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """Where the first week was drawn to, and the hours that were drawn."""
    out = tmp_path_factory.mktemp("chart")
    hours = check.expected(flights.of_the_first(7, flights.load_flights()), flights.load_weather())
    chart.write(hours, NAMES, out, days=7)
    return out, hours


def test_the_page_holds_every_hour_in_the_airports_own_time(drawn: tuple[Path, Any]) -> None:
    out, hours = drawn
    page = (out / "surge.html").read_text(encoding="utf-8")
    assert "/*DATA*/" not in page
    found = re.search(r"^const data = (\{.*\});$", page, re.MULTILINE)
    assert found is not None
    data = json.loads(found[1])
    assert (data["top"], data["first"], data["last"]) == (chart.SURGE_TOP, chart.FIRST_HOUR, chart.LAST_HOUR)
    assert {code: airport["name"] for code, airport in data["airports"].items()} == NAMES
    assert sum(len(airport["hours"]) for airport in data["airports"].values()) == len(hours)
    # 18:00 UTC is 13:00 in New York in winter
    (row,) = [hour for hour in data["airports"]["JFK"]["hours"] if hour[:2] == [2, 13]]
    wanted = hours.loc[("JFK", "2013-01-03T18:00:00Z")]
    assert row[2:] == [wanted[name] for name in ("demand", "supply", *flights.WEATHER)]


def test_weather_that_nobody_wrote_down_is_null_in_the_page(tmp_path: Path) -> None:
    hours = check.expected(flights.of_the_first(2, flights.load_flights()), flights.load_weather().head(0))
    chart.write(hours, NAMES, tmp_path)
    page = (tmp_path / "surge.html").read_text(encoding="utf-8")
    assert "NaN" not in page, "JSON has no such word"
    data = json.loads(re.findall(r"^const data = (\{.*\});$", page, re.MULTILINE)[0])
    assert all(hour[4:] == [None] * len(flights.WEATHER) for hour in data["airports"]["LGA"]["hours"])


def test_the_page_loads_nothing(drawn: tuple[Path, Any]) -> None:
    page = (drawn[0] / "surge.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert not re.findall(r"https?://|\bsrc\s*=|<link\b|\bimport\b|\bfetch\(|url\(", page)


def test_page_and_picture_say_which_days_they_show(drawn: tuple[Path, Any], tmp_path: Path) -> None:
    page = (drawn[0] / "surge.html").read_text(encoding="utf-8")
    assert "<title>Leaving New York in the first 7 days of 2013</title>" in page
    assert "<p>Departures of the first 7 days of 2013 through a Headrace topic" in page
    assert "{{" not in page
    chart.write(drawn[1], NAMES, tmp_path)
    assert "<h1>Leaving New York in 2013</h1>" in (tmp_path / "surge.html").read_text(encoding="utf-8")
    assert (tmp_path / "surge.png").read_bytes() != (drawn[0] / "surge.png").read_bytes(), "titles differ"
    assert [chart.span(days) for days in (1, 2, 365)] == [
        "the first day of 2013", "the first 2 days of 2013", "2013"
    ]  # fmt: skip


def test_the_picture_is_one(drawn: tuple[Path, Any]) -> None:
    data = (drawn[0] / "surge.png").read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    assert len(data) > 10_000
