"""A broker's block of producer ids: handed out from memory; the controller gives the next block when it is used up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.quorum.port.controller import Controller, ControllerError
from headrace.controller.producer_ids import AllocateProducerIds

if TYPE_CHECKING:
    from asyncio import Task

    from headrace.env import Owner


class ProducerIds:
    """Hands out each producer id once. The rest of a block is never used after the broker has stopped."""

    def __init__(self, controller: Controller, node_id: int, owner: Owner) -> None:
        """`owner` starts what nobody waits for."""
        self._owner = owner
        self._fetching: Task[None] | None = None
        self._controller = controller
        self._node_id = node_id
        self._next = 0
        self._end = 0

    @property
    def is_empty(self) -> bool:
        """Whether there is no id to take without the controller."""
        return self._next >= self._end

    def take(self) -> int | None:
        """The next id, or None when the block is used up."""
        if self.is_empty:
            return None
        self._next += 1
        return self._next - 1

    def take_or_fetch(self) -> int | None:
        """Returns the next id; or None, and fetches a block, for a caller that cannot wait and will retry."""
        ready = self.take()
        if ready is None and self._fetching is None:
            self._fetching = self._owner.spawn(self._fetch())
        return ready

    async def _fetch(self) -> None:
        try:
            await self.fill()
        except ControllerError:
            return  # the next caller asks again
        finally:
            self._fetching = None

    async def fill(self) -> None:
        """Returns when there is an id to take, from a fresh block if need be. Raises ControllerError."""
        while self.is_empty:
            block = await self._controller.ask(AllocateProducerIds(self._node_id))
            if block.error:
                raise ControllerError(block.error)
            # Another request may have brought a block meanwhile: its rest is given up, which costs nothing.
            if self.is_empty:
                self._next, self._end = block.first, block.end

    async def take_from_next_block(self) -> int:
        """The next id, from a fresh block if need be. Raises ControllerError."""
        while (ready := self.take()) is None:
            await self.fill()
        return ready
