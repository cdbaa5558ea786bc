"""Tasks end with their owners: those of the world's faults, and those of a node."""

from __future__ import annotations

import asyncio
import random

from headrace.sim.disk import SimDisk
from headrace.sim.loop import PROCESS
from headrace.sim.node import SimNode
from headrace.sim.owner import WorldOwner
from headrace.sim.world import World


def node_of(world: World) -> SimNode:
    node = SimNode(world, "one", SimDisk(random.Random(1)), random.Random(1))
    world.add(node)
    return node


def test_a_task_of_the_world_ends_with_its_owner() -> None:
    world = World(1)
    owner = WorldOwner(world)
    woke: list[object] = []

    async def wake(delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        woke.append((delay_s, PROCESS.get()))

    async def main() -> None:
        token = PROCESS.set(node_of(world))
        owner.spawn(wake(1.0))
        owner.spawn(wake(3.0))
        PROCESS.reset(token)
        await asyncio.sleep(2.0)
        owner.close()
        await asyncio.sleep(5.0)

    world.loop.run_until_complete(main())
    assert woke == [(1.0, None)]
    assert world.loop.failure is None
    world.end()


def test_what_a_task_of_the_world_raises_ends_the_run() -> None:
    world = World(1)

    async def fail() -> None:
        raise ValueError("no such machine")

    WorldOwner(world).spawn(fail())
    world.loop.run_until_complete(asyncio.sleep(1.0))
    assert isinstance(world.loop.failure, ValueError)
    world.end()


def test_a_node_that_closes_waits_for_every_task_of_an_owner() -> None:
    """Also for those that come after one that raises, and for those that a task starts while it ends."""
    world = World(1)
    owner = node_of(world).owner("owner")
    ended: list[str] = []

    async def fail() -> None:
        try:
            await asyncio.sleep(9.0)
        finally:
            raise ValueError("it cannot end")

    async def tidy_up(name: str) -> None:
        try:
            await asyncio.sleep(9.0)
        finally:
            await asyncio.sleep(1.0)
            owner.spawn(asyncio.sleep(9.0))
            ended.append(name)

    async def main() -> None:
        owner.spawn(fail())
        owner.spawn(tidy_up("one"))
        owner.spawn(tidy_up("other"))
        await asyncio.sleep(1.0)
        await owner.closed()
        assert ended == ["one", "other"]
        assert not owner.tasks

    world.loop.run_until_complete(main())
    assert "it cannot end" in str(world.objection)
    world.end()


def test_whoever_is_cancelled_while_an_owner_closes_goes_no_further() -> None:
    world = World(1)
    owner = node_of(world).owner("owner")
    came: list[str] = []

    async def tidy_up() -> None:
        try:
            await asyncio.sleep(9.0)
        finally:
            await asyncio.sleep(3.0)

    async def close() -> None:
        await owner.closed()
        came.append("went on")

    async def main() -> None:
        owner.spawn(tidy_up())
        await asyncio.sleep(1.0)
        closing = asyncio.create_task(close())
        await asyncio.sleep(1.0)
        closing.cancel()
        await asyncio.sleep(9.0)
        assert closing.cancelled()

    world.loop.run_until_complete(main())
    assert came == []
    world.end()
