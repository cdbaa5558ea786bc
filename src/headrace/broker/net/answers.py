"""The errors of handlers that end the connection instead of an answer."""

from __future__ import annotations


class CloseConnectionError(Exception):
    """Raised by a handler where Kafka's answer is to close the connection; the reason goes to the log line."""


class UnknownVersionError(CloseConnectionError):
    """The same, of a version of an API that does not exist: its client comes back, so nobody hurries."""
