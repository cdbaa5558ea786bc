"""Where the fields of a consumer's Fetch requests and of their answers lie, version by version.

What consumers send again and again differs in a few numbers of known places, and so do the answers. Taking those from
their places costs a tenth of decoding a request into objects and encoding an answer out of them. A request that is any
different - a follower's, one with tagged fields - is decoded like any other. The layouts are checked against the codec.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from headrace.wire.primitives import varint

SESSIONS_FROM: Final = 7
FLEXIBLE_FROM: Final = 12
TOPIC_IDS_FROM: Final = 13
_START_OFFSETS_FROM: Final = 5
_EPOCHS_FROM: Final = 9
_RACKS_FROM: Final = 11
_REPLICA_STATE_FROM: Final = 15
_FROM_CONSUMER: Final = b"\xff\xff\xff\xff"
_NO_REPLICA: Final = b"\xff\xff\xff\xff"
ID_BYTES: Final = 16

_read_size = Struct(">i").unpack_from
_read_length = Struct(">h").unpack_from
_pack_size = Struct(">i").pack
_pack_length = Struct(">h").pack


class FetchLayout:
    """One version's. Numbers that come with a request are read by the two `Struct`s, in this order:

    `read_head`: min_bytes, max_bytes, isolation level, and where there are sessions their id and epoch;
    `read_partition`: index, (leader epoch, from version 9,) offset, (last fetched epoch, from 12,) maximum of bytes.
    """

    def __init__(self, version: int) -> None:
        self.version = version
        self.has_sessions = version >= SESSIONS_FROM
        self.is_flexible = flexible = version >= FLEXIBLE_FROM
        self.has_topic_ids = version >= TOPIC_IDS_FROM
        self.has_epochs = version >= _EPOCHS_FROM
        head = Struct(">4xiib" + ("ii" if self.has_sessions else ""))
        self.read_head = head.unpack_from
        self.head_bytes = head.size
        partition = Struct(
            ">i"
            + ("i" if self.has_epochs else "")
            + "q"
            + ("i" if flexible else "")
            + ("8x" if version >= _START_OFFSETS_FROM else "")
            + "i"
            + ("x" if flexible else "")
        )
        self.read_partition = partition.unpack_from
        self.partition_bytes = partition.size
        """Those of a flexible version end with the number of their tagged fields, which is to be 0."""
        offset_in_partition = 4 + (4 if self.has_epochs else 0)
        self.offset_from_end = partition.size - offset_in_partition + (1 if flexible else 0)
        """How far before the end of its topics the offset of a request for one partition begins."""
        self._has_start_offset = version >= _START_OFFSETS_FROM
        self._pack_partition = Struct(">ihqq" + ("q" if self._has_start_offset else "")).pack
        replica = _NO_REPLICA if version >= _RACKS_FROM else b""
        self._none_aborted = {
            False: (b"\0" if flexible else _pack_size(-1)) + replica,
            True: (b"\1" if flexible else _pack_size(0)) + replica,
        }
        self.after_records = b"\0" if flexible else b""
        """Behind the records of a partition, the partitions of a topic, and the topics of an answer."""

    # --- requests

    def before(self, client_id: str | None) -> bytes:
        """A request from the length of the client id to the numbers of its head, as a consumer sends it."""
        name = (client_id or "").encode()
        front = (_pack_length(len(name)) + name) if client_id is not None else _pack_length(-1)
        tags = b"\0" if self.is_flexible else b""
        return front + tags + (_FROM_CONSUMER if self.version < _REPLICA_STATE_FROM else b"")

    def behind(self, rack_id: str) -> bytes:
        """What follows the topics of a request that takes nothing out of its session."""
        rack = rack_id.encode()
        if self.is_flexible:
            return b"\1" + varint(len(rack) + 1) + rack + b"\0"
        nothing_forgotten = _pack_size(0) if self.has_sessions else b""
        return nothing_forgotten + (_pack_length(len(rack)) + rack if self.version >= _RACKS_FROM else b"")

    def read_count(self, view: memoryview, at: int) -> tuple[int, int]:
        """How many elements the array that begins at `at` has, and where its first one begins."""
        if not self.is_flexible:
            return _read_size(view, at)[0], at + 4
        low = view[at]
        if low < 0x80:
            return low - 1, at + 1
        return (low & 0x7F | view[at + 1] << 7) - 1 if view[at + 1] < 0x80 else -1, at + 2

    def read_topic(self, view: memoryview, at: int) -> tuple[bytes, int]:
        """The topic's id, or its name as bytes, and where its partitions begin."""
        if self.has_topic_ids:
            return bytes(view[at : at + ID_BYTES]), at + ID_BYTES
        if self.is_flexible:
            size, at = self.read_count(view, at)
        else:
            size, at = _read_length(view, at)[0], at + 2
        return bytes(view[at : at + max(size, 0)]), at + max(size, 0)

    # --- answers

    def answer_head(self, session_id: int, topics: int) -> bytes:
        """An answer without its size and correlation id, up to its first topic: no throttling, no error."""
        head = b"\0" if self.is_flexible else b""
        head += _pack_size(0)
        if self.has_sessions:
            head += b"\0\0" + _pack_size(session_id)
        return head + self.count(topics)

    def topic_head(self, topic: str, topic_id: bytes, partitions: int) -> bytes:
        """A topic up to its first partition."""
        name = topic.encode()
        if self.has_topic_ids:
            head = topic_id
        elif self.is_flexible:
            head = varint(len(name) + 1) + name
        else:
            head = _pack_length(len(name)) + name
        return head + self.count(partitions)

    def partition_head(
        self, index: int, high_watermark: int, stable: int, log_start_offset: int, committed: bool, size: int
    ) -> bytes:
        """A partition without an error and without aborted transactions, up to its `size` bytes of records."""
        if self._has_start_offset:
            head = self._pack_partition(index, 0, high_watermark, stable, log_start_offset)
        else:
            head = self._pack_partition(index, 0, high_watermark, stable)
        head += self._none_aborted[committed]
        return head + (varint(size + 1) if self.is_flexible else _pack_size(size))

    def count(self, count: int) -> bytes:
        """The number of elements of an array."""
        return varint(count + 1) if self.is_flexible else _pack_size(count)
