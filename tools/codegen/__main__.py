"""`python -m tools.codegen` writes the generated modules; `--check` compares them, and fails where they differ,
or where the schema differs from the reference listing that lies beside the checkout."""

from __future__ import annotations

import sys
from pathlib import Path

from tools.codegen.modules import api_module, error_module, index_module, message_module
from tools.codegen.reference import differences
from tools.codegen.schema import SchemaError, SchemaFile, load

ROOT = Path(__file__).resolve().parents[2]
WIRE = ROOT / "src" / "headrace" / "wire"
PROTOCOL = ROOT.parent / "shared" / "protocol"


def outputs() -> dict[Path, str]:
    """Every generated file with its text."""
    files = load(ROOT / "schema")
    left_out = not_generated(files, (ROOT / "schema" / "not_generated.txt").read_text("utf-8"))
    generated = [file for file in files if file.module not in left_out]
    made: dict[Path, str] = {}
    for file in generated:
        text = message_module(file, file.path.relative_to(ROOT).as_posix())
        if text is not None:
            made[WIRE / "messages" / f"{file.module}.py"] = text
    made[WIRE / "messages" / "__init__.py"] = index_module(generated)
    made[WIRE / "apis.py"] = api_module(files)
    made[WIRE / "errors.py"] = error_module((ROOT / "schema" / "errors.txt").read_text("utf-8"))
    return made


def not_generated(files: list[SchemaFile], text: str) -> frozenset[str]:
    """The modules that are not written, one a line of `text`; raises SchemaError for one that no schema file has."""
    named = frozenset(line for line in text.splitlines() if line and not line.startswith("#"))
    for name in sorted(named - {file.module for file in files}):
        raise SchemaError(f"not_generated.txt: no schema file makes {name}")
    return named


def stale(made: dict[Path, str]) -> list[str]:
    """What is wrong with the committed files, one line each."""
    wrong = [
        f"{path.relative_to(ROOT)}: not what the schema says now"
        for path, text in made.items()
        if not path.exists() or path.read_text("utf-8") != text
    ]
    for path in sorted((WIRE / "messages").glob("*.py")):
        if path not in made:
            wrong.append(f"{path.relative_to(ROOT)}: no schema file for it that has a codec")
    return wrong


def main(arguments: list[str]) -> int:
    try:
        made = outputs()
    except SchemaError as error:
        print(error, file=sys.stderr)
        return 1
    if arguments == ["--check"]:
        wrong = stale(made)
        if (PROTOCOL / "messages.txt").exists():
            wrong += differences(load(ROOT / "schema"), (ROOT / "schema" / "errors.txt").read_text("utf-8"), PROTOCOL)
        for line in wrong:
            print(line, file=sys.stderr)
        return 1 if wrong else 0
    for path, text in made.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    print(f"{len(made)} modules written")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
