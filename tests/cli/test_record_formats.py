"""What `consume` prints of one record, by a template and for a person."""

from __future__ import annotations

import click
import pytest

from headrace.cli.record_formats import for_terminals, reading_format, template_format
from headrace.wire.records import Record

FULL = Record(
    offset=5, timestamp=1_700_000_000_123, key=b"k", value=b"value", headers=[("a", b"1"), ("b", None), ("c", b"")]
)
NULLS = Record(offset=6, timestamp=1_700_000_000_124, key=None, value=None, headers=[])


@pytest.mark.parametrize(
    ("template", "full", "nulls"),
    [
        ("%t [%p] @%o %k: %s\\n", b"orders [2] @5 k: value\n", b"orders [2] @6 : \n"),
        ("%K,%S,%T,%h", b"1,5,1700000000123,a=1,b=NULL,c=", b"-1,-1,1700000000124,"),
        ("%R", b"\0\0\0\x05", b"\xff\xff\xff\xff"),
        ("100%%\\t\\x41", b"100%\tA", b"100%\tA"),
        ("", b"", b""),
    ],
)
def test_a_template(template: str, full: bytes, nulls: bytes) -> None:
    line = template_format(template, b"")
    assert (line("orders", 2, FULL, 0), line("orders", 2, NULLS, 0)) == (full, nulls)


def test_nulls_are_printed_as_asked_for() -> None:
    assert template_format("%k=%s", b"NULL")("orders", 0, NULLS, 0) == b"NULL=NULL"


@pytest.mark.parametrize("template", ["%x", "%", "ends with %", "%\n"])
def test_a_letter_that_is_none_is_refused(template: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a letter of templates: %t topic"):
        template_format(template, b"")


def test_a_person_reads_when_and_where() -> None:
    line = reading_format(b"")
    assert line("orders", 2, FULL, 0).endswith(b"  orders[2]@5  k: value  a=1  b  c=\n")
    assert line("orders", 2, NULLS, 0).endswith(b"  orders[2]@6  (null)\n")


def test_a_terminal_gets_no_control_characters() -> None:
    record = Record(offset=0, timestamp=0, key=b"\x1b[2J", value=b"\xff\n", headers=[])
    line = for_terminals(reading_format(b""), "\\x{:02x}")("orders", 0, record, 0)
    assert line.endswith(b"\\x1b[2J: \\xff\n\n")
