"""A query's progress as a consumer group's offsets, so that every Kafka tool shows its lag."""

from __future__ import annotations

import time
import warnings
from typing import Final

from headrace.client.cluster import Client
from headrace.client.errors import BrokerError, ClientError
from headrace.client.groups import commit_offsets
from headrace.client.metadata import TopicPartition
from headrace.wire.errors import ErrorCode

PATIENCE_S: Final = 5.0
REST_S: Final = 30.0
"""A commit may hold a batch up for so long, and after one that failed the next is not tried before this has passed."""
GONE: Final = (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
"""A topic was deleted since: the next batch knows, and says so where it matters."""


class GroupOffsets:
    """Commits what a query has finished. What the cluster refuses is warned about, once: the query goes on without."""

    def __init__(self) -> None:
        self._committed: dict[TopicPartition, int] = {}
        self._not_before = 0.0
        self._warned = False

    def commit(self, client: Client, group: str, finished: dict[TopicPartition, int]) -> None:
        """Commit these offsets, unless they are committed already."""
        if finished == self._committed or time.monotonic() < self._not_before:
            return
        try:
            commit_offsets(client, group, finished, timeout_s=min(PATIENCE_S, client.timeout_s))
        except ClientError as error:
            if isinstance(error, BrokerError) and error.code in GONE:
                return
            self._not_before = time.monotonic() + REST_S
            if not self._warned:
                self._warned = True
                warnings.warn(f"The query cannot commit its offsets: {_why(group, error)}.", stacklevel=4)
            return
        self._committed = finished


def _why(group: str, error: ClientError) -> str:
    if isinstance(error, BrokerError) and error.code == ErrorCode.UNKNOWN_MEMBER_ID:
        return f"group {group} has members; give the query a group of its own with the option kafka.group.id"
    return str(error)
