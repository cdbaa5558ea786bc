"""The `headrace` command: one module a command, imported when that command runs.

Exit codes: 0 done; 1 refused or failed; 2 wrong usage; 3 no broker answers, or not in time; 4 no such topic, group,
file or other thing named; 130 interrupted. A reader that closes the pipe ends a command silently, with 141.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

import click

from headrace.cli.extensions import DISTRIBUTIONS, extension
from headrace.cli.failures import FAILED, Failure, failure_of, output_is_full, usage_failure
from headrace.cli.suggestions import nearest
from headrace.version import __version__

BROKEN_PIPE = 141
INTERRUPTED = 130

COMMANDS: dict[str, tuple[str, str]] = {
    "serve": ("headrace.cli.serve:serve", "Run a broker, or several."),
    "storage": ("headrace.cli.storage:storage", "Format directories, and show their cluster."),
    "topic": ("headrace.cli.topic:topic", "Create, list, describe, alter and delete topics."),
    "produce": ("headrace.cli.produce:produce", "Write records to a topic from lines or files."),
    "consume": ("headrace.cli.consume:consume", "Read records from topics."),
    "group": ("headrace.cli.group:group", "List, describe, reset and delete consumer groups."),
    "transaction": ("headrace.cli.transaction:transaction", "List, describe, find and abort transactions."),
    "config": ("headrace.cli.config:config", "Show and change configurations of topics, brokers and groups."),
    "acl": ("headrace.cli.acl:acl", "Manage ACLs: who may do what."),
    "user": ("headrace.cli.user:user", "Manage the users that log in with SCRAM."),
    "token": ("headrace.cli.token:token", "Manage delegation tokens, with which programs log in as a user."),
    "quota": ("headrace.cli.quota:quota", "Limit the bandwidth, requests and connections of clients."),
    "profile": ("headrace.cli.profile:profile", "Save the addresses and logins of clusters under names."),
    "security": ("headrace.cli.security:security", "Check what a configuration leaves open."),
    "cluster": ("headrace.cli.cluster:cluster", "Describe the cluster, and check its health."),
    "quorum": ("headrace.cli.quorum:quorum", "Describe the metadata quorum, and change who votes."),
    "partition": ("headrace.cli.partition:partition", "Move partitions, elect leaders, throttle replication."),
    "broker": ("headrace.cli.broker:broker", "Take brokers out of the cluster."),
    "pipeline": ("", DISTRIBUTIONS["pipeline"][1]),
    "debug": ("headrace.cli.debug:debug", "Collect the information that a fault report needs."),
    "completion": ("headrace.cli.completion:completion", "Print a script that completes commands in a shell."),
    "log": ("headrace.cli.log:log", "Dump and verify the files of a broker."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are used, and that says in one line what went wrong."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        if cmd_name in DISTRIBUTIONS:
            return extension(cmd_name)
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            meant = nearest(args[0], COMMANDS)
            if meant is None or args[0].startswith("-"):
                raise
            raise click.UsageError(f"No such command '{args[0]}'. Did you mean '{meant}'?", ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """From the table above: help must not import every command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, (_, about) in COMMANDS.items()])

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.UsageError as error:
            raise usage_failure(error) from error

    def main(self, *args: Any, **extra: Any) -> Any:
        """Help is written too, while the command line is still being read."""
        try:
            return super().main(*args, **extra)
        except OSError as error:
            if not output_is_full(error):
                raise
            _drop_output()
            Failure(f"cannot write the output: {error.strerror}").show()
            raise SystemExit(FAILED) from error

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except BrokenPipeError:
            _drop_output()
            ctx.exit(BROKEN_PIPE)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        except click.UsageError as error:
            raise usage_failure(error) from error
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            failure = failure_of(error)
            if failure is None:
                raise
            raise failure from error


def _drop_output() -> None:
    """Drops the rest of the buffer, which has nowhere to go; the interpreter would complain about it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="headrace", message="%(prog)s %(version)s")
def main() -> None:
    """An event log that speaks the Kafka protocol.

    \b
    Commands that talk to a cluster take these options:
      -b, --bootstrap HOST:PORT[,...]  brokers to contact first; without it, 127.0.0.1:9092
      --profile NAME                   the brokers and properties that `headrace profile` keeps
      --command-config FILE            Kafka's client properties: TLS, and who logs in
      --timeout SECONDS                how long one operation may take, retries included; 30

    \b
    Environment variables. Options override them; they override the profile in use:
      HEADRACE_BOOTSTRAP_SERVERS  brokers to contact first
      HEADRACE_COMMAND_CONFIG     a file of client properties
      HEADRACE_PROFILE            the name of a profile
      HEADRACE_PROFILES           the file of profiles
      HEADRACE_SECURITY_PROTOCOL, HEADRACE_SASL_JAAS_CONFIG and so on: each client property of security,
                                  a dot as _, an underscore as __, a hyphen as ___

    \b
    Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 no broker answers (in time),
    4 no such topic, group, broker or file, 130 interrupted.
    """
