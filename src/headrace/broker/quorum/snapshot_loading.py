"""Receives a snapshot of the leader's: writes its pieces, one after the other, on workers, and tells the machine.

What changes with it is worked out on a worker too, before the machine hears of it: the two images do not change.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.broker.quorum.snapshot_files import SnapshotContent, SnapshotFiles
from headrace.broker.storage.storage_format import StorageError
from headrace.metadata.delta import ImageDelta, InconsistentMetadataError
from headrace.metadata.difference import difference
from headrace.raft.events import Piece, PieceStored, SnapshotLoaded, SnapshotUnusable

if TYPE_CHECKING:
    from headrace.env import LogSink, Node, Owner
    from headrace.metadata.image import ClusterImage
    from headrace.raft.messages import Position


class SnapshotLoading:
    """See the module. `heard` gets what became of each piece, `image` returns the committed image."""

    def __init__(
        self,
        node: Node,
        owner: Owner,
        files: SnapshotFiles,
        heard: Callable[[PieceStored | SnapshotLoaded | SnapshotUnusable], None],
        image: Callable[[], ClusterImage],
        cluster_id: str,
        log: LogSink,
    ) -> None:
        self._image = image
        self._cluster_id = cluster_id
        self._node = node
        self._owner = owner
        self._files = files
        self._heard = heard
        self._log = log
        self._pieces: deque[Piece] = deque()
        self._is_storing = False
        self._said: tuple[Position | None, str] = (None, "")
        """What the log was told last: of which snapshot, and why it cannot be used."""
        self._loaded: SnapshotContent | None = None
        self._delta: ImageDelta | None = None

    def take(self, piece: Piece) -> None:
        """The next piece. One at position 0 begins again, whatever came before."""
        if piece.position == 0 and piece.snapshot != self._said[0]:
            end = piece.snapshot
            self._said = (end, self._said[1])
            self._log.info("metadata snapshot is fetched", end_offset=end.offset, epoch=end.epoch)
        self._pieces.append(piece)
        if not self._is_storing:
            self._is_storing = True
            self._owner.spawn(self._store_all())

    async def _store_all(self) -> None:
        while self._pieces:
            piece = self._pieces.popleft()
            event = await self._store(piece)
            if not self._pieces:  # else it began again meanwhile
                self._heard(event)
        self._is_storing = False

    async def _store(self, piece: Piece) -> PieceStored | SnapshotLoaded | SnapshotUnusable:
        try:
            content = await self._node.workers.run(lambda: self._files.store(piece, self._cluster_id))
        except (OSError, StorageError) as error:
            if str(error) != self._said[1]:  # it comes again until it can be used
                self._said = (piece.snapshot, str(error))
                self._log.error("the leader's metadata snapshot cannot be used", why=error)
            return SnapshotUnusable(piece.snapshot)
        if content is None:
            return PieceStored(piece.snapshot, piece.position + len(piece.data))
        self._delta = await self._compare(content.image)
        self._loaded, self._said = content, (None, "")
        return SnapshotLoaded(piece.snapshot, content.voters)

    async def _compare(self, new: ClusterImage) -> ImageDelta | None:
        """What changes from the image of now; None where one cannot follow the other."""
        while True:
            old = self._image()
            try:
                delta = await self._node.workers.run(lambda old=old: difference(old, new))  # type: ignore[misc]
            except InconsistentMetadataError:
                return None
            if old is self._image():  # else the rest of the log was taken in meanwhile
                return delta

    def loaded(self, end: Position) -> tuple[SnapshotContent, ImageDelta]:
        """What was said to be loaded, and what changes with it, for whoever takes it over now. Raises
        InconsistentMetadataError where it cannot follow the image of now."""
        content, delta = self._loaded, self._delta
        self._loaded = self._delta = None
        assert content is not None and content.end == end
        if delta is None or delta.base is not self._image():
            delta = difference(self._image(), content.image)
        return content, delta
