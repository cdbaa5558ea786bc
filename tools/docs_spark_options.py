"""docs/spark-options.md, from the table of options."""

from __future__ import annotations

import textwrap

from headrace.spark.option_table import IGNORED, SECTIONS, Option, Use

INTRODUCTION = """# Options of format("headrace")

Written from the table of options in `src/headrace/spark/option_table.py` by `make docs`; change it there.

If Spark's own Kafka connector has an option, name and meaning are the connector's; names ignore case. The source
refuses an unknown name or a wrong value with one sentence before it reads, the sink before it writes. Both warn about
[options that tune Spark's connector](#ignored). *For* tells the use of an option: in `batch` reads, in `stream` reads,
in the `sink`.
[Spark](spark.md) has the whole of it; [from the Kafka connector](from-the-kafka-connector.md) lists the differences.
"""
IGNORED_TITLE = """## Ignored

Spark's Kafka connector and the Java client have these options, and they mean nothing here: one warning names those that
a program gives. The same holds for a setting of the client (`kafka.`) that is for the other side, source or sink.
"""
HEAD = "| option | for | values | default | what it does |\n|---|---|---|---|---|"
USES = {Use.BATCH: "batch", Use.STREAM: "stream", Use.SINK: "sink"}


def row(option: Option) -> str:
    """An option as a line of the table."""
    used = ", ".join(word for use, word in USES.items() if use & option.use)
    default = option.otherwise if option.default is None else f"`{option.default}`"
    cells = [f"<a id='{option.name}'></a>`{option.name}`", used, option.values, default or "not set", option.about]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def page() -> str:
    """The whole page."""
    parts = [INTRODUCTION]
    for title, options in SECTIONS.items():
        rows = "\n".join(map(row, options))
        parts.append(f"## {title}\n\n{HEAD}\n{rows}\n")
    names = textwrap.fill(", ".join(f"`{name}`" for name in IGNORED), 124, break_on_hyphens=False)
    parts.append(f"{IGNORED_TITLE}\n{names}.\n")
    return "\n".join(parts)
