"""FileSlice: a range of a file, used in place of its bytes until they are sent."""

from __future__ import annotations

from typing import Protocol, final


class SliceFile(Protocol):
    """What a FileSlice needs of its file."""

    def fileno(self) -> int: ...

    def read(self, at: int, size: int) -> bytes: ...

    def read_ahead(self, at: int, size: int) -> None: ...


@final
class FileSlice:
    """`size` bytes of `file` from `position`; not to be changed once made. Its length is its size."""

    __slots__ = ("file", "position", "size")

    def __init__(self, file: SliceFile, position: int, size: int) -> None:
        self.file = file
        self.position = position
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        return f"FileSlice(position={self.position}, size={self.size})"

    def read(self) -> bytes:
        """The bytes themselves; may block, raises OSError."""
        return self.file.read(self.position, self.size)
