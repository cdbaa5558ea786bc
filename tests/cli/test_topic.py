"""`headrace topic`: several topics created by one command."""

from __future__ import annotations

import json
from typing import Any


def test_several_topics_are_created_by_one_command(run: Any, run_json: Any, topic: str) -> None:
    one, two, three = (f"{topic}-{n}" for n in (1, 2, 3))
    lines = run("topic", "create", one, two, one, "-p", "2", "--set", "retention.ms=5000").stdout.splitlines()
    assert lines == [f"created topic {name} with 2 partitions" for name in (one, two)]
    assert [each["configs"] for each in run_json("topic", "describe", one, two)] == [{"retention.ms": "5000"}] * 2
    again = run_json("topic", "create", one, three, "--if-not-exists", "-p", "1")
    assert [(each["topic"], each["created"], each["partitions"]) for each in again] == [
        (one, False, 2),
        (three, True, 1),
    ]
    planned = run_json("topic", "create", f"{topic}-4", f"{topic}-5", "--dry-run")
    assert [(each["created"], each["executed"]) for each in planned] == [(False, False)] * 2


def test_the_first_refused_topic_ends_the_command(run: Any, topic: str) -> None:
    run("topic", "create", f"{topic}-old", "-p", "1")
    done = run("topic", "create", f"{topic}-new", f"{topic}-old", f"{topic}-late", "-p", "1", "--json", code=1)
    assert [each["topic"] for each in json.loads(done.stdout)] == [f"{topic}-new"]
    (line,) = done.stderr.splitlines()
    assert f"topic {topic}-old" in line and "TOPIC_ALREADY_EXISTS" in line
    run("topic", "describe", f"{topic}-late", code=4)
