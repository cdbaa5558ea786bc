"""Steps back from values of a column, and the position that a restart finds."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from headrace_pipelines.tables.following import TableError
from headrace_pipelines.tables.moments import Position, look_back_of, moment_of


@pytest.mark.parametrize(
    ("text", "moment", "before"),
    [
        (None, 5000, 4000),
        (None, datetime(2026, 1, 1, tzinfo=UTC), datetime(2025, 12, 31, 23, 59, tzinfo=UTC)),
        ("0", 7, 7),
        ("10", Decimal("12.5"), Decimal("2.5")),
        ("1000", Decimal(10**34 + 7_000_057), Decimal(10**34 + 6_999_057)),
        ("1", Decimal(f"{'9' * 131_072}.{'5' * 16_383}"), Decimal(f"{'9' * 131_071}8.{'5' * 16_383}")),
        ("10", 12.5, 2.5),
        ("90m", datetime(2026, 1, 1, 1, 30), datetime(2026, 1, 1)),  # noqa: DTZ001
        ("25h", date(2026, 1, 3), date(2026, 1, 1)),
        ("0s", "2026-01-01 08:00:00", "2026-01-01 08:00:00"),
        ("1m", "2026-01-01T00:00:30.123456Z", "2025-12-31T23:59:30"),
        ("1d", "2026-01-01", "2025-12-31"),
        ("1m", "2026-01-01", "2025-12-31"),
    ],
)
def test_steps_back(text: str | None, moment: Any, before: Any) -> None:
    found = look_back_of(text).before(moment)
    assert (found, type(found)) == (before, type(before))
    assert found <= moment


@pytest.mark.parametrize(
    ("text", "moment", "words"),
    [
        ("1m", 7, "the look-back is a time, and the increasing column holds numbers"),
        ("7", date(2026, 1, 1), "the look-back is a number, and the increasing column holds times"),
        ("1m", "yesterday", "'yesterday', which is neither a number nor a time"),
        ("1m", "2026-13-01", "which is neither a number nor a time"),
    ],
)
def test_steps_that_do_not_fit(text: str, moment: Any, words: str) -> None:
    with pytest.raises(TableError, match=words):
        look_back_of(text).before(moment)


@pytest.mark.parametrize("text", ["", "5 m", "-1", "1w", "1.5"])
def test_what_is_no_look_back(text: str) -> None:
    with pytest.raises(ValueError, match="is neither a time such as 30s, 5m or 1d, nor a number"):
        look_back_of(text)


@pytest.mark.parametrize(
    "moment",
    [
        (1 << 63) - 1, 0.1, Decimal("10.50"), date(2026, 1, 1), datetime(2026, 1, 1, 8, 30, 1, 5, tzinfo=UTC),
        datetime(2026, 1, 1), "2026-01-01 08:00:00",  # noqa: DTZ001
    ],
)  # fmt: skip
def test_positions_are_found_again(tmp_path: Path, moment: Any) -> None:
    position = Position(tmp_path)
    assert position.moment is None
    position.advance(moment)
    again = Position(tmp_path).moment
    assert (again, type(again)) == (moment, type(moment))


@pytest.mark.parametrize("moment", [True, b"x"])
def test_what_does_not_increase(tmp_path: Path, moment: Any) -> None:
    with pytest.raises(TableError, match="which is neither a number nor a time"):
        Position(tmp_path).advance(moment)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("value", "found"),
    [(Decimal("1e400"), Decimal("1e400")), (1.5, 1.5), (Decimal("NaN"), None), (Decimal("-Infinity"), None),
     (float("inf"), None), (float("nan"), None)],
)  # fmt: skip
def test_what_nothing_comes_after(value: Any, found: Any) -> None:
    assert moment_of(value) == found
