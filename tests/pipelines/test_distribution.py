"""The distribution headrace-pipelines: its version, what it needs, and how the command line finds it."""

from __future__ import annotations

import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

import headrace
from headrace.cli import extensions, main

ROOT = Path(__file__).resolve().parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pipelines" / "pyproject.toml").read_text())["project"]


def test_it_has_the_version_of_headrace_and_needs_that() -> None:
    assert PROJECT["version"] == headrace.__version__
    assert PROJECT["dependencies"] == [f"headrace[spark]=={headrace.__version__}"]


def test_development_installs_what_its_extras_bring() -> None:
    own = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    brought = {each for extra in PROJECT["optional-dependencies"].values() for each in extra}
    assert brought <= {*own["demo"], *own["dev"]}
    assert not brought & {each for name, extra in own.items() if name not in ("demo", "dev") for each in extra}


def test_its_entry_points_are_the_commands_that_the_core_names() -> None:
    points = PROJECT["entry-points"][extensions.GROUP]
    assert set(points) == {name for name, (where, _) in extensions.DISTRIBUTIONS.items() if where == PROJECT["name"]}
    for name, target in points.items():
        module, _, attribute = target.partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command) and command.name == name


def test_without_it_the_command_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extensions, "entry_points", lambda **_: ())
    monkeypatch.setattr(extensions, "find_spec", lambda _: None)
    for arguments in (["pipeline"], ["pipeline", "run", "surge", "--from", "a", "--help"]):
        done = CliRunner().invoke(main, arguments)
        assert done.exit_code == 1
        assert done.stderr == (
            "headrace: headrace-pipelines is not installed; `pip install headrace-pipelines` installs it\n"
        )
