"""An operator who keeps changing replicas, preferred leaders and settings of a topic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from headrace.client.errors import ClientError
from headrace.metadata.image import ResourceType
from headrace.wire.messages.k43_elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from headrace.wire.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from headrace.wire.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)

if TYPE_CHECKING:
    from headrace.sim.checkers.history import Place
    from headrace.sim.client import SimClient

PREFERRED: Final = 0
REPLICAS_MIN: Final = 3
CANCELLED: Final = 0.2
SETTINGS: Final = (
    ("segment.bytes", ("1048576", "1073741824")),
    ("flush.messages", ("1", "9223372036854775807")),
    ("max.message.bytes", ("1048588", "2000000")),
)
"""What may be set at any time, and to what, without a record being lost by it."""


class Administrator:
    """An operator that changes replicas, leaders and settings.

    Its requests may fail; what counts is that nothing else does.
    """

    def __init__(self, client: SimClient, places: Sequence[Place], nodes: Sequence[int]) -> None:
        self.client = client
        self._places = list(places)
        self._nodes = list(nodes)

    async def run(self) -> None:
        """Until its node ends."""
        rng = self.client.rng
        while True:
            place = rng.choice(self._places)
            try:
                await rng.choice((self._reassign, self._elect, self._set))(place)
            except ClientError:
                pass
            for _ in range(rng.randint(1, 8)):
                await self.client.rest()

    async def _reassign(self, place: Place) -> None:
        rng = self.client.rng
        replicas: list[int] | None = rng.sample(self._nodes, rng.randint(REPLICAS_MIN, len(self._nodes)))
        if rng.random() < CANCELLED:
            replicas = None
        partition = ReassignablePartition(partition_index=place[1], replicas=replicas)
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=10_000, topics=[ReassignableTopic(name=place[0], partitions=[partition])]
        )
        await self.client.ask(request, AlterPartitionReassignmentsResponse)

    async def _elect(self, place: Place) -> None:
        wanted = TopicPartitions(topic=place[0], partitions=[place[1]])
        request = ElectLeadersRequest(election_type=PREFERRED, topic_partitions=[wanted], timeout_ms=10_000)
        await self.client.ask(request, ElectLeadersResponse)

    async def _set(self, place: Place) -> None:
        name, values = self.client.rng.choice(SETTINGS)
        resource = AlterConfigsResource(
            resource_type=ResourceType.TOPIC,
            resource_name=place[0],
            configs=[AlterableConfig(name=name, value=self.client.rng.choice(values))],
        )
        await self.client.ask(IncrementalAlterConfigsRequest(resources=[resource]), IncrementalAlterConfigsResponse)
