"""`headrace security`: what a configuration leaves open, in sentences."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.failures import FAILED, USAGE, Failure
from headrace.cli.help_text import CommandGroup
from headrace.cli.options import json_option
from headrace.cli.output import print_json
from headrace.security.login import ANONYMOUS

if TYPE_CHECKING:
    from headrace.config import BrokerConfig
    from headrace.config.endpoints import Endpoint

PRINCIPALS_SHOWN = 5
"""So many of a keytab are named."""


@click.group(cls=CommandGroup)
def security() -> None:
    """Check what a configuration leaves open, and to whom."""


@security.command()
@click.argument("file", metavar="server.properties", type=click.Path(path_type=Path))
@json_option
@click.pass_context
def check(ctx: click.Context, file: Path, as_json: bool) -> None:
    """Describe in sentences who can connect to each listener, and what clients may do.

    The exit code is 1 if a listener that other machines can reach accepts unauthenticated clients. The command
    reads the file and the keytabs that it names. It connects to nothing, and does not see settings that were changed
    while the broker ran.
    """
    config = _config(file)
    from headrace.config.exposure import open_listeners

    is_open = {point.name for point in open_listeners(config)}
    found = {
        "listeners": [_listener(config, point, is_open) for point in config.all_listeners],
        "authorizer": bool(config.authorizer_class_name),
        "super_users": _super_users(config),
        "between_nodes": None if config.is_by_itself else _between_nodes(config),
        "metrics": _metrics(config),
        "open": sorted(is_open),
    }
    if as_json:
        print_json(found)
    else:
        for line in _sentences(config, found):
            click.echo(line)
    if is_open:
        ctx.exit(FAILED)


def _config(file: Path) -> BrokerConfig:
    from headrace.config import BrokerConfig, ConfigError, load_properties_file

    ignored: list[str] = []
    try:
        config = BrokerConfig.load(load_properties_file(str(file)), ignored.append)
    except (ConfigError, ValueError) as error:
        raise Failure(f"{file}: {error}", USAGE) from None
    for line in ignored:
        if any(word in line for word in ("ssl.", "sasl.", "security.", "authorizer", "super.users", "listener")):
            click.echo(f"headrace: {line}", err=True)
    return config


def _super_users(config: BrokerConfig) -> list[str]:
    from headrace.config.security_table import principals_of

    return list(principals_of(config.super_users))


def _listener(config: BrokerConfig, point: Endpoint, is_open: set[str]) -> dict[str, Any]:
    from headrace.config.exposure import asks_who, client_auth, is_loopback

    has_login = point.protocol.startswith("SASL")
    return {
        "listener": point.name,
        "protocol": point.protocol,
        "host": point.host or "0.0.0.0",
        "port": point.port,
        "encrypted": point.protocol.endswith("SSL"),
        "mechanisms": list(config.of_listener(point.name).sasl_enabled_mechanisms) if has_login else [],
        "client_auth": client_auth(config, point),
        "keytab": _keytab(config, point) if has_login else None,
        "authenticated": asks_who(config, point),
        "loopback": is_loopback(point.host),
        "open": point.name in is_open,
    }


def _keytab(config: BrokerConfig, point: Endpoint) -> dict[str, str] | None:
    """The keytab that a listener takes tickets of Kerberos with, and what is wrong with it (empty: nothing); None where
    it takes none."""
    from headrace.client.kerberos import kerberos_module
    from headrace.config import ConfigError
    from headrace.security.gssapi import GSSAPI
    from headrace.security.kerberos_options import KerberosOptionsError, kerberos_options

    settings = config.of_listener(point.name)
    if GSSAPI not in settings.sasl_enabled_mechanisms:
        return None
    own = settings.mechanism(GSSAPI)
    jaas_setting = f"{own.prefix}sasl.jaas.config"
    try:
        options = kerberos_options(kerberos_module(own.sasl_jaas_config, jaas_setting), accepts=True)
    except ConfigError as error:
        return {"file": "", "principal": "", "problem": str(error)}
    except KerberosOptionsError as error:
        return {"file": "", "principal": "", "problem": f"{jaas_setting}: {error}"}
    return {
        "file": options.keytab,
        "principal": options.principal,
        "problem": _keytab_problem(options.keytab, options.principal),
    }


def _keytab_problem(path: str, named: str) -> str:
    from headrace.security.keytab import KEYTAB_BYTES_MAX, KeytabError, principal_of, principals

    try:
        with Path(path).open("rb") as file:
            held = principals(file.read(KEYTAB_BYTES_MAX + 1))
        if any(each.is_named(principal_of(named)) for each in held):
            return ""
    except FileNotFoundError:
        return "it is missing"
    except OSError as error:
        return f"it cannot be read: {error.strerror}"
    except KeytabError as error:
        return str(error)
    shown = ", ".join(map(str, held[:PRINCIPALS_SHOWN])) or "nobody"
    more = f" and {len(held) - PRINCIPALS_SHOWN} more" if len(held) > PRINCIPALS_SHOWN else ""
    return f"it has no key of {named}; it has keys of {shown}{more}"


def _between_nodes(config: BrokerConfig) -> dict[str, Any]:
    brokers = {"listener": config.inter_broker_listener, "protocol": config.inter_broker_protocol}
    controllers = {"listener": config.controller_listener, "protocol": config.controller_protocol}
    for use, mechanism in (
        (brokers, "sasl.mechanism.inter.broker.protocol"),
        (controllers, "sasl.mechanism.controller.protocol"),
    ):
        has_login = use["protocol"].startswith("SASL")
        use["mechanism"] = str(config.of_listener(use["listener"])[mechanism]) if has_login else ""
    return {"brokers": None if config.is_controller_alone else brokers, "controllers": controllers}


def _metrics(config: BrokerConfig) -> dict[str, Any] | None:
    from headrace.config.exposure import is_loopback

    if config.metrics_address is None:
        return None
    host, port = config.metrics_address
    return {
        "host": host or "0.0.0.0",
        "port": port,
        "loopback": is_loopback(host),
        "encrypted": config.metrics_protocol == "SSL",
        "token": bool(config.metrics_token),
    }


# -- sentences


def _sentences(config: BrokerConfig, found: dict[str, Any]) -> list[str]:
    lines = [_of_listener(each) for each in found["listeners"]]
    lines.append(_of_rights(config, found))
    lines.append(_of_super_users(found))
    lines += _of_nodes(found["between_nodes"])
    metrics = found["metrics"]
    if metrics is not None and not metrics["loopback"]:
        scheme = "HTTPS" if metrics["encrypted"] else "HTTP"
        who = "clients that send the token" if metrics["token"] else "anyone who reaches them; they name topics"
        lines.append(f"Metrics are served at {_at(metrics)} over {scheme}, to {who}.")
    if found["open"]:
        lines.append(f"Open beyond this machine, without a login: {', '.join(found['open'])}.")
    else:
        lines.append("Nothing beyond this machine is open to clients without a login.")
    return lines


def _at(place: dict[str, Any]) -> str:
    from headrace.wire.address import address_text

    return address_text(place["host"], place["port"])


def _of_listener(each: dict[str, Any]) -> str:
    sends_passwords = "PLAIN" in each["mechanisms"]
    if each["encrypted"]:
        how = "is encrypted (TLS)"
    else:
        how = "is not encrypted" + (": PLAIN sends passwords that others can read" if sends_passwords else "")
    who = {
        "none": f"Anyone who reaches it is let in, as {ANONYMOUS}",
        "requested": f"Anyone who reaches it is let in: with a certificate under its name, without one as {ANONYMOUS}",
        "required": "Clients need a certificate that the trust store vouches for",
    }[each["client_auth"]]
    if each["mechanisms"]:
        who = f"Clients log in by {' or '.join(each['mechanisms'])}"
        who += " and need a certificate too" if each["client_auth"] == "required" else ""
    reach = "Only this machine can reach it" if each["loopback"] else "Other machines can reach it"
    return f"Listener {each['listener']} at {_at(each)} {how}. {who}. {reach}.{_of_keytab(each['keytab'])}"


def _of_keytab(keytab: dict[str, str] | None) -> str:
    if keytab is None or not keytab["problem"]:
        return ""
    which = f"With the keytab {keytab['file']} nobody" if keytab["file"] else "Nobody"
    return f" {which} can log in by Kerberos: {keytab['problem']}."


def _of_rights(config: BrokerConfig, found: dict[str, Any]) -> str:
    if not found["authorizer"]:
        return "There is no authorizer: every client may do everything."
    text = "Clients may do what an ACL allows and no ACL denies."
    if config.allow_everyone_if_no_acl_found:
        text += " Everyone may use what no ACL names (allow.everyone.if.no.acl.found)."
    return text


def _of_super_users(found: dict[str, Any]) -> str:
    names = found["super_users"]
    if not found["authorizer"]:
        return "Super users have no effect without an authorizer." if names else "No super users are named."
    if not names:
        return "There are no super users: nobody may create the first ACL, and nodes may not talk to each other."
    if ANONYMOUS in names:
        return f"{ANONYMOUS} is a super user: clients without a login may do everything."
    return f"Super users may do everything: {', '.join(names)}. The nodes must be among them."


def _of_nodes(between: dict[str, Any] | None) -> list[str]:
    if between is None:
        return ["The node is alone in its cluster, and connects to no other node."]
    lines = []
    for whom in ("brokers", "controllers"):
        use = between[whom]
        if use is None:
            continue
        how = "encrypted (TLS)" if use["protocol"].endswith("SSL") else "not encrypted"
        who = f"nodes log in by {use['mechanism']}" if use["mechanism"] else "nodes show certificates"
        if use["protocol"] == "PLAINTEXT":
            who = "nodes do not log in"
        lines.append(f"Between nodes, {whom} use listener {use['listener']}: {how}, and {who}.")
    return lines
