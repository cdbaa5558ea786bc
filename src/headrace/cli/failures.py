"""Errors as a person at a terminal wants them: one line that says what to do, and an exit code that means something."""

from __future__ import annotations

import errno
import sys
from typing import IO, Any

import click

FAILED = 1
USAGE = 2
UNREACHABLE = 3
NOT_FOUND = 4


class Failure(click.ClickException):
    """A command that did not do what was asked."""

    def __init__(self, message: str, exit_code: int = FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"headrace: {self.format_message()}", file=file or sys.stderr)


HINTS = {
    "TOPIC_ALREADY_EXISTS": "--if-not-exists accepts that",
    "UNKNOWN_TOPIC_OR_PARTITION": "`headrace topic list` lists the topics",
    "NON_EMPTY_GROUP": "stop its consumers first",
    "GROUP_ID_NOT_FOUND": "`headrace group list` lists the groups",
    "UNKNOWN_MEMBER_ID": "the group has consumers; stop them first",
    "BROKER_NOT_AVAILABLE": "`headrace cluster describe` lists the brokers",
    "BROKER_ID_NOT_REGISTERED": "`headrace cluster describe` lists the brokers",
    "INVALID_REPLICATION_FACTOR": "`headrace cluster describe` shows how many brokers there are",
    "NOT_ENOUGH_REPLICAS": "see min.insync.replicas of the topic and `headrace topic describe`",
    "MESSAGE_TOO_LARGE": "see max.message.bytes of the topic",
    "GROUP_SUBSCRIBED_TO_TOPIC": "stop its consumers first",
    **dict.fromkeys(
        (
            "TOPIC_AUTHORIZATION_FAILED",
            "GROUP_AUTHORIZATION_FAILED",
            "CLUSTER_AUTHORIZATION_FAILED",
            "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
            "DELEGATION_TOKEN_AUTHORIZATION_FAILED",
        ),
        "`headrace acl list` shows who may do what, and --command-config says who you are",
    ),
    "DELEGATION_TOKEN_AUTH_DISABLED": "delegation.token.secret.key of the brokers turns them on",
    "DELEGATION_TOKEN_OWNER_MISMATCH": "only its owner and its renewers may",
    "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED": "log in as a user and not by a token: see --command-config",
    "SECURITY_DISABLED": "no authorizer decides there; see authorizer.class.name",
}

WHERE = "(--command-config, --profile or a variable)"
LOGIN_HINT = "check the user and the password in sasl.jaas.config"
LOGIN_HINTS = {
    "": "sasl.mechanism says how to log in",
    "GSSAPI": "check the keytab or the tickets that sasl.jaas.config names, and sasl.kerberos.service.name",
    "OAUTHBEARER": "check the token: sasl.oauthbearer.token.* and sasl.jaas.config say where it comes from",
}
"""By the mechanism; others have users and passwords."""
TRUST_HINT = f"ssl.truststore.location says whom to believe {WHERE}"
HANG_UP_HINT = "a broker that wants TLS or a login hangs up like that: see --command-config and --profile"

NOT_FOUND_CODES = {
    "BROKER_ID_NOT_REGISTERED",
    "BROKER_NOT_AVAILABLE",
    "DELEGATION_TOKEN_NOT_FOUND",
    "GROUP_ID_NOT_FOUND",
    "RESOURCE_NOT_FOUND",
    "UNKNOWN_TOPIC_ID",
    "UNKNOWN_TOPIC_OR_PARTITION",
}


def usage_failure(error: click.UsageError) -> click.ClickException:
    """Wrong usage in one line too, with a pointer to the help; a command without any argument shows its help."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return error
    command = "headrace" if error.ctx is None else error.ctx.command_path
    message = " ".join(error.format_message().split()).rstrip(".")
    end = " " if message.endswith("?") else "; "
    return Failure(f"{message}{end}`{command} --help` lists what the command takes", USAGE)


def output_is_full(error: OSError) -> bool:
    """Returns whether standard output could not be written because its disk or quota is full. The error of a file that
    the command opened has the name of that file."""
    return error.filename is None and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def failure_of(error: Exception) -> Failure | None:
    """The failure to report for an expected error; None for a defect, which deserves its traceback."""
    if isinstance(error, (FileNotFoundError, IsADirectoryError, NotADirectoryError)):
        return Failure(f"{error.filename}: {error.strerror}", NOT_FOUND)
    if isinstance(error, OSError) and error.filename is not None:
        return Failure(f"{error.filename}: {error.strerror}")
    if "headrace.client.errors" not in sys.modules:
        return None
    from headrace.client.errors import (
        BrokerError,
        ClientError,
        ConnectionLostError,
        HungUpError,
        TimedOutError,
        UnreachableError,
        UntrustedError,
        code_name,
    )
    from headrace.client.login import NotLoggedInError

    if isinstance(error, BrokerError):
        name = code_name(error.code)
        hint = HINTS.get(name)
        return Failure(f"{error}; {hint}" if hint else str(error), NOT_FOUND if name in NOT_FOUND_CODES else FAILED)
    if isinstance(error, NotLoggedInError):
        return Failure(f"{error}; {LOGIN_HINTS.get(error.mechanism, LOGIN_HINT)} {WHERE}")
    if isinstance(error, UntrustedError):
        return Failure(f"{error}; {TRUST_HINT}")
    if isinstance(error, (HungUpError, ConnectionLostError)):
        return Failure(f"{error}; {HANG_UP_HINT}", UNREACHABLE if isinstance(error, HungUpError) else FAILED)
    if isinstance(error, UnreachableError):
        return Failure(f"{error}; is a broker running there? (--bootstrap, or `headrace serve`)", UNREACHABLE)
    if isinstance(error, TimedOutError):
        return Failure(f"{error}; --timeout allows more", UNREACHABLE)
    if isinstance(error, ClientError):
        return Failure(str(error))
    return None
