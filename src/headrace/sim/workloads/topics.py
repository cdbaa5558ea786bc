"""Topics that are created and deleted: a confirmed topic exists, with one id for all of its life; a deleted one does
not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.client.errors import ClientError
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from headrace.wire.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headrace.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.sim.client import SimClient


async def make_topic(
    client: SimClient, name: str, partitions: int, configs: Mapping[str, str], *, replicas: int = 1
) -> None:
    """Creates a topic, until it is there."""
    settings = [CreatableTopicConfig(name=key, value=value) for key, value in configs.items()]
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, configs=settings)
    while True:
        made = await client.insist(CreateTopicsRequest(topics=[topic], timeout_ms=20_000), CreateTopicsResponse, 7)
        if made.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            return
        await client.rest()


class TopicMaker:
    """Makes topics and deletes them, and looks whether the broker remembers.

    Of several brokers one may hear of it later: within `lag_s`.
    """

    def __init__(self, client: SimClient, *, lag_s: float = 0.0, replicas: int = 1) -> None:
        self.client = client
        self._replicas = replicas
        self._lag_s = lag_s
        self.known: dict[str, bytes] = {}
        """Topics that were confirmed, and their ids."""
        self._count = 0

    async def run(self) -> None:
        """Until its node ends."""
        while True:
            try:
                if self.known and self.client.rng.random() < 0.4:
                    await self._delete(self.client.rng.choice(sorted(self.known)))
                else:
                    await self._create()
                await self.look()
            except ClientError:
                pass
            await self.client.rest()
            await self.client.rest()

    async def _create(self) -> None:
        self._count += 1
        name = f"brief-{self._count}"
        topic = CreatableTopic(
            name=name, num_partitions=self.client.rng.randint(1, 3), replication_factor=self._replicas
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=20_000)
        response = await self.client.ask(request, CreateTopicsResponse, 7)
        if response.topics[0].error_code == ErrorCode.NONE:
            self.known[name] = response.topics[0].topic_id

    async def _delete(self, name: str) -> None:
        topic_id = self.known.pop(name)  # from here on it may be gone
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=20_000)
        response = await self.client.ask(request, DeleteTopicsResponse, 6)
        if response.responses[0].error_code != ErrorCode.NONE:
            return
        found = await self._found({name: None})
        self.client.world.demand(found.get(name) is None, f"topic {name} ({topic_id.hex()}) was deleted, and is there")

    async def look(self) -> None:
        """Everything that was confirmed and not deleted is there. Raises ClientError."""
        names = sorted(self.known)
        if not names:
            return
        found = await self._found({name: self.known[name] for name in names})
        for name in names:
            self.client.world.demand(
                found.get(name) == self.known[name], f"topic {name} was confirmed, and is {found.get(name)!r} now"
            )

    async def _found(self, expected: dict[str, bytes | None]) -> dict[str, bytes | None]:
        """The ids of these topics, once they are the expected ones, or have had the time to be. Raises ClientError."""
        until = self.client.world.loop.time() + self._lag_s
        while True:
            found = await self._ids(list(expected))
            if found == expected or self.client.world.loop.time() >= until:
                return found
            self.client.moved(None)
            await self.client.rest()

    async def _ids(self, names: list[str]) -> dict[str, bytes | None]:
        topics = [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        response = await self.client.ask(request, MetadataResponse, 10)
        return {
            topic.name or "": topic.topic_id if topic.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else None
            for topic in response.topics
        }
