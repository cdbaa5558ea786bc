"""Names and Python types of what is generated: which classes a module has, what their fields are called and hold."""

from __future__ import annotations

import keyword
from dataclasses import dataclass

from tools.codegen.schema import Field, Message, SchemaError, SchemaFile, Struct

PYTHON_TYPES = {
    "bool": "bool",
    "int8": "int",
    "int16": "int",
    "int32": "int",
    "int64": "int",
    "uint16": "int",
    "uint32": "int",
    "float64": "float",
    "uuid": "bytes",
    "string": "str",
    "bytes": "bytes",
    "records": "Records",
}
FORMATS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint16": "H",
    "uint32": "I",
    "float64": "d",
    "uuid": "16s",
}
SIZES = {"?": 1, "b": 1, "B": 1, "h": 2, "H": 2, "i": 4, "I": 4, "q": 8, "d": 8, "16s": 16, "x": 1}


@dataclass
class ClassPlan:
    """A class to write: its name, its fields and the structs by which to look their types up."""

    name: str
    fields: list[Field]
    message: Message
    is_message: bool


class ModulePlan:
    """Which classes a module has. Two structs of one name share a class where their fields hold the same; where they do
    not, in an API the response's is called `Response<Name>`, and in a family of records each is `<Message><Name>`."""

    def __init__(self, file: SchemaFile) -> None:
        self.file = file
        self.messages = [message for message in file.messages if message.versions is not None]
        self.names: dict[tuple[str, str], str] = {}  # (message, struct) -> class
        self._name_structs()
        self.classes = self._ordered_classes()

    def class_of(self, message: Message, struct: str) -> str:
        return self.names[message.name, struct]

    def _name_structs(self) -> None:
        shapes: dict[str, list[tuple[object, list[Message]]]] = {}
        for message in self.messages:
            for name in message.structs:
                known = shapes.setdefault(name, [])
                shape = self._shape(message, name)
                for other, users in known:
                    if other == shape:
                        users.append(message)
                        break
                else:
                    known.append((shape, [message]))
        for name, known in shapes.items():
            for place, (_, users) in enumerate(known):
                for user in users:
                    self.names[user.name, name] = self._class_name(name, place, len(known), user)

    def _class_name(self, name: str, place: int, count: int, user: Message) -> str:
        if count == 1:
            return name
        if self.file.key is not None:
            return name if place == 0 else f"Response{name}"
        stem = user.name
        for ending in ("Record", "Value", "Key"):
            stem = stem.removesuffix(ending)
        return stem + name

    def _shape(self, message: Message, name: str) -> object:
        return tuple(
            (
                item.name,
                item.type if not item.is_struct else self._shape(message, item.type),
                item.array,
                item.nullable is not None,
                item.tag is not None and item.is_struct,
                default_of(item),
            )
            for item in message.structs[name].fields
        )

    def _ordered_classes(self) -> list[ClassPlan]:
        """Structs before those that hold them, in the order in which the schema names them."""
        done: dict[str, ClassPlan] = {}

        def visit(message: Message, fields: list[Field]) -> None:
            for item in fields:
                if not item.is_struct:
                    continue
                struct = struct_of(message, item)
                visit(message, struct.fields)
                name = self.class_of(message, item.type)
                if name not in done:
                    done[name] = ClassPlan(name, struct.fields, message, is_message=False)

        for message in self.messages:
            visit(message, message.fields)
            if message.name in done:
                raise SchemaError(f"{message.name} is both a message and a struct")
            done[message.name] = ClassPlan(message.name, message.fields, message, is_message=True)
        return list(done.values())

    def type_of(self, message: Message, item: Field) -> str:
        """The annotation of a field."""
        base = self.class_of(message, item.type) if item.is_struct else PYTHON_TYPES[item.type]
        if item.array:
            base = f"list[{base}]"
        return base + " | None" if may_be_none(item) and base != "Records" else base

    def default_of(self, message: Message, item: Field) -> str:
        """The default as an expression; a struct is called by the name of its class."""
        default = default_of(item)
        return (
            default
            if default == "None" or not item.is_struct or item.array
            else f"{self.class_of(message, item.type)}()"
        )


def struct_of(message: Message, item: Field) -> Struct:
    try:
        return message.structs[item.type]
    except KeyError:
        raise SchemaError(f"{message.name}.{item.name}: there is no type {item.type}") from None


def field_lists(message: Message) -> list[list[Field]]:
    """The fields of the message itself and of each of its structs."""
    return [message.fields, *(struct.fields for struct in message.structs.values())]


def carries_records(message: Message) -> bool:
    return any(item.type == "records" for fields in field_lists(message) for item in fields)


def may_be_none(item: Field) -> bool:
    """Nullable ones, and tagged structs that are not: there None says "all defaults", as an absent tag does."""
    return item.nullable is not None or is_optional_struct(item) or item.type == "records"


def is_optional_struct(item: Field) -> bool:
    """A tagged struct that cannot be null."""
    return item.is_struct and not item.array and item.tag is not None and item.nullable is None


def default_of(item: Field) -> str:
    """The default as a Python expression. Where the schema says none it is zero, empty, or for records null."""
    if keyword.iskeyword(item.name):
        raise SchemaError(f"{item.name} is a Python keyword")
    if item.default == "null" or is_optional_struct(item) or item.type == "records":
        return "None"
    if item.array:
        return "[]"
    if item.is_struct:
        return f"{item.type}()"
    if item.type == "string":
        return item.default or '""'
    if item.type == "bytes":
        return 'b""'
    if item.type == "uuid":
        return "ZERO"
    if item.type == "bool":
        return str(item.default == "true")
    if item.type == "float64":
        return str(float(item.default or 0))
    return str(int(item.default or "0", 0))


def struct_format(formats: list[str]) -> str:
    return ">" + "".join(formats)


def format_name(formats: list[str]) -> str:
    """A format as part of an identifier: ? is `o`, a uuid is `u`."""
    return "".join({"?": "o", "16s": "u"}.get(one, one) for one in formats)
