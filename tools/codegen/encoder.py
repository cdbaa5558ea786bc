"""Writes straight-line encoders, the mirror image of the decoders: a run of fixed-size fields and the length that
follows them become one pack. Where a message carries records, the output is cut into parts around them."""

from __future__ import annotations

from tools.codegen.decoder import Scope, version_test
from tools.codegen.layout import FORMATS, SIZES, ModulePlan, default_of, is_optional_struct, struct_of
from tools.codegen.schema import Field, Message
from tools.codegen.writer import Writer


class EncoderWriter:
    def __init__(self, writer: Writer, plan: ModulePlan, message: Message) -> None:
        self.w = writer
        self.plan = plan
        self.message = message
        self.flexible = False
        self.out = "out"

    def body(self, target: str, low: int, high: int, flexible: bool) -> None:
        self.flexible = flexible
        self.fields(self.message.fields, Scope(target, "", low, high))

    # --- the fields of one struct

    def fields(self, fields: list[Field], scope: Scope) -> None:
        for item in fields:
            self.refuse_lost(item, scope)
        plain = [item for item in fields if item.tag is None and item.versions.within(scope.low, scope.high)]
        tagged = [item for item in fields if item.tag is not None and item.versions.within(scope.low, scope.high)]
        tagged.sort(key=lambda item: item.tag or 0)
        self.sequence(plain, scope, tagged if self.flexible else None)

    def refuse_lost(self, item: Field, scope: Scope) -> None:
        """A value that this version cannot say is an error, unless the schema calls the field ignorable."""
        if item.ignorable:
            return
        reach = item.versions.within(scope.low, scope.high)
        if reach == (scope.low, scope.high):
            return
        test = self.differs(item, scope)
        if reach is not None:
            inverted = version_test(reach, scope)
            inverted = {"version >=": "version <", "version <=": "version >"}.get(inverted[:10], "") + inverted[10:]
            if not inverted.startswith("version"):
                inverted = f"not ({version_test(reach, scope)})"
            test = f"{inverted} and {test}"
        with self.w.block(f"if {test}:"):
            self.w.line(f'raise {self.w.use("not_in_version")}("{scope.path}{item.name}", version)')

    def differs(self, item: Field, scope: Scope) -> str:
        """The test for a value other than the default."""
        value = f"{scope.target}.{item.name}"
        default = default_of(item)
        if default == "None":
            return f"{value} is not None"
        if default == "[]" or default == '""' or default == 'b""':
            return f"{value} != {default}" if item.nullable is not None else value
        if default in ("False", "0"):
            return value if item.type == "bool" else f"{value} != 0"
        if default == "True":
            return f"not {value}"
        if default == "ZERO":
            self.w.use("ZERO")
        if item.is_struct:
            default = self.plan.default_of(self.message, item)
        return f"{value} != {default}"

    def sequence(self, items: list[Field], scope: Scope, tagged: list[Field] | None) -> None:
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
                self.variable(item, run, scope)
                run = []
                place += 1
            else:
                self.run(run, scope)
                run = []
                group = []
                while place < len(items) and items[place].versions.within(scope.low, scope.high) == reach:
                    group.append(items[place])
                    place += 1
                with self.w.block(f"if {version_test(reach, scope)}:"):
                    self.sequence(group, scope.narrowed(*reach), None)
        if tagged is None:
            self.run(run, scope)
        else:
            self.tags(tagged, run, scope)

    def run(self, run: list[Field], scope: Scope, end: str | None = None) -> None:
        """Writes fixed-size fields and what follows: `x` a zero byte, `B` the compact length in n, else n as it is."""
        layouts: list[tuple[int, list[Field]]] = []
        for version in range(scope.low, scope.high + 1):
            here = [item for item in run if item.versions.within(version, version)]
            if not layouts or layouts[-1][1] != here:
                layouts.append((version, here))
        layouts.reverse()
        if end is None and not layouts[-1][1]:
            layouts.pop()
        alone = len(layouts) == 1 and layouts[0][0] == scope.low
        for place, (low, here) in enumerate(layouts):
            if alone:
                self.pack(here, end, scope)
                break
            last = place == len(layouts) - 1 and low == scope.low
            test = f"version >= {low}:"
            with self.w.block("else:" if last else f"if {test}" if place == 0 else f"elif {test}"):
                self.pack(here, end, scope)
                if not here and end is None:
                    self.w.line("pass")

    def pack(self, items: list[Field], end: str | None, scope: Scope) -> None:
        w, out = self.w, self.out
        formats = [FORMATS[item.type] for item in items]
        values = [f"{scope.target}.{item.name}" for item in items]
        arguments = ", ".join(values)
        if end is None:
            if formats:
                w.line(f"{out} += {w.packer(formats)}({arguments})")
        elif end == "x":
            if formats:
                w.line(f"{out} += {w.packer([*formats, 'x'])}({arguments})")
            else:
                w.line(f"{out}.append(0)")
        elif end in ("B", "S"):
            long = w.use("long_varint" if end == "B" else "string_varint")
            if formats:
                with w.block("if n < 128:"):
                    w.line(f"{out} += {w.packer([*formats, 'B'])}({arguments}, n)")
                with w.block("else:"):
                    w.line(f"{out} += {w.packer(formats)}({arguments}) + {long}(n)")
            else:
                with w.block("if n < 128:"):
                    w.line(f"{out}.append(n)")
                with w.block("else:"):
                    w.line(f"{out} += {long}(n)")
        else:
            w.line(f"{out} += {w.packer([*formats, end])}({', '.join([*values, 'n'])})")

    # --- one variable field, after the run of fixed ones before it

    def variable(self, item: Field, run: list[Field], scope: Scope) -> None:
        if item.array:
            self.array(item, run, scope)
        elif item.is_struct:
            self.struct(item, run, scope)
        elif item.type == "records":
            self.records(item, run, scope)
        else:
            self.text_or_bytes(item, run, scope)

    def compact(self, item: Field) -> bool:
        return self.flexible and "classic" not in item.flags

    def refuse_null(self, item: Field, value: str, scope: Scope) -> None:
        """A null in the versions that do not allow it."""
        if item.nullable is None:
            return
        reach = item.nullable.within(scope.low, scope.high)
        if reach == (scope.low, scope.high):
            return
        test = f"{value} is None" + ("" if reach is None else f" and not ({version_test(reach, scope)})")
        with self.w.block(f"if {test}:"):
            self.w.line(f'raise {self.w.use("null_in_version")}("{scope.path}{item.name}", version)')

    def text_or_bytes(self, item: Field, run: list[Field], scope: Scope) -> None:
        w = self.w
        value = f"{scope.target}.{item.name}"
        encoded = f"{value}.encode()" if item.type == "string" else value
        compact = self.compact(item)
        self.refuse_null(item, value, scope)
        if item.nullable is not None:
            value_name = w.fresh(item.name)
            w.line(f"{value_name} = {value}")
            with w.block(f"if {value_name} is None:"):
                w.line('raw = b""')
                w.line(f"n = {0 if compact else -1}")
            with w.block("else:"):
                w.line(f"raw = {encoded.replace(value, value_name)}")
                w.line("n = len(raw) + 1" if compact else "n = len(raw)")
        else:
            w.line(f"raw = {encoded}")
            w.line("n = len(raw) + 1" if compact else "n = len(raw)")
        self.run(run, scope, self.end(item))
        w.line(f"{self.out} += raw")

    def end(self, item: Field) -> str:
        """The kind of length that stands before a variable field."""
        is_string = item.type == "string" and not item.array
        if self.compact(item):
            return "S" if is_string else "B"
        return "h" if is_string else "i"

    def records(self, item: Field, run: list[Field], scope: Scope) -> None:
        w = self.w
        value = f"{scope.target}.{item.name}"
        self.refuse_null(item, value, scope)
        compact = self.compact(item)
        name = w.fresh(item.name)
        w.line(f"{name} = {value}")
        with w.block(f"if {name} is None:"):
            if item.nullable is None:
                w.line(f'raise {w.use("null_in_version")}("{scope.path}{item.name}", version)')
            else:
                w.line(f"n = {0 if compact else -1}")
        plus = " + 1" if compact else ""
        with w.block(f"elif type({name}) is {w.use('FileSlice')}:"):
            w.line(f"n = {name}.size{plus}")
        with w.block("else:"):
            w.line(f"n = len({name}){plus}")
        self.run(run, scope, self.end(item))
        empty = "n > 1" if compact else "n > 0"
        with w.block(f"if {empty} and {name} is not None:" if item.nullable is not None else f"if {empty}:"):
            with w.block(f"if n <= {w.use('INLINE_BYTES')} and type({name}) is not {w.use('FileSlice')}:"):
                w.line(f"{self.out} += {name}")
            with w.block("else:"):
                w.line(f"parts.append({self.out})")
                w.line(f"parts.append({name})")
                w.line(f"{self.out} = bytearray()")

    def struct(self, item: Field, run: list[Field], scope: Scope) -> None:
        w = self.w
        value = f"{scope.target}.{item.name}"
        name = w.fresh(item.name)
        inner = Scope(name, f"{scope.path}{item.name}.", scope.low, scope.high)
        if item.nullable is None:
            self.run(run, scope)
            w.line(f"{name} = {value}")
            self.fields(struct_of(self.message, item).fields, inner)
            return
        self.refuse_null(item, value, scope)
        w.line(f"{name} = {value}")
        w.line(f"n = -1 if {name} is None else 1")
        self.run(run, scope, "b")
        with w.block(f"if {name} is not None:"):
            self.fields_or_pass(struct_of(self.message, item).fields, inner)

    def fields_or_pass(self, fields: list[Field], scope: Scope) -> None:
        before = len(self.w.lines)
        self.fields(fields, scope)
        if len(self.w.lines) == before:
            self.w.line("pass")

    def array(self, item: Field, run: list[Field], scope: Scope) -> None:
        w = self.w
        value = f"{scope.target}.{item.name}"
        self.refuse_null(item, value, scope)
        compact = self.compact(item)
        items = w.fresh(f"{item.name}_items")
        w.line(f"{items} = {value}")
        count = f"len({items}) + 1" if compact else f"len({items})"
        if item.nullable is not None:
            w.line(f"n = {0 if compact else -1} if {items} is None else {count}")
        else:
            w.line(f"n = {count}")
        self.run(run, scope, self.end(item))
        if item.type in FORMATS:
            with w.block(f"if {items}:"):
                w.line(f"{self.out} += {w.use(f'pack_{item.type}s')}({items})")
            return
        name = w.fresh(f"{item.name}_item")
        with w.block(f"for {name} in {items} or ():" if item.nullable is not None else f"for {name} in {items}:"):
            if item.is_struct:
                inner = Scope(name, f"{scope.path}{item.name}.", scope.low, scope.high)
                self.fields_or_pass(struct_of(self.message, item).fields, inner)
            else:
                w.line(f"raw = {name}.encode()")
                w.line("n = len(raw) + 1" if compact else "n = len(raw)")
                self.run([], scope, "S" if compact else "h")
                w.line(f"{self.out} += raw")

    # --- tagged fields, after the last run of plain ones

    def tags(self, tagged: list[Field], run: list[Field], scope: Scope) -> None:
        w = self.w
        if not tagged:
            self.run(run, scope, "x")
            return
        with w.block(f"if {' and '.join(self.is_default(item, scope) for item in tagged)}:"):
            self.run(run, scope, "x")
        with w.block("else:"):
            self.run(run, scope)
            outer = self.out
            tags, count = w.fresh("tags"), w.fresh("count")
            w.line(f"{tags} = bytearray()")
            w.line(f"{count} = 0")
            for item in tagged:
                self.tagged(item, scope, tags, count)
            self.out = outer
            assert max(len(tagged), *(item.tag or 0 for item in tagged)) < 128, "counts and tags of one byte"
            w.line(f"{outer}.append({count})")
            w.line(f"{outer} += {tags}")

    def is_default(self, item: Field, scope: Scope) -> str:
        differs = self.differs(item, scope)
        if " is not None" in differs:
            return differs.replace(" is not None", " is None")
        if " != " in differs:
            return differs.replace(" != ", " == ")
        return differs.removeprefix("not ") if differs.startswith("not ") else f"not {differs}"

    def tagged(self, item: Field, scope: Scope, tags: str, count: str) -> None:
        w = self.w
        reach = item.versions.within(scope.low, scope.high)
        assert reach is not None
        tests = [self.differs(item, scope)]
        if is_optional_struct(item):
            tests.append(f"{scope.target}.{item.name} != {self.plan.class_of(self.message, item.type)}()")
        if reach != (scope.low, scope.high):
            tests.insert(0, version_test(reach, scope))
        with w.block(f"if {' and '.join(tests)}:"):
            if item.is_fixed:
                kind = FORMATS[item.type]
                packer = w.packer(["B", "B", kind])
                w.line(f"{tags} += {packer}({item.tag}, {SIZES[kind]}, {scope.target}.{item.name})")
                w.line(f"{count} += 1")
                return
            self.out = w.fresh("tagged")
            w.line(f"{self.out} = bytearray()")
            if item.is_struct and not item.array and item.nullable is not None:
                self.nullable_struct_in_tag(item, scope.narrowed(*reach))
            else:
                self.variable(item, [], scope.narrowed(*reach))
            w.line(f"{tags}.append({item.tag})")
            w.line(f"{tags} += {w.use('varint')}(len({self.out}))")
            w.line(f"{tags} += {self.out}")
            w.line(f"{count} += 1")

    def nullable_struct_in_tag(self, item: Field, scope: Scope) -> None:
        """Unlike elsewhere, what stands before it is a varint: 0 is null, 1 is not."""
        name = self.w.fresh(item.name)
        self.w.line(f"{name} = {scope.target}.{item.name}")
        with self.w.block(f"if {name} is None:"):
            self.w.line(f"{self.out}.append(0)")
        with self.w.block("else:"):
            self.w.line(f"{self.out}.append(1)")
            inner = Scope(name, f"{scope.path}{item.name}.", scope.low, scope.high)
            self.fields(struct_of(self.message, item).fields, inner)
