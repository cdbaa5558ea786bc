"""Syncs of the metadata log, on workers and one at a time: what is appended in this turn of the loop, and while one is
under way, shares the next one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from headrace.env.disk import is_full, is_passing
from headrace.env.node import settle

if TYPE_CHECKING:
    from asyncio import Future

    from headrace.broker.quorum.metadata_log import MetadataLog
    from headrace.env import LogSink, Node, Owner
    from headrace.raft.messages import Position

SYNC_BACKOFF_S: Final = 0.1
"""How long a sync that found no descriptor or no memory waits for its next attempt."""


class Syncs:
    """See the module. `end` is the end of what is to be synced, None where it is not written yet: then whoever writes
    it asks again. `synced` hears of each sync; `failed`, why a sync failed after which nobody knows what the disk
    holds."""

    def __init__(
        self,
        node: Node,
        owner: Owner,
        log: MetadataLog,
        sink: LogSink,
        *,
        end: Callable[[], Position | None],
        synced: Callable[[Position], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._node = node
        self._owner = owner
        self._metadata = log
        self._log = sink
        self._end = end
        self._synced = synced
        self._failed = failed
        self._under_way: Future[None] | None = None

    def soon(self) -> None:
        """Syncs what is appended by the end of this turn of the loop."""
        if self._under_way is None:
            self._under_way = self._node.future()
            self._owner.later(0, self._sync)

    def _sync(self) -> None:
        end = self._end()
        if end is None:
            self._ended()
        else:
            self._node.syncs.submit(self._metadata.sync, lambda _, error: self._heard(end, error))

    def _heard(self, end: Position, error: BaseException | None) -> None:
        if isinstance(error, OSError) and is_passing(error) and not is_full(error):
            # The disk was not asked. After a sync that it refused for lack of room nobody knows what it holds.
            self._log.warning("metadata log cannot be synced yet", why=error)
            self._owner.later(SYNC_BACKOFF_S, self._sync)
            return
        self._ended()
        if error is not None:
            self._failed(error)
        else:
            self._synced(end)

    def _ended(self) -> None:
        under_way, self._under_way = self._under_way, None
        assert under_way is not None
        settle(under_way)

    async def all(self) -> None:
        """Returns when none is under way."""
        while self._under_way is not None:
            await self._under_way
