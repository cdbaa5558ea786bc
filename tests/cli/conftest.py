"""Commands run against both brokers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cli.commanding import as_user
from click.testing import CliRunner, Result
from peers.secured import Secured, secured_broker

from headrace.cli import main

__all__ = ["run", "run_json"]

Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def _no_profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests may have profiles of his own."""
    monkeypatch.setenv("HEADRACE_PROFILES", str(tmp_path / "no-profiles.json"))


READS = frozenset({"list", "describe", "health", "find-hanging", "produce", "consume"})
"""Words of commands that change no metadata."""


@pytest.fixture
def run(bootstrap: str, metadata_applied: Callable[[], None]) -> Run:
    """Runs `headrace ARGUMENTS` against the broker, and returns when the broker describes what the command changed;
    `code` is the exit code expected."""

    def run(*arguments: str, stdin: bytes | str | None = None, code: int = 0) -> Result:
        done = CliRunner(env={"HEADRACE_BOOTSTRAP": bootstrap}).invoke(main, arguments, input=stdin)
        assert done.exit_code == code, (arguments, done.exit_code, done.output, done.exception)
        assert "Traceback" not in done.output
        if READS.isdisjoint(arguments[:2]):
            metadata_applied()
        return done

    return run


@pytest.fixture
def run_json(run: Run) -> Callable[..., Any]:
    """The same with --json, decoded."""
    return lambda *arguments, **options: json.loads(run(*arguments, "--json", **options).stdout)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A broker that wants TLS and a login."""
    with secured_broker(tmp_path_factory.mktemp("secured")) as made:
        yield made


@pytest.fixture
def root(secured: Secured) -> Run:
    """Runs a command as its super user."""
    return as_user(secured, secured.root(), "root")


@pytest.fixture
def root_json(root: Run) -> Callable[..., Any]:
    """The same with --json, decoded."""
    return lambda *arguments, **more: json.loads(root(*arguments, "--json", **more).stdout)
