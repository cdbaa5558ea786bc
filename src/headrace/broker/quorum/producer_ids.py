"""A broker's block of producer ids: handed out from memory; the controller gives the next block when it is used up."""

from __future__ import annotations

from headrace.broker.quorum.controller import Controller, ControllerError
from headrace.controller.requests import AllocateProducerIds


class ProducerIds:
    """Hands out each producer id once. What is left of a block when the broker stops is never used."""

    def __init__(self, controller: Controller, node_id: int) -> None:
        self._controller = controller
        self._node_id = node_id
        self._next = 0
        self._end = 0

    def take(self) -> int | None:
        """The next id, or None when the block is used up."""
        if self._next >= self._end:
            return None
        self._next += 1
        return self._next - 1

    async def take_from_next_block(self) -> int:
        """The next id, from a fresh block if need be. Raises ControllerError."""
        while (ready := self.take()) is None:
            block = await self._controller.ask(AllocateProducerIds(self._node_id))
            if block.error:
                raise ControllerError(block.error)
            # Another request may have brought a block meanwhile: its rest is given up, which costs nothing.
            if self._next >= self._end:
                self._next, self._end = block.first, block.end
        return ready
