"""The schema notation: what a schema file says, and its parser. docs/formats/messages.md describes the notation."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

FIXED_TYPES = ("bool", "int8", "int16", "int32", "int64", "uint16", "uint32", "float64", "uuid")
VARIABLE_TYPES = ("string", "bytes", "records")
FLAGS = ("ignorable", "key", "copyless", "classic")
OWN_KEYS_FROM = 19_900
"""APIs from here on are Headrace's own. Apache Kafka's keys are below 100, and grow by some a year; Confluent's own
begin at 10,000, which is why proxies let keys up to 20,000 pass."""
MESSAGE_KINDS = ("request", "response", "record", "coordinator-key", "coordinator-value", "data", "header")


class SchemaError(Exception):
    """A schema file that does not say what it should; the message names the file and the line."""


@dataclass(frozen=True)
class Versions:
    """A range of versions, both ends included; `high` None means "and all later ones"."""

    low: int
    high: int | None

    @classmethod
    def parse(cls, text: str) -> Versions:
        match = re.fullmatch(r"(\d+)(\+|-(\d+))?", text)
        if match is None:
            raise SchemaError(f"not a version range: {text}")
        low = int(match[1])
        if match[2] == "+":
            return cls(low, None)
        return cls(low, int(match[3]) if match[3] else low)

    def __str__(self) -> str:
        if self.high is None:
            return f"{self.low}+"
        return str(self.low) if self.high == self.low else f"{self.low}-{self.high}"

    def within(self, low: int, high: int) -> tuple[int, int] | None:
        """The part of this range inside `low`..`high`, or None where nothing is left."""
        start = max(low, self.low)
        end = high if self.high is None else min(high, self.high)
        return (start, end) if start <= end else None


ALWAYS = Versions(0, None)


@dataclass
class Field:
    """One field of a message or struct."""

    name: str
    type: str  # a fixed or variable type, or the name of a struct
    array: bool = False
    versions: Versions = ALWAYS
    nullable: Versions | None = None
    tag: int | None = None
    default: str | None = None  # as written; None where nothing is written
    flags: frozenset[str] = frozenset()
    comment: str = ""  # what it means, for readers

    @property
    def is_struct(self) -> bool:
        return self.type not in FIXED_TYPES and self.type not in VARIABLE_TYPES

    @property
    def is_fixed(self) -> bool:
        return not self.array and self.type in FIXED_TYPES

    @property
    def ignorable(self) -> bool:
        return "ignorable" in self.flags


@dataclass
class Struct:
    """A named group of fields, declared in place under a field or apart with `struct`."""

    name: str
    versions: Versions
    fields: list[Field] = field(default_factory=list)


@dataclass
class Message:
    """One message: a request, a response, or a record that is kept in a log or a file."""

    kind: str
    name: str
    key: int | None
    versions: Versions | None  # None: the message exists no more in any version
    flexible: Versions | None
    purpose: str
    fields: list[Field] = field(default_factory=list)
    structs: dict[str, Struct] = field(default_factory=dict)


@dataclass
class SchemaFile:
    """One file of the schema: an API with its request and response, or a family of records."""

    path: Path
    key: int | None
    name: str
    listeners: tuple[str, ...]
    latest_unstable: bool
    purpose: str
    messages: list[Message]

    @property
    def module(self) -> str:
        return f"k{self.key:02d}_{self.name}" if self.key is not None else self.name


def parse_file(path: Path) -> SchemaFile:
    """Reads one schema file; raises SchemaError, naming the line."""
    parsed = SchemaFile(path, None, path.stem, (), False, "", [])
    comment = ""
    of_field: list[str] = []
    blocks: list[tuple[int, list[Field]]] = []
    for number, raw in enumerate(path.read_text("utf-8").splitlines(), 1):
        line = raw.rstrip()
        try:
            if not line:
                continue
            if line.startswith("#"):
                comment = line.lstrip("# ")
            elif line.lstrip().startswith("#"):
                of_field.append(line.lstrip("# "))
            elif not line.startswith(" "):
                if of_field:
                    raise SchemaError(f"not a comment on a field: {of_field[-1]}")
                blocks = _head(parsed, line, comment)
                comment = ""
            else:
                _body(parsed.messages[-1], line, " ".join(of_field), blocks)
                of_field.clear()
        except (SchemaError, IndexError, ValueError) as error:
            raise SchemaError(f"{path.name}:{number}: {error}: {line.strip()}") from error
    if of_field:
        raise SchemaError(f"{path.name}: not a comment on a field: {of_field[-1]}")
    return parsed


def _head(parsed: SchemaFile, line: str, comment: str) -> list[tuple[int, list[Field]]]:
    """A line that starts at the margin: the API, its listeners, or a message."""
    words = line.split()
    if words[0] == "api":
        parsed.key, parsed.name, parsed.purpose = int(words[1]), words[2], comment
        if f"{parsed.key:02d}_{parsed.name}" != parsed.path.stem:
            raise SchemaError("the file is not named after its API")
    elif words[0] == "records":
        parsed.name, parsed.purpose = words[1], comment
    elif words[0] == "listeners":
        parsed.listeners = tuple(words[1:])
    elif line == "latest version unstable":
        parsed.latest_unstable = True
    elif words[0] in MESSAGE_KINDS:
        parsed.messages.append(_message(parsed, words, comment))
        return [(0, parsed.messages[-1].fields)]
    else:
        raise SchemaError("unknown word")
    return []


def _message(parsed: SchemaFile, words: list[str], comment: str) -> Message:
    if not comment:
        raise SchemaError("a message needs a line above it that says its purpose")
    key = parsed.key
    if words[0] in ("record", "coordinator-key", "coordinator-value"):
        key = int(words.pop(1))
    versions = None if words[2] == "none" else Versions.parse(words[2])
    flexible = None
    if len(words) == 5 and words[3] == "flexible":
        flexible = Versions.parse(words[4])
    elif len(words) != 3:
        raise SchemaError("a message is: kind, name, versions, and perhaps flexible with versions")
    return Message(words[0], words[1], key, versions, flexible, comment)


def _body(message: Message, line: str, comment: str, blocks: list[tuple[int, list[Field]]]) -> None:
    """An indented line: a field with the comment above it, or the head of a struct that stands apart."""
    indent = len(line) - len(line.lstrip())
    while blocks[-1][0] >= indent:
        blocks.pop()
    words = line.split()
    if words[0] == "struct":
        if comment:
            raise SchemaError("a struct has no comment; its fields have")
        struct = Struct(words[1], Versions.parse(words[2]) if len(words) > 2 else ALWAYS)
        if struct.name in message.structs:
            raise SchemaError("the struct is declared twice")
        message.structs[struct.name] = struct
        blocks.append((indent, struct.fields))
        return
    parsed = _field(words)
    parsed.comment = comment
    blocks[-1][1].append(parsed)
    if parsed.is_struct:
        # Fields may follow in place; where none do, the struct stands apart and is looked up by name.
        blocks.append((indent, _InPlace(message, parsed)))


class _InPlace(list[Field]):
    """The fields below a field of struct type; the struct comes into being with the first of them."""

    def __init__(self, message: Message, owner: Field) -> None:
        super().__init__()
        self.message = message
        self.owner = owner

    def append(self, item: Field) -> None:
        if not self:
            if self.owner.type in self.message.structs:
                raise SchemaError(f"{self.owner.type} is declared twice")
            self.message.structs[self.owner.type] = Struct(self.owner.type, self.owner.versions, self)
        super().append(item)


def _field(words: list[str]) -> Field:
    name, kind, rest = words[0], words[1], words[2:]
    parsed = Field(name, kind)
    everywhere_nullable = kind.endswith("?")
    if everywhere_nullable:
        kind = kind[:-1]
    if kind.startswith("["):
        parsed.array, kind = True, kind[1:-1]
    parsed.type = kind
    if rest and rest[0][0].isdigit():
        parsed.versions = Versions.parse(rest.pop(0))
    if everywhere_nullable:
        parsed.nullable = parsed.versions
    flags = set()
    while rest:
        word = rest.pop(0)
        if word == "null":
            parsed.nullable = Versions.parse(rest.pop(0))
        elif word == "tag":
            parsed.tag = int(rest.pop(0))
        elif word == "=":
            parsed.default = rest.pop(0)
        elif word in FLAGS:
            flags.add(word)
        else:
            raise SchemaError(f"unknown word {word}")
    parsed.flags = frozenset(flags)
    return parsed


def load(folder: Path) -> list[SchemaFile]:
    """Every schema file below `folder`, APIs first, in a fixed order."""
    apis = [parse_file(path) for path in sorted((folder / "messages").glob("*.txt"))]
    apis.sort(key=lambda file: -1 if file.key is None else file.key)
    return apis + [parse_file(path) for path in sorted((folder / "records").glob("*.txt"))]
