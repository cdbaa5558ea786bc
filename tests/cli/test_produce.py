"""`headrace produce`: what an object must say, what a bad line leaves, and partitions that are not there."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cli.commanding import command

import headrace.testing


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{}", 'no "value"'),
        ('{"key": "k"}', 'no "value"; give null for a tombstone'),
        ('{"valeu": "x", "key": "k"}', '"valeu" is not a field of a record; did you mean "value"?'),
        ('{"value": "x", "time": 5}', '"time" is not a field of a record'),
        ('{"value": "x", "value_base64": "AA=="}', 'choose one of "value" and "value_base64"'),
        ('{"value": "x", "headers": [{"name": "h"}]}', 'header "h" has no "value"'),
        ('{"value": "x", "headers": [{"name": "h", "val": "v"}]}', '"val" is not a field of a header'),
        ('{"value_base64": null}', '"value_base64" is not base64'),
    ],
)
def test_an_object_that_is_no_record_is_refused(run: Any, topic: str, line: str, words: str) -> None:
    run("topic", "create", topic, "-p", "1")
    (said,) = run("produce", topic, "--format", "json", stdin=line + "\n", code=1).stderr.splitlines()
    assert said.startswith("headrace: standard input line 1: ") and words in said
    assert said.endswith("; the command wrote no record")
    assert run("consume", topic).stdout == ""


@pytest.mark.parametrize(
    ("delimiter", "given"),
    [(r"\0", "a\nb\0k=c\r\0"), ("--", "a\nb--k=c\r"), (r"\x1e", "a\nb\x1ek=c\r")],
)
def test_records_end_where_the_delimiter_says(run: Any, topic: str, delimiter: str, given: str) -> None:
    run("topic", "create", topic, "-p", "1")
    assert "wrote 2 records" in run("produce", topic, "--delimiter", delimiter, stdin=given).stderr
    assert run("consume", topic, "--template", "[%s]").stdout == "[a\nb][k=c\r]"


def test_a_delimiter_stands_alone_and_is_not_empty(run: Any, topic: str) -> None:
    run("topic", "create", topic, "-p", "1")
    assert "--delimiter" in run("produce", topic, "-D", "", stdin="", code=2).stderr
    assert "--whole and --delimiter" in run("produce", topic, "-D", ";", "--whole", __file__, code=2).stderr
    said = run("produce", topic, "-D", ";", "-k", "=", stdin="a=b;c;", code=1).stderr
    assert "standard input record 2: no key separator" in said


def test_a_tombstone_is_an_explicit_null(run: Any, topic: str) -> None:
    run("topic", "create", topic, "-p", "1")
    run("produce", topic, "--format", "json", stdin='{"key": "k", "value": null}\n')
    assert json.loads(run("consume", topic, "--json").stdout)["value"] is None


@pytest.mark.parametrize(("form", "good", "bad"), [("json", '{"value": "v"}', "{"), ("text", "k=v", "no separator")])
def test_a_bad_line_says_how_many_records_were_written(run: Any, topic: str, form: str, good: str, bad: str) -> None:
    run("topic", "create", topic, "-p", "1")
    options = [] if form == "json" else ["-k", "="]
    for before, said in ((1, "wrote the record before it"), (1200, "wrote the 1,200 records before it")):
        lines = f"{good}\n" * before + f"{bad}\n{good}\n"
        (line,) = run("produce", topic, "--format", form, *options, stdin=lines, code=1).stderr.splitlines()
        assert f"standard input line {before + 1}: " in line
        assert line.endswith(f"; the command {said}")
    assert len(run("consume", topic).stdout.splitlines()) == 1201


def test_records_go_into_fewer_partitions_where_that_is_asked_for(run: Any, topic: str) -> None:
    many, few = f"{topic}-many", f"{topic}-few"
    run("topic", "create", many, "-p", "5")
    run("topic", "create", few, "-p", "2")
    for partition in range(5):
        run("produce", many, "-p", str(partition), "--key", f"k{partition}", stdin=f"v{partition}\n")
    lines = run("consume", many, "--json").stdout
    failed = run("produce", few, "--format", "json", stdin=lines, code=1).stderr
    assert f"topic {few} has 2 partitions" in failed
    assert "--ignore-partition" in failed
    before = len(run("consume", few).stdout.splitlines())
    run("produce", few, "--format", "json", "--ignore-partition", stdin=lines)
    copied = [json.loads(line) for line in run("consume", few, "--json").stdout.splitlines()][before:]
    assert sorted((each["key"], each["value"]) for each in copied) == [(f"k{n}", f"v{n}") for n in range(5)]
    run("produce", few, "--ignore-partition", stdin="", code=2)
    run("produce", few, "--format", "json", "--ignore-partition", "-p", "0", stdin="", code=2)


def test_a_partition_that_is_not_there_is_said_at_once(run: Any, topic: str) -> None:
    run("topic", "create", topic, "-p", "1")
    assert f"topic {topic} has no partition 7" in run("produce", topic, "-p", "7", stdin="a\n", code=4).stderr


def test_a_missing_topic_is_created_with_the_first_record(run: Any, topic: str) -> None:
    name = f"sales-{topic}-{topic}"
    assert run("produce", name, stdin="").stderr == f"wrote 0 records to topic {name}\n"
    run("topic", "describe", name, code=4)
    created, wrote = run("produce", name, stdin="a\n").stderr.splitlines()
    assert created == f"headrace: the broker created topic {name} with 1 partition"
    assert wrote == f"wrote 1 record to topic {name}"
    assert run("produce", name, stdin="b\n").stderr == f"wrote 1 record to topic {name}\n"
    assert run("consume", name).stdout == "a\nb\n"


@pytest.fixture
def orders(run: Any, topic: str) -> str:
    """A topic whose name is nobody else's with one letter changed."""
    name = f"orders-{topic}-{topic}"
    run("topic", "create", name, "-p", "1")
    return name


def test_a_name_one_letter_off_is_doubted(run: Any, orders: str) -> None:
    created, _ = run("produce", orders.replace("orders", "order"), stdin="a\n").stderr.splitlines()
    assert created.endswith(f"; did you mean {orders}?")


def test_no_topic_is_created_where_that_is_not_wanted(run: Any, orders: str) -> None:
    mistyped = orders.replace("orders", "odrers")
    refused = run("produce", mistyped, "--no-create", stdin="a\n", code=4).stderr
    assert "UNKNOWN_TOPIC_OR_PARTITION" in refused and f"did you mean {orders}?" in refused
    assert run("consume", mistyped, code=4).stdout == ""


@pytest.mark.slow
def test_a_broker_that_creates_no_topics_is_named_as_the_cause() -> None:
    with headrace.testing.broker({"auto.create.topics.enable": False}) as broker:
        refused = command("produce", "orders", "-b", broker.bootstrap, stdin="a\n", code=4).stderr
        assert "auto.create.topics.enable" in refused
        assert refused.endswith("`headrace topic create orders`\n")
        command("topic", "create", "orders", "-b", broker.bootstrap)
        near = command("produce", "order", "-b", broker.bootstrap, stdin="a\n", code=4).stderr
        assert near.endswith("did you mean orders?\n")
