"""The asyncio fetcher and member of a group. See `fetching` and `joining` for what they do. Each is one task's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Unpack

from headrace.client.async_client import AsyncClient
from headrace.client.fetching import FetcherMachine, FetchOptions
from headrace.client.joining import MemberMachine, MemberOptions
from headrace.client.metadata import TopicPartition
from headrace.client.reading import Fetched


class AsyncFetcher(FetcherMachine):
    """Reads partitions from given positions on, for ever or up to given ends."""

    def __init__(
        self, client: AsyncClient, positions: Mapping[TopicPartition, int], **options: Unpack[FetchOptions]
    ) -> None:
        """See `FetcherMachine` for the options."""
        super().__init__(client.router, positions, options)
        self.client = client

    async def __aiter__(self) -> AsyncIterator[Fetched]:
        """Yields pieces until every partition has reached its end. Raises as `pieces_steps` does."""
        while pieces := await self.client.run(self.pieces_steps()):
            for piece in pieces:
                yield piece

    async def poll(self, timeout_s: float) -> list[Fetched]:
        """Returns what has arrived, waiting at most `timeout_s` for the first of it. Raises as `poll_steps` does."""
        return await self.client.run(self.poll_steps(timeout_s))


class AsyncMember(MemberMachine):
    """One member of a classic consumer group that reads topics. `poll` it at least every few seconds."""

    def __init__(
        self, client: AsyncClient, group: str, topics: Iterable[str], **options: Unpack[MemberOptions]
    ) -> None:
        """Does not join yet: `poll` does.

        `on_rebalance` is called before the member joins again; it must not wait.
        """
        super().__init__(client.router, group, topics, options)
        self.client = client

    async def poll(self) -> bool:
        """Keeps the membership alive. Returns True when the assignment is new: read `assigned` and start from there.

        Raises `BrokerError` for what the group refuses for good (FENCED_INSTANCE_ID, INCONSISTENT_GROUP_PROTOCOL...).
        """
        return await self.client.run(self.poll_steps())

    async def leave(self) -> None:
        """Leaves the group, so that the others take over at once. A static member stays until its session ends.

        Raises nothing: a coordinator that cannot be reached notices by itself.
        """
        await self.client.run(self.leave_steps())
