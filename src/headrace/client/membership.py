"""The blocking member of a classic consumer group. See `joining` for what it does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Unpack

from headrace.client.cluster import Client
from headrace.client.joining import MemberMachine, MemberOptions


class Member(MemberMachine):
    """One member of a group that reads topics. `poll` it at least every few seconds."""

    def __init__(self, client: Client, group: str, topics: Iterable[str], **options: Unpack[MemberOptions]) -> None:
        """Does not join yet: `poll` does.

        `on_rebalance` is called before the member joins again, while it may still commit what it has read.
        """
        super().__init__(client.router, group, topics, options)
        self.client = client

    def poll(self) -> bool:
        """Keeps the membership alive. Returns True when the assignment is new: read `assigned` and start from there.

        Raises `BrokerError` for what the group refuses for good (FENCED_INSTANCE_ID, INCONSISTENT_GROUP_PROTOCOL...).
        """
        return self.client.run(self.poll_steps())

    def leave(self) -> None:
        """Leaves the group, so that the others take over at once. A static member stays until its session ends.

        Raises nothing: a coordinator that cannot be reached notices by itself.
        """
        self.client.run(self.leave_steps())
