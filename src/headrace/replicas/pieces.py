"""Splits a leader's response into pieces of whole batches, each to be appended at once. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from headrace.wire.batch import BATCH_OVERHEAD, LENGTH_OVERHEAD, MAGIC, CorruptBatch
from headrace.wire.primitives import Buffer

_PLACE: Final = Struct(">qiib6xi")
"""Base offset, batch length, leader epoch, magic, last offset delta."""


class Piece(NamedTuple):
    """A run of consecutive whole batches."""

    data: memoryview
    first_offset: int
    next_offset: int
    last_epoch: int


def pieces(records: Buffer, epoch_max: int, *, bytes_max: int, batches_max: int) -> Iterator[Piece]:
    """Yields the whole batches of a response in order, in pieces of limited size; a truncated last batch is left out.

    Batches of a leader epoch above `epoch_max`, that of the request, and all batches after them are left out: the log
    might have to be truncated before them (KAFKA-18723). Raises CorruptBatch if the data are no batch.
    """
    view = memoryview(records)
    size = len(view)
    at = begin = count = 0
    first_offset = next_offset = last_epoch = -1
    while size - at >= BATCH_OVERHEAD:
        base_offset, length, epoch, magic, delta = _PLACE.unpack_from(view, at)
        end = at + length + LENGTH_OVERHEAD
        if magic != MAGIC or length < BATCH_OVERHEAD - LENGTH_OVERHEAD or delta < 0:
            raise CorruptBatch(f"what the leader sent is no batch at byte {at}")
        if end > size or epoch > epoch_max:
            break
        if count and (end - begin > bytes_max or count == batches_max):
            yield Piece(view[begin:at], first_offset, next_offset, last_epoch)
            begin, count = at, 0
        if not count:
            first_offset = base_offset
        count += 1
        next_offset, last_epoch = base_offset + delta + 1, epoch
        at = end
    if count:
        yield Piece(view[begin:at], first_offset, next_offset, last_epoch)
