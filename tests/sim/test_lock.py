"""The simulator's locks: taken again by who has them, refused to others, and a defect where somebody would wait."""

from __future__ import annotations

import asyncio

import pytest

from headrace.sim.lock import SimLock
from headrace.sim.world import World


def test_who_has_a_lock_takes_it_again() -> None:
    lock = SimLock()
    with lock, lock:
        assert lock.acquire(blocking=False)
        lock.release()
    with pytest.raises(AssertionError, match="given back by who took it"):
        lock.release()


def test_a_task_that_awaits_holds_no_lock() -> None:
    loop = World(1).loop
    lock = SimLock(lambda: asyncio.current_task(loop))
    found: list[object] = []

    async def holds() -> None:
        with lock:
            await asyncio.sleep(1)

    async def comes_by() -> None:
        await asyncio.sleep(0.5)
        found.append(lock.acquire(blocking=False))
        with pytest.raises(AssertionError, match="has not given back"):
            lock.acquire()
        with pytest.raises(AssertionError, match="given back by who took it"):
            lock.release()
        await asyncio.sleep(1)
        with lock:
            found.append("later")

    async def both() -> None:
        await asyncio.gather(holds(), comes_by())

    loop.run_until_complete(both())
    assert found == [False, "later"]
