"""The one format of a row in a record: how each kind of value is written as JSON, and read again.

A key is the text of its column, or a JSON object of several; a value is a JSON object with a field for each column, or
null where the row is deleted. docs/pipelines.md states the format. A reader takes what the JSON parser found, and gives
what Arrow takes for the type: days for dates, microseconds for times. A writer does the reverse.
"""

from __future__ import annotations

import json
import re
from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal, InvalidOperation
from math import isinf, isnan
from typing import Any, Final, NoReturn

import pyarrow as pa

from headrace_pipelines.tables.layout import JSON, type_name
from headrace_pipelines.tables.times import (
    days_of,
    days_within,
    micros_of,
    micros_within,
    text_of_days,
    text_of_micros,
)

NAN: Final = "NaN"
INFINITY: Final = "Infinity"
_SPECIAL: Final = {NAN: float("nan"), INFINITY: float("inf"), f"-{INFINITY}": float("-inf")}
_FLOAT32_END: Final = 2.0**128 - 2.0**103
"""Where a number rounds to infinity."""
_SPACE: Final = re.compile(r"[ \t\n\r]*")
_INTEGER: Final = re.compile(r"\s*[+-]?[0-9]{1,4000}\s*", re.ASCII)
_FLOAT: Final = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)
_ESCAPED_NUL: Final = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_ESCAPED_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_LONG_EXPONENT: Final = re.compile(r"[eE][+-]?0*[0-9]{4}")
_NUMERIC_DIGITS: Final = 131_072
"""Digits before the point that PostgreSQL's numbers have."""
_NUMERIC_SCALE: Final = 16_383
"""And behind it."""
_SHOWN_CHARS: Final = 40

Read = Callable[[Any], Any]
"""What Arrow takes, from an item of JSON that is not null. Raises `UnfitError`."""
Write = Callable[[Any], str]
"""JSON, from what `Read` gives."""


class UnfitError(Exception):
    """A key or a value that is none of a table's; the text goes into a sentence."""


class Number(str):
    """A number of JSON with a fraction or an exponent, as it is written."""

    __slots__ = ()


def _integer(text: str) -> int | Number:
    # an integer has no zero below zero, and a number with a fraction has
    return Number(text) if text == "-0" else int(text)


def _refuse_constant(text: str) -> NoReturn:
    raise UnfitError(f"{text} is not JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise UnfitError("an object has a field twice")
    return found


# Arrow's reader, which most values are read by, takes characters of control as they are
# Python's integers are not read from thousands of digits
_ANY: Final = json.JSONDecoder(strict=False, parse_constant=_refuse_constant, parse_float=Number, parse_int=Number)
_TYPED: Final = json.JSONDecoder(
    strict=False, parse_constant=_refuse_constant, parse_float=Number, parse_int=_integer, object_pairs_hook=_object
)


def scanned(decoder: json.JSONDecoder, text: str, at: int) -> tuple[Any, int]:
    """The item that begins at a place of a text, and where it ends. Raises `UnfitError`."""
    try:
        return decoder.raw_decode(text, at)
    except RecursionError:
        raise UnfitError("it is nested too deeply") from None
    except ValueError:
        raise UnfitError("it is not JSON") from None


def fields_of(text: str, kinds: Mapping[str, pa.DataType]) -> dict[str, Any]:
    """The fields of these names of a JSON object; a field of any JSON as its text. Raises `UnfitError`."""
    at = _space(text, 0)
    if not text.startswith("{", at):
        raise UnfitError("it is not a JSON object")
    at = _space(text, at + 1)
    found: dict[str, Any] = {}
    if text.startswith("}", at):
        at += 1
    else:
        while True:
            name, at = scanned(_ANY, text, at)
            at = _space(text, at)
            if type(name) is not str or not text.startswith(":", at):
                raise UnfitError("it is not JSON")
            begin = _space(text, at + 1)
            kind = kinds.get(name)
            item, at = scanned(_ANY if kind is None or kind == JSON else _TYPED, text, begin)
            if kind is not None:
                if name in found:
                    raise UnfitError(f"it has the field {name!r} twice")
                found[name] = text[begin:at] if kind == JSON and item is not None else item
            at = _space(text, at)
            if text.startswith("}", at):
                at += 1
                break
            if not text.startswith(",", at):
                raise UnfitError("it is not JSON")
            at = _space(text, at + 1)
    if _space(text, at) != len(text):
        raise UnfitError("more text follows the JSON object")
    return found


def _space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None, "none is white space too"
    return found.end()


# -- reading


@dataclass(frozen=True, slots=True)
class Limits:
    """What a table can hold."""

    nul: bool = True
    """A NUL in a text; and in JSON any number, which PostgreSQL has not either."""
    endless: bool = True
    """A time without end."""


def reader(kind: pa.DataType, limits: Limits) -> Read:
    """How a column of this type is read."""
    if pa.types.is_struct(kind):
        inner = [(field.name, reader(field.type, limits)) for field in kind]
        return lambda item: _struct(_of(dict, item, kind), inner)
    if pa.types.is_list(kind):
        each = reader(kind.value_type, limits)
        return lambda item: [None if one is None else each(one) for one in _of(list, item, kind)]
    if pa.types.is_map(kind):
        named, each = reader(kind.key_type, limits), reader(kind.item_type, limits)
        return lambda item: [
            (named(name), None if one is None else each(one)) for name, one in _of(dict, item, kind).items()
        ]
    if kind == JSON:
        return _json if limits.nul else _json_without_nul
    if kind == pa.string():
        return _text if limits.nul else _text_without_nul
    if pa.types.is_temporal(kind) and not limits.endless:
        within = days_within if pa.types.is_date(kind) else micros_within
        return lambda item: within(_found(_plain(kind, item), item, kind))
    return lambda item: _found(_plain(kind, item), item, kind)


def _of(python: type, item: Any, kind: pa.DataType) -> Any:
    return item if type(item) is python else _unfit(item, kind)


def _found(found: Any, item: Any, kind: pa.DataType) -> Any:
    return _unfit(item, kind) if found is None else found


def _unfit(item: Any, kind: pa.DataType) -> NoReturn:
    shown = str(item) if isinstance(item, Number) else repr(item)
    shown = shown if len(shown) <= _SHOWN_CHARS else f"{shown[:_SHOWN_CHARS]}..."
    raise UnfitError(f"{shown} is not of type {type_name(kind)}")


def _struct(item: dict[str, Any], fields: list[tuple[str, Read]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, inner in fields:
        one = item.get(name)
        found[name] = None if one is None else inner(one)
    return found


def _text(item: Any) -> str:
    if type(item) is not str:
        _unfit(item, pa.string())
    if not item.isascii():
        try:
            item.encode()
        except UnicodeEncodeError:
            raise UnfitError("a text has half of a surrogate pair") from None
    return item


def _text_without_nul(item: Any) -> str:
    if "\0" in (text := _text(item)):
        raise UnfitError("a text has a NUL")
    return text


def _json(text: str) -> str:
    if _ESCAPED_SURROGATE.search(text):
        try:
            json.dumps(scanned(_ANY, text, 0)[0], ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise UnfitError("a text has half of a surrogate pair") from None
    return text


def _json_without_nul(text: str) -> str:
    if _ESCAPED_NUL.search(text):
        raise UnfitError("a text has a NUL")
    if len(text) > _NUMERIC_SCALE or _LONG_EXPONENT.search(text):
        scanned(_NUMERIC, text, 0)
    return _json(text)


def _numeric(text: str) -> None:
    """Whether a number is one of PostgreSQL's."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        number = Decimal(f"1e{_NUMERIC_DIGITS}")
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int), "JSON has only finite numbers"
    if exponent < -_NUMERIC_SCALE or (number and number.adjusted() >= _NUMERIC_DIGITS):
        raise UnfitError("a number has more digits than PostgreSQL holds")


_NUMERIC: Final = json.JSONDecoder(strict=False, parse_float=_numeric, parse_int=_numeric)


def _plain(kind: pa.DataType, item: Any) -> Any:
    """A single value; None where the item is none."""
    if pa.types.is_boolean(kind):
        # SQLite has no truths but 0 and 1
        return item if type(item) is bool else {0: False, 1: True}.get(item) if type(item) is int else None
    if pa.types.is_integer(kind):
        item = 0 if type(item) is Number and item == "-0" else item
        end = 1 << (kind.bit_width - 1)
        return item if type(item) is int and -end <= item < end else None
    if pa.types.is_floating(kind):
        return _float(item, _FLOAT32_END if kind == pa.float32() else float("inf"))
    if pa.types.is_decimal(kind):
        return None if type(item) is bool or not isinstance(item, (int, str)) else _decimal(item, kind)
    if type(item) is not str:
        return None
    if pa.types.is_date(kind):
        return days_of(item)
    if pa.types.is_timestamp(kind):
        return micros_of(item)
    assert pa.types.is_binary(kind), kind
    return _bytes(item)


def _float(item: Any, end: float) -> float | None:
    if type(item) is str:
        return _SPECIAL.get(item)
    if type(item) not in (int, Number):
        return None
    try:
        number = float(item)
    except OverflowError:
        return None
    return number if abs(number) < end else None


def _decimal(item: int | str, kind: pa.Decimal128Type) -> Decimal | None:
    try:
        number = Decimal(item)
        fitting = number.quantize(Decimal(1).scaleb(-kind.scale), context=Context(prec=kind.precision))
    except (InvalidOperation, ValueError):
        return None
    return fitting if fitting == number else None


def _bytes(text: str) -> bytes | None:
    """Base64, or what PostgreSQL itself writes within arrays and rows, `\\x` and hexadecimal digits."""
    try:
        if text.startswith("\\x"):
            return bytes.fromhex(text[2:])
        return a2b_base64("".join(text.split()), strict_mode=True)
    except (Base64Error, ValueError):
        return None


def text_item(text: str, kind: pa.DataType) -> Any:
    """What a key that is text would be in JSON: numbers and truths are not between quotation marks there."""
    if pa.types.is_integer(kind):
        return int(text) if _INTEGER.fullmatch(text) else text
    if pa.types.is_floating(kind):
        return Number(text.strip()) if _FLOAT.fullmatch(text) else text
    if pa.types.is_boolean(kind):
        return {"true": True, "false": False, "1": True, "0": False}.get(text.strip().lower(), text)
    return text


# -- writing


def writer(kind: pa.DataType) -> Write:
    """How a value of this type is written."""
    if pa.types.is_struct(kind):
        inner = [(field.name, text_of(field.name), writer(field.type)) for field in kind]
        return lambda item: _joined("{}", [f"{head}:{_or_null(item[name], each)}" for name, head, each in inner])
    if pa.types.is_list(kind):
        each = writer(kind.value_type)
        return lambda item: _joined("[]", [_or_null(one, each) for one in item])
    if pa.types.is_map(kind):
        each = writer(kind.item_type)
        return lambda item: _joined("{}", [f"{text_of(name)}:{_or_null(one, each)}" for name, one in item])
    if kind == pa.string():
        return text_of
    if pa.types.is_boolean(kind):
        return lambda item: "true" if item else "false"
    if pa.types.is_floating(kind):
        return float_text
    if pa.types.is_decimal(kind):
        return lambda item: format(item, "f")
    if pa.types.is_date(kind):
        return lambda item: text_of(text_of_days(item))
    if pa.types.is_timestamp(kind):
        return lambda item: text_of(text_of_micros(item, zoned=kind.tz is not None))
    if pa.types.is_binary(kind):
        return lambda item: text_of(base64_of(item))
    return str


def _or_null(item: Any, write: Write) -> str:
    return "null" if item is None else write(item)


def _joined(brackets: str, parts: list[str]) -> str:
    return f"{brackets[0]}{','.join(parts)}{brackets[1]}"


def text_of(text: str) -> str:
    """A text as JSON."""
    return json.dumps(text, ensure_ascii=False)


def float_text(number: float) -> str:
    """A number as JSON: the shortest digits that give it again, and a text where there are none."""
    if isnan(number):
        return text_of(NAN)
    if isinf(number):
        return text_of(INFINITY if number > 0 else f"-{INFINITY}")
    return repr(number)


def base64_of(data: bytes) -> str:
    """Bytes in Base64, padded, in one line."""
    return b2a_base64(data, newline=False).decode()


def is_json(text: str) -> bool:
    """Whether a text is JSON, nothing before or behind it but white space."""
    try:
        _, at = scanned(_ANY, text, _space(text, 0))
    except UnfitError:
        return False
    return _space(text, at) == len(text)
