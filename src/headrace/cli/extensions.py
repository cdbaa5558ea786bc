"""Commands of other distributions, found by their entry points in the group `headrace.commands`."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Final, NoReturn

import click

from headrace.cli.failures import Failure

GROUP: Final = "headrace.commands"
DISTRIBUTIONS: Final = {
    "pipeline": ("headrace-pipelines", "Run Spark pipelines, from topics to topics or tables."),
}
"""By command, which distribution has it, and what help says of it: help must not import it, and it may be missing."""


def extension(name: str) -> click.Command:
    """Returns a command of another distribution, or one that fails and names what to install."""
    for found in entry_points(group=GROUP, name=name):
        command = found.load()
        assert isinstance(command, click.Command)
        return command
    distribution, about = DISTRIBUTIONS[name]
    package = distribution.replace("-", "_")
    if find_spec(package) is not None:  # a checkout on the path, without the metadata that an installation writes
        command = getattr(import_module(f"{package}.commands.{name}"), name)
        assert isinstance(command, click.Command)
        return command

    def fail(**_: object) -> NoReturn:
        raise Failure(f"{distribution} is not installed; `pip install {distribution}` installs it")

    everything = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
    return click.Command(name, callback=fail, help=about, context_settings=everything)
