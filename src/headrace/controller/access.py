"""The authorization of a client's request to the controller, checked by name: only the controller's image knows all
names."""

from __future__ import annotations

from typing import Protocol

from headrace.wire.errors import ErrorCode


class Access(Protocol):
    """The rights of the requesting client. A name that is not allowed is refused alone, or not even shown."""

    def may_create(self, topic: str) -> bool:
        """Returns whether the client may create a topic of that name."""
        ...

    def may_see_to_delete(self, topic: str) -> bool:
        """Returns whether the client may know that a topic to be deleted exists."""
        ...

    def may_describe_configs(self, topic: str) -> bool:
        """Returns whether the client may see the settings of a topic."""
        ...

    def may_delete(self, topic: str) -> bool:
        """Returns whether the client may delete a topic."""
        ...

    def may_alter(self, topic: str) -> bool:
        """Returns whether the client may alter a topic, that is add partitions to it."""
        ...

    def may_alter_configs(self, resource_type: int, name: str) -> ErrorCode:
        """Returns NONE if the client may alter the settings of a resource, or the authorization error."""
        ...

    def may_change(self, partitions: int) -> bool:
        """Returns whether the client's quota allows to create or delete this many partitions, and charges it if so."""
        ...


class FullAccess:
    """The access of a node that asks for itself: everything is allowed."""

    def may_create(self, topic: str) -> bool:
        """Allows every topic."""
        return True

    def may_see_to_delete(self, topic: str) -> bool:
        """Allows every topic."""
        return True

    def may_describe_configs(self, topic: str) -> bool:
        """Allows every topic."""
        return True

    def may_delete(self, topic: str) -> bool:
        """Allows every topic."""
        return True

    def may_alter(self, topic: str) -> bool:
        """Allows every topic."""
        return True

    def may_alter_configs(self, resource_type: int, name: str) -> ErrorCode:
        """Allows every resource."""
        return ErrorCode.NONE

    def may_change(self, partitions: int) -> bool:
        """Allows any number, without a charge."""
        return True
