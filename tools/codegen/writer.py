"""A writer of indented Python lines that also notes which precompiled formats and names the lines use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tools.codegen.layout import format_name, struct_format


class Writer:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 0
        self.formats: dict[str, str] = {}  # name -> the right side of its assignment
        self.imports: set[str] = set()
        self._names: dict[str, int] = {}

    def line(self, text: str = "") -> None:
        self.lines.append("    " * self.depth + text if text else "")

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.line(head)
        self.depth += 1
        yield
        self.depth -= 1

    def use(self, name: str) -> str:
        """`name`, to be imported from wire.primitives."""
        self.imports.add(name)
        return name

    def fresh(self, name: str) -> str:
        """A local name not used yet in this function."""
        count = self._names.get(name, 0)
        self._names[name] = count + 1
        return name if count == 0 else f"{name}_{count + 1}"

    def new_function(self) -> None:
        self._names = {}

    def reader(self, formats: list[str]) -> str:
        return self._format("read", formats, "unpack_from")

    def packer(self, formats: list[str]) -> str:
        return self._format("pack", formats, "pack")

    def _format(self, verb: str, formats: list[str], method: str) -> str:
        name = f"_{verb}_{format_name(formats)}"
        self.formats[name] = f'Struct("{struct_format(formats)}").{method}'
        return name
