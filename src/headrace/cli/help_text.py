"""How `--help` is laid out: whole sentences for commands, one line for the options of a connection."""

from __future__ import annotations

import click

SENTENCE_MAX = 1_000
"""More letters than any first sentence has: none is cut."""


class CommandGroup(click.Group):
    """A group whose help shows the whole first sentence of each command, where click cuts it to fit a line."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, command.get_short_help_str(SENTENCE_MAX)) for name, command in commands if command is not None]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class ConnectionOption(click.Option):
    """An option that each command for a cluster has: `headrace --help` describes it, and the command's own does not."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        return None
