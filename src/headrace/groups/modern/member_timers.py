"""The timers of members of a modern group: the session of each, and the time that it has to revoke what it must."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.machine.timers import TimerKey, Timers


class MemberTimers:
    """The keys of the timers of one kind of groups, whose name they begin with."""

    __slots__ = ("rebalance", "session")

    def __init__(self, kind: str) -> None:
        self.session = f"{kind}-session"
        self.rebalance = f"{kind}-rebalance"

    def session_key(self, group_id: str, member_id: str) -> TimerKey:
        """Returns the key of the timer that fences a silent member."""
        return (self.session, group_id, member_id)

    def rebalance_key(self, group_id: str, member_id: str) -> TimerKey:
        """Returns the key of the timer that fences a member which revokes too slowly."""
        return (self.rebalance, group_id, member_id)

    def cancel(self, timers: Timers, group_id: str, member_id: str) -> None:
        """Cancels the timers of a member."""
        timers.cancel(self.session_key(group_id, member_id))
        timers.cancel(self.rebalance_key(group_id, member_id))
