"""Several writes in one micro-batch, exactly once each, against both brokers and without Spark: one sink twice, sinks
of several topics, drivers that die between the writes and in them, and repetitions that write something else.

The other deliveries are tried on Headrace alone: task by task, and group commit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from peers.either import BROKERS
from peers.headrace import HeadracePeer
from peers.kafka import KafkaPeer
from peers.settling import client_of
from peers.transactions import SMALL, settled_ends, visible

from headrace.arrow.encode import hash_rows
from headrace.client.admin import create_topic
from headrace.client.cluster import Client
from headrace.client.conversation import Steps
from headrace.client.groups import commit_offsets, fetch_offsets
from headrace.client.reading import latest_offsets
from headrace.client.transactions import TransactionalProducer
from headrace.spark.delivery.exactly_once import commit_batch
from headrace.spark.delivery.group_commit import WrittenTask, write_task
from headrace.spark.delivery.markers import HistoryError, Mark
from headrace.spark.delivery.messages import EncodedTask
from headrace.spark.delivery.next_write import last_mark, next_write_of
from headrace.spark.delivery.per_task import PerTask, TaskWrite
from headrace.spark.delivery.registry import delivery_mode
from headrace.spark.delivery.spark_task import QueryBatch, SparkTask
from headrace.spark.delivery_options import OfBatch
from headrace.spark.options import SinkOptions, sink_options
from headrace.spark.process_state import this_process
from headrace.wire.apis import ApiKey as A
from headrace.wire.records import Record, build_batch
from spark.dying import DEAD, DONE, Death, commit_and_die

_numbers = iter(range(1_000_000))


@pytest.fixture(scope="module", params=BROKERS)
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    peer = HeadracePeer(settings=SMALL) if request.param == "headrace" else KafkaPeer(settings=SMALL)
    with peer, client_of(peer) as client:
        yield client


@pytest.fixture
def query(client: Client) -> Iterator[Query]:
    query = Query(client)
    yield query
    query.forget()


class Query:
    """A query without Spark that writes to two topics in each batch; `run` is new with every start."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.id = f"writes-{next(_numbers)}"
        self.run = 0
        self.topics = [f"{self.id}-good", f"{self.id}-bad"]
        for topic in self.topics:
            create_topic(client, topic, partitions=1)

    def start(self) -> None:
        """Another process, which knows nothing."""
        self.run += 1
        self.forget()

    def forget(self) -> None:
        this_process().query_producers.close()

    def options(
        self, topic: str, batch_id: int, number: int, before: tuple[int, int] | None = None, **more: str
    ) -> SinkOptions:
        host, port = self.client.bootstrap[0]
        given = {"kafka.bootstrap.servers": f"{host}:{port}", "topic": topic, "delivery": "exactly-once"}
        options = sink_options(given | {"kafka.default.api.timeout.ms": "60000"} | more)
        assert options.exactly_once is not None
        return replace(options, exactly_once=replace(options.exactly_once, of_batch=OfBatch(batch_id, number, before)))

    def task(self, topic: str, batch_id: int, *values: bytes) -> EncodedTask:
        batches = []
        if values:
            records = [Record(place, 1, None, value) for place, value in enumerate(values)]
            batches = [(topic, 0, bytearray(build_batch(records)), len(values))]
        return EncodedTask(self.id, f"run {self.run}", batch_id, batches)

    def write(self, topic: str, batch_id: int, number: int, *values: bytes, **how: Any) -> None:
        options = self.options(topic, batch_id, number, **how)
        commit_batch(options, [self.task(topic, batch_id, *values)], batch_id)

    def mark(self) -> Mark:
        """The mark of a batch that is committed: Kafka writes the markers of a transaction behind its answer."""
        how = self.options(self.topics[0], 0, 0).exactly_once
        assert how is not None
        settled_ends(self.client, self.topics[0])
        found = last_mark(self.client, how, self.id)
        assert found is not None
        return found

    def check(self, *values: bytes) -> None:
        """These are in the topics, once each, and nothing is open."""
        assert sorted(value for topic in self.topics for value in visible(self.client, topic)) == sorted(values)
        for topic in self.topics:
            assert settled_ends(self.client, topic) == latest_offsets(self.client, topic)


def numbered(batch_id: int, number: int) -> bytes:
    return b"%d-%d" % (batch_id, number)


@pytest.mark.parametrize("topics", [(0, 0), (0, 1)], ids=["one topic", "two topics"])
def test_two_writes_a_batch(query: Query, topics: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are there, by one producer that is initialized once, whichever sinks the writes are of."""
    taken: list[int] = []
    initialize = TransactionalProducer.initialize_steps

    def counted(self: TransactionalProducer) -> Steps[None]:
        taken.append(1)
        return initialize(self)

    monkeypatch.setattr(TransactionalProducer, "initialize_steps", counted)
    for batch_id in range(4):
        for number, topic in enumerate(topics):
            before = (batch_id - 1, 2) if batch_id else None
            for _ in range(2):  # Spark asks again where it does not know that it was done
                query.write(query.topics[topic], batch_id, number, numbered(batch_id, number), before=before)
    query.check(*(numbered(batch_id, number) for batch_id in range(4) for number in range(2)))
    assert len(taken) == 1
    assert [write.number for write in query.mark().writes] == [0, 1]


def test_a_first_write_without_rows_marks_itself_alone(query: Query) -> None:
    for batch_id in range(2):
        query.start()
        query.write(query.topics[0], batch_id, 0)
        query.start()  # the driver dies between the two
        query.write(query.topics[0], batch_id, 0)
        query.write(query.topics[0], batch_id, 1, numbered(batch_id, 1))
    query.check(numbered(0, 1), numbered(1, 1))


def test_sinks_with_other_settings_share_one_transactional_id(query: Query) -> None:
    for batch_id in range(3):
        query.write(query.topics[0], batch_id, 0, numbered(batch_id, 0))
        more = {"kafka.compression.type": "zstd", "kafka.delivery.timeout.ms": "90000"}
        query.write(query.topics[0], batch_id, 1, numbered(batch_id, 1), **more)
    query.check(*(numbered(batch_id, number) for batch_id in range(3) for number in range(2)))


DEATHS = [Death(A.PRODUCE, "sent"), Death(A.END_TXN, "before"), Death(A.END_TXN, "sent"), Death(A.END_TXN, "answered")]
MORE_DEATHS = [
    Death(A.OFFSET_FETCH, "before"), Death(A.OFFSET_FETCH, "answered"), Death(A.INIT_PRODUCER_ID, "sent"),
    Death(A.INIT_PRODUCER_ID, "answered"), Death(A.OFFSET_FETCH, "answered", 2), Death(A.PRODUCE, "before"),
    Death(A.PRODUCE, "answered"), Death(A.TXN_OFFSET_COMMIT, "sent"), Death(A.TXN_OFFSET_COMMIT, "answered"),
]  # fmt: skip


@pytest.mark.parametrize("deaths", [DEATHS, pytest.param(MORE_DEATHS, marks=pytest.mark.soak)], ids=["few", "all"])
def test_a_driver_that_dies_in_the_first_or_second_write(query: Query, deaths: list[Death]) -> None:
    """Each of them writes its batch from the beginning, and what was there is not written again."""
    batch_id = 0
    for death in deaths:
        for dies_in in range(2):
            for dies in (True, False):
                for number, topic in enumerate(query.topics):
                    query.start()
                    last = death if dies and number == dies_in else None
                    options = query.options(topic, batch_id, number)
                    tasks = [query.task(topic, batch_id, numbered(batch_id, number))]
                    assert commit_and_die(options, tasks, batch_id, last) == (DONE if last is None else DEAD), str(
                        death
                    )
                    if last is not None:
                        break
            batch_id += 1
    query.check(*(numbered(each, number) for each in range(batch_id) for number in range(2)))


@pytest.mark.parametrize("change", ["topic", "options", "order"])
def test_a_repetition_that_writes_something_else_is_refused(query: Query, change: str) -> None:
    good, bad = query.topics
    query.write(good, 0, 0, b"a")
    query.write(bad, 0, 1, b"b")
    query.start()
    query.check(b"a", b"b")  # markers are written behind the answers
    ends = [latest_offsets(query.client, topic) for topic in query.topics]
    if change == "order":
        with pytest.raises(
            HistoryError, match=f"^Write 1 of batch 0 .* goes to topic {bad}, .* it went to topic {good}"
        ):
            query.write(bad, 0, 0, b"b")
    else:
        query.write(good, 0, 0, b"a")
        other = {} if change == "topic" else {"batchHeaders": "true"}
        with pytest.raises(HistoryError, match=r"^Write 2 of batch 0 .* must write the same, in the same order"):
            query.write(good if change == "topic" else bad, 0, 1, b"b", **other)
    assert [latest_offsets(query.client, topic) for topic in query.topics] == ends
    query.start()
    query.write(good, 0, 0, b"a")
    query.write(bad, 0, 1, b"b")
    query.write(good, 1, 0, b"c")
    query.check(b"a", b"b", b"c")


@pytest.mark.parametrize("restarts", [False, True], ids=["one run", "another run"])
def test_a_repetition_with_fewer_writes_ends_the_query_before_the_next_batch(query: Query, restarts: bool) -> None:
    good, bad = query.topics
    query.write(good, 0, 0, b"a")
    query.write(bad, 0, 1, b"b")
    query.start()
    query.write(good, 0, 0, b"a")  # and no second write: the batch ends
    before: tuple[int, int] | None = (0, 1)
    if restarts:
        query.start()
        before = None
    with pytest.raises(HistoryError, match=r"^Batch 0 .* was repeated with 1 of the 2 writes .* batch 1 was written"):
        query.write(good, 1, 0, b"c", before=before)
    query.check(b"a", b"b")
    query.write(good, 1, 0, b"c", before=before, markerMissing="trust")
    query.write(good, 2, 0, b"d", before=(1, 1))
    query.check(b"a", b"b", b"c", b"d")


def test_a_repetition_that_comes_to_all_writes_leaves_no_trace(query: Query) -> None:
    for _ in range(2):
        query.start()
        for number, topic in enumerate(query.topics):
            query.write(topic, 0, number, numbered(0, number))
    assert query.mark().repeated is None
    query.start()
    query.write(query.topics[0], 1, 0, b"c")
    query.check(numbered(0, 0), numbered(0, 1), b"c")


def test_a_repetition_that_dies_between_its_writes_goes_on(query: Query) -> None:
    for number, topic in enumerate(query.topics):
        query.write(topic, 0, number, numbered(0, number))
    query.start()
    query.write(query.topics[0], 0, 0, numbered(0, 0))
    assert query.mark().repeated == 1
    query.start()
    for number, topic in enumerate(query.topics):
        query.write(topic, 0, number, numbered(0, number))
    assert query.mark().repeated is None
    query.write(query.topics[0], 1, 0, b"c", before=(0, 2))
    query.check(numbered(0, 0), numbered(0, 1), b"c")


def test_a_query_of_an_older_version_goes_on(query: Query) -> None:
    """Its mark says that the batch is there, beside the topic of its only write."""
    good, bad = query.topics
    query.write(good, 0, 0, b"a")
    group = f"headrace-{query.id}"
    at = (good, 0)
    commit_offsets(query.client, group, {at: replace(query.mark(), writes=()).committed()})
    assert "writes" not in (fetch_offsets(query.client, group, require_stable=True)[at].metadata or "")
    query.start()
    query.write(good, 0, 0, b"a")
    query.write(bad, 0, 1, b"b")
    query.write(good, 1, 0, b"c", before=(0, 2))
    query.check(b"a", b"b", b"c")


def test_other_processes_beside_the_driver(query: Query) -> None:
    """Each keeps a producer; the one that has not left the query's last mark asks the cluster."""
    kept: list[dict[Any, Any]] = [{}, {}]
    for batch_id in range(3):
        for number, topic in enumerate(query.topics):
            this_process().query_producers.kept.update(kept[number])
            before = (batch_id - 1, 2) if batch_id else None
            query.write(topic, batch_id, number, numbered(batch_id, number), before=before)
            kept[number] = dict(this_process().query_producers.kept)
            this_process().query_producers.kept.clear()
    query.check(*(numbered(batch_id, number) for batch_id in range(3) for number in range(2)))


def test_where_the_records_of_all_writes_are(query: Query) -> None:
    good, bad = query.topics
    more: dict[str, Any] = {"commitTopic": f"{query.id}-commits"}
    for _ in range(2):
        for number, topic in enumerate((good, bad)):
            query.start()
            options = query.options(topic, 0, number, **more)
            spans = commit_batch(options, [query.task(topic, 0, numbered(0, number))], 0)
    assert [(span.topic, span.offset, span.count) for span in spans] == [(good, 0, 1), (bad, 0, 1)]
    query.check(numbered(0, 0), numbered(0, 1))


def rows_of(value: bytes) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"value": pa.array([value])})


@pytest.mark.parametrize("client", ["headrace"], indirect=True)
def test_task_by_task(query: Query) -> None:
    def write(number: int, value: bytes, topic: str, batch_id: int = 0) -> None:
        options = query.options(topic, batch_id, number, delivery="exactly-once-per-task")
        with options.cluster.client(known=True) as client:
            task = SparkTask(QueryBatch(query.id, f"run {query.run}", batch_id), partition=0)
            done = TaskWrite(options, client, task).run(rows_of(value))
        PerTask().commit_batch(options, [done], batch_id)

    good, bad = query.topics
    for topics in ((good, good), (good, bad)):
        batch_id = topics.count(bad)
        for _ in range(2):
            query.start()
            for number, topic in enumerate(topics):
                write(number, numbered(batch_id, number), topic, batch_id)
    query.start()
    write(0, numbered(1, 0), good, 1)
    with pytest.raises(HistoryError, match="^Write 2 of batch 1 "):
        write(1, numbered(1, 1), good, 1)
    query.check(*(numbered(batch_id, number) for batch_id in range(2) for number in range(2)))


@pytest.mark.parametrize("client", ["headrace"], indirect=True)
def test_group_commit(query: Query) -> None:
    def write(number: int, value: bytes, topic: str) -> None:
        options = query.options(topic, 0, number)
        given = SparkTask(QueryBatch(query.id, f"run {query.run}", 0), partition=0)
        task = write_task(rows_of(value), options, given)
        assert isinstance(task, WrittenTask)
        commit_batch(options, [task], 0)

    good, bad = query.topics
    for _ in range(2):
        query.start()
        for number, topic in enumerate((good, bad, good)):
            write(number, numbered(0, number), topic)
    query.start()
    write(0, numbered(0, 0), good)
    with pytest.raises(HistoryError, match="^Write 2 of batch 0 "):
        write(1, numbered(0, 1), good)
    query.check(*(numbered(0, number) for number in range(3)))


def test_the_digest_of_a_write_is_of_what_is_written_where() -> None:
    """Not of the brokers' addresses, passwords and patience, which may change between a crash and the next run."""
    given = {"kafka.bootstrap.servers": "h:1", "topic": "t", "delivery": "exactly-once"}

    def digest(**more: str) -> str:
        return next_write_of(sink_options(given | more), QueryBatch("q", "r", 0)).write.digest

    same = {digest(), digest(**{"kafka.bootstrap.servers": "h:2"}), digest(**{"kafka.request.timeout.ms": "9000"})}
    assert same == {digest(markerMissing="trust", exactlyOnceMaxBytes="7")}
    others = {
        digest(topic="u"),
        digest(**{"kafka.compression.type": "zstd"}),
        digest(batchHeaders="true"),
    }
    assert len(others | same) == 4


@pytest.mark.parametrize("mode", ["exactly-once", "exactly-once-per-task"])
def test_tasks_hash_their_rows_where_nobody_can_read_offsets(query: Query, mode: str) -> None:
    rows = pa.record_batch({"value": pa.array([b"a", b"b"])})

    def made(checkpoint: str, offsets: str = "") -> Any:
        options = query.options(query.topics[0], 0, 0, delivery=mode)
        assert options.exactly_once is not None
        of = OfBatch(0, 0, None, offsets)
        options = replace(options, exactly_once=replace(options.exactly_once, checkpoint=checkpoint, of_batch=of))
        return delivery_mode(options).write(iter([rows]), options, SparkTask(QueryBatch(query.id, "run", 0)))

    assert made("s3a://bucket/query").row_hash == hash_rows(rows, query.topics[0])
    if mode == "exactly-once":
        assert made("/local").row_hash is None
        assert made("s3a://bucket/query", "digest").row_hash is None
    else:  # what is there is compared with what would be written again
        assert made("/local").row_hash == hash_rows(rows, query.topics[0])


def test_other_rows_of_one_of_two_writes_end_the_query_where_nobody_can_read_offsets(query: Query) -> None:
    def write(number: int, row_hash: int) -> None:
        task = replace(query.task(query.topics[number], 0, numbered(0, number)), row_hash=row_hash)
        commit_batch(query.options(query.topics[number], 0, number), [task], 0)

    write(0, 5)
    write(1, 6)
    query.start()
    write(0, 5)
    with pytest.raises(HistoryError, match="in the topic with other rows: run .* has done write 2 of it"):
        write(1, 5)
    query.start()
    with pytest.raises(HistoryError, match="in the topic with other rows: run .* has done write 1 of it"):
        write(0, 6)
    query.check(numbered(0, 0), numbered(0, 1))
