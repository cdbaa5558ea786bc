"""In which log directory a replica lies, the metadata hear in the end, also where no controller answers at first."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic
from peers.waiting import until

from headrace.broker.partitions.directory_assignment import DirectoryAssignment
from headrace.broker.quorum.port.controller import ControllerError
from headrace.controller.directories import AssignDirectories, DirectoriesAssigned
from headrace.metadata.image import ClusterImage, Partition, Topic, TopicsImage
from headrace.sim.disk import SimDisk
from headrace.sim.node import SimNode
from headrace.sim.run import play
from headrace.sim.world import World
from headrace.testing.running_cluster import TestCluster
from headrace.testing.running_cluster import cluster as running_cluster
from headrace.wire.errors import ErrorCode

TOPIC = bytes(15) + b"\x63"
IDS = {"/one": b"1" * 16, "/two": b"2" * 16}


class Controller:
    """Takes no assignment before it is there."""

    def __init__(self) -> None:
        self.answers: list[ErrorCode | None] = []
        """Of each try; None: nobody answers. Afterwards everything is taken."""
        self.tries: list[list[tuple[bytes, int, bytes]]] = []

    async def ask(self, request: Any, _: object = None) -> Any:
        assert isinstance(request, AssignDirectories)
        self.tries.append(list(request.chosen))
        answer = self.answers.pop(0) if self.answers else ErrorCode.NONE
        if answer is None:
            raise ControllerError(ErrorCode.NOT_CONTROLLER)
        return DirectoriesAssigned(answer)


def image(count: int, directory: bytes = bytes(16)) -> ClusterImage:
    partitions = tuple(Partition(i, (1,), (directory,), (1,), 1, 0, 0) for i in range(count))
    topic = Topic("t", TOPIC, partitions)
    return ClusterImage(topics=TopicsImage({TOPIC: topic}, {"t": topic}))


def log(index: int, home: str) -> Any:
    return SimpleNamespace(topic_id=TOPIC, topic_partition=("t", index), directory=f"{home}/t-{index}")


def assigned(*answers: ErrorCode | None, moved: bool = False, known: bool = False) -> list[list[tuple[int, bytes]]]:
    """What the controller is told of partitions 0 and 1 in /one; `moved`: the first goes to /two while it is away."""
    world = World(1)
    controller = Controller()
    controller.answers = list(answers)
    images = [image(2)]

    async def main() -> None:
        node = SimNode(world, "node", SimDisk(world.rng("disk")), world.rng("chance"))
        world.add(node)
        owner = node.owner("directory assignment")
        assignment = DirectoryAssignment(controller, lambda: images[-1], 1, IDS, owner)
        for index in range(2):
            assignment.note(log(index, "/one"))
        await asyncio.sleep(0.05)
        if moved:
            assignment.note(log(0, "/two"))
        if known:
            images.append(image(2, IDS["/one"]))
        await asyncio.sleep(60)

    play(world, main(), lambda: None, 1.0, "the assignment")
    if world.objection is not None:
        raise world.objection
    return [[(index, directory) for _, index, directory in tried] for tried in controller.tries]


BOTH = [(0, IDS["/one"]), (1, IDS["/one"])]


def test_what_nobody_took_is_told_again() -> None:
    assert assigned() == [BOTH]
    assert assigned(None, ErrorCode.STALE_BROKER_EPOCH, ErrorCode.NOT_CONTROLLER) == [BOTH] * 4
    assert assigned(ErrorCode.UNSUPPORTED_VERSION) == [BOTH]


def test_what_is_no_news_any_more_is_not_told() -> None:
    assert assigned(None, known=True) == [BOTH]
    assert assigned(None, moved=True) == [BOTH, [(1, IDS["/one"]), (0, IDS["/two"])]]


def test_a_controller_that_comes_back_hears_it(tmp_path: Path) -> None:
    homes = {n: {"log.dirs": f"{tmp_path}/{n}/one,{tmp_path}/{n}/two"} for n in (1, 2, 3)}
    with running_cluster(nodes=homes) as cluster:
        wait_until_told(cluster)


def wait_until_told(cluster: TestCluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic("before", 1, 3)])["before"].result(60)
    asked = {}
    for id_, node in cluster.nodes.items():
        broker = node.inside
        asked[id_] = broker.assignments._controller.ask

        async def nobody(*_: object) -> Any:
            raise ControllerError(ErrorCode.NOT_CONTROLLER)

        broker.assignments._controller = SimpleNamespace(ask=nobody)
    admin.create_topics([NewTopic("t", 3, 3)])["t"].result(60)

    def directories() -> list[bytes]:
        topic = cluster.nodes[1].inside.image.topics.by_name("t")
        return [] if topic is None else [each for partition in topic.partitions for each in partition.directories]

    until(directories, "the topic is known")
    time.sleep(0.3)
    ids = {id_ for node in cluster.nodes.values() for id_ in node.inside.layout.directory_ids.values()}
    assert not ids & set(directories())
    for id_, node in cluster.nodes.items():
        node.inside.assignments._controller = SimpleNamespace(ask=asked[id_])
    until(lambda: set(directories()) <= ids, "each replica has its directory")
