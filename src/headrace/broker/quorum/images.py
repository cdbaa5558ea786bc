"""The committed image of the metadata, and how it moves on.

While this node decides, by the queue of its decisions; else by the metadata log, a part in each turn of the event loop.
The driver publishes what the methods here return.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.broker.quorum.uncommitted import Answer, Change, Publish, Uncommitted
from headrace.metadata.replay import Replay

if TYPE_CHECKING:
    from asyncio import Future
    from typing import Any

    from headrace.broker.quorum.log.metadata_log import MetadataLog
    from headrace.metadata.image import ClusterImage

APPLIED_BYTES: Final = 64 * 1024
APPLIED_RECORDS: Final = 256
"""How much is read from the log into the image in one turn of the event loop; a larger batch is read in one turn."""


class Images:
    """The images of one node.

    `image` is what was published last, `committed` the offset below which everything is committed, `deciding_epoch` the
    epoch in which this node is the active controller, None if it is not.
    """

    def __init__(self, log: MetadataLog, image: ClusterImage, committed: int, deciding_epoch: int | None) -> None:
        self.image = image
        self.committed = committed
        self.deciding_epoch = deciding_epoch
        self.uncommitted = Uncommitted(image)
        self._log = log
        self._replay = Replay(image)
        self._is_apply_due = False

    @property
    def in_transaction(self) -> bool:
        """Whether the records that were applied last belong to a transaction that has not ended."""
        return self._replay.in_transaction

    def commit(self, end_offset: int) -> list[Publish | Answer]:
        """Everything below an offset is committed, and in the log.

        Returns the changes to publish and the answers to send at once; `more` returns the rest.
        """
        self.committed = end_offset
        if self.deciding_epoch is None:
            self._is_apply_due = True
            return []
        was_settled = self.uncommitted.is_settled
        self.uncommitted.commit(end_offset)
        return self.uncommitted.settle() if was_settled else []

    @property
    def has_more(self) -> bool:
        """Whether there is more to publish or to answer."""
        return self._is_apply_due or not self.uncommitted.is_settled

    def more(self) -> list[Publish | Answer]:
        """Returns the changes to publish and the answers to send in one turn of the event loop.

        Raises StorageError, OSError and InconsistentMetadataError if the log cannot be applied.
        """
        if not self.uncommitted.is_settled:
            return self.uncommitted.settle()
        if not self._is_apply_due:
            return []
        change = self._apply() if self.deciding_epoch is None and self.image.offset + 1 < self.committed else None
        newest = self.image if change is None else change.after
        self._is_apply_due = self.deciding_epoch is None and newest.offset + 1 < self.committed
        return [] if change is None else [Publish(change)]

    def _apply(self) -> Change | None:
        """Reads committed records from the log; None in the middle of a batch, which an image has whole or not."""
        before = self.image
        self._log.apply(self._replay, before.offset + 1, self.committed, APPLIED_BYTES, APPLIED_RECORDS)
        if self._replay.is_inside_batch:
            return None
        delta = self._replay.delta
        after = self._replay.finish()
        self._replay = self._replay.next(after)
        return Change(before, after, delta)

    def begin_to_decide(self, epoch: int) -> None:
        """This node is the active controller, and decides on the image."""
        self.uncommitted = Uncommitted(self.image)
        self.deciding_epoch = epoch

    def step_down(self) -> list[Future[Any]]:
        """Drops uncommitted decisions. Returns the futures that are to be refused.

        It may still be committed: the log will tell.
        """
        self.deciding_epoch = None
        self._replay = Replay(self.image)
        self._is_apply_due = self.image.offset + 1 < self.committed
        return self.uncommitted.revert(self.image)

    def install(self, image: ClusterImage, end_offset: int) -> None:
        """Replaces the image by that of a snapshot."""
        self.image, self.committed = image, end_offset
        self._replay = Replay(image)
