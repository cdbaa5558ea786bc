"""docs/cli.md, from the commands' own --help."""

from __future__ import annotations

from collections.abc import Iterator

import click

from headrace.cli import main as headrace

WIDTH = 100

HEAD = """# The command line

Written by `make docs` from the commands' own help: do not edit.

Every command that talks to a cluster works against Apache Kafka as well. `--bootstrap`, a variable or a profile names
its brokers ([in this order](security.md#choose-where-a-command-connects)). Commands draw tables on a terminal, and
print plain aligned columns elsewhere; `--json` prints JSON for programs.

| exit code | means |
|---|---|
| 0 | done |
| 1 | refused by the broker, or failed; one line on standard error says what to do |
| 2 | wrong usage |
| 3 | no broker answers, or not in time |
| 4 | no such topic, group, broker or file |
| 130, 143 | interrupted, terminated |
| 141 | the reader of standard output went away |
"""


def commands(command: click.Command, path: tuple[str, ...], parent: click.Context | None) -> Iterator[tuple[str, str]]:
    """(name, help) of a command and those below it."""
    settings = {**command.context_settings, "terminal_width": WIDTH, "max_content_width": WIDTH}
    context = click.Context(command, info_name=path[-1], parent=parent, **settings)
    yield " ".join(path), command.get_help(context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from commands(below, (*path, name), context)


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for name, text in commands(headrace, ("headrace",), None):
        lines = "\n".join(line.rstrip() for line in text.splitlines())
        parts.append(f"## {name}\n\n```text\n{lines}\n```\n")
    return "\n".join(parts)
