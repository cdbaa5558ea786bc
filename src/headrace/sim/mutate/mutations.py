"""The small changes of a Python file: a dropped condition, an off-by-one, a swapped branch, a removed statement.

Each replaces one piece of the source text, so that a survivor is shown as a person would write it.
"""

from __future__ import annotations

import ast
import hashlib
from dataclasses import dataclass
from typing import Final, NamedTuple

_BOUNDARIES: Final[dict[type[ast.cmpop], str]] = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">"}
_OPPOSITES: Final[dict[type[ast.cmpop], str]] = {
    ast.Eq: "!=", ast.NotEq: "==", ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
_OTHER_END: Final = {"min": "max", "max": "min"}
_UNSEEN: Final = frozenset({"__repr__", "__str__"})
"""What people read and no decision depends on."""
DIGEST_LETTERS: Final = 8


@dataclass(frozen=True, slots=True)
class Mutation:
    """One change: the bytes from `start` to `end` of the file become `after`."""

    file: str
    line: int
    kind: str
    start: int
    end: int
    before: str
    after: str
    place: str
    """The function and the offset in it. Outside functions: the offset in the file."""
    digest: str
    """Of the function, or of the file outside functions: the outcome of a trial is void once that text changes."""

    @property
    def key(self) -> str:
        """Its name in the ledger. Other functions of the file may change and move without changing it."""
        return f"{self.file}:{self.place}:{self.kind}:{self.digest}"

    def applied(self, source: bytes) -> bytes:
        """Returns the changed file."""
        assert source[self.start : self.end] == self.before.encode()
        return source[: self.start] + self.after.encode() + source[self.end :]


def mutations_of(file: str, source: bytes) -> list[Mutation]:
    """Returns every change of a file, in the order of the text."""
    found = _Finder(file, source)
    found.visit(ast.parse(source))
    return sorted(found.found, key=lambda each: (each.start, each.end, each.kind, each.after))


class _Function(NamedTuple):
    """The innermost function around a change."""

    name: str
    start: int
    digest: str


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:DIGEST_LETTERS]


class _Finder(ast.NodeVisitor):
    """Collects the changes; what is passed over is not visited."""

    def __init__(self, file: str, source: bytes) -> None:
        self._file = file
        self._source = source
        self._scope: tuple[str, ...] = ()
        self._function = _Function("", 0, _digest(source))
        self._lines = [0]
        for line in source.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self.found: list[Mutation] = []

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return (
            self._lines[node.lineno - 1] + node.col_offset,
            self._lines[node.end_lineno - 1] + node.end_col_offset,
        )

    def _text(self, node: ast.expr | ast.stmt) -> str:
        start, end = self._span(node)
        return self._source[start:end].decode()

    def _operand(self, node: ast.expr) -> str:
        """The text of a part of an expression; the parentheses around it are no part of its node."""
        text = self._text(node)
        return text if isinstance(node, (ast.Name, ast.Attribute, ast.Constant, ast.Call)) else f"({text})"

    def _replace(self, node: ast.expr | ast.stmt, kind: str, after: str) -> None:
        start, end = self._span(node)
        before = self._source[start:end].decode()
        place = f"{self._function.name}+{start - self._function.start}"
        self.found.append(
            Mutation(self._file, node.lineno, kind, start, end, before, after, place, self._function.digest)
        )

    # --- passed over: assertions state what holds anyway; annotations, errors and texts for people are no decisions

    def visit_Assert(self, node: ast.Assert) -> None: ...

    def visit_Raise(self, node: ast.Raise) -> None: ...

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None: ...

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        scope, self._scope = self._scope, (*self._scope, node.name)
        self.generic_visit(node)
        self._scope = scope

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.name in _UNSEEN:
            return
        outside = self._scope, self._function
        self._scope = (*self._scope, node.name)
        start, end = self._span(node)
        self._function = _Function(".".join(self._scope), start, _digest(self._source[start:end]))
        self._visit_all(node.args.defaults)
        self._visit_all(node.body)
        self._scope, self._function = outside

    def _visit_all(self, nodes: list[ast.expr] | list[ast.stmt]) -> None:
        for node in nodes:
            self.visit(node)

    # --- conditions

    def visit_If(self, node: ast.If) -> None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        self._negated(node.test)
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        if not isinstance(node.test, ast.Constant):
            self._negated(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negated(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._replace(test, "dropped condition", "True")
        self.generic_visit(node)

    def _negated(self, test: ast.expr) -> None:
        self._replace(test, "swapped branch", f"not ({self._text(test)})")

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        word = " and " if isinstance(node.op, ast.And) else " or "
        for left_out in range(len(node.values)):
            kept = [f"({self._text(each)})" for at, each in enumerate(node.values) if at != left_out]
            self._replace(node, f"dropped condition {left_out + 1}", f"({word.join(kept)})")
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        if len(node.ops) == 1:
            kind = type(node.ops[0])
            left, right = self._operand(node.left), self._operand(node.comparators[0])
            if kind in _BOUNDARIES:
                self._replace(node, "off by one", f"({left} {_BOUNDARIES[kind]} {right})")
            elif kind in _OPPOSITES:
                self._replace(node, "swapped comparison", f"({left} {_OPPOSITES[kind]} {right})")
        self.generic_visit(node)

    # --- values

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if isinstance(node.op, (ast.Add, ast.Sub)) and _is_one(node.right):
            self._replace(node, "off by one", f"({self._operand(node.left)})")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in _OTHER_END:
            self._replace(node.func, "other end", _OTHER_END[node.func.id])
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, bool):
            self._replace(node.value, "other answer", str(not node.value.value))
        self.generic_visit(node)

    # --- statements

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            self._replace(node, "lost statement", "pass")
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if all(isinstance(target, (ast.Attribute, ast.Subscript)) for target in node.targets):
            self._replace(node, "lost statement", "pass")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._replace(node, "lost statement", "pass")
        self.generic_visit(node)


def _is_one(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value == 1
