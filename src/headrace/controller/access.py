"""What a client may ask of the controller. It is asked by name, since only the controller's image knows the names."""

from __future__ import annotations

from typing import Protocol

from headrace.wire.errors import ErrorCode


class Access(Protocol):
    """What the client that asks may do. A name that is not allowed is refused alone, or not even shown."""

    def may_create(self, topic: str) -> bool:
        """Create a topic of that name."""
        ...

    def may_see_to_delete(self, topic: str) -> bool:
        """Know that a topic exists which is to be deleted."""
        ...

    def may_describe_configs(self, topic: str) -> bool:
        """See the settings of a topic."""
        ...

    def may_delete(self, topic: str) -> bool:
        """Delete a topic."""
        ...

    def may_alter(self, topic: str) -> bool:
        """Alter a topic: add partitions to it."""
        ...

    def may_alter_configs(self, resource_type: int, name: str) -> ErrorCode:
        """Alter the settings of a resource: NONE, or the error that says which access is missing."""
        ...

    def may_change(self, partitions: int) -> bool:
        """Create or delete so many partitions: they are paid for with the answer True."""
        ...


class FullAccess:
    """The access of a node that asks for itself: it may do everything."""

    def may_create(self, topic: str) -> bool:
        """See Access."""
        return True

    def may_see_to_delete(self, topic: str) -> bool:
        """See Access."""
        return True

    def may_describe_configs(self, topic: str) -> bool:
        """See Access."""
        return True

    def may_delete(self, topic: str) -> bool:
        """See Access."""
        return True

    def may_alter(self, topic: str) -> bool:
        """See Access."""
        return True

    def may_alter_configs(self, resource_type: int, name: str) -> ErrorCode:
        """See Access."""
        return ErrorCode.NONE

    def may_change(self, partitions: int) -> bool:
        """See Access."""
        return True
