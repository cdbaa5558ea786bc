"""`headrace config`: configurations of topics, brokers and groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headrace.cli.help_text import CommandGroup
from headrace.cli.options import cluster_options, json_option, parse_pairs
from headrace.cli.output import print_json, print_table

if TYPE_CHECKING:
    from headrace.client.admin import Resource
    from headrace.client.cluster import Client

KINDS = ("topic", "broker", "group")

kind_argument = click.argument("kind", type=click.Choice(KINDS))
name_argument = click.argument("name")


@click.group(cls=CommandGroup)
def config() -> None:
    """Show and change configurations of topics, brokers and groups.

    NAME is a topic, a broker's id (or "default" for all brokers of the cluster), or a group.
    """


def _resource(kind: str, name: str) -> tuple[Resource, str]:
    from headrace.client.admin import Resource

    if kind == "broker":
        if name == "default":
            return Resource.BROKER, ""
        if not name.isdigit():
            raise click.BadParameter(f'{name!r} is neither a broker id nor "default"', param_hint="NAME")
    return Resource[kind.upper()], name


@config.command()
@kind_argument
@name_argument
@click.option("--all", "-a", "everything", is_flag=True, help="Show defaults too, not only values that were set.")
@click.option("--docs", is_flag=True, help="Show the brokers' description of each.")
@json_option
@cluster_options
def describe(client: Client, kind: str, name: str, everything: bool, docs: bool, as_json: bool) -> None:
    """Show the configurations of a topic, broker or group and where each value comes from."""
    from headrace.client import admin
    from headrace.wire.config_source import ConfigSource

    resource, resource_name = _resource(kind, name)
    entries = admin.describe_configs(client, resource, resource_name, documentation=docs)
    if not everything:
        shown = {ConfigSource.STATIC_BROKER} if kind == "broker" else set()
        entries = [entry for entry in entries if entry.is_set or entry.source in shown]
    if as_json:
        print_json(
            [
                {
                    "name": entry.name,
                    "value": entry.value,
                    "source": admin.source_name(entry.source),
                    "read_only": entry.read_only,
                    "sensitive": entry.sensitive,
                    **({"documentation": entry.documentation} if docs else {}),
                }
                for entry in entries
            ]
        )
        return
    rows = [
        [
            entry.name,
            "(hidden)" if entry.sensitive else entry.value,
            admin.source_name(entry.source),
            *([entry.documentation or ""] if docs else []),
        ]
        for entry in entries
    ]
    print_table(["name", "value", "source", *(["about"] if docs else [])], rows)


@config.command()
@kind_argument
@name_argument
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Set a configuration; may be repeated.")
@click.option("--unset", multiple=True, metavar="KEY", help="Reset this configuration to its default; may be repeated.")
@click.option("--append", multiple=True, metavar="KEY=VALUE", help="Add a value to a list; may be repeated.")
@click.option("--subtract", multiple=True, metavar="KEY=VALUE", help="Remove a value from a list; may be repeated.")
@click.option("--dry-run", is_flag=True, help="Have the brokers check the request, and change nothing.")
@json_option
@cluster_options
def alter(
    client: Client,
    kind: str,
    name: str,
    settings: tuple[str, ...],
    unset: tuple[str, ...],
    append: tuple[str, ...],
    subtract: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
) -> None:
    """Change configurations; the others stay as they are."""
    from headrace.client import admin

    if not (settings or unset or append or subtract):
        raise click.UsageError("nothing to change: give --set, --unset, --append or --subtract")
    resource, resource_name = _resource(kind, name)
    set_values, appended = parse_pairs(settings, "--set"), parse_pairs(append, "--append")
    subtracted = parse_pairs(subtract, "--subtract")
    admin.alter_configs(
        client,
        resource,
        resource_name,
        set_values=set_values,
        delete=unset,
        append=appended,
        subtract=subtracted,
        validate_only=dry_run,
    )
    if as_json:
        changes = {"set": set_values, "unset": unset, "append": appended, "subtract": subtracted}
        print_json({"kind": kind, "name": name, "executed": not dry_run, **changes})
    else:
        click.echo(f"{'could alter' if dry_run else 'altered'} the configuration of {kind} {name}")
