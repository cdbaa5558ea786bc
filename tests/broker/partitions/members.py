"""Brokers of one simulated cluster, as far as their partitions go: logs, replicas and a listener each, and no quorum.

What they are told of the cluster is written by the test: records, which every member hears of at once, unless it is
`deaf`. In-sync sets are changed as a controller would change them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, TypeVar

from headrace.broker.net.server import Server
from headrace.broker.partitions.background import Background
from headrace.broker.partitions.replica import Replica
from headrace.broker.partitions.replica_manager import ReplicaManager
from headrace.broker.partitions.replica_moves import ReplicaMoves
from headrace.broker.quorum.port.controller import ControllerError
from headrace.broker.requests.bad_batches import BadBatches
from headrace.broker.requests.dispatch import Dispatch
from headrace.broker.requests.opening import Openings
from headrace.broker.requests.produce_run import ProduceRun
from headrace.broker.requests.waiting_fetches import Fetches
from headrace.broker.settings.dynamic_config import DynamicConfig
from headrace.broker.telemetry.metrics import Registry
from headrace.broker.telemetry.request_errors import RequestErrors
from headrace.client.security import ConnectionSecurity
from headrace.config import BrokerConfig, TopicConfig
from headrace.controller.in_sync import AlterPartitions, PartitionsAltered
from headrace.env.completion import settled
from headrace.log.log import Log
from headrace.log.manager import LogManager
from headrace.metadata.delta import ImageDelta
from headrace.metadata.image import ClusterImage, Partition
from headrace.replicas.sessions import SessionCache
from headrace.security.authorizer import Authorizer, OpenAuthorizer
from headrace.sim.client import SimClient
from headrace.sim.machine import PORT, Machine
from headrace.sim.node import SimNode
from headrace.sim.run import play
from headrace.sim.world import World
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import metadata_records as mr
from headrace.wire.records import Record, build_batch

T = TypeVar("T")
LISTENER = "PLAINTEXT"
FAST = {
    "replica.lag.time.max.ms": "2000",
    "replica.fetch.backoff.ms": "100",
    "log.retention.check.interval.ms": "1000",
    "file.delete.delay.ms": "0",
}
"""Replication that gives up sooner, so that a test need not wait long in its own virtual time."""


class Member:
    """One broker. It is what its handlers know as their services."""

    def __init__(self, cluster: Cluster, config: BrokerConfig, node: SimNode) -> None:
        self.cluster = cluster
        self.node = node
        self.node_id = config.node_id
        self.cluster_id = "scripted"
        self.image = cluster.image
        self.heard = len(cluster.records)
        """How much of what was written it has heard."""
        self.on_failure: Callable[[str], None] | None = None
        self.metrics = Registry()
        self.request_errors = RequestErrors(self.metrics)
        self.requests_owner = node.owner("requests")
        self.bad_batches = BadBatches(node.clock, node.logger("requests"), self.metrics)
        self.fetches = Fetches(self.metrics, config.connections_max_waiting_fetches)
        self.authorizer: Authorizer = OpenAuthorizer()
        self.random = node.entropy.random()
        self.fetch_sessions = SessionCache(config.max_incremental_fetch_session_cache_slots)
        self.logs = LogManager(node, config)
        self.dynamic = DynamicConfig(config, self.logs, node.logger("settings"))
        self.quorum = SimpleNamespace(kraft_version=1)
        self.replicas = ReplicaManager(
            node,
            config,
            self.metrics,
            self.logs,
            self,
            cannot_go_on=lambda why: self.on_failure and self.on_failure(why),
            alter_partitions=cluster.alter,
        )
        dispatch = Dispatch(self, ProduceRun(self))  # type: ignore[arg-type]
        self.server = Server(
            node, lambda: self.config, dispatch, self.replicas.flusher, self.metrics, self.request_errors
        )
        self.openings = Openings(node, self.server.requests_budget, self.metrics)
        self.background = Background(
            node, self.metrics, self.logs, self.replicas.failures.directory_failed, self.replicas.failures.logs_lost
        )
        self.moves = ReplicaMoves(
            node,
            self.logs,
            self.replicas.find_held,
            self.replicas.failures,
            self.replicas.flusher,
            self.replicas.moved,
            self.replicas.throttles.moves,
        )
        self.replicas.on_opened = self.moves.resume
        self._listeners: list[Any] = [self.dynamic.changed]

    @property
    def config(self) -> BrokerConfig:
        return self.dynamic.config

    @property
    def epoch(self) -> int:
        return self.cluster.image.brokers[self.node_id].epoch

    def topic_config(self, topic: str) -> TopicConfig:
        return self.dynamic.topic(topic)

    def connection_security(self) -> ConnectionSecurity:
        return ConnectionSecurity()

    async def start(self) -> None:
        for endpoint in self.config.listeners:
            self.server.listen(endpoint)
        self.logs.lock()
        self.logs.load()
        self.dynamic.start(lambda: self.image)
        assignments: Any = SimpleNamespace(note=lambda _: None, failed=lambda _: None)
        await self.replicas.start(self._listeners.append, {}, assignments, 1)
        self.server.serve()
        self.background.start()

    async def stop(self) -> None:
        self.server.stop_listening()
        await self.moves.stop()
        await self.replicas.stop_fetching()
        self.replicas.stop()
        await self.server.close()
        await self.background.stop()
        await self.node.workers.run(lambda: self.logs.shutdown(-1))
        await self.node.close()

    def hears(self, image: ClusterImage, delta: ImageDelta) -> None:
        """The metadata are like this from now on."""
        old, self.image = self.image, image
        for listener in self._listeners:
            listener(old, image, delta)

    # --- for tests

    def replica(self, topic: str = "t", index: int = 0) -> Replica:
        found = self.replicas.held((topic, index))
        assert found is not None, f"broker {self.node_id} has no replica of {topic}-{index}"
        return found

    def log(self, topic: str = "t", index: int = 0) -> Log:
        found = self.logs.get(topic, index)
        assert found is not None, f"broker {self.node_id} has no log of {topic}-{index}"
        return found

    async def append(self, *values: bytes, topic: str = "t", key: bytes | None = None, **fields: Any) -> None:
        """Appends one batch, as acks=1 does, once that may be done."""
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.replicas.when_ready((topic, 0), lambda: ready.set_result(None), for_appends=True)
        await ready
        now_ms = self.node.clock.now_ms()
        chunk = build_batch([Record(i, now_ms, key, each) for i, each in enumerate(values)], **fields)
        result = self.replicas.appender.append_many(self.replica(topic), [chunk], now_ms)[0]
        assert not result.error, result

    async def produce(self, *values: bytes, topic: str = "t", timeout_ms: float = 5000) -> ErrorCode:
        """Appends one batch, and waits for every in-sync replica."""
        await self.append(*values, topic=topic)
        replica = self.replica(topic)
        return await settled(self.replicas.appender.acknowledged(replica, replica.log.end_offset, True, timeout_ms))


class Cluster:
    """The members, and what they are told."""

    def __init__(self, count: int = 2, seed: int = 1, **settings: str) -> None:
        self.world = World(seed)
        self.image = ClusterImage()
        self.answers: list[AlterPartitions] = []
        self.refuses = ErrorCode.NONE
        """What a change of an in-sync set is answered with, as a whole."""
        self.deaf: set[int] = set()
        self.racks: dict[int, str] = {}
        """Where brokers stand that are registered from now on."""
        self._epoch = 100
        self.records: list[Any] = []
        self.machines = {node: self._machine(node, settings) for node in range(1, count + 1)}
        self.client = SimClient(self.world, "client", "broker1")

    def _machine(self, node_id: int, settings: dict[str, str]) -> Machine[Member]:
        given = {
            "node.id": str(node_id),
            "listeners": f"{LISTENER}://broker{node_id}:{PORT}",
            "log.dirs": "/data/logs",
            **FAST,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        return Machine(
            self.world, f"broker{node_id}", ["/data/logs"], given, lambda config, node: Member(self, config, node)
        )

    def __getitem__(self, node_id: int) -> Member:
        broker = self.machines[node_id].broker
        assert broker is not None, f"broker {node_id} is down"
        return broker

    def run(self, test: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Starts every member, runs the test, and stops them; whatever anybody objected to fails it."""

        async def main() -> T:
            for node_id, machine in self.machines.items():
                self.register(node_id)
                machine.switch_on()
            for machine in self.machines.values():
                await machine.ready()
            result = await test()
            for machine in self.machines.values():
                await machine.switch_off()
            return result

        results: list[T] = []

        async def keep() -> None:
            results.append(await main())

        play(self.world, keep(), lambda: None, 0.01, "the members")
        if self.world.objection is not None:
            raise self.world.objection
        return results[0]

    async def until(self, holds: Callable[[], object], seconds: float = 60.0) -> None:
        """Returns as soon as something holds."""
        end = self.world.loop.time() + seconds
        while not holds():
            assert self.world.loop.time() < end, "it does not come true"
            await asyncio.sleep(0.005)

    # --- metadata

    def write(self, *records: Any) -> None:
        """The controller has written these records."""
        self.records.extend(records)
        delta = ImageDelta(self.image)
        delta.apply_all(records)
        self.image = _frozen(delta)
        for node_id, machine in self.machines.items():
            if node_id not in self.deaf and machine.broker is not None:
                self.hears(node_id)

    def hears(self, node_id: int) -> None:
        """A member hears what was written meanwhile."""
        member = self[node_id]
        records, member.heard = self.records[member.heard :], len(self.records)
        delta = ImageDelta(member.image)
        delta.apply_all(records)
        member.hears(_frozen(delta), delta)

    def register(self, node_id: int, port: int = PORT, *, fenced: bool = False) -> None:
        self._epoch += 1
        rack = self.racks.get(node_id)
        endpoint = mr.BrokerEndpoint(name=LISTENER, host=f"broker{node_id}", port=port, security_protocol=0)
        self.write(
            mr.RegisterBrokerRecord(
                broker_id=node_id, broker_epoch=self._epoch, end_points=[endpoint], fenced=fenced, rack=rack
            )
        )

    def create(
        self,
        name: str = "t",
        replicas: Sequence[int] = (1, 2),
        leader: int = 1,
        isr: Sequence[int] | None = None,
        configs: Mapping[str, str] | None = None,
        **more_configs: str,
    ) -> bytes:
        """A topic of one partition; returns its id. A setting is named in `configs`, or, with `_` for `.`, as such."""
        self._epoch += 1
        topic_id = self._epoch.to_bytes(16, "big")
        records: list[Any] = [mr.TopicRecord(name, topic_id)]
        records += [
            mr.ConfigRecord(resource_type=2, resource_name=name, name=key.replace("_", "."), value=value)
            for key, value in {**(configs or {}), **more_configs}.items()
        ]
        records.append(
            mr.PartitionRecord(
                partition_id=0,
                topic_id=topic_id,
                replicas=list(replicas),
                isr=list(replicas if isr is None else isr),
                leader=leader,
                leader_epoch=0,
                partition_epoch=0,
            )
        )
        self.write(*records)
        return topic_id

    def delete(self, name: str = "t") -> None:
        self.write(mr.RemoveTopicRecord(self.topic_id(name)))

    def topic_id(self, name: str = "t") -> bytes:
        topic = self.image.topics.by_name(name)
        assert topic is not None
        return topic.id

    def partition(self, name: str = "t") -> Partition:
        found = self.image.topics.partition(name, 0)
        assert found is not None
        return found

    def change(self, name: str = "t", **fields: Any) -> None:
        """Changes the partition: `leader`, `isr`, `replicas`."""
        self.write(mr.PartitionChangeRecord(partition_id=0, topic_id=self.topic_id(name), **fields))

    async def alter(self, asked: AlterPartitions) -> PartitionsAltered:
        """What a controller says to changes of in-sync sets, a moment later."""
        self.answers.append(asked)
        await asyncio.sleep(0.005)
        if self.refuses:
            raise ControllerError(self.refuses)
        results: list[tuple[bytes, int, ErrorCode, Partition | None]] = []
        for change in asked.changes:
            topic = self.image.topics.by_id(change.topic_id)
            if topic is None:
                results.append((change.topic_id, change.index, ErrorCode.UNKNOWN_TOPIC_ID, None))
                continue
            known = topic.partitions[change.index]
            if known.leader_epoch != change.leader_epoch:
                results.append((change.topic_id, change.index, ErrorCode.FENCED_LEADER_EPOCH, None))
            elif known.partition_epoch != change.partition_epoch:
                results.append((change.topic_id, change.index, ErrorCode.INVALID_UPDATE_VERSION, None))
            else:
                self.change(topic.name, isr=[each for each, _ in change.members])
                now = self.partition(topic.name)
                results.append((change.topic_id, change.index, ErrorCode.NONE, now))
        return PartitionsAltered(ErrorCode.NONE, results)


def _frozen(delta: ImageDelta) -> ClusterImage:
    return delta.image(offset=delta.base.offset + 1, epoch=1, timestamp_ms=0)


def content(log: Log) -> bytes:
    """Every byte of a log's segments, from its start."""
    disk = log.resources.disk
    return b"".join(bytes(disk.read_file(segment.path))[: segment.size] for segment in log.segments)


def same(cluster: Cluster, *nodes: int, topic: str = "t") -> bool:
    """Whether the logs of these brokers are alike to the byte."""
    logs = [cluster[node].logs.get(topic, 0) for node in nodes]
    first = logs[0]
    return first is not None and all(
        log is not None
        and (log.end_offset, log.log_start_offset) == (first.end_offset, first.log_start_offset)
        and content(log) == content(first)
        for log in logs
    )
