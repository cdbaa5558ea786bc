"""`headrace user`: create, list, delete users that log in by SCRAM."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli.failures import NOT_FOUND, Failure
from headrace.cli.help_text import CommandGroup
from headrace.cli.options import cluster_options, confirm, json_option, yes_option
from headrace.cli.output import Done, print_json, print_table

if TYPE_CHECKING:
    from headrace.client.cluster import Client

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
ITERATIONS = (4096, 16_384)
PASSWORD_BYTES_MAX = 4096
"""A file that holds more is no password."""

mechanism_choice = click.Choice(MECHANISMS, case_sensitive=False)


@click.group(cls=CommandGroup)
def user() -> None:
    """Create, list and delete the users that log in with SCRAM.

    ACLs define what a user may do: `headrace acl`. Users log in at listeners with SASL and one of the mechanisms.
    """


@user.command()
@click.argument("name")
@click.option("--mechanism", "mechanisms", multiple=True, type=mechanism_choice, default=MECHANISMS,
              show_default=True, help="Mechanism that the user logs in with; repeatable.")  # fmt: skip
@click.option("--iterations", type=click.IntRange(*ITERATIONS), default=ITERATIONS[0], show_default=True,
              help="Number of times that the password is hashed.")  # fmt: skip
@click.option(
    "--password-file", metavar="FILE", help="The password is the first line of this file; - is standard input."
)
@click.option("--password-env", metavar="NAME", help="The password is in this environment variable.")
@json_option
@cluster_options
def create(
    client: Client,
    name: str,
    mechanisms: tuple[str, ...],
    iterations: int,
    password_file: str | None,
    password_env: str | None,
    as_json: bool,
) -> None:
    """Create the user NAME, or change the password of a user.

    The command asks for the password on a terminal, unless an option says where it is. The command sends it salted and
    hashed. Use TLS all the same: the hash is enough to log in.
    """
    from headrace.client import users

    _check_name(name)
    password = _password(name, password_file, password_env)
    had = {each.mechanism for each in users.list_credentials(client, [name])}
    with Done(as_json) as done:
        for mechanism in dict.fromkeys(mechanisms):
            users.set_password(client, name, password, mechanism, iterations=iterations)
            is_new = mechanism not in had
            fields = {"user": name, "mechanism": mechanism, "iterations": iterations, "created": is_new}
            done.add(
                fields, f"user {name} {'logs in' if is_new else 'has another password, and logs in'} by {mechanism}"
            )


@user.command("list")
@click.argument("names", nargs=-1, metavar="[NAME...]")
@json_option
@cluster_options
def list_users(client: Client, names: tuple[str, ...], as_json: bool) -> None:
    """List all users, or those named, with their mechanisms."""
    from headrace.client import users

    found = users.list_credentials(client, names or None)
    if missing := sorted(set(names) - {each.user for each in found}):
        raise Failure(f"there is no user {missing[0]}; `headrace user list` lists the users", NOT_FOUND)
    if as_json:
        print_json([{"user": c.user, "mechanism": c.mechanism, "iterations": c.iterations} for c in found])
        return
    print_table(["user", "mechanism", "iterations"], [(c.user, c.mechanism, c.iterations) for c in found])


@user.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--mechanism", "mechanisms", multiple=True, type=mechanism_choice,
              help="Delete only the credentials of this mechanism; repeatable.")  # fmt: skip
@yes_option
@json_option
@cluster_options
def delete(client: Client, names: tuple[str, ...], mechanisms: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Delete users. Open connections stay until their sessions expire (connections.max.reauth.ms)."""
    from headrace.client import users

    chosen = [c for c in users.list_credentials(client, names) if not mechanisms or c.mechanism in mechanisms]
    if missing := sorted(set(names) - {each.user for each in chosen}):
        how = f" that logs in by {' or '.join(mechanisms)}" if mechanisms else ""
        raise Failure(f"there is no user {missing[0]}{how}; `headrace user list` lists the users", NOT_FOUND)
    confirm(f"Delete {'user ' + names[0] if len(set(names)) == 1 else f'{len(set(names))} users'}?", yes)
    with Done(as_json) as done:
        for each in chosen:
            users.delete_password(client, each.user, each.mechanism)
            fields = {"user": each.user, "mechanism": each.mechanism, "deleted": True}
            done.add(fields, f"user {each.user} no longer logs in by {each.mechanism}")


def _check_name(name: str) -> None:
    if not name or not name.isascii() or not name.isprintable():
        raise click.BadParameter(f"{name!r}: SCRAM carries names of ASCII characters alone", param_hint="NAME")


def _password(name: str, file: str | None, variable: str | None) -> str:
    """From where the options say, or from the terminal. Raises `Failure` and UsageError, which show nothing of it."""
    if file is not None and variable is not None:
        raise click.UsageError("choose one of --password-file and --password-env")
    if file is not None:
        where, found = file, _first_line(file)
    elif variable is not None:
        if variable not in os.environ:
            raise click.BadParameter(f"there is no variable {variable}", param_hint="--password-env")
        where, found = variable, os.environ[variable]
    elif sys.stdin.isatty():
        where = "the terminal"
        found = click.prompt(f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True)
    else:
        raise click.UsageError("there is no terminal to ask for the password: give --password-file or --password-env")
    if not found:
        raise Failure(f"the password from {where} is empty")
    return found


def _first_line(file: str) -> str:
    if file == "-":
        data = sys.stdin.buffer.readline(PASSWORD_BYTES_MAX + 1)
    else:
        with Path(file).open("rb") as opened:
            data = opened.readline(PASSWORD_BYTES_MAX + 1)
    if len(data) > PASSWORD_BYTES_MAX:
        raise Failure(f"{file}: the first line is longer than {PASSWORD_BYTES_MAX} bytes")
    try:
        return data.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise Failure(f"{file}: the first line is not UTF-8 text") from None
