"""Writes the pages of docs/ that are made from the code; `--check` fails where one is not what the code says.

python -m tools.docs [--check]
"""

from __future__ import annotations

import sys
from pathlib import Path

from tools import docs_cli, docs_configuration, docs_install, docs_security, docs_spark_options

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = {
    "cli.md": docs_cli.page,
    "configuration.md": docs_configuration.page,
    "install.md": docs_install.page,
    "security/rights.md": docs_security.page,
    "spark-options.md": docs_spark_options.page,
}


def main(arguments: list[str]) -> int:
    made = {DOCS / name: page() for name, page in PAGES.items()}
    if arguments == ["--check"]:
        wrong = [path for path, text in made.items() if not path.exists() or path.read_text("utf-8") != text]
        for path in wrong:
            print(f"docs/{path.name} is not what the code says: run `make docs`", file=sys.stderr)
        return 1 if wrong else 0
    for path, text in made.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
