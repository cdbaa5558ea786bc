"""Replays committed records into an image; a metadata transaction that did not end leaves no trace."""

from __future__ import annotations

from typing import Any

from headrace.metadata.delta import ImageDelta, InconsistentMetadataError
from headrace.metadata.image import ClusterImage
from headrace.wire.messages.metadata_records import AbortTransactionRecord, BeginTransactionRecord, EndTransactionRecord


class Replay:
    """Feeds records in offset order onto a base image; `finish()` gives the image of all that took effect.

    Records of a metadata transaction (KIP-868) wait for its end mark; an abort mark drops them.
    """

    def __init__(self, base: ClusterImage) -> None:
        self.delta = ImageDelta(base)
        self._waiting: list[Any] | None = None
        self._offset = base.offset
        self._epoch = base.epoch
        self._timestamp_ms = base.timestamp_ms

    @property
    def in_transaction(self) -> bool:
        """Whether a metadata transaction has begun and not ended."""
        return self._waiting is not None

    def apply(self, record: Any) -> None:
        """Takes one record. Raises InconsistentMetadataError for what cannot follow the records before it."""
        kind = type(record)
        if kind is BeginTransactionRecord:
            if self._waiting is not None:
                raise InconsistentMetadataError("a metadata transaction begins inside another")
            self._waiting = []
        elif kind is EndTransactionRecord or kind is AbortTransactionRecord:
            if self._waiting is None:
                raise InconsistentMetadataError("a metadata transaction ends that never began")
            records, self._waiting = self._waiting, None
            if kind is EndTransactionRecord:
                self.delta.apply_all(records)
        elif self._waiting is not None:
            self._waiting.append(record)
        else:
            self.delta.apply(record)

    def next(self, base: ClusterImage) -> Replay:
        """The one that goes on from the image of this one; a metadata transaction that has begun goes on in it."""
        following = Replay(base)
        following._waiting = self._waiting
        return following

    def advance(self, *, offset: int, epoch: int, timestamp_ms: int) -> None:
        """Notes the last offset that was read, of data and control records alike."""
        self._offset = offset
        self._epoch = epoch
        self._timestamp_ms = timestamp_ms

    def finish(self) -> ClusterImage:
        """The image of everything that took effect, as of the last offset noted."""
        return self.delta.image(offset=self._offset, epoch=self._epoch, timestamp_ms=self._timestamp_ms)
