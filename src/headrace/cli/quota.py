"""`headrace quota`: set, list, remove."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headrace.cli.failures import NOT_FOUND, Failure
from headrace.cli.help_text import CommandGroup
from headrace.cli.options import cluster_options, json_option, parse_pairs
from headrace.cli.output import print_json, print_table

if TYPE_CHECKING:
    from headrace.client.cluster import Client

F = TypeVar("F", bound=Callable[..., Any])

KINDS = ("user", "client-id", "ip")
DEFAULT_TEXT = "(default)"


def entity_options(command: F) -> F:
    """--user, --client-id, --ip, and the default of each, as the argument `entity`: names by kind, None the default."""
    from functools import wraps

    @click.option("--user", metavar="NAME", help="A user.")
    @click.option("--user-default", is_flag=True, help="Each user that has no quotas of its own.")
    @click.option("--client-id", metavar="ID", help="A client id; with --user, that of this user.")
    @click.option("--client-id-default", is_flag=True, help="Each client id that has no quotas of its own.")
    @click.option("--ip", metavar="ADDRESS", help="An address.")
    @click.option("--ip-default", is_flag=True, help="Each address that has no quota of its own.")
    @wraps(command)
    def with_entity(*args: Any, **kwargs: Any) -> Any:
        entity: dict[str, str | None] = {}
        for kind in KINDS:
            name, is_default = (kwargs.pop(kind.replace("-", "_") + end) for end in ("", "_default"))
            if name is not None and is_default:
                raise click.UsageError(f"choose one of --{kind} and --{kind}-default")
            if name == "":
                raise click.UsageError(f"--{kind} is empty; --{kind}-default is for those without quotas of their own")
            if name is not None or is_default:
                entity[kind] = name
        if "ip" in entity and len(entity) > 1:
            raise click.UsageError("quotas of addresses know neither users nor client ids: give --ip alone")
        return command(*args, entity=entity, **kwargs)

    return with_entity  # type: ignore[return-value]


@click.group(cls=CommandGroup)
def quota() -> None:
    """Limit what users, client ids and addresses may use of each broker.

    \b
    producer_byte_rate        bytes a second of produce requests
    consumer_byte_rate        bytes a second of fetched records
    request_percentage        percent of one thread's time
    controller_mutation_rate  partitions a second that are created or deleted
    connection_creation_rate  connections a second; of addresses alone

    A client above its quota gets its response, but the broker then stops reading from it for a while. Quotas of a user
    take precedence over those of its client id, and those of both together over either.
    """


@quota.command("set")
@click.argument("quotas", nargs=-1, required=True, metavar="QUOTA=NUMBER...")
@click.option("--dry-run", is_flag=True, help="Have the brokers check the request, and change nothing.")
@entity_options
@json_option
@cluster_options
def set_quotas(
    client: Client, quotas: tuple[str, ...], dry_run: bool, entity: dict[str, str | None], as_json: bool
) -> None:
    """Set quotas; the others stay as they are."""
    from headrace.client.quotas import alter_quotas, entity_text

    _need(entity)
    values = {name: _number(name, text) for name, text in parse_pairs(quotas, "QUOTA=NUMBER").items()}
    alter_quotas(client, entity, values, validate_only=dry_run)
    if as_json:
        print_json({"entity": entity, "quotas": values, "executed": not dry_run})
        return
    values_text = ", ".join(f"{name} {number_text(value)}" for name, value in values.items())
    click.echo(f"{'could set' if dry_run else 'set'} quotas of {entity_text(entity)}: {values_text}")


@quota.command("list")
@entity_options
@json_option
@cluster_options
def list_quotas(client: Client, entity: dict[str, str | None], as_json: bool) -> None:
    """List all quotas, or those that match the options, alone or combined with other kinds."""
    from headrace.client.quotas import find_quotas

    found = find_quotas(client, entity)
    if as_json:
        print_json([{"entity": dict(each.entity), "quotas": dict(each.values)} for each in found])
        return
    rows = [
        [*(_shown(each.entity, kind) for kind in KINDS), name, number_text(value)]
        for each in found
        for name, value in each.values.items()
    ]
    print_table(["user", "client id", "ip", "quota", "value"], rows)


@quota.command()
@click.argument("names", nargs=-1, metavar="[QUOTA...]")
@click.option("--dry-run", is_flag=True, help="Have the brokers check the request, and change nothing.")
@entity_options
@json_option
@cluster_options
def remove(client: Client, names: tuple[str, ...], dry_run: bool, entity: dict[str, str | None], as_json: bool) -> None:
    """Remove the named quotas, or all quotas, of the entity that the options name."""
    from headrace.client.quotas import alter_quotas, entity_text, find_quotas

    _need(entity)
    set_now = [name for each in find_quotas(client, entity, strict=True) for name in each.values]
    gone = list(dict.fromkeys(names)) or set_now
    if missing := [name for name in gone if name not in set_now]:
        raise Failure(f"{entity_text(entity)} has no quota {missing[0]}; `headrace quota list` lists them", NOT_FOUND)
    if not gone:
        raise Failure(f"{entity_text(entity)} has no quotas; `headrace quota list` lists them", NOT_FOUND)
    alter_quotas(client, entity, {}, gone, validate_only=dry_run)
    if as_json:
        print_json({"entity": entity, "removed": gone, "executed": not dry_run})
    else:
        click.echo(f"{'could remove' if dry_run else 'removed'} quotas of {entity_text(entity)}: {', '.join(gone)}")


def _need(entity: dict[str, str | None]) -> None:
    if not entity:
        raise click.UsageError("say whose: give --user, --client-id, --ip, or the default of one of them")


def _number(name: str, text: str) -> float:
    import math

    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or "_" in text:
        raise click.BadParameter(f"{text!r} is not a number", param_hint=name)
    return value


def _shown(entity: Any, kind: str) -> str | None:
    if kind not in entity:
        return None
    return DEFAULT_TEXT if entity[kind] is None else str(entity[kind])


def number_text(value: float) -> str:
    """A quota's number without a fraction that it does not have."""
    return str(int(value)) if value == int(value) else str(value)
