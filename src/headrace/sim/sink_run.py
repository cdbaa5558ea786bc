"""Exactly-once queries of Spark that write to a cluster of three brokers, first with faults on both sides, then
without.

Checked: every record of the source is once in the topic of each of its writes, in order of the batches; a run whose
batch was confirmed has planned that batch; refusals have a reason, and happen if they must, as after a mark has
expired; without faults each query makes progress.
"""

from __future__ import annotations

import random
import warnings
from asyncio import gather, sleep
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from headrace.sim.cluster_faults import OUSTED
from headrace.sim.cluster_options import SNAPSHOT_BYTES_RARE, Options
from headrace.sim.cluster_run import LOOK_S, SETTLE_S, ClusterRun
from headrace.sim.run import Result
from headrace.sim.workloads.expired_marks import CHECKED_EVERY_MS, RETENTION_MINUTES, read_topics
from headrace.sim.workloads.spark_queries import Shape
from headrace.sim.workloads.spark_writing import Query
from headrace.sim.workloads.topics import make_topic

if TYPE_CHECKING:
    from headrace.sim.world import World

QUERIES: Final = (1, 2)


def drawn(rng: random.Random) -> Options:
    """Nothing but what moves coordinators, ends connections and stops brokers."""
    options = Options.draw(rng)
    many = rng.choice((0.2, 0.5))
    return replace(
        options,
        nodes=3,
        durable=False,
        kinds=tuple(kind for kind in ("kill", "stop", "cut", "silence", "partition") if rng.random() < many),
        cluster_kinds=tuple(kind for kind in ("pause", "one way", "split", OUSTED) if rng.random() < many),
        mean_s=rng.uniform(3.0, 10.0),
        faults_s=rng.uniform(4.0, 10.0),
        plain=0,
        idempotent=0,
        members=0,
        topics_come_and_go=False,
        is_reborn=False,
        is_administered=False,
        calm_trouble="",
        small_pieces=False,
        snapshot_bytes=SNAPSHOT_BYTES_RARE,
        transactors=0,
        copiers=0,
    )


class SinkRun(ClusterRun):
    """A run of Spark queries that write exactly once."""

    def __init__(self, seed: int, say: Callable[[str], None] | None = None, shapes: list[Shape] | None = None) -> None:
        """`shapes` in the place of those that the seed draws."""
        super().__init__(seed, say, drawn(random.Random(f"{seed}/options")))
        self._shapes = shapes or drawn_shapes(self.world)
        self.queries: list[Query] = []

    def run(self) -> Result:
        """See ClusterRun.run."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what the sink cannot do now, it leaves to timeouts, and says so
            result = super().run()
        return replace(result, transactions=sum(query.committed for query in self.queries))

    def _start_clients(self) -> None:
        brokers = ",".join(f"{host}:9092" for host in self.hosts)
        self.queries = [Query(self.world, shape, brokers, self._client, self._pass_time) for shape in self._shapes]
        for query in self.queries:
            query.operator.owner.spawn(self._begin(query))

    def _quorum(self, node_id: int) -> dict[str, str]:
        return super()._quorum(node_id) | {
            "offsets.retention.minutes": str(RETENTION_MINUTES),
            "offsets.retention.check.interval.ms": str(CHECKED_EVERY_MS),
        }

    def _pass_time(self, by_ms: int) -> None:
        for machine in self.machines.values():
            machine.set_clock(by_ms)

    async def _begin(self, query: Query) -> None:
        shape = query.shape
        for topic in sorted({*shape.topics, *filter(None, [shape.commit_topic])}):
            configs = {"cleanup.policy": "compact"} if topic == shape.commit_topic else {}
            await make_topic(query.operator, topic, 1 if configs else 2, configs, replicas=3)
        await query.operate()

    async def _settle(self, *, is_whole: bool = True) -> None:
        for query in self.queries:
            query.calm_down()
        until = self.world.loop.time() + SETTLE_S
        while self.world.objection is None:
            late: list[object] = [query.shape for query in self.queries if not query.is_done]
            late += self._out_of_sync()
            if not late:
                return
            if self.world.loop.time() > until:
                self.world.object(f"{SETTLE_S:.0f} s after the last fault {late} do not get on")
            await sleep(LOOK_S)

    async def _end(self) -> None:
        for query in self.queries:
            for process in query.processes:
                process.kill()
        for client in self._clients.values():
            if client.node.alive:
                client.die()
        self._clients.clear()
        await sleep(5.0)
        for query in self.queries:
            await self._judge(query)
        self.logs.look_at_all()
        self.logs.look_for_open()
        await gather(*[machine.stop() for machine in self.machines.values()])

    async def _judge(self, query: Query) -> None:
        """What is in its topics, once nothing is open there."""
        deliveries, last = query.deliveries, query.last
        deliveries.found = dict(await read_topics(self._client("judge"), query.shape))
        if self.world.objection is not None:
            return
        deliveries.ends = [last.end_of(batch_id) for batch_id in range(last.commits)]
        await query.recall()
        for fault in deliveries.faults():
            self.world.object(fault)


def drawn_shapes(world: World) -> list[Shape]:
    """Returns the queries of a seed. One whose marks expire is alone, as the marks of all would."""
    rng = world.rng("queries")
    shapes = [Shape.draw(f"query-{number}", rng) for number in range(rng.choice(QUERIES))]
    return [shape for shape in shapes if shape.expires][:1] or shapes


def run_sink_seed(seed: int, say: Callable[[str], None] | None = None, shapes: list[Shape] | None = None) -> Result:
    """One run of queries that write exactly once: see `SinkRun`."""
    return SinkRun(seed, say, shapes).run()
