"""`headrace produce --output-format`: where each record was written."""

from __future__ import annotations

import json
from typing import Any

import pytest


def written(run: Any, topic: str) -> list[tuple[int, int, str]]:
    """Returns partition, offset and value of each record of the topic."""
    lines = run("consume", topic, "--json").stdout.splitlines()
    return sorted((each["partition"], each["offset"], each["value"]) for each in map(json.loads, lines))


def printed(text: str) -> list[tuple[int, int, str]]:
    parts = [line.split(" ", 2) for line in text.splitlines()]
    return sorted((int(partition), int(offset), value) for partition, offset, value in parts)


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_each_record_is_printed_with_its_partition_and_offset(run: Any, topic: str, codec: str) -> None:
    run("topic", "create", topic, "-p", "3")
    run("produce", topic, "-p", "1", stdin="before\n")
    lines = "".join(f"k{n}:v{n}\n" for n in range(500))
    done = run("produce", topic, "-k", ":", "-z", codec, "-o", "%p %o %s\\n", stdin=lines)
    assert "wrote 500 records" in done.stderr
    assert sorted([*printed(done.stdout), (1, 0, "before")]) == written(run, topic)


def test_a_batch_that_is_split_is_printed_as_it_was_written(run: Any, topic: str) -> None:
    run("topic", "create", topic, "-p", "1", "--set", "max.message.bytes=2000")
    lines = "".join(f"{n:0100d}\n" for n in range(100))
    done = run("produce", topic, "-o", "%p %o %s\\n", stdin=lines)
    assert printed(done.stdout) == written(run, topic)
    assert len(done.stdout.splitlines()) == 100


def test_the_time_is_the_one_in_the_log(run: Any, topic: str) -> None:
    run("topic", "create", topic, "-p", "1", "--set", "message.timestamp.type=LogAppendTime")
    shown = run("produce", topic, "-o", "%t %T", stdin="a\n").stdout
    assert shown == f"{topic} {json.loads(run('consume', topic, '--json').stdout)['timestamp']}"


def test_records_of_a_transaction_are_printed(run: Any, topic: str) -> None:
    run("topic", "create", topic, "-p", "1")
    done = run("produce", topic, "--transactional-id", topic, "-o", "%p %o %s\\n", stdin="a\nb\n")
    assert done.stdout == "0 0 a\n0 1 b\n"


def test_nothing_to_print_is_refused(run: Any, topic: str) -> None:
    for options in (["--acks", "0"], ["--json"]):
        assert "--output-format" in run("produce", topic, "-o", "%o", *options, stdin="", code=2).stderr
