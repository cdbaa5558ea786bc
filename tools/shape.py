"""Checks the shape of the code: no import cycle, no constructor that takes too much, who may import what, and that
objects of some packages own their fields.

An import counts wherever it is: at the top, in a function, or for the type checker alone. What does not meet a rule
yet is listed below, so that nothing new joins it; an entry that is no longer needed is an error too.

    python tools/shape.py
    python tools/shape.py --assertions    # prints assertions for each function, by package
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
SOURCE: Final = ROOT / "src"
PACKAGES: Final = ("headrace", "headrace_pipelines")
GENERATED: Final = "headrace.wire.messages"

PARAMETERS_MAX: Final = 8
"""Parameters of a constructor, beside `self`."""
CALLABLES_MAX: Final = 3
"""Parameters of a constructor that are callables."""


def _modules(package: str, *names: str) -> frozenset[str]:
    return frozenset(f"{package}.{name}" for name in names)


CYCLES: Final[Mapping[frozenset[str], str]] = {
    _modules("headrace.raft", "leader", "machine", "roles", "voter_changes"): (
        "the roles of a node are the states of one machine"
    ),
    _modules("headrace.sim", "clock", "network", "node", "steps", "world"): "a world and its nodes know each other",
}
"""Cycles that are there, and why."""

LARGE_CONSTRUCTORS: Final[Mapping[str, str]] = {
    "headrace.raft.machine.Raft": "what a node of the quorum begins with",
    "headrace.sim.cluster_run.ClusterRun": "the options of a run",
}
"""Constructors that take more than the rules allow, and why."""

IMPORTERS: Final[Mapping[str, frozenset[str]]] = {
    "headrace.broker.net.connection": frozenset({"headrace.broker.net.server"}),
    "headrace.spark.sink": frozenset(
        {
            "headrace.spark",
            "headrace.spark.data_source",
            "headrace.sim.workloads.spark_writing",
            "headrace_pipelines.mirror",
        }
    ),
}
"""The only modules that import these: handlers get the session of a client, and no delivery knows Spark's writers."""

OWNERS: Final = ("headrace.log.",)
"""Packages in which no object assigns the private fields of another, and no method is replaced by an assignment."""
BOUNDS: Final = frozenset({"end_offset", "log_start_offset", "local_log_start_offset"})
BOUNDS_WRITER: Final = "headrace.log.state"
"""The one module of its package that changes the bounds of a log."""


def module_name(path: Path) -> str:
    """Returns the dotted name of a module below the source folder."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def parsed() -> dict[str, ast.Module]:
    """Returns the syntax tree of each hand-written module."""
    paths = sorted(path for package in PACKAGES for path in (SOURCE / package).rglob("*.py"))
    return {
        name: ast.parse(path.read_text(encoding="utf-8"))
        for path in paths
        if not (name := module_name(path)).startswith(GENERATED)
    }


def imports_of(module: str, is_package: bool, tree: ast.Module, known: set[str]) -> set[str]:
    """Returns the modules that a module imports, wherever the import is."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                parent = parts[: len(parts) - node.level + is_package]
                base = ".".join([*parent, base] if base else parent)
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                found.add(inner if inner in known else base)
    return {name for name in found & known if name != module}


def cycles_of(graph: Mapping[str, set[str]]) -> list[frozenset[str]]:
    """Returns the strongly connected components of more than one module (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    components: list[frozenset[str]] = []

    def visit(root: str) -> None:
        work: list[tuple[str, Iterator[str]]] = [(root, iter(sorted(graph[root])))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            name, following = work[-1]
            for other in following:
                if other not in index:
                    index[other] = low[other] = len(index)
                    stack.append(other)
                    on_stack.add(other)
                    work.append((other, iter(sorted(graph[other]))))
                    break
                if other in on_stack:
                    low[name] = min(low[name], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[name])
                if low[name] == index[name]:
                    at = stack.index(name)
                    component = frozenset(stack[at:])
                    del stack[at:]
                    on_stack.difference_update(component)
                    if len(component) > 1:
                        components.append(component)

    for each in sorted(graph):
        if each not in index:
            visit(each)
    return components


def is_callable(annotation: ast.expr | None) -> bool:
    """Returns whether an annotation is a Callable, or may be None beside one."""
    if annotation is None:
        return False
    text = annotation.value if isinstance(annotation, ast.Constant) else ast.unparse(annotation)
    return isinstance(text, str) and text.removeprefix("None | ").startswith("Callable[")


def large_constructors(module: str, tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yields the constructors of a module that take more than the rules allow, and what."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef):
            continue
        for each in node.body:
            if isinstance(each, ast.FunctionDef) and each.name == "__init__":
                parameters = [*each.args.posonlyargs, *each.args.args, *each.args.kwonlyargs][1:]
                callables = sum(is_callable(parameter.annotation) for parameter in parameters)
                if len(parameters) > PARAMETERS_MAX or callables > CALLABLES_MAX:
                    yield f"{module}.{node.name}", f"{len(parameters)} parameters, {callables} of them callables"


def foreign_fields(tree: ast.AST) -> list[str]:
    """Returns the assignments to private fields of other objects."""
    return [
        f"line {node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del)
        if node.attr.startswith("_") and not (isinstance(node.value, ast.Name) and node.value.id == "self")
    ]


def rebound_methods(tree: ast.AST) -> list[str]:
    """Returns the methods of classes that an assignment in the same class replaces."""
    return [
        f"{owner.name}.{node.attr}"
        for owner in ast.walk(tree)
        if isinstance(owner, ast.ClassDef)
        for node in ast.walk(owner)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        if node.attr in _methods_of(owner)
    ]


def _methods_of(owner: ast.ClassDef) -> set[str]:
    return {each.name for each in owner.body if isinstance(each, ast.FunctionDef) and not each.decorator_list}


def writes_bounds(tree: ast.AST) -> bool:
    """Returns whether a module assigns a bound of a log."""
    return any(
        isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and node.attr in BOUNDS
        and ast.unparse(node.value).endswith("bounds")
        for node in ast.walk(tree)
    )


def _of_imports(trees: Mapping[str, ast.Module]) -> Iterator[str]:
    known = set(trees)
    packages = {name for name in known if any(other.startswith(f"{name}.") for other in known)}
    graph = {name: imports_of(name, name in packages, tree, known) for name, tree in trees.items()}
    cycles = cycles_of(graph)
    for cycle in cycles:
        if cycle not in CYCLES:
            yield f"an import cycle: {', '.join(sorted(cycle))}"
    for cycle in CYCLES:
        if cycle not in cycles:
            yield f"this cycle is gone, and listed still: {', '.join(sorted(cycle))}"
    for name, allowed in IMPORTERS.items():
        importers = {other for other, imported in graph.items() if name in imported}
        if importers != allowed:
            yield f"{name} is imported by {', '.join(sorted(importers))}; only {', '.join(sorted(allowed))} may and do"


def _of_constructors(trees: Mapping[str, ast.Module]) -> Iterator[str]:
    large = dict(pair for name, tree in trees.items() for pair in large_constructors(name, tree))
    for name, what in sorted(large.items()):
        if name not in LARGE_CONSTRUCTORS:
            yield f"{name} takes {what}; at most {PARAMETERS_MAX} and {CALLABLES_MAX}"
    for name in sorted(LARGE_CONSTRUCTORS.keys() - large.keys()):
        yield f"{name} meets the rules, and is listed still"


def _of_fields(trees: Mapping[str, ast.Module]) -> Iterator[str]:
    owned = {name: tree for name, tree in trees.items() if name.startswith(OWNERS)}
    for name, tree in owned.items():
        for found in foreign_fields(tree):
            yield f"{name}, {found}: a private field of another object"
        for found in rebound_methods(tree):
            yield f"{name}: an assignment replaces the method {found}"
    if (writers := {name for name, tree in owned.items() if writes_bounds(tree)}) != {BOUNDS_WRITER}:
        yield f"the bounds of a log are assigned by {', '.join(sorted(writers))}; only {BOUNDS_WRITER} may and does"


def violations(trees: Mapping[str, ast.Module]) -> Iterator[str]:
    """Yields what does not meet a rule, and entries of the lists that are no longer needed."""
    yield from _of_imports(trees)
    yield from _of_constructors(trees)
    yield from _of_fields(trees)


def assertion_counts(trees: Mapping[str, ast.Module]) -> dict[str, tuple[int, int]]:
    """Returns the assertions and the functions of each package, by its name (`headrace.raft`)."""
    counts: dict[str, tuple[int, int]] = {}
    for name, tree in trees.items():
        package = ".".join(name.split(".")[:2])
        asserts, functions = counts.get(package, (0, 0))
        for node in ast.walk(tree):
            asserts += isinstance(node, ast.Assert)
            functions += isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        counts[package] = asserts, functions
    return {package: counts[package] for package in sorted(counts) if counts[package][1]}


def _print_assertions(trees: Mapping[str, ast.Module]) -> None:
    counts = assertion_counts(trees)
    counts["all"] = sum(each[0] for each in counts.values()), sum(each[1] for each in counts.values())
    for package, (asserts, functions) in counts.items():
        print(f"{package:<24} {asserts:>5} assertions in {functions:>5} functions: {asserts / functions:.2f}")


def main(arguments: Sequence[str]) -> int:
    """Prints what does not meet a rule, a line each; returns 1 if anything does not."""
    if list(arguments) == ["--assertions"]:
        _print_assertions(parsed())
        return 0
    wrong = list(violations(parsed()))
    for line in wrong:
        print(line)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
