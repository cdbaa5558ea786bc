"""`headrace produce --template`: records read by a template."""

from __future__ import annotations

import json
import re
from typing import Any

import click
import pytest

from headrace.cli.input_templates import InputTemplate, Parsed


@pytest.mark.parametrize(
    ("template", "data", "wanted"),
    [
        ("%k %s\\n", b"a b c\n", Parsed(b"b c", b"a")),
        ("%s;", b"a\nb;", Parsed(b"a\nb")),
        ("100%% %s\\n", b"100% v\n", Parsed(b"v")),
        ("%K,%k%S,%s|", b"3,a|b2,|c|", Parsed(b"|c", b"a|b")),
        ("%K,%k%S,%s|", b"-1,-1,|", Parsed(None, None)),
        ("%R%s", b"\0\0\0\x02vv", Parsed(b"vv")),
        ("%R%s", b"\xff\xff\xff\xff", Parsed(None)),
        ("%h\\t%s\\n", b"a=1,b,c=\tv\n", Parsed(b"v", None, [("a", b"1"), ("b", None), ("c", b"")])),
        ("%t [%p] @%o %T: %s\\n", b"x [3] @17 99: v\n", Parsed(b"v", None, [], 3, 99)),
        ("%k %s\\n", b"NULL NULL\n", Parsed(None, None)),
    ],
)
def test_a_record_is_read_however_its_bytes_arrive(template: str, data: bytes, wanted: Parsed) -> None:
    parse = InputTemplate(template, "NULL").parse
    for size in range(len(data)):
        assert parse(data[:size], 0, final=False) is None
    assert parse(b"before" + data + b"more", 6, final=False) == (wanted, 6 + len(data))


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("%x %s\\n", "%x is not a letter"),
        ("%s %", "is not a letter"),
        ("%s", "%s needs a text after it"),
        ("%k%s\\n", "%k needs a text after it"),
        ("%K%k%s\\n", "%K needs a text after it"),
        ("%s %s\\n", "%s is there a second time"),
        ("%S %R%s", "%R is there a second time"),
        ("%s %S\\n", "%S must come before %s"),
        ("%k\\n", "%s is missing"),
    ],
)
def test_a_template_that_reads_nothing_is_refused(template: str, why: str) -> None:
    with pytest.raises(click.BadParameter) as refused:
        InputTemplate(template, None)
    assert why in refused.value.message


@pytest.mark.parametrize(
    ("template", "data", "why"),
    [
        ("%k:%s\\n", b"no colon\n", "no ':' after %k"),
        ("<%s>", b"[v]", "the record begins with '[', not '<'"),
        ("%S %s\\n", b"2 vvv\n", "%s is followed by 'v'"),
        ("%S %s\\n", b"9 v\n", "the input ends within %s"),
        ("%S %s\\n", b"x v\n", "%S must be a whole number from -1"),
        ("%p %s\\n", b"-1 v\n", "%p must be a whole number from 0"),
    ],
)
def test_what_is_no_record_is_named(template: str, data: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        InputTemplate(template, None).parse(data, 0, final=True)


@pytest.mark.parametrize("template", ["%p %T %K %S %h|%k%s\\n", "%p %T %k\\t%h\\t%s\\x00"])
def test_what_consume_prints_produce_reads(run: Any, topic: str, template: str) -> None:
    first, second = f"{topic}-first", f"{topic}-second"
    for name in (first, second):
        run("topic", "create", name, "-p", "2")
    records = [
        {"key": f"k{n}", "value": f"v\n{n}", "partition": n % 2, "timestamp": 1000 + n, "headers": []}
        for n in range(200)
    ]
    records[7]["headers"] = [{"name": "a", "value": "1"}, {"name": "b", "value": ""}]
    run("produce", first, "--format", "json", stdin="".join(json.dumps(each) + "\n" for each in records))
    printed = run("consume", first, "-t", template).stdout
    assert "wrote 200 records" in run("produce", second, "-t", template, stdin=printed).stderr
    was, now = (
        sorted(
            (json.loads(line) | {"topic": ""} for line in run("consume", name, "--json").stdout.splitlines()), key=str
        )
        for name in (first, second)
    )
    assert was == now


def test_a_bad_record_ends_the_command(run: Any, topic: str) -> None:
    run("topic", "create", topic, "-p", "1")
    said = run("produce", topic, "-t", "%p %s\\n", stdin="0 a\nx b\n", code=1).stderr
    assert "standard input record 2: %p must be a whole number" in said
    assert said.endswith("; the command wrote the record before it\n")
    run("produce", topic, "-t", "%k %s\\n", stdin="k last")
    assert run("consume", topic).stdout == "a\nlast\n"
    for options in (["--format", "json"], ["-k", ":"], ["--headers"], ["-D", ";"], ["--whole", __file__]):
        assert "--template" in run("produce", topic, "-t", "%s\\n", *options, stdin="", code=2).stderr
