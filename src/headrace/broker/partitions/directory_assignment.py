"""Reports the log directory of each replica to the controller, if a broker has several directories (KIP-858).

A report that no controller answers is retried: a replica whose directory the metadata do not name is not removed from
the in-sync set when its disk fails.
"""

from __future__ import annotations

import contextlib
from asyncio import Task, sleep
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final

from headrace.broker.quorum.port.controller import Controller, ControllerError
from headrace.controller.directories import AssignDirectories, FailDirectories
from headrace.env import Owner
from headrace.log.log import Log
from headrace.metadata.image import DIRECTORY_LOST, ClusterImage
from headrace.wire.errors import ErrorCode

_AT_ONCE: Final = 2_000
"""Assignments in one request."""
_AGAIN_S: Final = (0.1, 10.0)
"""First and longest pause before an assignment is retried, in seconds."""
_SETTLED: Final = (ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION)
"""Final answers: metadata of older releases have no directories."""


class DirectoryAssignment:
    """The pending reports of one broker; those of one turn of the loop are sent together."""

    def __init__(
        self,
        controller: Controller,
        image: Callable[[], ClusterImage],
        node_id: int,
        directory_ids: Mapping[str, bytes],
        owner: Owner,
    ) -> None:
        self._controller = controller
        self._image = image
        self._node_id = node_id
        self._ids = directory_ids
        self._owner = owner
        self._noted: dict[tuple[bytes, int], bytes] = {}
        """Directories that the metadata do not have yet, by topic id and partition index."""
        self._task: Task[None] | None = None

    def note(self, log: Log) -> None:
        """Reports the directory of a log that was opened or moved."""
        self._note((log.topic_id, log.topic_partition[1]), self._ids[log.directory.rpartition("/")[0]])

    def lost(self, topic_id: bytes, index: int) -> None:
        """Reports a replica whose log lacks files as being in no directory, so that another replica leads."""
        self._note((topic_id, index), DIRECTORY_LOST)

    def _note(self, key: tuple[bytes, int], directory_id: bytes) -> None:
        self._noted.pop(key, None)  # an older report is obsolete
        if not self._is_news(key, directory_id):
            return
        self._noted[key] = directory_id
        if self._task is None or self._task.done():
            self._task = self._owner.spawn(self._submit())

    def _is_news(self, key: tuple[bytes, int], directory_id: bytes) -> bool:
        topic_id, index = key
        topic = self._image().topics.by_id(topic_id)
        if topic is None or index >= len(topic.partitions):
            return False
        return topic.partitions[index].directory_of(self._node_id) != directory_id

    def failed(self, online: Iterable[str]) -> None:
        """Reports that a log directory failed and only those in `online` work; the controller then moves the affected
        leaders."""
        working = [self._ids[path] for path in online]
        self._owner.spawn(self._submit_failure(working))

    async def _submit_failure(self, working: Sequence[bytes]) -> None:
        with contextlib.suppress(ControllerError):
            await self._controller.ask(FailDirectories(self._node_id, working))

    async def _submit(self) -> None:
        again_s = _AGAIN_S[0]
        while self._noted:
            some = dict(islice(self._noted.items(), _AT_ONCE))
            if await self._is_taken(some):
                again_s = _AGAIN_S[0]
                # Replicas that moved meanwhile are reported again.
                self._noted = {key: id_ for key, id_ in self._noted.items() if some.get(key) != id_}
            else:
                await sleep(again_s)
                again_s = min(2 * again_s, _AGAIN_S[1])
                self._noted = {key: id_ for key, id_ in self._noted.items() if self._is_news(key, id_)}

    async def _is_taken(self, some: Mapping[tuple[bytes, int], bytes]) -> bool:
        """Sends a report to the controller; returns whether its answer is final."""
        chosen = [(topic_id, index, directory_id) for (topic_id, index), directory_id in some.items()]
        try:
            answer = await self._controller.ask(AssignDirectories(self._node_id, chosen))
        except ControllerError:
            return False
        return answer.error in _SETTLED
