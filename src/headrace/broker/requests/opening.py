"""Clients' batches that take long to check: opened (or compressed) on a worker, inside the memory for requests.

One at a time, in order of arrival: a few KB may open to as many MB, and a client that sends such batches takes one
thread and the memory of one of them, however many connections there are. The codecs and the walk over the records leave
the interpreter to the event loop meanwhile; what looks like a bomb is opened in the helper process, which leaves it the
processor as well.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final

from headrace.broker.telemetry.pace import PacedLines
from headrace.env.node import settle
from headrace.env.workers import HelperDied
from headrace.log.validate import Checked, Invalid, Opening, check_client_batch, check_in_helper
from headrace.wire.batch import BATCH_OVERHEAD, read_header
from headrace.wire.errors import ErrorCode
from headrace.wire.records import CorruptBatch, opened_size

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Awaitable, Callable

    from headrace.broker.net.budget import Budget
    from headrace.broker.telemetry.metrics import Registry
    from headrace.env import Node
    from headrace.log.log import Log

    Check = Callable[[Log, bytes, int, int], Awaitable[Checked | None]]
    """(log, batch, now in ms, the largest body to open): None where the body is larger."""

BOMB_BYTES: Final = 1024 * 1024
BOMB_RATIO: Final = 32
"""A body that opens to more than so many bytes, and to more than so many times what was sent, goes to the helper
process: clients' records seldom shrink so far. The size in a body is not enough: for lz4 it is a bound."""


class Openings:
    """Of one broker."""

    def __init__(self, node: Node, budget: Budget, metrics: Registry) -> None:
        """`budget`: what requests in memory draw on."""
        self._node = node
        self._budget = budget
        self._busy = False
        self._waiting: deque[Future[None]] = deque()  # at most one a connection
        self._count = metrics.counter("produce.batches_opened_aside")
        self._bombs = metrics.counter("produce.batches_opened_in_helper")
        self._lines = PacedLines(node.logger("requests"), node.clock.monotonic)

    async def check(self, log: Log, data: bytes, now_ms: int) -> Checked:
        """See `check_client_batch`; it is decided, however long that takes."""
        await self._turn()
        try:
            return await self._check(log, data, now_ms)
        finally:
            self._pass_on()

    async def _check(self, log: Log, data: bytes, now_ms: int) -> Checked:
        self._count.value += 1
        limit = log.state.config.max_decompressed_bytes
        size = min(await self._node.workers.run(lambda: _size(data, limit)), limit)
        few = max(BOMB_BYTES, BOMB_RATIO * len(data))
        for room in sorted({min(size, few), size, limit}):  # a body may open to less than it says, or to more
            check = self._on_worker if room <= few else self._in_helper
            checked = await self._within(room, check, log, data, now_ms)
            if checked is not None:
                return checked
        raise AssertionError("a batch that opens to more than its topic allows is refused")

    async def _within(self, size: int, check: Check, log: Log, data: bytes, now_ms: int) -> Checked | None:
        """None where the body opens to more than `size`."""
        await self._take(size)
        try:
            return await check(log, data, now_ms, size)
        finally:
            self._budget.give(size)
            self._budget.settle(self)

    async def _on_worker(self, log: Log, data: bytes, now_ms: int, size: int) -> Checked | None:
        config, name = log.state.config, log.state.name
        return await self._node.workers.run(
            lambda: check_client_batch(data, config, name, now_ms, Opening(size, True, self._node.scratch(size)))
        )

    async def _in_helper(self, log: Log, data: bytes, now_ms: int, size: int) -> Checked | None:
        self._bombs.value += 1
        config, name, helper = log.state.config, log.state.name, self._node.helper
        try:
            return await self._node.workers.run(lambda: helper.call(check_in_helper, data, config, name, now_ms, size))
        except HelperDied as error:
            opened = {"partition": name, "bytes": len(data), "opens_to": size}
            self._lines.warning(name, "batch refused", **opened, reason=str(error))
            return Invalid(ErrorCode.UNKNOWN_SERVER_ERROR, f"A batch for {name} could not be opened: {error}")
        except OSError as error:
            self._lines.warning(name, "no helper process", reason=str(error))
            return await self._on_worker(log, data, now_ms, size)

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
            budget.wait(partial(settle, woken))
            await woken


def _size(data: bytes, limit: int) -> int:
    """Bytes that checking a batch takes beyond its own, by the size in its body."""
    if len(data) < BATCH_OVERHEAD:
        return 0
    try:
        return opened_size(read_header(data).compression, memoryview(data)[BATCH_OVERHEAD:], limit)
    except CorruptBatch:
        return 0  # it is refused, and opened to nothing
