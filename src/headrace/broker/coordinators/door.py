"""Ports of `broker.coordinators`: the partitions that this broker leads, and the cluster's metadata."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from headrace.wire.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.env.completion import Completion
    from headrace.log.log import Log
    from headrace.log.producers import Origin
    from headrace.metadata.delta import ImageDelta
    from headrace.metadata.image import ClusterImage
    from headrace.transactions.asks import TopicPartition


class LedPartition(Protocol):
    """A partition that this broker leads."""

    @property
    def log(self) -> Log:
        """Log of the partition, read by workers during a load; appends go through `LedPartitions`."""
        ...

    @property
    def leader_epoch(self) -> int:
        """Epoch under which this broker leads."""
        ...

    @property
    def takes_appends(self) -> bool:
        """Whether the start of the leader's epoch is on disk, so that appends may come."""
        ...

    @property
    def high_watermark(self) -> int:
        """Offset below which everything is committed and cannot be lost."""
        ...


class LedPartitions(Protocol):
    """The partitions that this broker leads. Called on the loop, like its callbacks."""

    def when_ready(self, key: tuple[str, int], callback: Callable[[], None], *, for_appends: bool) -> None:
        """Calls back, at once or later, when `find` has its final answer: the log of (topic, index) is open, and takes
        appends."""
        ...

    def holds(self, partition: TopicPartition) -> bool:
        """Returns whether this broker has a replica of a partition."""
        ...

    def find(self, topic: str, index: int) -> LedPartition | ErrorCode:
        """Returns the partition, or the error why it is not led here now."""
        ...

    def on_led(self, topic: str, listener: Callable[[int], None]) -> None:
        """Calls back with the index of each partition of a topic that comes to be led here. `find` returns it then,
        which it may not do when the metadata name this broker, or when `when_ready` calls back."""
        ...

    def append_internal(
        self,
        topic: str,
        partition: int,
        appends: Sequence[bytes],
        origin: Origin = "coordinator",
    ) -> list[ErrorCode | Completion[ErrorCode]]:
        """Appends the batches of each of `appends`, all or none; returns for each the result of its commit, or a
        completion of it.

        NONE: committed. An error: refused. A completion: appended, and the log's end has moved; it gets NONE when the
        high watermark has passed the last batch, or an error if this broker no longer leads or its disk failed, so that
        the commit is unknown.
        """
        ...

    def when_committed(self, replica: Any, offset: int) -> ErrorCode | Completion[ErrorCode]:
        """Returns NONE, now or later, when everything below `offset` of a partition found by `find` is committed, or an
        error as in `append_internal`."""
        ...


class Metadata(Protocol):
    """The cluster's metadata as this broker knows it."""

    @property
    def image(self) -> ClusterImage:
        """Current image."""
        ...

    def on_image(self, listener: Callable[[ClusterImage, ClusterImage, ImageDelta], None]) -> None:
        """Calls `listener(old, new, delta)` after each change, in order, after the partitions have followed it."""
        ...
