"""Commands run against both brokers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cli.commanding import as_user
from click.testing import CliRunner, Result
from peers.secured import Secured, secured_broker
from peers.settling import settle_at
from peers.shared import is_kafka

from headrace.cli import main

__all__ = ["run", "run_json"]

Run = Callable[..., Result]
WRONG_USAGE = 2
CHANGES_NOTHING = {"list", "describe", "health", "find-hanging", "consume", "produce", "--dry-run"}
"""Words of commands that leave the metadata as they were."""


@pytest.fixture(autouse=True)
def _no_profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests may have profiles of his own."""
    monkeypatch.setenv("HEADRACE_PROFILES", str(tmp_path / "no-profiles.json"))


@pytest.fixture
def settle(bootstrap: str) -> Callable[[], None]:
    """Waits until what was written is in force where commands look next. A single broker of ours needs no wait."""
    return partial(settle_at, bootstrap) if is_kafka(bootstrap) else lambda: None


@pytest.fixture
def run(bootstrap: str, settle: Callable[[], None]) -> Run:
    """Runs `headrace ARGUMENTS` against the broker; `code` is the exit code expected. What the command wrote is in
    force when it returns."""

    def run(*arguments: str, stdin: bytes | str | None = None, code: int = 0) -> Result:
        done = CliRunner(env={"HEADRACE_BOOTSTRAP": bootstrap}).invoke(main, arguments, input=stdin)
        assert done.exit_code == code, (arguments, done.exit_code, done.output, done.exception)
        assert "Traceback" not in done.output
        if code != WRONG_USAGE and CHANGES_NOTHING.isdisjoint(arguments):
            settle()
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
