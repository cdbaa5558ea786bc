"""Options that commands share, and what they mean."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headrace.cli.access import access
from headrace.cli.failures import NOT_FOUND, Failure
from headrace.cli.help_text import ConnectionOption
from headrace.cli.suggestions import existing_name

if TYPE_CHECKING:
    from headrace.client import Client
    from headrace.client.security import Security

F = TypeVar("F", bound=Callable[..., Any])

INT16_MAX = (1 << 15) - 1
INT32_MAX = (1 << 31) - 1
INT64_MAX = (1 << 63) - 1

TIMEOUT_S = 30.0
TIMEOUT_MAX_S = 86_400.0

yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")


def bootstrap_options(command: F) -> F:
    """--bootstrap, --command-config, --profile and --timeout, as the arguments `bootstrap`, `security`, `timeout`."""
    from functools import wraps

    @click.option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT[,...]",
        help="Brokers to contact first; `headrace --help` has this and the other options of a connection.",
    )
    @click.option("--command-config", cls=ConnectionOption, metavar="FILE")
    @click.option("--profile", cls=ConnectionOption, metavar="NAME")
    @click.option(
        "--timeout",
        cls=ConnectionOption,
        type=click.FloatRange(0.1, TIMEOUT_MAX_S),
        default=TIMEOUT_S,
        metavar="SECONDS",
    )
    @wraps(command)
    def with_access(
        *args: Any, bootstrap: str | None, command_config: str | None, profile: str | None, **kwargs: Any
    ) -> Any:
        brokers, security = access(bootstrap, command_config, profile)
        return command(*args, bootstrap=brokers, security=security, **kwargs)

    return with_access  # type: ignore[return-value]


def cluster_options(command: F) -> F:
    """The options of `bootstrap_options`; the command receives `client`, which closes when it ends."""
    from functools import wraps

    @bootstrap_options
    @wraps(command)
    def with_client(*args: Any, bootstrap: str, timeout: float, security: Security, **kwargs: Any) -> Any:
        with connect(bootstrap, timeout, security) as client:
            from headrace.client.errors import BrokerError

            try:
                return command(*args, client=client, **kwargs)
            except BrokerError as error:
                if meant := existing_name(client, error):
                    raise Failure(f"{error}; did you mean {meant}?", NOT_FOUND) from error
                raise

    return with_client  # type: ignore[return-value]


def connect(bootstrap: str, timeout_s: float, security: Security) -> Client:
    from headrace.client.cluster import Client

    try:
        return Client(bootstrap, client_id="headrace-cli", timeout_s=timeout_s, security=security)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--bootstrap") from error


def parse_pairs(texts: Iterable[str], option: str) -> dict[str, str]:
    """`KEY=VALUE` texts as a dict."""
    pairs: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(f"{text!r} is not KEY=VALUE", param_hint=option)
        pairs[key.strip()] = value
    return pairs


DURATION_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def duration_ms(text: str) -> int | None:
    """Returns a duration such as 500ms, 10s, 5m, 12h or 7d in milliseconds; None for any other text."""
    import re

    found = re.fullmatch(r"([0-9]{1,9})(ms|s|m|h|d)", text)
    return None if found is None else int(found[1]) * DURATION_UNITS_MS[found[2]]


def duration_option(name: str, default: str | None, about: str, step_ms: int = 0) -> Callable[[F], F]:
    """An option that says a time such as 5m; the command receives milliseconds, a multiple of `step_ms` and not 0, or
    None where neither it nor a default is given."""

    def convert(ctx: click.Context, param: click.Parameter, text: str | None) -> int | None:
        if text is None:
            return None
        time_ms = duration_ms(text)
        if time_ms is None:
            raise click.BadParameter(f"{text!r} is not a time such as 500ms, 10s, 5m, 12h or 7d", ctx, param)
        if step_ms and (time_ms == 0 or time_ms % step_ms):
            raise click.BadParameter(f"{text!r} is not a multiple of {step_ms} ms", ctx, param)
        return time_ms

    return click.option(
        name, default=default, show_default=default is not None, metavar="TIME", callback=convert, help=about
    )


ESCAPES = {b"t": b"\t", b"n": b"\n", b"r": b"\r", b"0": b"\0", b"\\": b"\\"}


def parse_separator(text: str, option: str) -> bytes:
    r"""Returns the bytes of a separator: \t, \n, \r, \0, \xNN and \\ are escapes as in most languages."""
    import re

    def meant(found: re.Match[bytes]) -> bytes:
        escape = found[1]
        if len(escape) == 3:
            return bytes.fromhex(escape[1:].decode())
        if escape not in ESCAPES:
            raise click.BadParameter(rf"'{text}': write a backslash as \\, a tab as \t", param_hint=option)
        return ESCAPES[escape]

    return re.sub(rb"\\(x[0-9a-fA-F]{2}|.|$)", meant, text.encode(errors="surrogateescape"), flags=re.DOTALL)


def parse_time_ms(text: str, option: str) -> int:
    """An ISO 8601 date or time (local where it names no zone) as ms since 1970; what is earlier is 1970."""
    from datetime import datetime

    try:
        moment_s = datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        raise click.BadParameter(f"{text!r} is not a time such as 2026-11-21T08:00", param_hint=option) from None
    return max(0, int(moment_s * 1000))


def confirm(question: str, yes: bool) -> None:
    """Ask before what cannot be undone; without a terminal, only --yes will do."""
    if yes:
        return
    import sys

    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} Add --yes to do it without asking.")
    click.confirm(question, abort=True, err=True)
