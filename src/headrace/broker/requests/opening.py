"""Clients' batches that take long to check: opened (or compressed) on a worker, inside the memory for requests.

One at a time, in order of arrival: a few KB may open to as many MB, and whoever sends such batches shall take one
thread and the memory of one of them, however many connections there are. The codecs and the walk over the records leave
the interpreter to the event loop meanwhile.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from headrace.log.validate import Checked, Opening, check_client_batch
from headrace.wire.batch import BATCH_OVERHEAD, read_header
from headrace.wire.records import CorruptBatch, opened_size

if TYPE_CHECKING:
    from asyncio import Future

    from headrace.broker.net.budget import Budget
    from headrace.broker.telemetry.metrics import Registry
    from headrace.env import Node
    from headrace.log.log import Log


class Openings:
    """Of one broker."""

    def __init__(self, node: Node, budget: Budget, metrics: Registry) -> None:
        """`budget`: what requests in memory draw on."""
        self._node = node
        self._budget = budget
        self._busy = False
        self._waiting: deque[Future[None]] = deque()  # at most one a connection, which says nothing else meanwhile
        self._count = metrics.counter("produce.batches_opened_aside")

    async def check(self, log: Log, data: bytes, now_ms: int) -> Checked:
        """See `check_client_batch`; it is decided, however long that takes."""
        await self._turn()
        try:
            return await self._check(log, data, now_ms)
        finally:
            self._pass_on()

    async def _check(self, log: Log, data: bytes, now_ms: int) -> Checked:
        self._count.value += 1
        config, name = log.config, log.name
        limit = config.max_decompressed_bytes
        size = min(await self._node.workers.run(lambda: _size(data, limit)), limit)
        while True:
            await self._take(size)
            try:
                checked = await self._node.workers.run(
                    lambda size=size: check_client_batch(  # type: ignore[misc]
                        data, config, name, now_ms, Opening(size, True, self._node.scratch(size))
                    )
                )
            finally:
                self._budget.give(size)
                self._budget.settle(self)
            if checked is not None:
                return checked
            assert size < limit, "a batch that opens to more than its topic allows is refused"
            size = limit  # it said less than it is

    async def _turn(self) -> None:
        """Returns when no other batch is at work."""
        if not self._busy:
            self._busy = True
            return
        turn = self._node.future()
        self._waiting.append(turn)
        try:
            await turn
        except BaseException:  # the broker stops
            if turn.done() and not turn.cancelled():
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._busy = False

    async def _take(self, size: int) -> None:
        """Returns when there is memory for a body of that size. It may be the one that goes beyond the limit."""
        budget = self._budget
        while not budget.take(size) and not budget.overdraw(size, self):
            woken = self._node.future()
            budget.wait(lambda woken=woken: woken.done() or woken.set_result(None))  # type: ignore[misc]
            await woken


def _size(data: bytes, limit: int) -> int:
    """Bytes that checking a batch takes beyond its own, by what its body says of itself."""
    if len(data) < BATCH_OVERHEAD:
        return 0
    try:
        return opened_size(read_header(data).compression, memoryview(data)[BATCH_OVERHEAD:], limit)
    except CorruptBatch:
        return 0  # it is refused, and opened to nothing
