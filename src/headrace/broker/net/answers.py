"""Exceptions by which a handler ends its connection instead of answering."""

from __future__ import annotations


class CloseConnectionError(Exception):
    """Raised by a handler where Kafka closes the connection instead of answering; the reason goes to the log."""


class UnknownVersionError(CloseConnectionError):
    """Raised for an API version that does not exist. Its client will reconnect, so the connection is closed with a
    delay."""
