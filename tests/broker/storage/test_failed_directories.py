"""A log directory that cannot be read or written when its broker starts: the others are served."""

from __future__ import annotations

import errno
import random

import pytest

from headrace.broker.broker import Broker
from headrace.broker.storage.storage_format import FormatOptions, open_storage
from headrace.raft.control import VoterEndpoint
from headrace.sim.disk import SimDisk
from headrace.sim.machine import Machine
from headrace.sim.run import DIRECTORIES, HOST, SETTINGS
from headrace.sim.world import World

FIRST, SECOND = DIRECTORIES
WRITING = ("write", "sync", "make", "rename", "remove")


def break_directory(disk: SimDisk, directory: str, number: int) -> None:
    """Nothing can be done there any more; where it is only read-only, files can be opened and read."""

    def broken(operation: str, path: str) -> OSError | None:
        fails = path.startswith(directory) and (number != errno.EROFS or operation in WRITING)
        return OSError(number, "broken", path) if fails and (operation, path) != ("make", directory) else None

    disk.broken = broken


@pytest.mark.parametrize(("number", "is_new"), [(errno.EIO, False), (errno.EIO, True), (errno.EROFS, True)])
def test_a_broker_starts_without_a_directory_that_fails(number: int, is_new: bool) -> None:
    world = World(1)
    machine = Machine(world, HOST, DIRECTORIES, SETTINGS, Broker)

    async def test() -> None:
        machine.switch_on()
        broker = await machine.ready()
        assert broker.layout is not None
        assert set(broker.layout.directory_ids) == {FIRST, SECOND}
        machine.kill()
        if is_new:
            machine.disk.replace(SECOND)
        break_directory(machine.disk, SECOND, number)
        broker = await machine.ready()
        assert [home.path for home in broker.logs.online()] == [FIRST]
        assert world.objection is None
        machine.kill()
        machine.disk.broken = None
        broker = await machine.ready()
        assert [home.path for home in broker.logs.online()] == [FIRST, SECOND]

    world.loop.run_until_complete(world.loop.create_task(test()))
    assert world.objection is None
    world.end()


@pytest.mark.parametrize(("needs_all", "directory"), [(True, SECOND), (False, FIRST)])
def test_the_directory_of_the_metadata_is_needed_and_to_format_all_are(needs_all: bool, directory: str) -> None:
    sim, ids = SimDisk(random.Random(1)), iter(range(9))
    sim.make_dirs("/data")
    break_directory(sim, directory, errno.EIO)
    options = FormatOptions("c", 1, VoterEndpoint("CONTROLLER", "h", 1))
    with pytest.raises(OSError, match="broken"):
        open_storage(sim, DIRECTORIES, FIRST, options, lambda: bytes([next(ids)]) * 16, 0, needs_all=needs_all)
