"""Commands run against both brokers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result
from peers.either import bootstrap, topic

from headrace.cli import main

__all__ = ["bootstrap", "run", "run_json", "topic"]

Run = Callable[..., Result]


@pytest.fixture
def run(bootstrap: str) -> Run:
    """Runs `headrace ARGUMENTS` against the broker; `code` is the exit code expected."""

    def run(*arguments: str, stdin: bytes | str | None = None, code: int = 0) -> Result:
        done = CliRunner(env={"HEADRACE_BOOTSTRAP": bootstrap}).invoke(main, arguments, input=stdin)
        assert done.exit_code == code, (arguments, done.exit_code, done.output, done.exception)
        assert "Traceback" not in done.output
        return done

    return run


@pytest.fixture
def run_json(run: Run) -> Callable[..., Any]:
    """The same with --json, decoded."""
    return lambda *arguments, **options: json.loads(run(*arguments, "--json", **options).stdout)
