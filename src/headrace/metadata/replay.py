"""Replays committed records into an image; a metadata transaction that did not end leaves no trace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from headrace.metadata.delta import ImageDelta, InconsistentMetadataError
from headrace.metadata.framing import decode_record
from headrace.metadata.image import ClusterImage
from headrace.wire.messages.metadata_records import AbortTransactionRecord, BeginTransactionRecord, EndTransactionRecord


class Replay:
    """Feeds records in offset order onto a base image; `finish()` gives the image of all that took effect.

    Records of a metadata transaction (KIP-868) wait for its end mark; an abort mark drops them. A batch of the log may
    be taken in some records at a time (`begin_batch`, `go_on`); there is an image when it is there as a whole.
    """

    def __init__(self, base: ClusterImage) -> None:
        self.delta = ImageDelta(base)
        self._waiting: list[Any] | None = None
        self._batch: Iterator[bytes] | None = None
        self._offset = base.offset
        self._epoch = base.epoch
        self._timestamp_ms = base.timestamp_ms

    @property
    def in_transaction(self) -> bool:
        """Whether a metadata transaction has begun and not ended."""
        return self._waiting is not None

    @property
    def offset(self) -> int:
        """The last offset noted."""
        return self._offset

    @property
    def is_inside_batch(self) -> bool:
        """Whether a batch has begun and is not taken in as a whole."""
        return self._batch is not None

    def begin_batch(self, values: Iterable[bytes]) -> None:
        """The next batch of the log, whose records `go_on` takes in."""
        assert self._batch is None, "one batch follows another"
        self._batch = iter(values)

    def go_on(self, max_records: int) -> None:
        """Takes in some records of the batch that has begun. Raises MetadataRecordError, InconsistentMetadataError."""
        assert self._batch is not None
        taken = 0
        for value in islice(self._batch, max_records):
            self.apply(decode_record(value))
            taken += 1
        if taken < max_records:
            self._batch = None

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
        assert self._batch is None, "a batch is in an image as a whole"
        following = Replay(base)
        following._waiting = self._waiting
        return following

    def advance(self, *, offset: int, epoch: int, timestamp_ms: int) -> None:
        """Notes the last offset that was read, of data and control records alike."""
        assert offset >= self._offset, "the log is read forward"
        self._offset = offset
        self._epoch = epoch
        self._timestamp_ms = timestamp_ms

    def finish(self) -> ClusterImage:
        """The image of everything that took effect, as of the last offset noted."""
        assert self._batch is None, "a batch is in an image as a whole"
        return self.delta.image(offset=self._offset, epoch=self._epoch, timestamp_ms=self._timestamp_ms)
