"""Frameworks and clients that promise exactly once, as they come, while brokers are killed: Kafka Streams with
`exactly_once_v2`, a source worker of Kafka Connect, and franz-go's transactional sessions. What is committed has each
record once, in order.

`--against kafka` runs the same against three nodes of Apache Kafka.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from durability.promises import SYNC_PATIENCE_S
from durability.test_transactions_kill import PARTITIONS, SETTINGS, Loader
from peers import programs
from peers.cluster import HeadraceCluster
from peers.copying import PATIENCE_S, Copying, Worker, copier, counting
from peers.transactions import visible_records

from headrace.client import Client, reading

pytestmark = [pytest.mark.slow, pytest.mark.soak, pytest.mark.timeout(900)]

NODES = (1, 2, 3)
KEYS = 10
KILLS = 8
UPTIME_MAX_S = 2.0
MORE = 50
"""So many more offsets in a sink say that its program goes on."""

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[HeadraceCluster]:
    kafkas = NODES if request.config.getoption("--against") == "kafka" else ()
    with HeadraceCluster(tmp_path_factory.mktemp("three"), SETTINGS, kafkas=kafkas) as cluster:
        yield cluster


@pytest.fixture
def client(three: HeadraceCluster) -> Iterator[Client]:
    with Client(three.bootstrap, timeout_s=PATIENCE_S) as client:
        yield client


def create(cluster: HeadraceCluster, stem: str, partitions: int = PARTITIONS) -> str:
    name = f"{stem}-{next(_numbers)}"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(name, partitions, len(NODES))])[name].result(SYNC_PATIENCE_S)
    return name


def committed(client: Client, topic: str) -> int:
    return sum(reading.latest_offsets(client, topic, isolation="read_committed").values())


def until(look: Callable[[], bool], program: Copying, what: str) -> None:
    last = time.monotonic() + PATIENCE_S
    while not look():
        program.assert_works()
        assert time.monotonic() < last, f"{what}: {program.errors.read_text()[-2000:]}"
        time.sleep(0.05)


def through_kills(cluster: HeadraceCluster, client: Client, program: Copying, sink: str) -> None:
    """Any node, at any moment, killed and back at once; the program goes on after each."""
    rng = random.Random(sink)

    def goes_on() -> None:
        before = committed(client, sink)
        until(lambda: committed(client, sink) >= before + MORE, program, f"{sink} has no more than {before}")

    for _ in range(KILLS):
        goes_on()
        time.sleep(rng.uniform(0.0, UPTIME_MAX_S))  # the moment is what is drawn
        victim = cluster.nodes[rng.choice(NODES)]
        victim.kill()
        victim.start()
    goes_on()


def records(client: Client, sink: str) -> dict[int, list[tuple[bytes, bytes]]]:
    """(key, value) of what is committed, by partition and in order."""
    found = visible_records(client, sink)
    return {index: [(each.key or b"", each.value or b"") for each in there] for index, there in found.items()}


def test_franz_go_copies(three: HeadraceCluster, client: Client, tmp_path: Path) -> None:
    why = programs.missing("go")
    if why:
        pytest.skip(why)
    source, sink = create(three, "from"), create(three, "copied")
    with copier(three.bootstrap, source, sink, tmp_path) as program:
        with Loader(three.bootstrap, source) as loader:
            through_kills(three, client, program, sink)
        until(lambda: sum(map(len, records(client, sink).values())) >= loader.sent, program, "not all is copied")
        program.close()
    for partition, found in records(client, sink).items():
        assert [int(value) for _, value in found] == list(range(partition, loader.sent, PARTITIONS)), partition


@pytest.mark.jvm
def test_kafka_streams_counts(three: HeadraceCluster, client: Client, tmp_path: Path) -> None:
    """Every count of every key is there once, from 1 up to how often the key came."""
    source, sink = create(three, "numbers"), create(three, "counts")
    with counting(three.bootstrap, source, sink, tmp_path) as program:
        with Loader(three.bootstrap, source) as loader:
            through_kills(three, client, program, sink)
        until(lambda: sum(map(len, records(client, sink).values())) >= loader.sent, program, "not all is counted")
        program.close()
    counts: dict[int, list[int]] = {key: [] for key in range(KEYS)}
    for found in records(client, sink).values():
        for key, value in found:
            counts[int(key)].append(int(value))
    for digit, seen in counts.items():
        assert seen == list(range(1, len(range(digit, loader.sent, KEYS)) + 1)), f"key {digit}"


class Lines(threading.Thread):
    """Writes numbers into a file, a line each, until it is told to stop."""

    def __init__(self, file: Path) -> None:
        super().__init__(daemon=True)
        self.sent = 0
        self.stopped = threading.Event()
        self._file = file

    def run(self) -> None:
        with self._file.open("w") as out:
            while not self.stopped.wait(0.01):
                out.write(f"{self.sent}\n{self.sent + 1}\n")
                out.flush()
                self.sent += 2


@pytest.mark.jvm
def test_kafka_connect_copies_a_file(three: HeadraceCluster, client: Client, tmp_path: Path) -> None:
    sink = create(three, "lines", 1)
    lines = Lines(tmp_path / "lines.txt")
    lines.start()
    with Worker(three.bootstrap, tmp_path / "worker") as program:
        program.copy(tmp_path / "lines.txt", sink)
        through_kills(three, client, program, sink)
        lines.stopped.set()
        lines.join()
        until(lambda: len(records(client, sink)[0]) >= lines.sent, program, "not all is copied")
        assert program.failed() == ""
    assert [int(value) for _, value in records(client, sink)[0]] == list(range(lines.sent))
