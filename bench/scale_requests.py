"""What one request for thousands of things costs the controller of `bench.scale`, and how long it holds the loop.

Every request is one that an admin client or a broker may send; the image is that of the whole cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from bench.scale_cluster import FIRST, Table, Ticker, directory_of, timed
from headrace.broker.quorum.driver import QuorumDriver
from headrace.controller.context import ControllerContext
from headrace.controller.leaders import PREFERRED_ELECTION, decide_elect_leaders
from headrace.controller.partitions import decide_create_partitions
from headrace.controller.reassignments import decide_reassign
from headrace.controller.topics import decide_create_topics, decide_delete_topics
from headrace.machine import Decision
from headrace.metadata.image import ClusterImage, Topic
from headrace.wire.messages import metadata_records as mr
from headrace.wire.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from headrace.wire.messages.k37_create_partitions import CreatePartitionsTopic

HUGE: Final = 9_900
"""Partitions of one topic: Kafka's controller takes at most 10,000 records a request."""
MANY_TOPICS: Final = 4_900
MANY_PARTITIONS: Final = 5_000
LEADERLESS: Final = 5_000
_TOPIC_ID = b"\xfe" * 15


class Requests:
    """What is asked of the controller of such a cluster, one request after the other."""

    def __init__(self, driver: QuorumDriver, context: ControllerContext, table: Table) -> None:
        self._driver = driver
        self._context = context
        self._table = table

    async def all(self) -> None:
        """Everything, on the image as it is."""
        context = self._context
        huge = CreateTopicsRequest(topics=[CreatableTopic(name="huge", num_partitions=HUGE, replication_factor=3)])
        await self._ask(f"a topic with {HUGE} partitions is created", lambda i: decide_create_topics(i, huge, context))
        assert len(self._topic("huge").partitions) == HUGE
        small = CreateTopicsRequest(topics=[CreatableTopic(name="grows", num_partitions=1, replication_factor=3)])
        await self._driver.submit(lambda image: decide_create_topics(image, small, context))
        grows = [CreatePartitionsTopic(name="grows", count=HUGE, assignments=None)]
        await self._ask(
            f"a topic grows to {HUGE} partitions",
            lambda image: decide_create_partitions(image, grows, random=context.random),
        )
        assert len(self._topic("grows").partitions) == HUGE
        await self._move()
        await self._elect()
        await self._delete()

    def _topic(self, name: str) -> Topic:
        topic = self._driver.image.topics.by_name(name)
        assert topic is not None
        return topic

    async def _move(self) -> None:
        """Every partition gets one other replica, which is in sync nowhere yet."""
        brokers = sorted(self._driver.image.brokers)
        wanted = []
        for partition in self._topic("huge").partitions[:MANY_PARTITIONS]:
            kept = partition.replicas[:2]
            other = next(each for each in brokers if each not in partition.replicas)
            wanted.append((partition.index, [*kept, other]))
        await self._ask(
            f"{MANY_PARTITIONS} partitions are reassigned",
            lambda image: decide_reassign(image, self._context, [("huge", wanted)], True),
        )
        assert sum(each.is_reassigning for each in self._topic("huge").partitions) == MANY_PARTITIONS

    async def _elect(self) -> None:
        """The first replicas of partitions that others lead lead again."""
        topic = self._topic("grows")
        records = [
            mr.PartitionChangeRecord(partition_id=each.index, topic_id=topic.id, leader=each.replicas[1])
            for each in topic.partitions[:MANY_PARTITIONS]
        ]
        await self._driver.submit(lambda _: Decision(None, records))
        wanted = [("grows", range(MANY_PARTITIONS))]
        await self._ask(
            f"{MANY_PARTITIONS} preferred leaders are elected",
            lambda image: decide_elect_leaders(image, self._context, PREFERRED_ELECTION, wanted),
        )
        assert all(each.leader == each.replicas[0] for each in self._topic("grows").partitions)

    async def _delete(self) -> None:
        context = self._context
        names = sorted(self._driver.image.topics.topics_by_name)
        huge, many = ["huge", "grows"], [name for name in names if name.startswith("topic-")][:MANY_TOPICS]
        for title, gone in ((f"two topics with {HUGE} partitions", huge), (f"{len(many)} topics", many)):
            wanted = [(name, bytes(16)) for name in gone]
            await self._ask(f"{title} are deleted", lambda i, wanted=wanted: decide_delete_topics(i, wanted, context))  # type: ignore[misc]
            assert not any(name in self._driver.image.topics.topics_by_name for name in gone)

    async def leave_without_leaders(self) -> None:
        """Of thousands of partitions the first broker, which is fenced, has the only replica."""
        for number in range(10):
            topic_id = _TOPIC_ID + bytes([number])
            records: list[Any] = [mr.TopicRecord(name=f"lone-{number}", topic_id=topic_id)]
            records += [
                mr.PartitionRecord(
                    partition_id=index, topic_id=topic_id, replicas=[FIRST], isr=[FIRST], leader=-1, leader_epoch=0,
                    partition_epoch=0, directories=[directory_of(FIRST)],
                )
                for index in range(LEADERLESS // 10)
            ]  # fmt: skip
            await self._driver.submit(lambda _, records=records: Decision(None, records))  # type: ignore[misc]

    async def _ask(self, title: str, decide: Callable[[ClusterImage], Decision[Any]]) -> None:
        with timed() as spent:
            async with Ticker() as ticker:
                await self._driver.submit(decide)
        self._table.add(title, spent(), "s")
        self._table.held("the same", ticker)
