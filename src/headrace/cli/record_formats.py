"""How `headrace consume` prints a record: as text, by a template, as JSON, as hex, or for a person at a terminal."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.options import parse_separator
from headrace.cli.output import time_text

if TYPE_CHECKING:
    from headrace.wire.records import Record

TIMESTAMP_TYPES = ("create", "log-append")

LETTERS = (
    "%t topic, %p partition, %o offset, %k key, %K its length, %s value, %S its length, %R its length as 4 bytes, "
    "%T timestamp in ms, %h headers, %% a percent sign; \\n and \\t as usual"
)
"""What a template may hold."""

Formatter = Callable[[str, int, "Record", int], bytes]
"""Takes the topic, the partition, the record and the kind of its timestamp."""


def text_format(separator: bytes | None, headers: bool, null: bytes) -> Formatter:
    """Returns a format of one line a record: headers and a tab, the key and `separator`, the value."""

    def text_line(_topic: str, _partition: int, record: Record, _kind: int) -> bytes:
        parts = []
        if headers:
            joined = b",".join(
                name.encode() if value is None else name.encode() + b"=" + value for name, value in record.headers
            )
            parts += [joined, b"\t"]
        if separator is not None:
            parts += [null if record.key is None else record.key, separator]
        parts += [null if record.value is None else record.value, b"\n"]
        return b"".join(parts)

    return text_line


def template_format(template: str, null: bytes, option: str = "--template") -> Formatter:
    """Returns the format that a template in kcat's letters describes. Raises BadParameter for a letter that is none."""

    def headers_of(record: Record) -> bytes:
        pairs = ((name.encode(), b"NULL" if value is None else value) for name, value in record.headers)
        return b",".join(name + b"=" + value for name, value in pairs)

    def size_of(data: bytes | None) -> int:
        return -1 if data is None else len(data)

    letters: dict[bytes, Formatter] = {
        b"t": lambda topic, _partition, _record, _kind: topic.encode(),
        b"p": lambda _topic, partition, _record, _kind: b"%d" % partition,
        b"o": lambda _topic, _partition, record, _kind: b"%d" % record.offset,
        b"k": lambda _topic, _partition, record, _kind: null if record.key is None else record.key,
        b"K": lambda _topic, _partition, record, _kind: b"%d" % size_of(record.key),
        b"s": lambda _topic, _partition, record, _kind: null if record.value is None else record.value,
        b"S": lambda _topic, _partition, record, _kind: b"%d" % size_of(record.value),
        b"R": lambda _topic, _partition, record, _kind: size_of(record.value).to_bytes(4, "big", signed=True),
        b"T": lambda _topic, _partition, record, _kind: b"%d" % record.timestamp,
        b"h": lambda _topic, _partition, record, _kind: headers_of(record),
    }
    text = re.split(rb"%(.?)", parse_separator(template, option), flags=re.DOTALL)
    pieces: list[bytes | Formatter] = [text[0]]
    for letter, after in zip(text[1::2], text[2::2], strict=True):
        if letter != b"%" and letter not in letters:
            unknown = letter.decode(errors="replace")
            raise click.BadParameter(f"%{unknown} is not a letter of templates: {LETTERS}", param_hint=option)
        pieces += [letters.get(letter, b"%"), after]

    def filled_in(topic: str, partition: int, record: Record, kind: int) -> bytes:
        return b"".join(
            each if isinstance(each, bytes) else each(topic, partition, record, kind) for each in pieces if each
        )

    return filled_in


def reading_format(null: bytes) -> Formatter:
    """Returns the format for a person: when, where, key and value, and headers if there are any."""

    def line(topic: str, partition: int, record: Record, _kind: int) -> bytes:
        where = f"{time_text(record.timestamp)}  {topic}[{partition}]@{record.offset}  ".encode()
        key = b"" if record.key is None else record.key + b": "
        headers = b"".join(
            b"  " + name.encode() + (b"" if value is None else b"=" + value) for name, value in record.headers
        )
        return where + key + (null or b"(null)" if record.value is None else record.value) + headers + b"\n"

    return line


_OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Characters that a terminal obeys: all controls (C0, C1) but tab and newline."""


def for_terminals(formatter: Formatter, escape: str) -> Formatter:
    """Returns a format that escapes binary data and control characters."""

    def line(topic: str, partition: int, record: Record, kind: int) -> bytes:
        text = formatter(topic, partition, record, kind).decode(errors="backslashreplace")
        return _OBEYED.sub(lambda found: escape.format(ord(found[0])), text).encode()

    return line


def json_line(topic: str, partition: int, record: Record, kind: int) -> bytes:
    """Returns what `produce --format json` reads: text where it is UTF-8, else base64 under another name."""
    found: dict[str, Any] = {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestamp_type": TIMESTAMP_TYPES[kind],
        **_json_bytes("key", record.key),
        **_json_bytes("value", record.value),
        "headers": [{"name": name, **_json_bytes("value", value)} for name, value in record.headers],
    }
    return json.dumps(found, ensure_ascii=False).encode() + b"\n"


def _json_bytes(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def hex_line(topic: str, partition: int, record: Record, _kind: int) -> bytes:
    """Returns place, time, key, value and headers, bytes in hex."""
    key = "-" if record.key is None else record.key.hex() or '""'
    value = "-" if record.value is None else record.value.hex() or '""'
    headers = "".join(f" {name}={'-' if data is None else data.hex()}" for name, data in record.headers)
    where = f"{topic}/{partition}/{record.offset} {time_text(record.timestamp)}"
    return f"{where} key {key} value {value}{headers}\n".encode()
