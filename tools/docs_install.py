"""docs/install.md: a page by hand, and in it the commands that install, which depend on whether there is an index.

On the day the package is published, `ON_AN_INDEX` becomes True and `make docs` is run: no other page names a command.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from headrace import __version__
from tools.sbom import extras

ON_AN_INDEX: Final = False
"""Whether `pip install headrace` finds the package."""

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "install.md"
BEGIN: Final = "<!-- commands: from tools/docs_install.py by make docs -->"
END: Final = "<!-- /commands -->"
PURPOSE: Final = {
    "arrow": "`headrace.scan`, which reads a topic into an Arrow table",
    "fast": "uvloop: less CPU per request",
    "kerberos": "Kerberos logins; needs a C compiler and the headers of MIT Kerberos (Debian's `libkrb5-dev`)",
    "metrics": "`/metrics` for Prometheus",
    "security": "TLS, OAUTHBEARER and keystores",
    "spark": "the source and sink for PySpark; needs Java 17 or later",
}
"""What users install an extra for; those of development are not listed."""


def commands(*, on_an_index: bool = ON_AN_INDEX, version: str = __version__) -> str:
    """The commands that install the package, and one of them with extras."""
    if on_an_index:
        lines = [
            "pip install headrace",
            "pip install 'headrace[metrics,security]'     # with extras",
            "pip install headrace-pipelines               # with the pipelines",
        ]
        return "\n".join(["```sh", *lines, "```"])
    wheel = f"dist/headrace-{version}-py3-none-any.whl"
    lines = [
        "pip install .                               # in a checkout",
        "pip install '.[metrics,security]'           # with extras",
        "pip install . ./pipelines                   # with the pipelines",
        f"pip install {wheel}",
        f"pip install '{wheel}[metrics,security]'",
    ]
    note = "Headrace is not on a package index yet: `pip` needs a checkout, or a wheel that `make dist` built in one."
    return "\n".join([note, "", "```sh", *lines, "```"])


def table() -> str:
    """The extras, and what each is for."""
    there = extras()
    rows = [f"| `{name}` | {purpose} |" for name, purpose in PURPOSE.items() if name in there]
    return "\n".join(["| extra | what it is for |", "|---|---|", *rows])


def page(*, on_an_index: bool = ON_AN_INDEX) -> str:
    """The whole page."""
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    inside = f"{commands(on_an_index=on_an_index)}\n\n### Extras\n\n{table()}"
    return f"{before}{BEGIN}\n{inside}\n{END}{after}"
