"""Commands of `headrace` in this process, against a broker that wants TLS and a login."""

from __future__ import annotations

from collections.abc import Callable

from click.testing import CliRunner, Result
from peers.secured import ROOT_PASSWORD, Secured

from headrace.cli import main

Run = Callable[..., Result]


def command(*arguments: str, code: int = 0, stdin: str | None = None, **environment: str) -> Result:
    """Runs one; `code` is the exit code expected."""
    done = CliRunner(env=environment).invoke(main, arguments, input=stdin, prog_name="headrace")
    assert done.exit_code == code, (arguments, done.exit_code, done.output, done.exception)
    assert "Traceback" not in done.output and ROOT_PASSWORD not in done.output
    return done


def one_line(done: Result) -> str:
    """What it said on standard error."""
    (line,) = done.stderr.splitlines()
    return line


def as_user(secured: Secured, properties: dict[str, str], name: str) -> Run:
    """Runs commands with these properties, in a file of this name."""
    config = secured.file(properties, f"{name}.properties")
    return lambda *arguments, **more: command(*arguments, "-b", secured.bootstrap(), "--command-config", config, **more)
