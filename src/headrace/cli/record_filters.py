"""Which records `headrace consume` prints: by key, by headers, by what the value contains."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from headrace.wire.records import Record

Filter = Callable[["Record"], bool]


def record_filter(key: str | None, headers: Iterable[str], pattern: str | None) -> Filter | None:
    """Returns a filter that takes the records with this key, all of these headers, and a value that `pattern` finds.

    A header is `NAME`, with any value, or `NAME=VALUE`. Returns None if nothing is filtered. Raises BadParameter for a
    pattern that is no regular expression.
    """
    wanted_key = None if key is None else key.encode(errors="surrogateescape")
    wanted = [
        (name, value.encode(errors="surrogateescape") if equals else None)
        for name, equals, value in map(_parted, headers)
    ]
    try:
        found = None if pattern is None else re.compile(pattern.encode(errors="surrogateescape"))
    except re.error as error:
        raise click.BadParameter(f"{pattern!r} is not a regular expression: {error}", param_hint="--grep") from error
    if wanted_key is None and not wanted and found is None:
        return None

    def takes(record: Record) -> bool:
        if wanted_key is not None and record.key != wanted_key:
            return False
        if any(not _has(record, name, value) for name, value in wanted):
            return False
        return found is None or (record.value is not None and found.search(record.value) is not None)

    return takes


def _parted(text: str) -> tuple[str, str, str]:
    return text.partition("=")


def _has(record: Record, name: str, value: bytes | None) -> bool:
    return any(each == name and value in (None, data) for each, data in record.headers)
