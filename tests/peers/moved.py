"""Transactions whose coordinator moves from one broker to another while they are open, while they are told to end, and
while their markers are on the way; and what has to be true of them afterwards, whoever coordinated."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from types import TracebackType
from typing import Final, Self

from headrace.client import Client, reading
from headrace.client.admin import create_topic
from headrace.client.errors import ClientError
from headrace.client.groups import fetch_offsets
from headrace.client.metadata import PartitionInfo
from headrace.client.moves import Election, Outcomes, elect_leaders, list_moves, move_partitions
from headrace.client.transactions import TransactionalProducer

from .cluster import HeadraceCluster
from .transactions import state_of, visible

STATE: Final = ("__transaction_state", 0)
OFFSETS: Final = ("__consumer_offsets", 0)
SETTINGS: Final = {
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.num.partitions": "1",
    "min.insync.replicas": "1",
}
"""One coordinator for all, which goes on alone."""
PARTITIONS: Final = 3
TIMEOUT_MS: Final = 600_000
PATIENCE_S: Final = 60.0
PAUSE_S: Final = 0.02
"""Between two transactions of one that goes on for long."""


class Writer:
    """One transactional id. `kept` and `gone` hold what it was told is committed and aborted, in order."""

    def __init__(self, bootstrap: str, name: str, topic: str, *, commits: bool) -> None:
        self.name = name
        self.topic = topic
        self.commits = commits
        self.kept: list[bytes] = []
        self.gone: list[bytes] = []
        self.committed = 0
        """The last position that a committed transaction holds."""
        self._number = 0
        self._open: list[bytes] = []
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._client = Client(bootstrap, timeout_s=PATIENCE_S)
        self._producer = TransactionalProducer(self._client, name, timeout_ms=TIMEOUT_MS)

    def begin(self, *beside: tuple[str, int]) -> None:
        """Records to every partition, and to those `beside`; and a position of its own group."""
        self._number += 1
        self._producer.begin()
        places = [*((self.topic, index) for index in range(PARTITIONS)), *beside]
        self._open = [f"{self.name}:{self._number}:{topic}:{index}".encode() for topic, index in places]
        for value, (topic, index) in zip(self._open, places, strict=True):
            self._producer.send(topic, value, partition=index)
        self._producer.send_offsets(self.name, {(self.topic, 0): self._number})

    def end(self, *, commits: bool | None = None) -> None:
        """As this one does. Whatever the coordinators do meanwhile, it has to be told what became of it."""
        if self.commits if commits is None else commits:
            self._producer.commit()
            self.kept += self._open
            self.committed = self._number
        else:
            self._producer.abort()
            self.gone += self._open

    def send_end(self) -> None:
        """The same, beside what follows; `wait` waits for it."""
        self._thread = threading.Thread(target=self._end, daemon=True)
        self._thread.start()

    def _end(self) -> None:
        try:
            self.end()
        except BaseException as error:
            self._error = error

    def wait(self) -> None:
        """Returns when it was told. Raises what went wrong."""
        assert self._thread is not None
        self._thread.join(2 * PATIENCE_S)
        assert not self._thread.is_alive(), f"{self.name} is told nothing"
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        self._client.close()


class Mover:
    """Moves the coordinator of a cluster, in the middle of transactions. `third` is the node that has no part in it."""

    def __init__(self, cluster: HeadraceCluster, topic: str) -> None:
        self.cluster = cluster
        self.topic = topic
        self.client = Client(cluster.bootstrap, timeout_s=PATIENCE_S)
        self.writers: list[Writer] = []
        create_topic(self.client, topic, partitions=PARTITIONS, replication_factor=3)
        with_group = Writer(cluster.bootstrap, "first", topic, commits=True)  # makes the coordinators' topics
        with_group.begin()
        with_group.end()
        self.writers.append(with_group)

    def hold(self) -> tuple[str, int]:
        """A partition that takes a marker when all three nodes are there, and not before.

        One without a leader would not do: Kafka's coordinator takes it for one that is deleted, and ends without it.
        """
        name = f"{self.topic}-held"
        create_topic(self.client, name, partitions=1, replication_factor=3, configs={"min.insync.replicas": "3"})
        return name, 0

    def lead(self, first: int, *others: int) -> None:
        """The coordinators' partitions are led by `first`, without any end of a node."""
        for place in (STATE, OFFSETS):
            self._refused(move_partitions(self.client, {place: [first, *others]}))
        _until(lambda: not list_moves(self.client, [STATE, OFFSETS]), "the coordinators' partitions are moved")
        for place in (STATE, OFFSETS):
            if self._at(*place).leader != first:
                self._refused(elect_leaders(self.client, Election.PREFERRED, [place]))
        self.until_led(first)

    def until_led(self, node: int) -> None:
        """Returns when a node leads both partitions of the coordinators."""
        _until(lambda: {self._at(*each).leader for each in (STATE, OFFSETS)} == {node}, f"{node} coordinates")

    def until_in_sync(self) -> None:
        """Returns when each partition has all its replicas in sync."""
        _until(lambda: all(len(each.isr) == len(each.replicas) for each in self._all()), "every replica is in sync")

    def until_dead(self, node: int) -> None:
        """Returns when a node is in sync nowhere."""
        _until(lambda: not any(node in each.isr for each in self._all()), f"node {node} is dead")

    def round(
        self, name: str, move: Callable[[], None], held: tuple[str, int] | None = None, third: int | None = None
    ) -> None:
        """Six transactions, each in another state while the coordinator moves: open, told to end, with markers that
        cannot be written; each of them to be committed, and to be aborted. The last ones have a record in a partition
        that is `held`, while the `third` node is dead."""
        made = [
            Writer(self.cluster.bootstrap, f"{name}-{moment}-{'commit' if commits else 'abort'}", self.topic,
                   commits=commits)
            for moment in ("open", "told", "marked")[: 2 if held is None else 3] for commits in (True, False)
        ]  # fmt: skip
        open_, told, marked = made[:2], made[2:4], made[4:]
        self.writers += made
        for each in open_ + told:
            each.begin()
        for each in marked:
            each.begin(*([held] if held else []))
        if third is not None:
            self.cluster.nodes[third].kill()
            self.until_dead(third)
        for each in marked:
            each.end()
        for each in told:
            each.send_end()
        move()
        for each in told:
            each.wait()
        for each in open_:
            each.end()
        if third is not None:
            found = [state_of(self.client, each.name, settled=False) for each in marked]
            assert found == ["PrepareCommit", "PrepareAbort"], found
        for node in self.cluster.nodes.values():
            if node.process is None:
                node.start()
        for each in made:
            state = state_of(self.client, each.name)
            assert state == ("CompleteCommit" if each.commits else "CompleteAbort"), (each.name, state)
            each.begin()  # and its producer goes on
            each.end(commits=True)

    def check(self, *held: tuple[str, int]) -> None:
        """Each ended as it was told: of its records and positions nothing is lost, doubled or torn. Readers get to the
        end of everything."""
        assert_told(self.client, [self.topic, *(topic for topic, _ in held)], self.writers)

    def assert_equal_logs(self) -> None:
        """Of a cluster that has stopped: the coordinators' logs and those of the records are the same on every node."""
        places = [STATE, OFFSETS, *((self.topic, index) for index in range(PARTITIONS))]
        for place in places:
            logs = {self.cluster.log_of(node, *place) for node in self.cluster.nodes}
            assert len(logs) == 1, f"{place}: the replicas differ"

    def close(self) -> None:
        for each in self.writers:
            each.close()
        self.client.close()

    def _at(self, topic: str, index: int) -> PartitionInfo:
        self.client.refresh([topic])
        found = self.client.topics([topic])[0].partitions[index]
        assert isinstance(found, PartitionInfo)
        return found

    def _all(self) -> Iterable[PartitionInfo]:
        return [each for topic in self.client.topics() for each in topic.partitions]

    @staticmethod
    def _refused(outcomes: Outcomes) -> None:
        refused = {at: str(error) for at, error in outcomes.items() if error is not None}
        assert not refused, refused


def _until(look: Callable[[], bool], what: str) -> None:
    last, found = time.monotonic() + PATIENCE_S, ""
    while True:
        try:
            if look():
                return
        except ClientError as error:
            found = f": {error}"
        assert time.monotonic() < last, f"not in time: {what}{found}"
        time.sleep(0.05)


def assert_told(client: Client, topics: Iterable[str], writers: Iterable[Writer]) -> None:
    """The records and positions of all who write to these topics are there as they were told, and nothing keeps readers
    of what is committed from the end of anything."""

    def is_read_to_the_end(topic: str) -> bool:
        ends = reading.latest_offsets(client, topic)
        return reading.latest_offsets(client, topic, isolation="read_committed") == ends

    for topic in (*topics, OFFSETS[0]):
        _until(partial(is_read_to_the_end, topic), f"readers get to the end of {topic}")
    for topic in topics:
        kept = [value for each in writers for value in each.kept if value.split(b":")[2].decode() == topic]
        assert sorted(visible(client, topic)) == sorted(kept), topic
    for each in writers:
        found = fetch_offsets(client, each.name, [(each.topic, 0)])
        assert (found[each.topic, 0].offset if found else 0) == each.committed, each.name


class Transacting:
    """A producer of transactions for as long as a `with` block lasts, one committed, one aborted in turn: each writes
    to every partition, with a position. None may fail, whatever becomes of brokers meanwhile."""

    def __init__(self, bootstrap: str, topic: str, name: str = "transacting") -> None:
        with Client(bootstrap, timeout_s=PATIENCE_S) as client:
            create_topic(client, topic, partitions=PARTITIONS, replication_factor=3)
        self.writer = Writer(bootstrap, name, topic, commits=True)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)
        self._error: BaseException | None = None

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                for commits in (True, False):
                    self.writer.begin()
                    self.writer.end(commits=commits)
                    self._stop.wait(PAUSE_S)
        except BaseException as error:
            self._error = error

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def check(self, bootstrap: str) -> None:
        """What it was told is so."""
        with Client(bootstrap, timeout_s=PATIENCE_S) as client:
            assert_told(client, [self.writer.topic], [self.writer])
        assert self.writer.kept and self.writer.gone
        self.writer.close()
