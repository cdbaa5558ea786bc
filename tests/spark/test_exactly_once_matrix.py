"""Exactly once in a real Spark, on ours and (soak) on Apache Kafka: tasks, executors, drivers and brokers that die,
freeze or come twice, and checkpoints that do not fit.

A consumer of committed records follows the sink all the time; see `watching` for what it is held against. Executors are
those of a local cluster, two of one core each in processes of their own.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from peers import class_archive, spark_cluster
from peers.headrace import HeadracePeer
from peers.kafka import KafkaPeer
from peers.settling import client_of
from peers.transactions import SMALL, set_transaction_version, visible

from headrace.client.admin import create_topic
from headrace.client.cluster import Client
from headrace.client.groups import delete_offsets, list_groups
from headrace.client.reading import latest_offsets

from .gates import Gates
from .test_kill_matrix import PATIENCE_S, SINK, SOURCE, Matrix, end
from .watching import PARTITIONS, Watch, check, marked

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

ONCE = {"delivery": "exactly-once"}
FROM_THE_FIRST = {"startingOffsets": "earliest"}
CLUSTER = {
    "spark.master": "local-cluster[2,1,1024]",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": class_archive.java_options(),
}
IMPATIENCE = {
    "spark.network.timeout": "8s",
    "spark.network.timeoutInterval": "1s",
    "spark.executor.heartbeatInterval": "1s",
}
"""With an executor that says nothing."""
AMONG_TWO = {
    "done": "a newer producer with this id has taken over|comes after batch 2",
    "flushed": "a newer producer with this id has taken over",
    "decided": "CONCURRENT|[Cc]oncurrent",
}
"""What the one of two drivers says that has not gone on, by where it stood."""


@pytest.fixture(params=["headrace", pytest.param("kafka", marks=pytest.mark.soak)])
def peer(request: pytest.FixtureRequest) -> Iterator[HeadracePeer | KafkaPeer]:
    with HeadracePeer(settings=SMALL) if request.param == "headrace" else KafkaPeer(settings=SMALL) as peer:
        yield peer


@pytest.fixture
def client(peer: HeadracePeer | KafkaPeer) -> Iterator[Client]:
    with client_of(peer) as client:
        create_topic(client, SOURCE, partitions=PARTITIONS)
        create_topic(client, SINK, partitions=PARTITIONS)
        yield client


@pytest.fixture
def watch(client: Client, peer: HeadracePeer | KafkaPeer) -> Iterator[Watch]:
    with Watch(peer.bootstrap) as watch:
        yield watch


@pytest.fixture
def matrix(peer: HeadracePeer | KafkaPeer, tmp_path: Path) -> Matrix:
    matrix = Matrix(peer.bootstrap, tmp_path, ONCE, FROM_THE_FIRST)
    matrix.environment = {"SPARK_HOME": str(spark_cluster.home(tmp_path))}
    return matrix


@contextmanager
def driver(matrix: Matrix, how_long: str = "forever") -> Iterator[tuple[Gates, subprocess.Popen[bytes]]]:
    """A driver and its gates, which are open; it is killed at the end, if it is there still."""
    gates = matrix.gates()
    running = matrix.driver(gates, how_long)
    try:
        yield gates, running
    finally:
        end(running)


def one_batch(matrix: Matrix, gates: Gates, running: subprocess.Popen[bytes], count: int = 10) -> None:
    """More records, which the driver plans together: it has done all others, and looks no earlier."""
    gates.shut("finished")
    matrix.until(gates, "finished", running)
    matrix.produce(count)
    gates.open("finished")


def processes_of(worker: int) -> list[int]:
    """An executor by one of its Python workers: its JVM first, then all that the JVM has started."""
    daemon = parent(worker)
    executor = parent(daemon)
    assert b"CoarseGrainedExecutorBackend" in Path(f"/proc/{executor}/cmdline").read_bytes()
    found = [executor]
    for pid in found:
        found += [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    threads = Path(f"/proc/{executor}/task").iterdir()
    found += [int(child) for thread in threads for child in (thread / "children").read_text().split()]
    return list(dict.fromkeys([*found, daemon, worker]))


def parent(pid: int) -> int:
    """The process that has made this one."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.timeout(900)
def test_tasks_and_executors_that_die(matrix: Matrix, client: Client, watch: Watch) -> None:
    """One driver after the other: a task that fails, an executor killed, the driver killed in an open transaction."""
    matrix.settings = CLUSTER
    matrix.produce(20)
    with driver(matrix) as (gates, running):
        gates.fail("written-0-0")
        gates.fail("written-1-0")
        matrix.until_done(0, running)
        watch.wait_for(20)
        gates.shut("written")
        one_batch(matrix, gates, running)
        matrix.until(gates, "written", running)
        os.kill(processes_of(gates.pid_at("written"))[0], signal.SIGKILL)
        assert marked(client) == 0 and len(watch.seen) == 20
        gates.open("written")
        matrix.until_done(1, running)
        watch.wait_for(30)
        gates.shut("flushed")
        one_batch(matrix, gates, running)
        matrix.until(gates, "flushed", running)
    assert sum(latest_offsets(client, SINK).values()) > 40, "the rows, and the ends of two transactions"
    assert marked(client) == 1 and len(watch.seen) == 30
    matrix.settings = {}
    matrix.finish()
    check(client, matrix, watch)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_an_executor_that_is_taken_for_dead(matrix: Matrix, client: Client, watch: Watch) -> None:
    """It is frozen while its task stands before its end; the driver gives it up, and it wakes after the batch."""
    matrix.settings = CLUSTER | IMPATIENCE
    matrix.produce(20)
    with driver(matrix) as (gates, running):
        gates.shut("written-0-0")
        matrix.until(gates, "written-0-0", running)
        with frozen(processes_of(gates.pid_at("written-0-0"))):
            matrix.until_done(0, running)
        gates.open("written-0-0")
        one_batch(matrix, gates, running)
        matrix.until_done(1, running)
    matrix.settings = {}
    matrix.finish()
    check(client, matrix, watch)


@pytest.fixture(params=[2, 1], ids=["2", "1"])
def per_task(matrix: Matrix, client: Client, request: pytest.FixtureRequest) -> Matrix:
    """Each task commits itself, at this `transaction.version`."""
    set_transaction_version(client, request.param)
    matrix.sink_options = {"delivery": "exactly-once-per-task"}
    matrix.settings = CLUSTER
    return matrix


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_executors_that_die_task_by_task(per_task: Matrix, client: Client, watch: Watch) -> None:
    """With a transaction open, with one that is decided, and with one that Spark knows of nearly; then the driver too.

    Each first attempt of a task that has its rows in the topic fails besides.
    """
    per_task.produce(20)
    with driver(per_task) as (gates, running):
        gates.fail("written-0-0")
        for batch, point in enumerate(("task-flushed", "task-decided", "written")):
            gates.shut(point)
            if batch:
                one_batch(per_task, gates, running)
            per_task.until(gates, point, running)
            os.kill(processes_of(gates.pid_at(point))[0], signal.SIGKILL)
            gates.open(point)
            per_task.until_done(batch, running)
            watch.wait_for(20 + 10 * batch)
            watch.check_once()
        gates.shut("task-decided")
        one_batch(per_task, gates, running)
        per_task.until(gates, "task-decided", running)
        os.kill(processes_of(gates.pid_at("task-decided"))[0], signal.SIGKILL)
    assert per_task.logged() == ({0, 1, 2, 3}, {0, 1, 2})
    per_task.settings = {}
    per_task.finish()
    check(client, per_task, watch)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("point", ["task-flushed", "task-decided"])
def test_an_executor_that_is_taken_for_dead_task_by_task(
    per_task: Matrix, client: Client, watch: Watch, point: str
) -> None:
    """It wakes when its task's next attempt has committed, and commits as well, or has done so already."""
    per_task.settings = CLUSTER | IMPATIENCE
    per_task.produce(20)
    with driver(per_task) as (gates, running):
        gates.shut(point)
        per_task.until(gates, point, running)
        with frozen(processes_of(gates.pid_at(point))):
            gates.open(point)
            per_task.until_done(0, running)
        one_batch(per_task, gates, running)
        per_task.until_done(1, running)
    per_task.settings = {}
    per_task.finish()
    check(client, per_task, watch)


@contextmanager
def frozen(pids: list[int]) -> Iterator[None]:
    """None of these processes runs; those that are there still go on behind the block."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            if Path(f"/proc/{pid}").exists():
                os.kill(pid, signal.SIGCONT)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_driver_killed_around_its_commit(matrix: Matrix, client: Client, watch: Watch) -> None:
    """Each kill hits a batch of its own, which the next driver begins with."""
    matrix.produce(20)
    for batch, (point, is_in) in enumerate((("done", 0), ("flushed", 0), ("decided", 1), ("committed", 1))):
        with driver(matrix) as (gates, running):
            gates.shut("finished" if batch else point)
            if batch:
                matrix.until(gates, "finished", running)
                gates.shut(point)
                matrix.produce(10)
                gates.open("finished")
            matrix.until(gates, point, running)
        assert matrix.logged() == (set(range(batch + 1)), set(range(batch)))
        assert marked(client) == (batch if is_in else batch - 1 if batch else None), point
        watch.check_once()
    matrix.finish()
    check(client, matrix, watch)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("point", ["done", "flushed", "decided"])
def test_two_drivers_on_one_checkpoint(matrix: Matrix, client: Client, watch: Watch, point: str) -> None:
    """The one stands still in its commit while the other does that batch and the next one."""
    matrix.produce(20)
    with driver(matrix) as (gates, first):
        matrix.until_done(0, first)
        gates.shut(point)
        one_batch(matrix, gates, first)
        matrix.until(gates, point, first)
        with driver(matrix) as (others, second):
            matrix.until_done(1, second)
            one_batch(matrix, others, second)
            matrix.until_done(2, second)
            watch.wait_for(40)
            gates.open(point)
            assert first.wait(PATIENCE_S) != 0
            said = matrix.said(-2, 100_000)
            assert re.search(AMONG_TWO[point], said), said
            one_batch(matrix, others, second)
            matrix.until_done(3, second)
    matrix.finish()
    check(client, matrix, watch)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_broker_killed_in_the_middle(
    matrix: Matrix, client: Client, watch: Watch, peer: HeadracePeer | KafkaPeer
) -> None:
    """The driver stands before its tasks, before its commit, with its rows sent, and behind its decision."""
    matrix.produce(20)
    points = ("planned", "done", "flushed", "decided")
    with driver(matrix) as (gates, running):
        for batch, point in enumerate(points):
            gates.shut(point)
            if batch:
                one_batch(matrix, gates, running)
            matrix.until(gates, point, running)
            peer.kill()
            peer.start()
            gates.open(point)
            matrix.until_done(batch, running)
            watch.wait_for(20 + 10 * batch)
    matrix.finish()
    check(client, matrix, watch)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_checkpoints_and_marks_that_do_not_fit(matrix: Matrix, client: Client, watch: Watch, tmp_path: Path) -> None:
    """What Spark counts as done rewound by one and by three, an older copy of the checkpoint, the mark deleted."""
    matrix.source_options = FROM_THE_FIRST | {"maxOffsetsPerTrigger": "10"}
    matrix.produce(50)
    matrix.finish()
    last = max(matrix.logged()[1])
    assert last >= 4
    kept = tmp_path / "kept"
    shutil.copytree(matrix.checkpoint, kept)
    for back in (1, 3):
        rewind(matrix, last - back, "commits")
        matrix.finish()
        assert len(visible(client, SINK)) == 50, "nothing came twice"
        shutil.rmtree(matrix.checkpoint)
        shutil.copytree(kept, matrix.checkpoint)
    rewind(matrix, last - 3, "commits", "offsets")
    refused(matrix, f"Batch {last - 2} of query .* comes after batch {last}, which is in the topic already")
    shutil.rmtree(matrix.checkpoint)
    shutil.copytree(kept, matrix.checkpoint)
    (group,) = (found.group_id for found in list_groups(client) if found.group_id.startswith("headrace-"))
    delete_offsets(client, group, [(SINK, 0)])
    matrix.produce(10)
    refused(matrix, f"Batch {last + 1} of query .* remembers no batch as the last one")
    assert len(visible(client, SINK)) == 50, "nothing was written"
    matrix.sink_options = ONCE | {"markerMissing": "trust"}
    matrix.finish()
    check(client, matrix, watch)


def rewind(matrix: Matrix, last: int, *logs: str) -> None:
    """Spark's logs of a checkpoint end with this batch."""
    for path in (path for log in logs for path in (matrix.checkpoint / log).iterdir()):
        if (number := re.fullmatch(r"\.?(\d+)(\.crc)?", path.name)) and int(number[1]) > last:
            path.unlink()


def refused(matrix: Matrix, sentence: str) -> None:
    """A driver ends by itself and says so."""
    with driver(matrix, "now") as (_, running):
        assert running.wait(PATIENCE_S) != 0
    assert re.search(sentence, matrix.said()), matrix.said()
