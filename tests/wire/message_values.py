"""Values of every message in every version, made from the schema and a string of bytes that Hypothesis shrinks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

from tools.codegen.__main__ import ROOT, not_generated
from tools.codegen.layout import ModulePlan, is_optional_struct, struct_of
from tools.codegen.modules import bounds, message_module
from tools.codegen.schema import Field, Message, load

SCHEMA = ROOT / "schema"
INTEGERS = {"int8": (8, True), "int16": (16, True), "int32": (32, True), "int64": (64, True)} | {
    "uint16": (16, False),
    "uint32": (32, False),
}
TEXTS = ("", "a", "flights", "grüße-€-𐍈", "x" * 126, "y" * 127, "z" * 300)
BLOBS = (b"", b"\0", b"abc", bytes(range(256)), b"r" * 1025, b"q" * 17_000)
COUNTS = (0, 1, 2, 3)
Pick = Callable[[str], tuple[Any, ...] | None]


class Choices:
    """Answers questions from a string of bytes; once it is used up every answer is the first one."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def below(self, count: int) -> int:
        if self.at >= len(self.data):
            return 0
        self.at += 1
        return self.data[self.at - 1] % count

    def of(self, values: tuple[Any, ...]) -> Any:
        return values[self.below(len(values))]

    def number(self, size: int) -> int:
        taken = self.data[self.at : self.at + size]
        self.at += size
        return int.from_bytes(taken, "big")


@cache
def plans() -> dict[str, tuple[ModulePlan, Message]]:
    """Every message that exists, by name."""
    found = {}
    for file in load(SCHEMA):
        plan = ModulePlan(file)
        for message in plan.messages:
            found[message.name] = (plan, message)
    return found


def names() -> list[str]:
    return list(plans())


def message_class(name: str) -> Any:
    plan, _ = plans()[name]
    return getattr(_module(plan), name)


def versions(name: str) -> range:
    low, high = bounds(plans()[name][1])
    return range(low, high + 1)


def _module(plan: ModulePlan) -> ModuleType:
    """The module of a schema file: the committed one, or one compiled here where none is committed."""
    if plan.file.module in _left_out():
        return _compiled(plan.file.module)
    return import_module(f"headrace.wire.messages.{plan.file.module}")


@cache
def _left_out() -> frozenset[str]:
    return not_generated(load(SCHEMA), (SCHEMA / "not_generated.txt").read_text("utf-8"))


@cache
def _compiled(name: str) -> ModuleType:
    file = next(file for file in load(SCHEMA) if file.module == name)
    text = message_module(file, file.path.name)
    assert text is not None
    module = ModuleType(f"compiled.{name}")
    exec(compile(text, f"{name}.py", "exec"), module.__dict__)
    return module


def value(name: str, version: int, choices: Choices, pick: Pick | None = None) -> Any:
    """A message that the version can say in full. `pick` may limit the values of a field, given the path to it."""
    plan, message = plans()[name]
    return _Maker(plan, message, version, choices, pick).struct(getattr(_module(plan), name), message.fields, "")


class _Maker:
    def __init__(self, plan: ModulePlan, message: Message, version: int, choices: Choices, pick: Pick | None) -> None:
        self.plan = plan
        self.message = message
        self.version = version
        self.choices = choices
        self.pick = pick

    def struct(self, cls: Any, fields: list[Field], path: str) -> Any:
        made = cls()
        for item in present(fields, self.version):
            setattr(made, item.name, self.field(item, path + item.name))
        return made

    def field(self, item: Field, path: str) -> Any:
        here = self.version
        if item.nullable is not None and item.nullable.within(here, here) and self.choices.below(3) == 1:
            return None
        if item.array:
            count = self.choices.of(COUNTS if item.is_struct else (*COUNTS, 17, 130))
            return [self.one(item, path) for _ in range(count)]
        made = self.one(item, path)
        if is_optional_struct(item) and made == type(made)():
            return None  # all defaults: not sent, and read as None
        return made

    def one(self, item: Field, path: str) -> Any:
        if item.is_struct:
            cls = getattr(_module(self.plan), self.plan.class_of(self.message, item.type))
            return self.struct(cls, struct_of(self.message, item).fields, path + ".")
        limited = self.pick(path) if self.pick else None
        if limited is not None:
            return self.choices.of(limited)
        return self.primitive(item.type)

    def primitive(self, kind: str) -> Any:
        if kind in INTEGERS:
            bits, signed = INTEGERS[kind]
            low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
            inside = self.choices.number(bits // 8) + low
            return self.choices.of((0, 1, -1 if signed else 2, low, high, inside, inside))
        if kind == "bool":
            return self.choices.below(2) == 1
        if kind == "float64":
            return self.choices.of((0.0, 1.5, -2.25e300))
        if kind == "uuid":
            return self.choices.of((bytes(16), bytes(range(16)), b"\xff" * 16))
        if kind == "string":
            return self.choices.of(TEXTS)
        return self.choices.of(BLOBS)


def present(fields: list[Field], version: int) -> Iterator[Field]:
    """The fields that a version has."""
    return (item for item in fields if item.versions.within(version, version))
