"""Another codec as the judge: kio, generated from Kafka's schemas by people who know nothing of ours.

What we encode kio decodes to the same values, and what kio encodes from those is what we encoded, for every message and
version that both know. Fields are matched by their place: kio drops units from some names.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pkgutil import resolve_name
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.serial._implicit_defaults import get_tagged_field_default
from wire.message_values import Choices, Pick, message_class, names, plans, present, value, versions

from tools.codegen.layout import struct_of
from tools.codegen.schema import Field

EPOCH = datetime.fromtimestamp(0, tz=UTC)
FEW = settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
MANY = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
CODES = tuple(int(code) for code in ErrorCode)
# kio turns these into Python's own types of time and error, which hold less than the integers on the wire.
LIMITED: dict[str, tuple[int, ...]] = {
    "error_code": CODES,
    "timedelta_i32": (0, 1, 1000, 2**31 - 1, -1),
    "timedelta_i64": (0, 1, 1000, 86_400_000_000, -1),
    "datetime_i64": (0, 1, 1_357_016_400_123),
}


@cache
def known() -> dict[str, dict[int, str]]:
    """What kio has of our messages: class name -> version -> where its class is."""
    found: dict[str, dict[int, str]] = {}
    for by_version in schema_name_map.values():
        for version, by_type in by_version.items():
            for place in by_type.values():
                name = place.rpartition(":")[2]
                if name in plans() and version in versions(name):
                    found.setdefault(name, {})[version] = place
    return found


def other_names() -> list[str]:
    return sorted(known())


OUR_OWN = "Headrace"
"""How the messages are named that Kafka has not."""
NEWER_THAN_KIO = {
    "ApiVersions": {5},
    "DeleteGroups": {3},
    "StreamsGroupDescribe": {1},
    "StreamsGroupHeartbeat": {1},
    "StreamsGroupTopologyDescriptionUpdate": {0},
    "TxnOffsetCommit": {6},
    "UnregisterController": {0},
}


def test_kio_knows_all_but_the_newest() -> None:
    missing: dict[str, set[int]] = {}
    for name in names():
        if name.endswith(("Request", "Response")) and not name.startswith(OUR_OWN):
            unknown = set(versions(name)) - known().get(name, {}).keys()
            if unknown:
                missing.setdefault(name.removesuffix("Request").removesuffix("Response"), set()).update(unknown)
    assert missing == NEWER_THAN_KIO
    assert sum(len(by_version) for by_version in known().values()) >= 625


@pytest.mark.parametrize("name", other_names())
@FEW
@given(data=st.binary(max_size=400))
@example(data=b"")
@example(data=bytes(range(1, 250)))
def test_same_bytes_and_values(name: str, data: bytes) -> None:
    same_bytes_and_values(name, data)


@pytest.mark.slow
@pytest.mark.parametrize("name", other_names())
@MANY
@given(data=st.binary(max_size=2000))
def test_same_bytes_and_values_at_length(name: str, data: bytes) -> None:
    same_bytes_and_values(name, data)


def same_bytes_and_values(name: str, data: bytes) -> None:
    for version, place in known()[name].items():
        theirs = resolve_name(place)
        ours = value(name, version, Choices(data), limits(name, version, theirs))
        encoded = ours.encode(version)
        decoded, size = entity_reader(theirs)(encoded, 0)
        assert size == len(encoded)
        compare(decoded, ours, name, version)
        with io.BytesIO() as buffer:
            entity_writer(theirs)(buffer, decoded)
            encoded_by_kio = buffer.getvalue()
        assert encoded_by_kio == encoded
        assert message_class(name).decode(encoded_by_kio, version) == ours


def limits(name: str, version: int, theirs: Any) -> Pick:
    """The values that kio can hold, by the path to a field."""
    _, message = plans()[name]
    kinds: dict[str, str] = {}

    def visit(items: list[Field], cls: Any, path: str) -> None:
        for item, field in zip(present(items, version), fields(cls), strict=True):
            if item.is_struct:
                visit(struct_of(message, item).fields, inner_class(field.type), f"{path}{item.name}.")
            else:
                kinds[path + item.name] = field.metadata["kafka_type"]

    visit(message.fields, theirs, "")
    return lambda path: LIMITED.get(kinds.get(path, ""))


def inner_class(annotation: Any) -> Any:
    """The dataclass inside `X`, `X | None` or `tuple[X, ...]`."""
    if is_dataclass(annotation):
        return annotation
    return next(found for part in annotation.__args__ if (found := inner_class_or_none(part)))


def inner_class_or_none(annotation: Any) -> Any:
    return inner_class(annotation) if is_dataclass(annotation) or hasattr(annotation, "__args__") else None


def compare(theirs: Any, ours: Any, name: str, version: int) -> None:
    _, message = plans()[name]
    for path, one, other in pairs(theirs, ours, message.fields, version, name):
        assert one == other, f"{path} in version {version}"


def pairs(theirs: Any, ours: Any, items: list[Field], version: int, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Every value below, kio's and ours, with the path to it."""
    _, message = plans()[path.partition(".")[0]]
    for item, field in zip(present(items, version), fields(theirs), strict=True):
        here = f"{path}.{item.name}"
        assert item.name.startswith(field.name) or field.name.replace("_", "") == item.name.replace("_", ""), here
        one, other = getattr(theirs, field.name), getattr(ours, item.name)
        if not item.is_struct:
            if item.array and one is not None and other is not None:
                one, other = [plain(each, item.type) for each in one], list(other)
            yield here, plain(one, "" if item.array else item.type), other  # a null array is no null id
            continue
        if other is None and one is not None:
            assert one == get_tagged_field_default(field), here
            continue
        if not item.array:
            one, other = [] if one is None else [one], [] if other is None else [other]
        yield f"{here} (null)", one is None, other is None
        yield f"{here} (count)", len(one or ()), len(other or ())
        for left, right in zip(one or (), other or (), strict=True):
            yield from pairs(left, right, struct_of(message, item).fields, version, here)


def plain(one: Any, kind: str = "") -> Any:
    """kio's value as ours would be."""
    if isinstance(one, UUID):
        return one.bytes
    if one is None and kind == "uuid":
        return bytes(16)
    if isinstance(one, timedelta):
        return one // timedelta(milliseconds=1)
    if isinstance(one, datetime):
        return (one - EPOCH) // timedelta(milliseconds=1)
    return one
