"""The blocking fetcher: reads partitions from given positions on. See `fetching` for how."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Unpack

from headrace.client.cluster import Client
from headrace.client.fetching import FetcherMachine, FetchOptions
from headrace.client.metadata import TopicPartition
from headrace.client.reading import Fetched


class Fetcher(FetcherMachine):
    """Reads partitions from given positions on, for ever or up to given ends."""

    def __init__(
        self, client: Client, positions: Mapping[TopicPartition, int], **options: Unpack[FetchOptions]
    ) -> None:
        """See `FetcherMachine` for the options."""
        super().__init__(client.router, positions, options)
        self.client = client

    def __iter__(self) -> Iterator[Fetched]:
        """Yields pieces until every partition has reached its end. Raises as `pieces_steps` does."""
        while pieces := self.client.run(self.pieces_steps()):
            yield from pieces

    def poll(self, timeout_s: float) -> list[Fetched]:
        """Returns what has arrived, waiting at most `timeout_s` for the first of it. Raises as `poll_steps` does."""
        return self.client.run(self.poll_steps(timeout_s))
