"""What this room asks of its neighbours: of the partitions that this broker leads, and of the cluster's metadata."""

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

    def holds(self, partition: TopicPartition) -> bool:
        """Whether this broker has a replica of a partition."""
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
        appends: Sequence[bytes],
        origin: Origin = "coordinator",
    ) -> list[ErrorCode | Completion[ErrorCode]]:
        """Appends the batches of each, all of them or none; returns the result of each commit, or its completion.

        NONE: committed. An error: refused. A completion: appended, and the log's end has moved; it gets NONE when the
        high watermark has passed the last of the batches, or an error if this broker no longer knows whether they will
        be committed, because it no longer leads or its disk failed.
        """
        ...

    def when_committed(self, replica: Any, offset: int) -> ErrorCode | Completion[ErrorCode]:
        """Returns NONE, now or later, when everything below `offset` of a partition that `find` gave is committed, or
        an error as above."""
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
