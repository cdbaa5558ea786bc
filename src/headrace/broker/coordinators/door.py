"""What this room asks of its neighbours: of the partitions that this broker leads, and of the cluster's metadata."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from headrace.wire.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.log.log import Log
    from headrace.log.producers import Origin
    from headrace.machine.outcome import Ending
    from headrace.metadata.delta import ImageDelta
    from headrace.metadata.image import ClusterImage
    from headrace.transactions.asks import TopicPartition

MarkerHere: TypeAlias = "tuple[TopicPartition, Ending, Callable[[ErrorCode], None]]"
"""A partition that this broker leads, the end of a transaction to be written there, and who is told once what came of
it: an error of WriteTxnMarkers, or NONE when the marker is committed."""
MarkersHere: TypeAlias = "Callable[[Sequence[MarkerHere]], None]"
"""Writes those of one partition in one go. They may be told before it returns."""


class LedPartition(Protocol):
    """A partition that this broker leads."""

    @property
    def log(self) -> Log:
        """To be read at a load, on workers; appends go through `LedPartitions`."""
        ...

    @property
    def leader_epoch(self) -> int:
        """The epoch that this broker leads under."""
        ...

    @property
    def takes_appends(self) -> bool:
        """Whether the start of the leader's epoch is written down, so that appends may come."""
        ...

    @property
    def high_watermark(self) -> int:
        """Everything below it is committed, and cannot be lost."""
        ...


class LedPartitions(Protocol):
    """The partitions that this broker leads. Called on the loop, like its callbacks."""

    def when_ready(self, key: tuple[str, int], callback: Callable[[], None], *, for_appends: bool) -> None:
        """Calls back, at once or later, when `find` has the answer to be had: (topic, index) is open, and takes
        appends."""
        ...

    def find(self, topic: str, index: int) -> LedPartition | ErrorCode:
        """The partition, or why it cannot be led here now."""
        ...

    def on_led(self, topic: str, listener: Callable[[int], None]) -> None:
        """Calls back with its index whenever a partition of a topic comes to be led here: `find` has it then, which it
        may not have had when the metadata named this broker, or when `when_ready` called back."""
        ...

    def append_internal(
        self,
        topic: str,
        partition: int,
        appends: Sequence[tuple[bytes, Callable[[ErrorCode, int], None]]],
        origin: Origin = "coordinator",
    ) -> None:
        """Appends the batches of each, all of them or none. The log's end has moved by the time it returns, unless they
        were refused.

        What stands beside them is called exactly once, with an error and a base offset: when the high watermark has
        passed the last of them, or with an error when they were refused, or when this broker cannot tell any more
        whether they will be committed: it leads the partition no more, or its disk failed. It may be called before this
        returns.
        """
        ...

    def when_committed(self, replica: Any, offset: int, callback: Callable[[ErrorCode], None]) -> None:
        """Calls back once, when everything below `offset` of a partition that `find` gave is committed, or with an
        error as above."""
        ...


class Metadata(Protocol):
    """The cluster's metadata as this broker knows it."""

    @property
    def image(self) -> ClusterImage:
        """As of now."""
        ...

    def on_image(self, listener: Callable[[ClusterImage, ClusterImage, ImageDelta], None]) -> None:
        """Calls `listener(old, new, delta)` after each change, in order, after the partitions have followed it."""
        ...
