"""The name that somebody may have meant: the nearest of those that exist."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.client.cluster import Client
    from headrace.client.errors import BrokerError

LIKENESS = 0.75
"""How alike two names are, from 0 to 1 as difflib measures it, for one to be suggested instead of the other."""


def is_one_edit_away(name: str, other: str) -> bool:
    """Returns whether the names differ by one letter (added, left out or replaced) or by two that change places."""
    if name == other:
        return False
    start = 0
    while start < min(len(name), len(other)) and name[start] == other[start]:
        start += 1
    name, other = name[start:], other[start:]
    while name and other and name[-1] == other[-1]:
        name, other = name[:-1], other[:-1]
    return max(len(name), len(other)) == 1 or (len(name) == len(other) == 2 and name == other[::-1])


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Returns the one of `names` that is one edit away from `name`, else the most similar one, or None."""
    from difflib import get_close_matches

    known = sorted(set(names) - {name})
    for other in known:
        if is_one_edit_away(name, other):
            return other
    return next(iter(get_close_matches(name, known, n=1, cutoff=LIKENESS)), None)


def existing_name(client: Client, error: BrokerError) -> str | None:
    """Returns the existing topic or group whose name is nearest to the missing one that `error` is about.

    Returns None if no name is near, and if the cluster does not list them.
    """
    from headrace.client import groups
    from headrace.client.errors import ClientError, UnknownTopicError
    from headrace.wire.errors import ErrorCode

    try:
        if isinstance(error, UnknownTopicError):
            return nearest(error.topic, (topic.name for topic in client.topics() if not topic.internal))
        if error.code == ErrorCode.GROUP_ID_NOT_FOUND and error.about.startswith("group "):
            return nearest(error.about.removeprefix("group "), (each.group_id for each in groups.list_groups(client)))
    except ClientError:
        return None
    return None
