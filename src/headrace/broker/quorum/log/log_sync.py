"""Syncs of the metadata log, on a worker and one at a time. Appends during a sync share the next one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from headrace.env.disk import is_full, is_passing

if TYPE_CHECKING:
    from headrace.broker.quorum.log.metadata_log import MetadataLog
    from headrace.env import LogSink, Node
    from headrace.raft.messages import Position

SYNC_BACKOFF_S: Final = 0.1
"""How long a sync that found no descriptor or no memory waits for its next attempt."""


class LogSync:
    """Syncs the metadata log, one sync at a time."""

    def __init__(self, node: Node, log: MetadataLog, sink: LogSink) -> None:
        self._node = node
        self._metadata = log
        self._log = sink
        self._wanted: Position | None = None

    def want(self, end: Position) -> None:
        """The log, which ends here, is to be synced."""
        self._wanted = end

    @property
    def is_wanted(self) -> bool:
        """Whether anything was appended since the last sync began."""
        return self._wanted is not None

    async def run(self) -> Position:
        """Syncs the log, and returns the end of its part on stable storage.

        Raises OSError where the disk refuses it: nobody knows then what it holds. A sync for which no descriptor or no
        memory is free is tried again, for the disk was not asked.
        """
        while True:
            end, self._wanted = self._wanted, None
            assert end is not None
            try:
                await self._node.syncs.run(self._metadata.sync)
                return end
            except OSError as error:
                if is_full(error) or not is_passing(error):
                    raise
                self._log.warning("metadata log cannot be synced yet", why=error)
            self._wanted = self._wanted or end
            await asyncio.sleep(SYNC_BACKOFF_S)
