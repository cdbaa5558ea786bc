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
    """Create, list, renew and expire delegation tokens, with which programs log in as a user.

    Brokers create delegation tokens if delegation.token.secret.key is set, for clients that have logged in without a
    token. A program logs in with a token through SCRAM, as the token's owner, until the token expires.
    """


@token.command()
@click.option("--owner", metavar="PRINCIPAL", callback=lambda _, __, text: text and _principal(text, "--owner"),
              help="Owner of the token, as User:NAME. Default: you.")  # fmt: skip
@click.option("--renewer", "renewers", multiple=True, metavar="PRINCIPAL", callback=_renewers,
              help="Another principal that may renew and expire the token, as User:NAME; repeatable.")  # fmt: skip
@duration_option("--max-lifetime", None, "Maximum lifetime, however often the token is renewed. Default: the longest "
                 "that the brokers allow.")  # fmt: skip
@json_option
@cluster_options
def create(
    client: Client, owner: str | None, renewers: tuple[str, ...], max_lifetime: int | None, as_json: bool
) -> None:
    """Create a token. Its HMAC, which is its password, is shown only this once."""
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
@duration_option("--for", None, "Time from now until the token expires. Default: the longest that the brokers allow.")
@json_option
@cluster_options
def renew(client: Client, ids: tuple[str, ...], as_json: bool, **given: int | None) -> None:
    """Renew tokens by their ids. No token can be renewed beyond its maximum lifetime."""
    from headrace.client import tokens

    period_ms = given["for"]
    if period_ms == 0:
        raise click.UsageError("--for is no time at all; `headrace token expire` ends tokens")
    chosen = _named(client, ids)
    with Done(as_json) as done:
        for each in chosen:
            ends_ms = tokens.renew_token(client, each, tokens.CLUSTERS_TIME_MS if period_ms is None else period_ms)
            fields = {"token": each.token_id, "owner": each.owner, "expires_ms": ends_ms}
            done.add(fields, f"token {each.token_id} of {each.owner} lasts until {time_text(ends_ms)}")


@token.command()
@click.argument("ids", nargs=-1, required=True, metavar="TOKEN...")
@duration_option("--in", None, "Expire the tokens after this time. Default: now.")
@yes_option
@json_option
@cluster_options
def expire(client: Client, ids: tuple[str, ...], yes: bool, as_json: bool, **given: int | None) -> None:
    """Expire tokens by their ids, now or later.

    No client can log in with an expired token. A session that has logged in with it ends at the expiry time that the
    token had then.
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
            fields = {"token": each.token_id, "owner": each.owner, "expires_ms": ends_ms}
            when = "has ended" if period_ms is None else f"ends at {time_text(ends_ms)}"
            done.add(fields, f"token {each.token_id} of {each.owner} {when}")


def _named(client: Client, ids: Sequence[str]) -> list[Token]:
    """Finds a token's HMAC, by which brokers renew and expire it; they show it to clients that may see the token."""
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
