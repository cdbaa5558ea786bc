"""`headrace consume`: filters, patterns of topics, places by time, templates."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest


@pytest.fixture
def sales(run: Any, topic: str) -> str:
    """A topic of five records: two keys, a header, values that differ, one of them null."""
    run("topic", "create", topic, "-p", "1")
    now_ms = int(time.time() * 1000)
    records = [
        {"key": "ann", "value": "3 apples", "timestamp": now_ms - 7_200_000},
        {"key": "bob", "value": "1 pear", "timestamp": now_ms - 3_000_000},
        {"key": "ann", "value": None, "timestamp": now_ms - 2_000_000},
        {
            "key": "ann",
            "value": "2 pears",
            "headers": [{"name": "shop", "value": "north"}],
            "timestamp": now_ms - 60_000,
        },
        {"value": "9 plums", "headers": [{"name": "shop", "value": "south"}], "timestamp": now_ms},
    ]
    run("produce", topic, "--format", "json", stdin="".join(json.dumps(each) + "\n" for each in records))
    return topic


@pytest.mark.parametrize(
    ("options", "offsets"),
    [
        (["--key", "ann"], "023"),
        (["--key", "ann", "--grep", "pear"], "3"),
        (["--grep", "^[0-9] p"], "134"),
        (["--header", "shop"], "34"),
        (["--header", "shop=south"], "4"),
        (["--header", "shop=south", "--key", "ann"], ""),
        (["--grep", "p", "-n", "2"], "01"),
        (["--from", "-1h"], "1234"),
        (["--from", "-10m"], "34"),
        (["--from", "-5000d", "--until", "-1h"], "0"),
        (["--from", "-2"], "34"),
    ],
)
def test_records_are_chosen(run: Any, sales: str, options: list[str], offsets: str) -> None:
    assert run("consume", sales, "-t", "%o", *options).stdout == offsets


def test_a_group_has_read_what_its_filter_left_out(run: Any, run_json: Any, sales: str) -> None:
    assert run("consume", sales, "-g", sales, "--key", "bob").stdout == "1 pear\n"
    (described,) = run_json("group", "describe", sales)
    assert described["lag"] == 0


def test_a_template_has_no_other_format_beside_it(run: Any, sales: str) -> None:
    for options in (["--json"], ["--format", "hex"], ["-k", ":"], ["--headers"]):
        run("consume", sales, "-t", "%s", *options, code=2)
    assert "is not a letter of templates" in run("consume", sales, "-t", "%x", code=2).stderr


def test_topics_by_regular_expression(run: Any, topic: str) -> None:
    for end, value in (("a", "1"), ("b", "2"), ("c", "3")):
        run("produce", f"regex-{topic}-{end}", stdin=f"{value}\n")
    printed = run("consume", "--regex", f"regex-{topic}-[ab]").stdout
    assert sorted(printed.split()) == ["1", "2"]
    assert run("consume", "--regex", f"regex-{topic}-c", f"r.*-{topic}-c").stdout == "3\n"
    assert "no topic matches" in run("consume", "--regex", f"regex-{topic}", code=4).stderr
    assert "is not a regular expression" in run("consume", "--regex", "(", code=2).stderr
    assert "is not a regular expression" in run("consume", f"regex-{topic}-c", "--grep", "(", code=2).stderr
