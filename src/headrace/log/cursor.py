"""A reader's position in a log: its last read, and where the next one starts in which file.

A sequential reader asks for the offset after its last batch. Its next batches are found without an index and without
reading earlier ones, and only the bytes that it gets are read from the file.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

from headrace.wire._walk import batches
from headrace.wire.batch import BATCH_PLACE, LENGTH_OVERHEAD

if TYPE_CHECKING:
    from headrace.env import File
    from headrace.log.reader import LogReader
    from headrace.log.segment import Segment
    from headrace.wire.file_slice import FileSlice

OTHERWISE: Final = -1
"""The result of a read whose batches do not fit the given memory."""


class Cursor:
    """See the module. For the thread that appends; another one reads with `LogReader.read`.

    What it knows holds for one list of segments: a log that rolls, drops or compacts segments or is cut has another.
    """

    __slots__ = ("_again", "_clean", "_found", "_head", "_next", "_segment", "_segments", "file", "position")

    def __init__(self) -> None:
        self._segments: list[Segment] | None = None
        self._segment: Segment | None = None
        self._clean: tuple[list[Segment] | None, int] = (None, 0)  # from which segment on none has an aborted one
        self._found = array("q", (0, 0, 0))
        self._head = memoryview(bytearray(BATCH_PLACE.size))
        self._again = (-1, 0)  # the offset that was asked for last, and where its batch begins
        self._next = (-1, 0)  # the same of the offset behind it
        self.file: File | None = None
        """Where the last bytes were read, from `position` on."""
        self.position = 0

    def read(self, reader: LogReader, offset: int, max_bytes: int, upper: int, min_one: bool, room: memoryview) -> int:
        """Reads batches from `offset` on into `room`, as `LogReader.read` gives them: how many bytes; 0 if they do not
        fit `max_bytes`, and not even one has to come.

        OTHERWISE where they do not fit `room`: then `locate` says where they are. `offset` lies in the log and below
        `upper` (a high watermark or last stable offset), and `max_bytes` is above 0. Raises OSError, and
        BlockingIOError where the disk is needed.
        """
        segment, position = self._place(reader, offset)
        size = min(segment.size - position, max_bytes)
        if size > len(room):
            return OTHERWISE
        file = segment.file_to_read()
        if file.read_cached_into(position, room[:size]) < size:
            raise BlockingIOError(f"byte {position} of {segment.stem} is not in memory")
        given = batches(room, size, upper, self._found)
        if given < 0 or not self._found[0]:  # no batches, or not even the first one is whole
            return OTHERWISE if given < 0 or min_one else 0
        self._remember(offset, file, position)
        return given

    def locate(self, reader: LogReader, offset: int, max_bytes: int, upper: int, min_one: bool) -> int:
        """The same for more than is copied: the number of bytes, which `slice` describes.

        The batches themselves are not looked at, but for the beginning of the first.
        """
        segment, position = self._place(reader, offset)
        file = segment.file_to_read()
        head = self._head
        if file.read_cached_into(position, head) < len(head):
            raise BlockingIOError(f"byte {position} of {segment.stem} is not in memory")
        base_offset, length, delta = BATCH_PLACE.unpack(head)
        first: int = length + LENGTH_OVERHEAD
        end = reader.readable_end(segment, upper)
        if end <= position or first > end - position or (first > max_bytes and not min_one):
            return 0
        self._found[0], self._found[1] = first, base_offset + delta + 1
        self._remember(offset, file, position)
        return min(max(max_bytes, first), end - position)

    def _place(self, reader: LogReader, offset: int) -> tuple[Segment, int]:
        segments = reader.segment_list.segments
        if segments is not self._segments:
            self._segments, self._next, self._again = segments, (-1, 0), (-1, 0)
        segment, position = self._segment, -1
        if offset == self._next[0]:
            position = self._next[1]
        elif offset == self._again[0]:
            position = self._again[1]
        if segment is None or not 0 <= position < segment.size:
            place = reader.place_of(offset, wait=False)
            if place is None:
                raise BlockingIOError(f"nothing is left from offset {offset} on")
            segment, position, _ = place
            self._segment = segment
            self._again, self._next = (offset, position), (-1, 0)  # places in that segment, both
        return segment, position

    def _remember(self, offset: int, file: File, position: int) -> None:
        self._again = (offset, position)
        self._next = (self._found[1], position + self._found[0])
        self.file = file
        self.position = position

    def slice(self, size: int) -> FileSlice:
        """What was read last, as it lies in its file."""
        assert self.file is not None, "something was read"
        return self.file.slice(self.position, size)

    def none_aborted(self, reader: LogReader) -> bool:
        """Whether no transaction that ends in what was read last or behind it was aborted, as far as memory tells."""
        segment, segments = self._segment, self._segments
        assert segment is not None, "something was read"
        clean, first = self._clean
        if clean is not segments or segment.base_offset < first:
            if not reader.none_aborted(segment):
                return False
            self._clean = (segments, segment.base_offset)
        return not reader.segment_list.active.has_aborted
