"""Answers of this node to others: the parts that lie in files are read on workers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.broker.quorum.codec import FETCH_BYTES_MAX
from headrace.broker.quorum.log.metadata_log import MetadataLog
from headrace.broker.storage.storage_format import StorageError
from headrace.env.node import settle
from headrace.raft.events import Reply
from headrace.raft.messages import FetchResponse, FetchSnapshotResponse
from headrace.wire.errors import ErrorCode

if TYPE_CHECKING:
    from asyncio import Future

    from headrace.env import Node


class Answers:
    """The token of a `Reply` is a future of (the message, the batches that a fetch gets)."""

    def __init__(self, node: Node, log: MetadataLog) -> None:
        self._node = node
        self._metadata = log

    def give(self, reply: Reply) -> None:
        """Answers, at once or when what is to be read was read."""
        answer: Future[tuple[Any, bytes]] = reply.token  # type: ignore[assignment]
        if answer.done():
            return  # who asked has gone
        message = reply.message
        if reply.read_from >= reply.read_to:
            answer.set_result((message, b""))
        elif isinstance(message, FetchSnapshotResponse):
            self._node.workers.submit(
                lambda: self._piece(message, reply.read_to - reply.read_from),
                lambda whole, error: self._read_to_end(answer, (whole or self._unreadable(message), b""), error),
            )
        else:
            assert isinstance(message, FetchResponse)
            self._node.workers.submit(
                lambda: self._metadata.batches(reply.read_from, reply.read_to, FETCH_BYTES_MAX),
                lambda records, error: self._read_to_end(answer, (message, records or b""), error),
            )

    def _read_to_end(
        self, answer: Future[tuple[Any, bytes]], given: tuple[Any, bytes], error: BaseException | None
    ) -> None:
        # The range may be gone: this node no longer leads, its log was truncated, or a snapshot replaced it.
        if error is not None and not isinstance(error, (OSError, StorageError)):
            self._node.defects.report(error, "an answer out of the metadata log")
        settle(answer, given)

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
