"""Answers of this node to others: the parts that lie in files are read on workers."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.broker.quorum.codec import FETCH_BYTES_MAX
from headrace.broker.quorum.log.metadata_log import MetadataLog
from headrace.broker.storage.storage_format import StorageError
from headrace.env.node import settle
from headrace.env.workers import Raised
from headrace.raft.events import Reply
from headrace.raft.messages import FetchResponse, FetchSnapshotResponse
from headrace.wire.errors import ErrorCode

if TYPE_CHECKING:
    from asyncio import Future

    from headrace.env import Node

    Answer: TypeAlias = Future[tuple[Any, bytes]]


class Answers:
    """The token of a `Reply` is a future of (the message, the batches that a fetch gets)."""

    def __init__(self, node: Node, log: MetadataLog) -> None:
        self._node = node
        self._metadata = log

    def give(self, reply: Reply) -> None:
        """Answers at once, or after a read of the log or a snapshot."""
        answer: Answer = reply.token  # type: ignore[assignment]
        if answer.done():
            return  # who asked has gone
        message = reply.message
        if reply.read_from >= reply.read_to:
            answer.set_result((message, b""))
        elif isinstance(message, FetchSnapshotResponse):
            piece = partial(self._piece, message, reply.read_to - reply.read_from)
            self._node.workers.submit(piece).deliver_to(partial(self._with_piece, answer, message))
        else:
            assert isinstance(message, FetchResponse)
            batches = partial(self._metadata.batches, reply.read_from, reply.read_to, FETCH_BYTES_MAX)
            self._node.workers.submit(batches).deliver_to(partial(self._with_batches, answer, message))

    def _with_piece(
        self, answer: Answer, message: FetchSnapshotResponse, piece: FetchSnapshotResponse | Raised
    ) -> None:
        if isinstance(piece, Raised):
            self._report_defect(piece.error)
            piece = self._unreadable(message)
        settle(answer, (piece, b""))

    def _with_batches(self, answer: Answer, message: FetchResponse, batches: bytes | Raised) -> None:
        if isinstance(batches, Raised):
            self._report_defect(batches.error)
            batches = b""
        settle(answer, (message, batches))

    def _report_defect(self, error: BaseException) -> None:
        """Reports an error unless it says that the data are gone: this node no longer leads, its log was truncated, or
        a snapshot replaced them."""
        if not isinstance(error, (OSError, StorageError)):
            self._node.defects.report(error, "an answer out of the metadata log")

    def _piece(self, message: FetchSnapshotResponse, max_bytes: int) -> FetchSnapshotResponse:
        try:
            data, size = self._metadata.files.piece(message.snapshot, message.position, max_bytes)
        except FileNotFoundError:
            return replace(message, error=ErrorCode.SNAPSHOT_NOT_FOUND)
        if message.position >= size:
            return replace(message, error=ErrorCode.POSITION_OUT_OF_RANGE)
        return replace(message, size=size, data=data)

    @staticmethod
    def _unreadable(message: FetchSnapshotResponse) -> FetchSnapshotResponse:
        return replace(message, error=ErrorCode.UNKNOWN_SERVER_ERROR)
