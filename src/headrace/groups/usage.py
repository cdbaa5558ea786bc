"""The memory of each principal's members in bytes, counted as members join, change and leave.

Loaded members belong to the principal "": the log does not name who sent them.
"""

from __future__ import annotations

from collections import Counter


class Usage:
    """The usage of one limit by each principal, in all shards of a broker."""

    __slots__ = ("_held", "total")

    def __init__(self) -> None:
        self._held: Counter[str] = Counter()
        self.total = 0
        """The usage of all principals."""

    def held(self, principal: str) -> int:
        """Returns the usage of a principal."""
        return self._held[principal]

    def has_room(self, principal: str, amount: int, share: int, total: int) -> bool:
        """Returns whether the principal may use this much more of its `share` and of the `total`."""
        return self._held[principal] + amount <= share and self.total + amount <= total

    def change(self, principal: str, by: int) -> None:
        """Changes the usage of a principal."""
        self.total += by
        held = self._held[principal] + by
        assert held >= 0 and self.total >= 0, f"{principal} gives back more than it holds"
        if held:
            self._held[principal] = held
        else:
            del self._held[principal]


class MemberUsage:
    """The bytes of the members of one shard's groups, a part of the broker's usage."""

    __slots__ = ("_reserved", "_sender", "_usage", "by_member")

    def __init__(self, usage: Usage) -> None:
        self._usage = usage
        self.by_member: dict[tuple[str, str], tuple[str, int]] = {}
        """(group id, member id) -> (principal, bytes); read-only."""
        self._reserved: Counter[str] = Counter()
        """Bytes in flight to the log, by principal."""
        self._sender: tuple[tuple[str, str], str] | None = None
        """The member whose update is being decided, and the principal that sent it."""

    def has_room(self, principal: str, amount: int, share: int, total: int) -> bool:
        """Returns whether the principal may use this much more (Usage.has_room)."""
        return self._usage.has_room(principal, amount, share, total)

    def sent_by(self, group_id: str, member_id: str, principal: str) -> None:
        """Notes the principal that sends an update of a member, which is charged when the update is applied."""
        self._sender = (group_id, member_id), principal

    def hold(self, group_id: str, member_id: str, size: int, principal: str | None = None) -> None:
        """Sets the bytes of a member. If `principal` is None, they are charged to the sender of the update, or to the
        principal charged before."""
        assert size >= 0
        key = group_id, member_id
        before = self.by_member.get(key)
        if principal is None:
            if self._sender is not None and self._sender[0] == key:
                principal = self._sender[1]
            else:
                principal = "" if before is None else before[0]
        if before is not None:
            self._usage.change(before[0], -before[1])
        self.by_member[key] = principal, size
        self._usage.change(principal, size)

    def release(self, group_id: str, member_id: str) -> None:
        """Releases the bytes of a member, if it is known here."""
        before = self.by_member.pop((group_id, member_id), None)
        if before is not None:
            self._usage.change(before[0], -before[1])

    def reserve(self, principal: str, size: int) -> None:
        """Counts bytes in flight to the log."""
        self._reserved[principal] += size
        self._usage.change(principal, size)

    def give_back(self, principal: str, size: int) -> None:
        """Releases reserved bytes: the record is in the log, or will not be."""
        if self._reserved[principal] >= size:
            self._reserved[principal] -= size
            self._usage.change(principal, -size)

    def close(self) -> None:
        """Releases everything: another broker coordinates the groups."""
        for principal, size in self.by_member.values():
            self._usage.change(principal, -size)
        for principal, size in self._reserved.items():
            self._usage.change(principal, -size)
        self.by_member.clear()
        self._reserved.clear()
