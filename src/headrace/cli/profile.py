"""`headrace profile`: add, list, show, use, remove names for clusters."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.failures import FAILED, NOT_FOUND, USAGE, Failure
from headrace.cli.help_text import CommandGroup
from headrace.cli.options import confirm, json_option, parse_pairs, yes_option
from headrace.cli.output import print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from headrace.client.profiles import Profile, Profiles

STDIN_BYTES_MAX = 1 << 20
LOCATIONS = ("ssl.keystore.location", "ssl.truststore.location")


@click.group(cls=CommandGroup)
def profile() -> None:
    """Save the addresses and logins of clusters under names.

    A profile has a name, brokers, and Kafka's client properties of security. Every command takes --profile NAME, or
    HEADRACE_PROFILE; if neither they nor brokers are given, the profile in use applies.

    Profiles are in one file: HEADRACE_PROFILES, or headrace/profiles.json in XDG_CONFIG_HOME or ~/.config. Commands
    refuse the file if other users can read it.
    """


@profile.command()
@click.argument("name")
@click.option("--bootstrap", "-b", metavar="HOST:PORT[,...]",
              help="Its brokers. Default: bootstrap.servers of the file.")  # fmt: skip
@click.option("--command-config", metavar="FILE",
              help="Kafka's client properties; those of security are kept. - is standard input.")  # fmt: skip
@click.option("--property", "pairs", multiple=True, metavar="KEY=VALUE",
              help="One property, unless it is a secret: others can see a command line. Repeatable.")  # fmt: skip
@click.option("--use", "is_used", is_flag=True, help="Use it from now on.")
@click.option("--replace", is_flag=True, help="Replace the profile of that name if there is one.")
@json_option
def add(
    name: str,
    bootstrap: str | None,
    command_config: str | None,
    pairs: tuple[str, ...],
    is_used: bool,
    replace: bool,
    as_json: bool,
) -> None:
    """Save a profile. The command opens its stores once, to report errors now."""
    from headrace.client.profiles import Profile, ProfileError, check_name

    try:
        check_name(name)
    except ProfileError as error:
        raise click.BadParameter(str(error), param_hint="NAME") from None
    properties = _properties(command_config, pairs)
    if bootstrap is not None:
        properties["bootstrap.servers"] = bootstrap
    if not properties:
        raise click.UsageError("the profile is empty: give --bootstrap, --command-config or --property")
    _check(name, properties)
    made = Profile(name, properties)
    with _changing() as profiles:
        was_there = name in profiles.by_name
        if was_there and not replace:
            raise Failure(f"there is a profile {name} already; --replace puts this in its place")
        profiles.by_name[name] = made
        if is_used:
            profiles.in_use = name
        used = profiles.in_use == name
    if as_json:
        print_json({**_json(made, in_use=used), "replaced": was_there})
        return
    click.echo(f"{'replaced' if was_there else 'kept'} profile {name}{', which is in use' if used else ''}")


@profile.command("list")
@json_option
def list_profiles(as_json: bool) -> None:
    """List the profiles, without secrets."""
    profiles = _read()
    found = [(profiles.by_name[name], name == profiles.in_use) for name in sorted(profiles.by_name)]
    if as_json:
        print_json([_json(each, in_use=used) for each, used in found])
        return
    rows = [
        (
            each.name, used, each.bootstrap, each.properties.get("security.protocol", "PLAINTEXT"),
            each.properties.get("sasl.mechanism"),
        )
        for each, used in found
    ]  # fmt: skip
    print_table(["profile", "in use", "bootstrap", "protocol", "mechanism"], rows)


@profile.command()
@click.argument("name", required=False)
@json_option
def show(name: str | None, as_json: bool) -> None:
    """Show what a profile holds, secrets hidden: NAME, or the one in use."""
    from headrace.config.client_properties import shown

    profiles = _read()
    wanted = name or profiles.in_use
    if wanted is None:
        raise click.UsageError("no profile is in use: name one, or `headrace profile use` one")
    found = _named(profiles, wanted)
    if as_json:
        print_json(_json(found, in_use=wanted == profiles.in_use))
        return
    print_table(["property", "value"], [(key, shown(key, found.properties[key])) for key in sorted(found.properties)])


@profile.command()
@click.argument("name", required=False)
@click.option("--none", "is_none", is_flag=True, help="Use none of them.")
@json_option
def use(name: str | None, is_none: bool, as_json: bool) -> None:
    """Use the profile NAME if a command names neither a profile nor brokers."""
    if (name is None) is not is_none:
        raise click.UsageError("give the NAME of a profile, or --none")
    with _changing() as profiles:
        if name is not None:
            _named(profiles, name)
        profiles.in_use = name
    if as_json:
        print_json({"in_use": name})
        return
    click.echo("no profile is in use" if name is None else f"profile {name} is in use")


@profile.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@yes_option
@json_option
def remove(names: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Remove profiles. If one of them was in use, no profile is in use afterwards."""
    profiles = _read()
    for name in names:
        _named(profiles, name)
    confirm(f"Remove {'profile ' + names[0] if len(set(names)) == 1 else f'{len(set(names))} profiles'}?", yes)
    with _changing() as profiles:
        for name in dict.fromkeys(names):
            _named(profiles, name)
            del profiles.by_name[name]
            if profiles.in_use == name:
                profiles.in_use = None
    if as_json:
        print_json({"removed": list(dict.fromkeys(names))})
        return
    for name in dict.fromkeys(names):
        click.echo(f"removed profile {name}")


def _properties(file: str | None, pairs: tuple[str, ...]) -> dict[str, str]:
    """What is to be kept. Relative places of stores are meant from here, and commands run elsewhere."""
    from headrace.cli.access import file_of
    from headrace.config import parse_properties
    from headrace.config.client_properties import IS_SECRET, is_kept

    found: dict[str, str] = {}
    if file == "-":
        try:
            found = parse_properties(sys.stdin.buffer.read(STDIN_BYTES_MAX).decode())
        except ValueError:
            raise Failure("standard input holds no properties", USAGE) from None
    elif file is not None:
        found = dict(file_of(file).properties)
    found = {key: text for key, text in found.items() if is_kept(key)}
    for key, text in parse_pairs(pairs, "--property").items():
        if key not in IS_SECRET:
            raise click.BadParameter(f"there is no property {key} of brokers or security", param_hint="--property")
        if IS_SECRET[key]:
            raise click.BadParameter(
                f"{key} is a secret, which others could see there: give it in --command-config FILE, or -",
                param_hint="--property",
            )
        found[key] = text
    for key in LOCATIONS:
        if found.get(key):
            found[key] = os.path.abspath(found[key])
    return found


def _check(name: str, properties: dict[str, str]) -> None:
    from headrace.cli.access import Place, protection
    from headrace.wire.address import parse_addresses

    if "bootstrap.servers" in properties:
        try:
            parse_addresses(properties["bootstrap.servers"])
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--bootstrap") from None
    protection([Place(f"profile {name}", properties)])


def _read() -> Profiles:
    from headrace.client.profiles import ProfileError, read_profiles

    try:
        return read_profiles()
    except ProfileError as error:
        raise Failure(str(error), FAILED) from None


def _changing() -> AbstractContextManager[Profiles]:
    from contextlib import contextmanager

    from headrace.client.profiles import ProfileError, changing_profiles

    @contextmanager
    def changing() -> Iterator[Profiles]:
        try:
            with changing_profiles() as profiles:
                yield profiles
        except ProfileError as error:
            raise Failure(str(error), FAILED) from None

    return changing()


def _named(profiles: Profiles, name: str) -> Profile:
    from headrace.client.profiles import NoProfileError

    try:
        return profiles.named(name)
    except NoProfileError as error:
        raise Failure(f"{error}; `headrace profile list` lists them", NOT_FOUND) from None


def _json(profile: Profile, *, in_use: bool) -> dict[str, Any]:
    from headrace.config.client_properties import shown

    properties = {key: shown(key, profile.properties[key]) for key in sorted(profile.properties)}
    return {"profile": profile.name, "in_use": in_use, "properties": properties}
