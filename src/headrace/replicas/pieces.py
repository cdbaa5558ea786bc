"""Parts a leader's answer into pieces that are appended in one go each, without looking into a batch. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from headrace.wire.batch import BATCH_OVERHEAD, LENGTH_OVERHEAD, MAGIC, CorruptBatch
from headrace.wire.primitives import Buffer

_PLACE: Final = Struct(">qiib6xi")
"""Base offset, batch length, leader epoch, magic, delta of the last offset."""


class Piece(NamedTuple):
    """Whole batches that follow each other."""

    data: memoryview
    first_offset: int
    next_offset: int
    last_epoch: int


def pieces(records: Buffer, epoch_max: int, *, bytes_max: int, batches_max: int) -> Iterator[Piece]:
    """The whole batches of an answer, in order, so many at a time; a batch that the end cuts off is left out.

    What a later leader wrote than the one that was asked (above `epoch_max`) is left out too, and all behind it: the
    log might have to be cut before it (KAFKA-18723). Raises CorruptBatch where something else than a batch begins.
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
