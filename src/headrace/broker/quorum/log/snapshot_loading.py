"""Receives a snapshot of the leader's: writes its pieces on workers, one after the other, and checks the whole.

The difference from the image of now is computed on a worker too, before the machine hears that the snapshot is loaded:
neither of the two images changes meanwhile.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from headrace.broker.quorum.log.snapshot_files import SnapshotContent, SnapshotFiles
from headrace.broker.storage.storage_format import StorageError
from headrace.metadata.delta import ImageDelta, InconsistentMetadataError
from headrace.metadata.difference import difference
from headrace.raft.events import Piece, PieceStored, SnapshotLoaded, SnapshotUnusable

if TYPE_CHECKING:
    from headrace.env import LogSink, Node
    from headrace.metadata.image import ClusterImage
    from headrace.raft.messages import Position


class SnapshotLoading:
    """Pieces that wait to be stored, and the snapshot that the last of them completed."""

    def __init__(self, node: Node, files: SnapshotFiles, cluster_id: str, log: LogSink) -> None:
        self._cluster_id = cluster_id
        self._node = node
        self._files = files
        self._log = log
        self._pieces: deque[Piece] = deque()
        self._is_loading = False
        self._logged: tuple[Position | None, str] = (None, "")
        """What was logged last: which snapshot, and why it cannot be used."""
        self._loaded: SnapshotContent | None = None
        self._compared: ClusterImage | None = None
        self._delta: ImageDelta | None = None

    def add(self, piece: Piece) -> bool:
        """Adds the next piece; one at position 0 begins again, whatever came before. Returns whether loading begins:
        then `store` is to be awaited for as long as `continues` returns True."""
        if piece.position == 0 and piece.snapshot != self._logged[0]:
            end = piece.snapshot
            self._logged = (end, self._logged[1])
            self._log.info("metadata snapshot is fetched", end_offset=end.offset, epoch=end.epoch)
        self._pieces.append(piece)
        begins, self._is_loading = not self._is_loading, True
        return begins

    @property
    def has_pieces(self) -> bool:
        """Whether a piece waits to be stored."""
        return bool(self._pieces)

    def continues(self) -> bool:
        """Returns whether there is a piece to store; if not, loading ends, until `add` begins it again."""
        self._is_loading = self.has_pieces
        return self._is_loading

    async def store(self) -> PieceStored | SnapshotLoaded | SnapshotUnusable:
        """Stores the piece that has waited longest, on a worker, and returns what became of it."""
        return await self._store(self._pieces.popleft())

    async def _store(self, piece: Piece) -> PieceStored | SnapshotLoaded | SnapshotUnusable:
        try:
            content = await self._node.workers.run(lambda: self._files.store(piece, self._cluster_id))
        except (OSError, StorageError) as error:
            if str(error) != self._logged[1]:  # it comes again until it can be used
                self._logged = (piece.snapshot, str(error))
                self._log.error("the leader's metadata snapshot cannot be used", why=error)
            return SnapshotUnusable(piece.snapshot)
        if content is None:
            return PieceStored(piece.snapshot, piece.position + len(piece.data))
        self._loaded, self._compared, self._logged = content, None, (None, "")
        return SnapshotLoaded(piece.snapshot, content.voters)

    async def compare(self, image: ClusterImage) -> bool:
        """Computes on a worker what changes from an image; returns whether there was anything to do."""
        content = self._loaded
        if content is None or self._compared is image:
            return False
        try:
            self._delta = await self._node.workers.run(lambda: difference(image, content.image))
        except InconsistentMetadataError:  # the snapshot cannot follow this image; `take` says so where it matters
            self._delta = None
        self._compared = image
        return True

    def take(self, end: Position, image: ClusterImage) -> tuple[SnapshotContent, ImageDelta]:
        """Returns the snapshot that was loaded, and what changes with it from the image of now.

        Raises InconsistentMetadataError where it cannot follow that image.
        """
        content, delta = self._loaded, self._delta
        self._loaded = self._delta = self._compared = None
        assert content is not None and content.end == end
        if delta is None or delta.base is not image:
            delta = difference(image, content.image)
        return content, delta
