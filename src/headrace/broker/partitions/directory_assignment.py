"""Tells the metadata in which log directory each replica lies, where a broker with several chose. KIP-858."""

from __future__ import annotations

import contextlib
from asyncio import Task
from collections.abc import Callable, Iterable, Mapping, Sequence

from headrace.broker.quorum.controller import Controller, ControllerError
from headrace.controller.requests import AssignDirectories, FailDirectories
from headrace.env import Owner
from headrace.log.log import Log
from headrace.metadata.image import ClusterImage

_AT_ONCE = 2_000
"""Assignments of one record batch."""


class DirectoryAssignment:
    """Gathers what is noted between two turns of the loop and submits it together."""

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
        self._noted: list[tuple[bytes, int, bytes]] = []
        self._task: Task[None] | None = None

    def note(self, log: Log) -> None:
        """A log was opened, or has moved: the metadata will say where it lies."""
        topic = self._image().topics.by_id(log.topic_id)
        index = log.topic_partition[1]
        directory_id = self._ids[log.directory.rpartition("/")[0]]
        if topic is None or index >= len(topic.partitions):
            return
        if topic.partitions[index].directory_of(self._node_id) == directory_id:
            return
        self._noted.append((log.topic_id, index, directory_id))
        if self._task is None or self._task.done():
            self._task = self._owner.spawn(self._submit())

    def failed(self, online: Iterable[str]) -> None:
        """A log directory failed: the metadata will say that only those online work, and who lost its leader by it."""
        working = [self._ids[path] for path in online]
        self._owner.spawn(self._submit_failure(working))

    async def _submit_failure(self, working: Sequence[bytes]) -> None:
        with contextlib.suppress(ControllerError):
            await self._controller.ask(FailDirectories(self._node_id, working))

    async def _submit(self) -> None:
        while self._noted:
            some, self._noted = self._noted[:_AT_ONCE], self._noted[_AT_ONCE:]
            # What cannot be written now is noted again at the next start.
            with contextlib.suppress(ControllerError):
                await self._controller.ask(AssignDirectories(self._node_id, some))
