"""The native modules make no Python object a record: what Cython makes of their loops calls for none."""

from __future__ import annotations

import ast
import html
import re
import subprocess
import sys
from pathlib import Path

import pytest

import headrace.arrow

SOURCE = Path(headrace.arrow.__file__).parent
LOOPS = {
    "_columns": {"_copy", "_next", "add", "put", "add_headers", "measure"},
    "_rows": {
        "_copy", "_murmur2", "key_partitions", "order_by_partition", "has", "_varint_size", "encode", "size_of",
        "field_size", "put_varint", "put_field", "put_headers", "_fed", "_fed_number", "_stirred", "hash_sum",
        "fed_field",
    },
}  # fmt: skip
"""What runs once a record or more often."""
OBJECTS = re.compile(r"PyLong_From|PyLong_As|PyInt_|PyNumber_|PyObject_(?!to_Mem)|PyFloat_")

LINE = re.compile(
    r"<pre class=.cython line[^>]*>.*?<span class=..>(\d+)</span>:(.*?)</pre>"
    r"\s*(?:<pre class=.cython code[^>]*>(.*?)</pre>)?",
    re.DOTALL,
)
"""A line of the source in Cython's annotation, and its C."""


def lines_with_objects(module: Path, directory: Path) -> dict[int, str]:
    """The lines for which Cython makes or takes a Python object, by number."""
    made = directory / f"{module.stem}.c"
    command = [sys.executable, "-m", "cython", "-3", "--annotate", str(module), "-o", str(made)]
    subprocess.run(command, check=True, capture_output=True)
    found: dict[int, str] = {}
    page = made.with_suffix(".html").read_text("utf-8")
    for line in LINE.finditer(page):
        if OBJECTS.search(re.sub(r"<[^>]+>", "", line[3] or "")):
            found[int(line[1])] = html.unescape(re.sub(r"<[^>]+>", "", line[2])).strip()
    return found


def bodies(module: Path, names: set[str]) -> set[int]:
    """The numbers of the lines in the bodies of functions, of which each is there."""
    lines: set[int] = set()
    for node in ast.walk(ast.parse(module.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.name in names:
            names = names - {node.name}
            assert node.end_lineno is not None
            lines |= set(range(node.body[0].lineno, node.end_lineno + 1))
    assert not names, f"no function is called {names}"
    return lines


@pytest.mark.slow
@pytest.mark.parametrize("name", LOOPS)
def test_loops_make_no_python_object(name: str, tmp_path: Path) -> None:
    module = SOURCE / f"{name}.py"
    looped = bodies(module, LOOPS[name])
    assert {line: text for line, text in lines_with_objects(module, tmp_path).items() if line in looped} == {}
