"""Protobuf values: parsed by Google's library by the message's description, made columns field by field.

Types and nulls are those of Spark's `from_protobuf` with its default options. A scalar field without presence (proto3
without `optional`) is null where it has its default, as nothing on the wire tells that from an unset one; one with
presence is null where it is unset, or its default where the description declares one (proto2). Repeated fields and
maps are empty where they are unset, never null. Unsigned numbers are the signed ones of the same bits; an enum is the
name of its symbol; messages called Timestamp and Duration with fields seconds and nanos are times; messages without
fields are left out. A message that contains itself is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter, methodcaller
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace.spark.columns import Build, list_column, map_column, plain
from headrace.spark.schemas import DURATION, TIMESTAMP, list_of, map_of, struct_of
from headrace.spark.values import MalformedError, as_hex, in_pieces, spread

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor  # type: ignore[import-untyped]

PROTOBUF_ROWS: Final = 64 * 1024
"""Messages made a column at once."""
_SECOND_US: Final = 1_000_000
_BY_CPP_TYPE: Final = {
    "INT32": pa.int32(), "INT64": pa.int64(), "UINT32": pa.int32(), "UINT64": pa.int64(), "DOUBLE": pa.float64(),
    "FLOAT": pa.float32(), "BOOL": pa.bool_(), "STRING": pa.string(),
}  # fmt: skip
_UNSIGNED: Final = {"UINT32": pa.uint32(), "UINT64": pa.uint64()}


class ProtobufDecoder:
    """Values that are each one message."""

    def __init__(self, message: str, descriptors: bytes, only: str | None = None) -> None:
        """`descriptors` is a FileDescriptorSet; `only` names the one field that is wanted, where not all are."""
        from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
        from google.protobuf.message_factory import GetMessageClass  # type: ignore[import-untyped]

        described = _described(message, descriptors)
        fields = _Walk().fields(described, ())
        wanted = {name: field for name, field in fields.items() if only in (None, name)}
        self.type, self._build = _message_column(wanted)
        self._parse: Callable[[bytes], Any] = GetMessageClass(described).FromString
        self._has_required = _has_required(described, set())
        self._decode_error = DecodeError

    def decode(self, values: pa.Array) -> pa.Array:
        items = values.to_pylist()
        try:
            messages: list[Any] = list(map(self._parse, items))
        except self._decode_error:
            messages = [self._parsed(item) for item in items]
        if self._has_required:
            messages = [each if each is not None and each.IsInitialized() else None for each in messages]
        if None not in messages:
            return self._column(messages)
        sound = pa.array([message is not None for message in messages], pa.bool_())
        return spread(self._column([message for message in messages if message is not None]), sound)

    def why(self, value: pa.Array) -> str:
        try:
            message = self._parse(value[0].as_py())
        except self._decode_error:
            return "it is not such a message"
        if missing := message.FindInitializationErrors():
            return f"its field {missing[0]} is missing"
        try:
            self._made([message])
        except MalformedError as error:
            return str(error)
        raise ValueError("nothing is wrong with the value")

    def shown(self, values: pa.Array) -> pa.Array:
        return as_hex(values)

    def _parsed(self, item: bytes) -> Any:
        try:
            return self._parse(item)
        except self._decode_error:
            return None

    def _column(self, messages: list[Any]) -> pa.Array:
        return in_pieces(len(messages), PROTOBUF_ROWS, lambda low, high: self._made(messages[low:high]), self.type)

    def _made(self, messages: list[Any]) -> pa.Array:
        try:
            return self._build(messages)
        except (pa.ArrowException, OverflowError, UnicodeDecodeError) as error:
            raise MalformedError(f"it does not fit the message ({error})") from None


def protobuf_type(message: str, descriptors: bytes) -> pa.StructType:
    """The fields of a message that a FileDescriptorSet describes. Raises ValueError with a reason for a sentence."""
    fields = _Walk().fields(_described(message, descriptors), ())
    if not fields:
        raise ValueError(f"{message} has no fields")
    return _message_column(fields)[0]


def indexes_bytes(body: bytes) -> int | None:
    """How long the indexes behind a schema registry's header are; None where they do not end.

    They say which message of the schema's file a value is, and are not looked at: a count, and so many numbers, each a
    varint whose lowest bit is the sign.
    """
    if body.startswith(b"\x00"):
        # the first message of its file, as nearly always
        return 1
    found = _varint(body, 0)
    if found is None or found[0] & 1:
        return None
    left, at = found[0] >> 1, found[1]
    for _ in range(left):
        if (found := _varint(body, at)) is None:
            return None
        at = found[1]
    return at


def _varint(body: bytes, at: int) -> tuple[int, int] | None:
    """The number that begins there, and the place behind it."""
    number = 0
    for place, byte in enumerate(body[at : at + 10]):
        number |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return number, at + place + 1
    return None


def _described(message: str, descriptors: bytes) -> Descriptor:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet  # type: ignore[import-untyped]
    from google.protobuf.descriptor_pool import DescriptorPool  # type: ignore[import-untyped]
    from google.protobuf.message import DecodeError

    try:
        files = FileDescriptorSet.FromString(descriptors).file
    except DecodeError:
        raise ValueError("the file is not a FileDescriptorSet, as protoc --descriptor_set_out writes it") from None
    there = {file.name: file for file in files}
    pool = DescriptorPool()
    added: set[str] = set()

    def add(name: str, importer: str) -> None:
        if name in added:
            return
        added.add(name)
        if name not in there:
            raise ValueError(f"the file lacks {name}, which {importer} imports (protoc --include_imports)")
        for imported in there[name].dependency:
            add(imported, name)
        try:
            pool.AddSerializedFile(there[name].SerializeToString())
        except TypeError:
            raise ValueError(f"{name} in it is not a valid descriptor") from None

    for name in there:
        add(name, "")
    prefixed = [(f"{file.package}." if file.package else "", file) for file in files]
    names = [prefix + each.name for prefix, file in prefixed for each in file.message_type]
    found = [name for name in names if message in (name, name.rpartition(".")[2])]
    try:
        return pool.FindMessageTypeByName(found[0] if message not in names and len(found) == 1 else message)
    except KeyError:
        raise ValueError(f"there is no message {message!r}; there are {', '.join(names) or 'none'}") from None


def _has_required(message: Descriptor, seen: set[str]) -> bool:
    """Whether a message, or one within it, has fields that must be there (proto2)."""
    if message.full_name in seen:
        return False
    seen.add(message.full_name)
    return any(
        field.is_required or (field.message_type is not None and _has_required(field.message_type, seen))
        for field in message.fields
    )


_Field = tuple[pa.DataType, Build]
"""A field's type, and its column of the messages that have it."""


class _Walk:
    """One pass over a message's description."""

    def fields(self, message: Descriptor, inside: tuple[str, ...]) -> dict[str, _Field]:
        """The fields by their names, without those that hold messages without fields."""
        if message.full_name in inside:
            raise ValueError(f"{message.full_name} contains itself, and Spark has no type for that")
        inside = (*inside, message.full_name)
        fields = {field.name: self._field(field, inside) for field in message.fields}
        return {name: field for name, field in fields.items() if field is not None}

    def _field(self, field: FieldDescriptor, inside: tuple[str, ...]) -> _Field | None:
        get = attrgetter(field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            entry = field.message_type.fields_by_name
            key, value = self._item(entry["key"], inside), self._item(entry["value"], inside)
            if key is None or value is None:
                return None
            kind = map_of(key[0], value[0])
            return kind, _gotten(get, map_column(kind, key[1], value[1]))
        item = self._item(field, inside)
        if item is None:
            return None
        kind, build = item
        if field.is_repeated:
            kind = list_of(kind)
            return kind, _gotten(get, list_column(kind, build))
        if field.message_type is not None:
            return kind, _present(field.name, get, build)
        if not field.has_presence:
            return kind, _gotten(get, _nothing_null(build, field))
        return kind, _gotten(get, build) if field.has_default_value else _present(field.name, get, build)

    def _item(self, field: FieldDescriptor, inside: tuple[str, ...]) -> _Field | None:
        """What a field holds, or each item of one that is repeated."""
        if field.message_type is not None:
            if (span := _span_of(field.message_type)) is not None:
                return span, lambda messages: _spans(messages, span)
            fields = self.fields(field.message_type, inside)
            return _message_column(fields) if fields else None
        if field.enum_type is not None:
            names = _Names(field.enum_type)
            return pa.string(), lambda numbers: pa.array(map(names.__getitem__, numbers), pa.string())
        what = _cpp_type(field)
        if what in _UNSIGNED:
            return _BY_CPP_TYPE[what], lambda items: pa.array(items, _UNSIGNED[what]).view(_BY_CPP_TYPE[what])
        kind = pa.binary() if field.type == field.TYPE_BYTES else _BY_CPP_TYPE[what]
        return kind, plain(kind)


def _cpp_type(field: FieldDescriptor) -> str:
    names = ("INT32", "INT64", "UINT32", "UINT64", "DOUBLE", "FLOAT", "BOOL", "STRING")
    return next(name for name in names if field.cpp_type == getattr(field, f"CPPTYPE_{name}"))


def _message_column(fields: dict[str, _Field]) -> _Field:
    kind = struct_of([pa.field(name, each) for name, (each, _) in fields.items()])
    builds = [build for _, build in fields.values()]
    inner = list(kind)
    return kind, lambda messages: pa.StructArray.from_arrays([build(messages) for build in builds], fields=inner)


def _gotten(get: Callable[[Any], Any], build: Build) -> Build:
    return lambda messages: build(list(map(get, messages)))


def _present(name: str, get: Callable[[Any], Any], build: Build) -> Build:
    """A field that messages have or have not."""
    has = methodcaller("HasField", name)

    def column(messages: list[Any]) -> pa.Array:
        present = pa.array(map(has, messages), pa.bool_())
        if present.true_count == len(messages):
            return build(list(map(get, messages)))
        return spread(build([get(message) for message in messages if has(message)]), present)

    return column


def _nothing_null(build: Build, field: FieldDescriptor) -> Build:
    """A scalar field without presence: null where it is its default."""
    what = field.cpp_type
    default = field.default_value

    def column(items: list[Any]) -> pa.Array:
        made = build(items)
        if field.enum_type is not None:
            something = pa.array([item != default for item in items], pa.bool_())
        elif what == field.CPPTYPE_STRING:
            something = pc.greater(pc.binary_length(made), 0)
        elif what == field.CPPTYPE_BOOL:
            something = made
        else:
            # by its bits: -0.0 was written, and is no default
            bits = {8: pa.int64(), 4: pa.int32()}[made.type.bit_width // 8]
            something = pc.not_equal(made.view(bits), 0)
        return made if something.true_count == len(made) else pc.if_else(something, made, pa.scalar(None, made.type))

    return column


def _span_of(message: Descriptor) -> pa.DataType | None:
    """Timestamp and Duration, known as Spark knows them: by the name alone and the two fields."""
    if [field.name for field in message.fields] != ["seconds", "nanos"]:
        return None
    return {"Timestamp": TIMESTAMP, "Duration": DURATION}.get(message.name)


def _spans(messages: Iterable[Any], kind: pa.DataType) -> pa.Array:
    messages = list(messages)
    seconds = pa.array([message.seconds for message in messages], pa.int64())
    nanos = pa.array([message.nanos for message in messages], pa.int64())
    return pc.add_checked(pc.multiply_checked(seconds, _SECOND_US), pc.divide(nanos, 1000)).view(kind)


class _Names(dict[int, str]):
    """An enum's symbols by their numbers, the first of several; one that is unknown is called as in Java."""

    def __init__(self, enum: EnumDescriptor) -> None:
        super().__init__({value.number: value.name for value in reversed(enum.values)})
        self._enum = enum.name

    def __missing__(self, number: int) -> str:
        return f"UNKNOWN_ENUM_VALUE_{self._enum}_{number}"
