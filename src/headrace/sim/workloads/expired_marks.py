"""Expiry of the marks of exactly-once queries: weeks pass between two runs, in a moment.

A query with a commit topic that commits whole batches is unaffected. Any other query's next run is refused before it
writes anything. The operator looks into the topic: a batch that is there counts as committed, and a run that trusts the
checkpoint continues.
"""

from __future__ import annotations

from asyncio import sleep
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from headrace.client.errors import ClientError
from headrace.sim.checkers.deliveries import Found
from headrace.sim.checkers.isolation import Appends
from headrace.sim.workloads.isolation import ABORTED_S
from headrace.sim.workloads.reading import LATEST, edge
from headrace.sim.workloads.spark_queries import WRITE_STEP, Checkpoint, Shape, places_of
from headrace.sim.workloads.transacting import Poller
from headrace.spark.delivery_options import PER_TASK

if TYPE_CHECKING:
    from headrace.sim.checkers.history import Place
    from headrace.sim.cluster_client import ClusterClient
    from headrace.sim.world import World

RETENTION_MINUTES: Final = 5
EXPIRES_MS: Final = (RETENTION_MINUTES + 1) * 60_000
CHECKED_EVERY_MS: Final = 500
NOTICED_S: Final = 3.0
"""By then coordinators have looked for what has expired."""


class ExpiredMarks:
    """The marks of one query. `pass_time` sets the clocks of all brokers forward."""

    def __init__(self, world: World, shape: Shape, pass_time: Callable[[int], None]) -> None:
        self._world = world
        self._shape = shape
        self._pass_time = pass_time
        self.is_gone = False
        """Whether the last mark may be gone, and nothing else tells of it."""
        self.expired = self.repaired = 0

    async def expire(self, client: ClusterClient, checkpoint: Checkpoint) -> None:
        """Lets the marks expire while nothing of the query runs. Not in the middle of a batch if nobody could repair
        that: if each task, or each write, has its own transaction and a part of them is missing, or if it is the first
        one, which the sink takes for new without a mark."""
        is_in_a_batch = len(checkpoint.offsets) > checkpoint.commits
        is_first = not checkpoint.commits and (not self._shape.commit_topic or self._shape.commits_in_parts)
        if is_in_a_batch and is_first:
            return
        if is_in_a_batch and self._shape.commits_in_parts and not await self._is_whole(client, checkpoint):
            return
        if not self._world.strikes("marks expire", self._shape.query_id):
            return
        self._pass_time(EXPIRES_MS)
        await sleep(NOTICED_S)
        self.expired += 1
        self.is_gone = not self._shape.commit_topic or self._shape.mode == PER_TASK

    async def _is_whole(self, client: ClusterClient, checkpoint: Checkpoint) -> bool:
        """Whether all writes of the next batch are there."""
        found = await read_topics(client, self._shape)
        there = {(each.write, each.number) for records in found.values() for each in records}
        records = range(checkpoint.end_of(checkpoint.commits - 1), checkpoint.end_of(checkpoint.commits))
        writes = range(len(self._shape.topics))
        wanted = {(write, number) for write in writes for number in records if self._shape.wanted(write, number)}
        return bool(wanted) and wanted <= there

    def check_refusal(self, error: Exception) -> None:
        """A run was refused, and there is no other query beside it."""
        text = f"a run is refused, and no mark has expired that nothing else tells of: {error}"
        self._world.demand(self.is_gone and "the mark has expired" in str(error), text)

    async def repair(self, client: ClusterClient, checkpoint: Checkpoint) -> None:
        """What an operator does about a refusal: a batch that is in the topic counts as committed."""
        self.repaired += 1
        batch_id = checkpoint.commits
        if len(checkpoint.offsets) == batch_id:
            return
        found = await read_topics(client, self._shape)
        numbers = {each.number for records in found.values() for each in records if each.write == 0}
        records = range(checkpoint.end_of(batch_id - 1), checkpoint.end_of(batch_id))
        wanted = {number for number in records if self._shape.wanted(0, number)}
        there = wanted & numbers
        self._world.demand(there in (wanted, set()), f"of batch {batch_id} {sorted(wanted)}, {sorted(there)} are there")
        if there:
            checkpoint.commit(batch_id)


async def read_topics(client: ClusterClient, shape: Shape) -> Mapping[Place, list[Found]]:
    """Reads what is committed in the topics of a query, once nothing is open there; objects if that takes too long."""
    history, keys, world = Appends(), list(places_of(shape)), client.world
    reader = Poller(client, history, keys)
    until = world.loop.time() + ABORTED_S
    for key in keys:
        while world.objection is None:
            try:
                end = await edge(reader.client, key, LATEST)
            except ClientError:
                end = -1
            if 0 <= end <= reader.positions[key]:
                break
            if world.loop.time() > until and world.calm_since is not None:
                world.object(f"{key} ends at {end} and is read to {reader.positions[key]}: something is open")
                return {}
            await reader.poll(key)
    found: dict[Place, list[Found]] = {}
    for read in history.reads:
        place = found.setdefault(read.key, [])
        place += [Found(offset, *divmod(value, WRITE_STEP)) for offset, value in read.values]
    return found
