"""`headrace completion`: TAB in a shell, with the names of topics and groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from headrace.client.cluster import Client

SHELLS = ("bash", "zsh", "fish")
PATIENCE_S = 2.0
"""How long TAB waits for a cluster."""


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the script that completes commands, options and the names of topics and groups in SHELL.

    \b
    bash: eval "$(headrace completion bash)"        in ~/.bashrc
    zsh:  eval "$(headrace completion zsh)"         in ~/.zshrc
    fish: headrace completion fish | source         in ~/.config/fish/config.fish

    Names come from the cluster of the options typed so far, the variables and the profile in use. If it does not answer
    within two seconds, no names are offered.
    """
    from click.shell_completion import get_completion_class

    from headrace.cli import main

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(main, {}, "headrace", "_HEADRACE_COMPLETE").source())


def topic_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Returns the topics that begin like `incomplete`; internal ones only after an underscore."""

    def names(client: Client) -> Iterable[str]:
        return (topic.name for topic in client.topics() if incomplete.startswith("_") or not topic.internal)

    return _beginning(ctx, incomplete, names)


def group_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Returns the consumer groups that begin like `incomplete`."""

    def names(client: Client) -> Iterable[str]:
        from headrace.client.groups import list_groups

        return (group.group_id for group in list_groups(client))

    return _beginning(ctx, incomplete, names)


def _beginning(ctx: click.Context, incomplete: str, names: Callable[[Client], Iterable[str]]) -> list[str]:
    """Asks the cluster. Whatever goes wrong, there is nothing to complete: a shell has no place for an error."""
    from headrace.cli.access import access
    from headrace.client.cluster import Client
    from headrace.client.errors import ClientError

    given = (ctx.params.get(name) for name in ("bootstrap", "command_config", "profile"))
    try:
        bootstrap, security = access(*given)
        with Client(bootstrap, client_id="headrace-cli", timeout_s=PATIENCE_S, security=security) as client:
            return sorted(name for name in names(client) if name.startswith(incomplete))
    except (ClientError, click.ClickException, OSError, ValueError):
        return []
