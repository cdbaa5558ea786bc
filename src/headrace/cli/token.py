"""`headrace token`: create, list, renew, expire delegation tokens."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.failures import NOT_FOUND, Failure
from headrace.cli.help_text import CommandGroup
from headrace.cli.options import cluster_options, confirm, duration_option, json_option, yes_option
from headrace.cli.output import Done, counted, print_json, print_table, time_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.client.cluster import Client
    from headrace.client.tokens import Token

COLUMNS = ("token", "owner", "requester", "renewers", "issued", "expires", "last")
HOW_TO = "nobody is shown the HMAC again; log in by SCRAM: username is the token, password the HMAC, and tokenauth=true"


def _principal(text: str, option: str) -> str:
    kind, colon, name = text.partition(":")
    if not colon or not kind or not name:
        raise click.BadParameter(f"{text!r} is not TYPE:NAME; write User:{text.strip(':')}", param_hint=option)
    return text


def _owners(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(_principal(text, "--owner") for text in texts)


def _renewers(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_principal(text, "--renewer") for text in texts))


@click.group(cls=CommandGroup)
def token() -> None:
    """Make tokens with which programs log in as a user, list, renew and end them.

    Brokers make delegation tokens where delegation.token.secret.key is set, for whoever has logged in, and not by a
    token. A program logs in with one by SCRAM, as the token's owner, until it ends.
    """


@token.command()
@click.option("--owner", metavar="PRINCIPAL", callback=lambda _, __, text: text and _principal(text, "--owner"),
              help="User:NAME: whose token it is, where not yours.")  # fmt: skip
@click.option("--renewer", "renewers", multiple=True, metavar="PRINCIPAL", callback=_renewers,
              help="User:NAME: who may renew and end it beside the owner; repeatable.")  # fmt: skip
@duration_option("--max-lifetime", None, "How long it lives at most, however often it is renewed; as long as the "
                 "brokers allow if not given.")  # fmt: skip
@json_option
@cluster_options
def create(
    client: Client, owner: str | None, renewers: tuple[str, ...], max_lifetime: int | None, as_json: bool
) -> None:
    """Make a token. Its HMAC, the password of it, is shown this once."""
    from headrace.client import tokens

    if max_lifetime == 0:
        raise click.UsageError("--max-lifetime is no time at all")
    lifetime_ms = tokens.CLUSTERS_TIME_MS if max_lifetime is None else max_lifetime
    made = tokens.create_token(client, owner=owner, renewers=renewers, max_lifetime_ms=lifetime_ms)
    hmac = base64.b64encode(made.hmac).decode()
    if as_json:
        print_json({**_json(made), "hmac": hmac})
        return
    print_table([*COLUMNS, "hmac"], [(*_row(made), hmac)])
    click.echo(HOW_TO, err=True)


@token.command("list")
@click.option("--owner", "owners", multiple=True, metavar="PRINCIPAL", callback=_owners,
              help="List only tokens that User:NAME owns, asked for or may renew; repeatable.")  # fmt: skip
@json_option
@cluster_options
def list_tokens(client: Client, owners: tuple[str, ...], as_json: bool) -> None:
    """List the tokens that you may see, without their HMACs."""
    from headrace.client import tokens

    found = tokens.list_tokens(client, owners or None)
    if as_json:
        print_json([_json(each) for each in found])
        return
    print_table(COLUMNS, [_row(each) for each in found])


@token.command()
@click.argument("ids", nargs=-1, required=True, metavar="TOKEN...")
@duration_option("--for", None, "How long it is to last from now; as long as the brokers allow if not given.")
@json_option
@cluster_options
def renew(client: Client, ids: tuple[str, ...], as_json: bool, **given: int | None) -> None:
    """Let tokens last longer, by their ids. No token outlives its maximal lifetime."""
    from headrace.client import tokens

    period_ms = given["for"]
    if period_ms == 0:
        raise click.UsageError("--for is no time at all; `headrace token expire` ends tokens")
    chosen = _named(client, ids)
    with Done(as_json) as done:
        for each in chosen:
            ends_ms = tokens.renew_token(client, each, tokens.CLUSTERS_TIME_MS if period_ms is None else period_ms)
            said = {"token": each.token_id, "owner": each.owner, "expires_ms": ends_ms}
            done.add(said, f"token {each.token_id} of {each.owner} lasts until {time_text(ends_ms)}")


@token.command()
@click.argument("ids", nargs=-1, required=True, metavar="TOKEN...")
@duration_option("--in", None, "End them so much later; at once if not given.")
@yes_option
@json_option
@cluster_options
def expire(client: Client, ids: tuple[str, ...], yes: bool, as_json: bool, **given: int | None) -> None:
    """End tokens, by their ids: at once, or in a while.

    Nobody logs in by a token that has ended. A session that logged in by one ends when the token was to end at that
    time.
    """
    from headrace.client import tokens

    period_ms = given["in"]
    chosen = _named(client, ids)
    if period_ms is None:
        what = f"token {chosen[0].token_id} of {chosen[0].owner}" if len(chosen) == 1 else counted(len(chosen), "token")
        confirm(f"End {what}?", yes)
    with Done(as_json) as done:
        for each in chosen:
            ends_ms = tokens.expire_token(client, each, tokens.AT_ONCE_MS if period_ms is None else period_ms)
            said = {"token": each.token_id, "owner": each.owner, "expires_ms": ends_ms}
            when = "has ended" if period_ms is None else f"ends at {time_text(ends_ms)}"
            done.add(said, f"token {each.token_id} of {each.owner} {when}")


def _named(client: Client, ids: Sequence[str]) -> list[Token]:
    """Brokers know a token that is to be renewed or ended by its HMAC, which they tell to whoever may see it."""
    from headrace.client.tokens import list_tokens

    known = {each.token_id: each for each in list_tokens(client)}
    if missing := [each for each in ids if each not in known]:
        raise Failure(
            f"there is no token {missing[0]} that you may see; `headrace token list` lists the tokens", NOT_FOUND
        )
    return [known[each] for each in dict.fromkeys(ids)]


def _json(token: Token) -> dict[str, Any]:
    return {
        "token": token.token_id,
        "owner": token.owner,
        "requester": token.requester,
        "renewers": list(token.renewers),
        "issued_ms": token.issued_ms,
        "expires_ms": token.expires_ms,
        "last_ms": token.last_ms,
    }


def _row(token: Token) -> tuple[Any, ...]:
    times = (token.issued_ms, token.expires_ms, token.last_ms)
    return (token.token_id, token.owner, token.requester, token.renewers, *map(time_text, times))
