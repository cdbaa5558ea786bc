"""Writes straight-line decoders. Runs of fixed-size fields, with the length that follows them, become one unpack.

The bounds: a slice never reaches beyond the buffer, every count is paid for from the bytes that remain before its
elements are read (`left`), and the end of the message is compared with the end of the buffer once, at the end.
"""

from __future__ import annotations

from dataclasses import dataclass

from tools.codegen.layout import FORMATS, SIZES, ModulePlan, field_lists, struct_of
from tools.codegen.schema import Field, Message, SchemaError
from tools.codegen.writer import Writer


@dataclass
class Scope:
    """Where we are: an object under construction, and the versions that can get here."""

    target: str
    path: str
    low: int
    high: int

    def narrowed(self, low: int, high: int) -> Scope:
        return Scope(self.target, self.path, low, high)


class DecoderWriter:
    def __init__(self, writer: Writer, plan: ModulePlan, message: Message) -> None:
        self.w = writer
        self.plan = plan
        self.message = message
        self.flexible = False

    def body(self, target: str, low: int, high: int, flexible: bool) -> None:
        self.flexible = flexible
        self.fields(self.message.fields, Scope(target, "", low, high))

    def uses_counts(self) -> bool:
        return any(item.array for fields in field_lists(self.message) for item in fields)

    # --- the fields of one struct

    def fields(self, fields: list[Field], scope: Scope) -> None:
        plain = [item for item in fields if item.tag is None]
        present = []
        for item in plain:
            if item.versions.within(scope.low, scope.high) is None:
                self.default(item, scope)
            else:
                present.append(item)
        tagged = sorted((item for item in fields if item.tag is not None), key=lambda item: item.tag or 0)
        for item in tagged:
            self.default(item, scope)
        self.sequence(present, scope, with_tags=self.flexible)
        if self.flexible:
            known = [item for item in tagged if item.versions.within(scope.low, scope.high)]
            self.tags(known, scope)

    def default(self, item: Field, scope: Scope) -> None:
        value = self.plan.default_of(self.message, item)
        if value == "ZERO":
            self.w.use("ZERO")
        self.w.line(f"{scope.target}.{item.name} = {value}")

    def sequence(self, items: list[Field], scope: Scope, with_tags: bool = False) -> None:
        run: list[Field] = []
        place = 0
        while place < len(items):
            item = items[place]
            reach = item.versions.within(scope.low, scope.high)
            assert reach is not None
            if item.is_fixed:
                run.append(item)
                place += 1
            elif reach == (scope.low, scope.high):
                if item.is_struct and not item.array and item.nullable is None:
                    self.run(run, None, scope)
                    self.struct(item, scope)
                else:
                    self.run(run, self.prefix(item), scope)
                    self.variable(item, scope)
                run = []
                place += 1
            else:
                self.run(run, None, scope)
                run = []
                place = self.conditional(items, place, reach, scope)
        self.run(run, "B" if with_tags else None, scope)

    def conditional(self, items: list[Field], place: int, reach: tuple[int, int], scope: Scope) -> int:
        """Fields from `place` on that exist in the versions of `reach` alone; returns where they end."""
        group = []
        while place < len(items) and items[place].versions.within(scope.low, scope.high) == reach:
            group.append(items[place])
            place += 1
        with self.w.block(f"if {version_test(reach, scope)}:"):
            self.sequence(group, scope.narrowed(*reach))
        with self.w.block("else:"):
            for item in group:
                self.default(item, scope)
        return place

    def run(self, run: list[Field], end: str | None, scope: Scope) -> None:
        """Reads fixed-size fields and then, where `end` is a format, a length or count into `n`."""
        layouts: list[tuple[tuple[int, int], list[Field]]] = []
        for version in range(scope.low, scope.high + 1):
            here = [item for item in run if item.versions.within(version, version)]
            if layouts and layouts[-1][1] == here:
                layouts[-1] = ((layouts[-1][0][0], version), here)
            else:
                layouts.append(((version, version), here))
        if len(layouts) == 1:
            self.unpack(layouts[0][1], end, scope)
            return
        layouts.reverse()
        for place, ((low, _), here) in enumerate(layouts):
            test = f"version >= {low}:"
            head = "else:" if place == len(layouts) - 1 else f"if {test}" if place == 0 else f"elif {test}"
            with self.w.block(head):
                for item in run:
                    if item not in here:
                        self.default(item, scope)
                self.unpack(here, end, scope)
                if not here and end is None and all(item in here for item in run):
                    self.w.line("pass")

    def unpack(self, items: list[Field], end: str | None, scope: Scope) -> None:
        formats = [FORMATS[item.type] for item in items] + ([end] if end else [])
        targets = [f"{scope.target}.{item.name}" for item in items] + (["n"] if end else [])
        if not formats:
            return
        if formats == ["B"]:
            self.w.line("n = data[at]")
        elif len(formats) == 1:
            self.w.line(f"{targets[0]} = {self.w.reader(formats)}(data, at)[0]")
        else:
            self.w.line(f"{', '.join(targets)} = {self.w.reader(formats)}(data, at)")
        self.w.line(f"at += {sum(SIZES[one] for one in formats)}")

    def prefix(self, item: Field) -> str:
        """The format of what stands before a variable field."""
        if item.is_struct and not item.array:
            return "b"
        if self.flexible and "classic" not in item.flags:
            return "B"
        return "h" if item.type == "string" and not item.array else "i"

    # --- one variable field; its length, or the first byte of it, is in `n`

    def variable(self, item: Field, scope: Scope) -> None:
        path = f"{scope.path}{item.name}"
        target = f"{scope.target}.{item.name}"
        if item.array:
            self.array(item, path, target, scope)
        elif item.is_struct:
            with self.w.block("if n < 0:"):
                self.refuse_null(item, path, scope)
                self.w.line(f"{target} = None")
            with self.w.block("else:"):
                self.struct(item, scope)
        else:
            self.text_or_bytes(item, path, target, scope)

    def nullable(self, item: Field, scope: Scope) -> bool:
        return item.nullable is not None and item.nullable.within(scope.low, scope.high) is not None

    def refuse_null(self, item: Field, path: str, scope: Scope) -> None:
        """In the branch of a null: an error in the versions where null is not allowed."""
        assert item.nullable is not None
        reach = item.nullable.within(scope.low, scope.high)
        if reach is not None and reach != (scope.low, scope.high):
            with self.w.block(f"if not ({version_test(reach, scope)}):"):
                self.w.line(f'raise {self.w.use("DecodeError")}("{path} is null")')

    def text_or_bytes(self, item: Field, path: str, target: str, scope: Scope) -> None:
        """Short ones through a precompiled format, which copies them out of any kind of buffer fastest."""
        w = self.w
        if item.type == "records":
            self.records(item, path, target, scope)
            return
        compact = self.prefix(item) == "B"
        self.short(item.type, compact, f"{target} = {{}}")
        nullable = item.nullable and item.nullable.within(scope.low, scope.high)
        if nullable:
            test = "n == 0" if compact else "n == -1"
            if nullable != (scope.low, scope.high):
                test += f" and {version_test(nullable, scope)}"
            with w.block(f"elif {test}:"):
                w.line(f"{target} = None")
        with w.block("else:"):
            helper = w.use(f"{'long' if compact else 'classic'}_{item.type}")
            w.line(f'{target}, at = {helper}(data, at, n, "{path}")')

    def short(self, kind: str, compact: bool, statement: str) -> None:
        """The branch for a short string or bytes; `statement` says what to do with the value."""
        table = self.w.use("COMPACT" if compact else "CLASSIC")
        value = f"{table}[n](data, at)[0]" + (".decode()" if kind == "string" else "")
        with self.w.block("if 0 < n < 128:" if compact else "if 0 <= n < 128:"):
            self.w.line(statement.format(value))
            self.w.line("at += n - 1" if compact else "at += n")

    def records(self, item: Field, path: str, target: str, scope: Scope) -> None:
        """A view of the buffer. A length of two bytes is the usual one and is read in place."""
        w = self.w
        compact = self.prefix(item) == "B"
        null = "n == 0" if compact else "n == -1"
        if compact:
            with w.block("if n > 127:"):
                w.line("more = data[at]")
                with w.block("if 0 < more < 128:"):
                    w.line("n += (more << 7) - 128")
                    w.line("at += 1")
                with w.block("else:"):
                    w.line(f'n, at = {w.use("long_length")}(data, at, n, "{path}")')
        nullable = item.nullable and item.nullable.within(scope.low, scope.high)
        if nullable:
            if nullable != (scope.low, scope.high):
                null += f" and {version_test(nullable, scope)}"
            with w.block(f"if {null}:"):
                w.line(f"{target} = None")
        with w.block(
            "elif n <= 0:"
            if nullable and compact
            else "if n <= 0:"
            if compact
            else "elif n < 0:"
            if nullable
            else "if n < 0:"
        ):
            w.line(f'raise {w.use("DecodeError")}("{path} is null or has a negative length")')
        with w.block("else:"):
            w.line("end = at + n - 1" if compact else "end = at + n")
            w.line(f"{target} = view[at:end]")
            w.line("at = end")

    def struct(self, item: Field, scope: Scope) -> None:
        """A struct in place; a null in front of it has been dealt with."""
        name = self.w.fresh(item.name)
        self.w.line(f"{name} = {self.w.use('new')}({self.plan.class_of(self.message, item.type)})")
        inner = Scope(name, f"{scope.path}{item.name}.", scope.low, scope.high)
        self.fields(struct_of(self.message, item).fields, inner)
        self.w.line(f"{scope.target}.{item.name} = {name}")

    # --- arrays

    def array(self, item: Field, path: str, target: str, scope: Scope) -> None:
        w = self.w
        nullable = self.nullable(item, scope)
        compact = self.prefix(item) == "B"
        if compact:
            with w.block("if n > 127:" if nullable else "if not 0 < n < 128:"):
                w.line(f'n, at = {w.use("long_count")}(data, at, n, "{path}")')
        if nullable:
            with w.block("if n == 0:" if compact else "if n == -1:"):
                self.refuse_null(item, path, scope)
                w.line(f"{target} = None")
            with w.block("else:"):
                self.counted(item, path, target, scope, compact)
        else:
            self.counted(item, path, target, scope, compact)

    def counted(self, item: Field, path: str, target: str, scope: Scope, compact: bool) -> None:
        w = self.w
        if compact:
            w.line("n -= 1")
        else:
            with w.block(f"if not 0 <= n <= {w.use('MAX_ELEMENTS')}:"):
                w.line(f'raise {w.use("bad_count")}("{path}", n)')
        size = self.least_size(item, scope)
        w.line(f"left -= n * {size}" if size > 1 else "left -= n")
        with w.block("if left < 0:"):
            w.line(f'raise {w.use("bad_count")}("{path}", n)')
        if item.type in FORMATS:
            w.line(f"{target} = {w.use(f'read_{item.type}s')}(data, at, n)")
            w.line(f"at += n * {size}" if size > 1 else "at += n")
            return
        items = w.fresh(f"{item.name}_items")
        w.line(f"{items}: list[{self.element_type(item)}] = []")
        with w.block("for _ in range(n):"):
            self.element(item, path, items, scope)
        w.line(f"{target} = {items}")

    def element_type(self, item: Field) -> str:
        return self.plan.class_of(self.message, item.type) if item.is_struct else {"string": "str"}[item.type]

    def element(self, item: Field, path: str, items: str, scope: Scope) -> None:
        w = self.w
        if item.is_struct:
            name = w.fresh(f"{item.name}_item")
            w.line(f"{name} = {w.use('new')}({self.plan.class_of(self.message, item.type)})")
            inner = Scope(name, f"{path}.", scope.low, scope.high)
            self.fields(struct_of(self.message, item).fields, inner)
            w.line(f"{items}.append({name})")
            return
        self.run([], self.prefix(Field(item.name, item.type)), scope)
        self.short(item.type, self.flexible, f"{items}.append({{}})")
        with w.block("else:"):
            helper = w.use(f"{'long' if self.flexible else 'classic'}_{item.type}")
            w.line(f'text, at = {helper}(data, at, n, "{path}")')
            w.line(f"{items}.append(text)")

    def least_size(self, item: Field, scope: Scope) -> int:
        """The fewest bytes that one element can take."""
        if item.type in FORMATS:
            return SIZES[FORMATS[item.type]]
        if not item.is_struct:
            return 1 if self.flexible else 2
        size = min(
            self.struct_size(struct_of(self.message, item).fields, version)
            for version in range(scope.low, scope.high + 1)
        )
        if size == 0:
            raise SchemaError(f"{self.message.name}: an element of {item.name} takes no bytes")
        return size

    def struct_size(self, fields: list[Field], version: int) -> int:
        size = 1 if self.flexible else 0
        for item in fields:
            if item.tag is not None or item.versions.within(version, version) is None:
                continue
            if item.is_fixed:
                size += SIZES[FORMATS[item.type]]
            elif item.is_struct and not item.array and item.nullable is None:
                size += self.struct_size(struct_of(self.message, item).fields, version)
            else:
                size += SIZES[self.prefix(item)]
        return size

    # --- tagged fields; the first byte of their number is in `n`

    def tags(self, known: list[Field], scope: Scope) -> None:
        w = self.w
        if not known:
            with w.block("if n:"):
                w.line(f"at = {w.use('skip_tags')}(data, at, n)")
            return
        with w.block("if n:"):
            with w.block("if n > 127:"):
                w.line(f"n, at = {w.use('long_tag_count')}(data, at, n)")
            with w.block("for _ in range(n):"):
                w.line(f"tag, length, at = {w.use('read_tag')}(data, at)")
                for place, item in enumerate(known):
                    reach = item.versions.within(scope.low, scope.high)
                    assert reach is not None
                    test = f"tag == {item.tag}"
                    if reach != (scope.low, scope.high):
                        test += f" and {version_test(reach, scope)}"
                    with w.block(f"{'if' if place == 0 else 'elif'} {test}:"):
                        self.tagged(item, scope.narrowed(*reach))
                with w.block("else:"):
                    w.line("at += length")

    def tagged(self, item: Field, scope: Scope) -> None:
        if item.is_fixed:
            self.unpack([item], None, scope)
        elif item.is_struct and not item.array and item.nullable is None:
            self.struct(item, scope)
        elif item.is_struct and not item.array:
            # Unlike elsewhere, what stands before a nullable struct in a tag is a varint: 0 is null.
            self.w.line(f"n, at = {self.w.use('read_varint')}(data, at)")
            with self.w.block("if n == 0:"):
                self.w.line(f"{scope.target}.{item.name} = None")
            with self.w.block("else:"):
                self.struct(item, scope)
        else:
            self.run([], self.prefix(item), scope)
            self.variable(item, scope)


def version_test(reach: tuple[int, int], scope: Scope) -> str:
    """The test for `reach`, given that the version is within the scope."""
    low, high = reach
    if low == high:
        return f"version == {low}"
    if low == scope.low:
        return f"version <= {high}"
    if high == scope.high:
        return f"version >= {low}"
    return f"{low} <= version <= {high}"
