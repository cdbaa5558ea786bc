"""The interface of a modern group for the shard, whatever its kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class ModernGroup(Protocol):
    """A group whose state follows from its records alone: tables on the shard's timeline, which `apply` fills."""

    id: str

    @property
    def type(self) -> str:
        """The type as ListGroups names it; the name of its `GroupKind`."""
        ...

    @property
    def has_members(self) -> bool:
        """Whether it has members, as decisions see it."""
        ...

    @property
    def is_gone(self) -> bool:
        """Whether none of its records is left in the log."""
        ...

    @property
    def committed_state(self) -> str:
        """The name of the state that follows from its committed records."""
        ...

    @property
    def assignment_bytes(self) -> int:
        """Memory that its assignments take, in bytes."""
        ...

    def apply(self, record: Any) -> None:
        """Applies one of its records."""
        ...

    def tombstones(self) -> Sequence[Any]:
        """Returns the tombstones of all its records, that of the group last."""
        ...
