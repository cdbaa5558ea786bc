"""Tests the text of the project: lengths of files and functions, names, words, docstrings, addresses, paths that leak.

Style that a test checks is style nobody has to argue about. Prints what is wrong, a line each, and exits 1.

    python tools/tidy.py
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]

FILE_LINES_MAX: Final = 600
FUNCTION_LINES_MAX: Final = 70
BANNED_NAMES: Final = frozenset({"utils", "util", "common", "helpers", "helper", "misc", "base", "core", "stuff"})
GENERATED: Final = ("src/headrace/wire/messages/", "src/headrace/wire/apis.py", "src/headrace/wire/errors.py")
TEXT: Final = frozenset(
    {"", ".cfg", ".html", ".in", ".ini", ".lock", ".md", ".py", ".sh", ".toml", ".tsv", ".txt", ".yaml", ".yml"}
)

# Assembled from parts, so that this file does not hold what it looks for.
LEAKS: Final = {
    "an absolute path of one machine": re.compile(r"(?<![\w.<>])/(?:work|home|root|Users)/[\w.-]+"),
    "an address of a package registry": re.compile(
        r"py" r"pi\.org|python" r"hosted\.org|repo1?\.maven\.|maven\.apache\.org/maven2|deb\.debian\.org"
    ),
    "a reminder": re.compile(r"\b(?:TO" r"DO|FIX" r"ME|X" r"XX)\b"),
}  # fmt: skip
# Words for which the field has a term (docs/glossary.md), and what says it instead. Text that is printed, and the names
# by which the simulator's seeds find its faults, are not looked at.
DIALECT: Final = {
    "told": "the verb of what happens: gets, is notified, is answered",
    "said": "response, reported, stored, logged",
    "whoever": "the component that acts",
    "stranger": "unauthenticated client",
    "strangers": "unauthenticated clients",
    "anew": "again, or re-: rebuild, reauthenticate, restart",
    "bereft": "leaderless, without",
    "amid": "during, within",
    "stead": "in place of",
    "stand": "is, means, becomes a candidate",
    "stands": "is, means, becomes a candidate",
    "mend": "repair, fix",
    "mends": "repairs, fixes",
    "mended": "repaired, fixed",
    "no more": "no longer",
}
WORDS: Final = re.compile(
    r"\b(?:" + "|".join(word for word in DIALECT if " " not in word) + r")\b"
    r"|\bno more(?=\s*(?:[.,;:)\"]|$| and\b| when\b| or\b))",
    re.IGNORECASE | re.MULTILINE,
)
WORDS_IN: Final = ("src/", "docs/", "README.md", "CHANGELOG.md", "SECURITY.md", "RELEASING.md")
NAME_PARTS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")

ALLOWED_LEAKS: Final = ("http://maven.apache.org/POM/4.0.0",)


def tracked(root: Path) -> list[Path]:
    """Every text file that git knows, sorted."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=root, check=True, capture_output=True, text=True).stdout
    names = sorted(name for name in listing.split("\0") if name)
    return [root / name for name in names if Path(name).suffix in TEXT and (root / name).is_file()]


def check_text(name: str, text: str) -> Iterator[str]:
    """What any text file must not hold."""
    if not any(pattern.search(text) for pattern in LEAKS.values()):
        return
    for number, line in enumerate(text.splitlines(), 1):
        for allowed in ALLOWED_LEAKS:
            line = line.replace(allowed, "")
        for what, pattern in LEAKS.items():
            if pattern.search(line):
                yield f"{name}:{number}: {what}"


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """The functions of a module, found by its statements alone: most of a tree is expressions."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node
        for blocks in ("body", "orelse", "finalbody", "handlers", "cases"):
            waiting += getattr(node, blocks, ())


def check_python(name: str, text: str) -> Iterator[str]:
    """Lengths, names and docstrings of a Python file."""
    parts = Path(name).with_suffix("").parts
    for part in parts:
        if part in BANNED_NAMES:
            yield f"{name}: {part!r} says nothing about what is in it"
    lines = text.count("\n")
    if lines > FILE_LINES_MAX:
        yield f"{name}: {lines} lines, at most {FILE_LINES_MAX}"
    tree = ast.parse(text)
    if tree.body and ast.get_docstring(tree) is None:
        yield f"{name}: no docstring that says what lives here"
    for node in sorted(functions(tree), key=lambda each: each.lineno):
        if node.end_lineno is not None:
            length = node.end_lineno - node.lineno + 1
            if length > FUNCTION_LINES_MAX:
                yield f"{name}:{node.lineno}: {node.name} has {length} lines, at most {FUNCTION_LINES_MAX}"


def prose(text: str) -> Iterator[tuple[int, str]]:
    """Yields the line and the text of each name, comment and docstring of a Python file."""
    before = tokenize.NEWLINE
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME:
            yield token.start[0], " ".join(NAME_PARTS.findall(token.string)).lower()
        elif token.type == tokenize.COMMENT:
            yield token.start[0], token.string
        elif token.type == tokenize.STRING and before in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT):
            for offset, line in enumerate(token.string.splitlines()):
                yield token.start[0] + offset, line
        if token.type not in (tokenize.NL, tokenize.COMMENT):
            before = token.type


def check_words(name: str, text: str) -> Iterator[str]:
    """Finds words for which the field has a term, in names, comments and docstrings; in a page outside of code."""
    if not name.startswith(WORDS_IN):
        return
    if name.endswith(".py"):
        if any(word in text.lower() for word in DIALECT):  # tokens cost time
            for number, words in prose(text):
                for found in WORDS.findall(words):
                    yield f"{name}:{number}: {found!r}: write {DIALECT[found.lower()]}"
    elif name.endswith(".md"):
        for number, line in enumerate(text.splitlines(), 1):
            for found in WORDS.findall(re.sub(r"`[^`]*`", "", line)):
                yield f"{name}:{number}: {found!r}: write {DIALECT[found.lower()]}"


def check_markdown(name: str, text: str) -> Iterator[str]:
    """One title a page."""
    fenced = False
    titles = 0
    for line in text.splitlines():
        fenced ^= line.startswith("```")
        titles += not fenced and line.startswith("# ")
    if titles != 1:
        yield f"{name}: {titles} titles, exactly one is wanted"


def problems(root: Path = ROOT) -> list[str]:
    """Everything that is untidy."""
    found: list[str] = []
    for path in tracked(root):
        name = path.relative_to(root).as_posix()
        text = path.read_text("utf-8", errors="replace")
        found += check_text(name, text)
        if path.suffix == ".py" and not name.startswith(GENERATED):
            found += check_python(name, text)
        if not name.startswith(GENERATED):
            found += check_words(name, text)
        if path.suffix == ".md":
            found += check_markdown(name, text)
    return found


def main() -> int:
    found = problems()
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
