"""A FileDescriptorSet for the tests, as protoc would write it: a proto3 file, a proto2 one, and what they import."""

from __future__ import annotations

from typing import Any

from google.protobuf import duration_pb2, timestamp_pb2
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

KINDS = {name.removeprefix("TYPE_").lower(): number for name, number in FieldDescriptorProto.Type.items()}
SCALARS = (
    "double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32",
    "sfixed64", "bool", "string", "bytes",
)  # fmt: skip


def add(message: Any, name: str, kind: str, label: str = "optional", **more: Any) -> Any:
    """A field of a message: a scalar type, or a message or enum by its full name, which begins with a dot."""
    what = {"type": KINDS[kind]} if kind in KINDS else {"type_name": kind}
    if kind.startswith("."):
        what["type"] = KINDS["enum" if kind.endswith("Colour") else "message"]
    number = len(message.field) + 1
    label_number = FieldDescriptorProto.Label.Value(f"LABEL_{label.upper()}")
    return message.field.add(name=name, number=number, label=label_number, **what, **more)


def add_map(message: Any, name: str, full_name: str, key: str, value: str) -> None:
    """A map's field, and the message of its entries, as protoc makes it."""
    entry = message.nested_type.add(name=f"{name.title()}Entry")
    entry.options.map_entry = True
    add(entry, "key", key)
    add(entry, "value", value)
    add(message, name, f".{full_name}.{entry.name}", "repeated")


def files() -> FileDescriptorSet:
    """Messages p.Row, p.Inner and those that cannot be decoded in proto3; q.Old in proto2."""
    row = FileDescriptorProto(name="row.proto", package="p", syntax="proto3")
    row.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/duration.proto"])
    colour = row.enum_type.add(name="Colour")
    for number, name in enumerate(["NONE", "RED", "GREEN"]):
        colour.value.add(name=name, number=number)
    inner = row.message_type.add(name="Inner")
    add(inner, "a", "int32")
    add(inner, "colours", ".p.Colour", "repeated")
    row.message_type.add(name="Empty")
    message: DescriptorProto = row.message_type.add(name="Row")
    for kind in SCALARS:
        add(message, f"f_{kind}", kind)
    for kind in SCALARS:
        add(message, f"r_{kind}", kind, "repeated")
    add(message, "colour", ".p.Colour")
    add(message, "inner", ".p.Inner")
    add(message, "inners", ".p.Inner", "repeated")
    add(message, "at", ".google.protobuf.Timestamp")
    add(message, "took", ".google.protobuf.Duration")
    add(message, "ats", ".google.protobuf.Timestamp", "repeated")
    add(message, "empty", ".p.Empty")
    add_map(message, "counts", "p.Row", "string", "int64")
    add_map(message, "by", "p.Row", "int32", ".p.Inner")
    for name, kind in (("said", "string"), ("meant", ".p.Inner")):
        add(message, name, kind, oneof_index=0)
    add(message, "maybe", "int32", proto3_optional=True, oneof_index=1)
    for name in ("what", "_maybe"):
        message.oneof_decl.add(name=name)
    node = row.message_type.add(name="Node")
    add(node, "next", ".p.Node")
    old = FileDescriptorProto(name="old.proto", package="q", syntax="proto2")
    message = old.message_type.add(name="Old")
    add(message, "id", "int32", "required")
    add(message, "text", "string")
    add(message, "level", "int32", default_value="7")
    add_map(message, "by", "q.Old", "string", ".q.Part")
    add(old.message_type.add(name="Part"), "must", "string", "required")
    found = FileDescriptorSet()
    # not in the order in which they import each other
    found.file.extend([row, old])
    for known in (timestamp_pb2, duration_pb2):
        known.DESCRIPTOR.CopyToProto(found.file.add())
    return found


def message_class(name: str) -> Any:
    """A message's class, to write values with."""
    pool = DescriptorPool()
    for file in reversed(files().file):
        pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName(name))
