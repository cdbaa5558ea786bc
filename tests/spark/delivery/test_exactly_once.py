"""Delivery exactly once against both brokers, without Spark: the driver's part of it, killed at each of its requests.

While drivers die and are replaced, a reader of committed records follows the topic. It must have every record of the
source once, and batches whole and in order.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pytest
from peers.either import BROKERS
from peers.headrace import HeadracePeer
from peers.kafka import KafkaPeer
from peers.settling import client_of
from peers.transactions import DONE as ENDED
from peers.transactions import SMALL, set_transaction_version, settled_ends, state_of, visible
from peers.waiting import until

from headrace.client.admin import add_partitions, create_topic
from headrace.client.cluster import Client
from headrace.client.errors import ClientError, ConnectionLostError, FencedError, InDoubtError
from headrace.client.fetcher import Fetcher
from headrace.client.groups import commit_offsets, delete_offsets, fetch_offsets
from headrace.client.reading import latest_offsets, visible_batches
from headrace.client.routing import Router
from headrace.client.transaction_states import list_transactions
from headrace.spark.delivery.exactly_once import commit_batch, commit_write
from headrace.spark.delivery.markers import HistoryError
from headrace.spark.delivery.messages import EncodedTask
from headrace.spark.delivery_options import OfBatch
from headrace.spark.options import SinkOptions, sink_options
from headrace.spark.process_state import this_process
from headrace.spark.sink import BatchWriter
from headrace.wire.apis import ApiKey as A
from headrace.wire.records import Record, build_batch, decode_batch
from spark.dying import DEAD, DONE, Death, commit_and_die

PARTITIONS = 3
_numbers = itertools.count(1)


@pytest.fixture(scope="module", params=BROKERS)
def peer(request: pytest.FixtureRequest) -> Iterator[HeadracePeer | KafkaPeer]:
    peer = HeadracePeer(settings=SMALL) if request.param == "headrace" else KafkaPeer(settings=SMALL)
    with peer:
        yield peer


@pytest.fixture(scope="module", params=[2, pytest.param(1, marks=pytest.mark.soak)])
def cluster(peer: HeadracePeer | KafkaPeer, request: pytest.FixtureRequest) -> Iterator[Client]:
    with client_of(peer) as client:
        set_transaction_version(client, request.param)
        yield client


@pytest.fixture
def query(cluster: Client) -> Iterator[Query]:
    with Query(cluster) as query:
        yield query


class Query:
    """A query without Spark: it numbers records and batches, and a reader follows what it commits."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.id = f"query-{next(_numbers)}"
        self.topic = f"{self.id}-out"
        create_topic(client, self.topic, partitions=PARTITIONS)
        host, port = client.bootstrap[0]
        self.options = sink_options({
            "kafka.bootstrap.servers": f"{host}:{port}", "topic": self.topic, "delivery": "exactly-once",
            "kafka.default.api.timeout.ms": "60000",
        })  # fmt: skip
        self.seen: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self._over = threading.Event()
        self._reader = threading.Thread(target=self._follow, args=(f"{host}:{port}",), daemon=True)

    def __enter__(self) -> Self:
        this_process().query_producers.kept.clear()
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._reader.join()
        this_process().query_producers.close()

    def _follow(self, bootstrap: str) -> None:
        with Client(bootstrap, timeout_s=120) as client:
            positions = {(self.topic, index): 0 for index in range(PARTITIONS)}
            fetcher = Fetcher(client, positions, isolation="read_committed", max_wait_ms=50)
            while not self._over.is_set():
                for fetched in fetcher.poll(0.05):
                    for _, body in visible_batches(fetched, committed=True):
                        self.seen[fetched.partition] += [record.value or b"" for record in decode_batch(body)]

    def tasks(self, batch_id: int, *, run: str = "run", attempt: str = "") -> list[EncodedTask]:
        """The messages of two tasks, with the same records in every run; `attempt` tells runs apart in a test."""
        made = []
        for task in range(2):
            message = EncodedTask(self.id, run, batch_id)
            for partition in range(PARTITIONS):
                for part in range(2):
                    value = b"%d-%d-%d-%d%s" % (batch_id, task, partition, part, attempt.encode())
                    batch = bytearray(build_batch([Record(0, 1, None, value), Record(1, 2, None, value + b"b")]))
                    message.batches.append((self.topic, partition, batch, 2))
            made.append(message)
        return made

    def values(self, *batch_ids: int) -> list[bytes]:
        """What these batches hold, sorted."""
        found = []
        for batch_id in batch_ids:
            for task in self.tasks(batch_id):
                found += [record.value or b"" for *_, batch, _ in task.batches for record in decode_batch(batch)]
        return sorted(found)

    def check(self, *batch_ids: int) -> None:
        """These batches are in the topic, once, for all who read what is committed; nothing is left open."""
        assert state_of(self.client, f"headrace-{self.id}") in ENDED
        assert sorted(visible(self.client, self.topic)) == self.values(*batch_ids)
        assert settled_ends(self.client, self.topic) == latest_offsets(self.client, self.topic), "no record waits"
        assert self.marked() == (max(batch_ids) if batch_ids else None)

    def check_reader(self, *batch_ids: int) -> None:
        """The same of the reader that has followed all the time; within a partition batches come in their order."""
        until(lambda: sum(map(len, self.seen)) >= len(self.values(*batch_ids)), "the reader has seen it all")
        assert sorted(value for part in self.seen for value in part) == self.values(*batch_ids)
        for part in self.seen:
            order = [int(value.split(b"-")[0]) for value in part]
            assert order == sorted(order)

    def marked(self, *, stable: bool = True) -> int | None:
        group, at = f"headrace-{self.id}", (self.topic, 0)
        found = fetch_offsets(self.client, group, [at], require_stable=stable).get(at)
        return None if found is None else found.offset


def commit(query: Query, batch_id: int, options: SinkOptions | None = None, *, fresh: bool = False) -> None:
    """In this process, which remembers the batch before unless it is `fresh`."""
    if fresh:
        this_process().query_producers.kept.clear()
    commit_batch(options or query.options, query.tasks(batch_id), batch_id)


def test_batches_one_after_the_other(query: Query, cluster: Client) -> None:
    for batch_id in range(4):
        commit(query, batch_id)
        commit(query, batch_id)  # Spark asks again where it does not know that it was done
    commit(query, 3, fresh=True)
    commit(query, 4, fresh=True)
    query.check(0, 1, 2, 3, 4)
    query.check_reader(0, 1, 2, 3, 4)


def test_an_empty_batch_leaves_its_mark_too(query: Query) -> None:
    for batch_id in range(2):
        commit_batch(query.options, [EncodedTask(query.id, "run", batch_id)], batch_id)
        assert query.marked() == batch_id
    commit(query, 2)
    query_values = sorted(visible(query.client, query.topic))
    assert query_values == query.values(2)


def test_partitions_that_are_added_between_batches(query: Query) -> None:
    """The tasks' processes know of them, and the driver's, which keeps its client, does not yet."""
    commit(query, 0)
    with type(query.client)("{}:{}".format(*query.client.bootstrap[0])) as other:
        add_partitions(other, query.topic, PARTITIONS + 1)
    message = EncodedTask(query.id, "run", 1)
    message.batches.append((query.topic, PARTITIONS, bytearray(build_batch([Record(0, 1, None, b"new")])), 1))
    commit_batch(query.options, [message], 1)
    query.client.refresh([query.topic])
    assert sorted(visible(query.client, query.topic)) == sorted([*query.values(0), b"new"])


DEATHS = [
    Death(A.OFFSET_FETCH, "before"), Death(A.OFFSET_FETCH, "answered"),
    Death(A.INIT_PRODUCER_ID, "before"), Death(A.INIT_PRODUCER_ID, "sent"), Death(A.INIT_PRODUCER_ID, "answered"),
    Death(A.OFFSET_FETCH, "answered", 2),
    Death(A.PRODUCE, "before"), Death(A.PRODUCE, "sent"), Death(A.PRODUCE, "answered"),
    Death(A.PRODUCE, "before", 3), Death(A.PRODUCE, "answered", 3),
    Death(A.TXN_OFFSET_COMMIT, "before"), Death(A.TXN_OFFSET_COMMIT, "sent"), Death(A.TXN_OFFSET_COMMIT, "answered"),
    Death(A.END_TXN, "before"), Death(A.END_TXN, "sent"), Death(A.END_TXN, "answered"),
]  # fmt: skip
"""Every step of a commit: its request about to leave, gone, answered."""
OLDER = [
    Death(A.ADD_PARTITIONS_TO_TXN, "sent"), Death(A.ADD_PARTITIONS_TO_TXN, "answered"),
    Death(A.ADD_OFFSETS_TO_TXN, "sent"), Death(A.ADD_OFFSETS_TO_TXN, "answered"),
]  # fmt: skip
"""Those of the older protocol alone."""


def test_a_driver_that_dies_at_any_request(query: Query, cluster: Client) -> None:
    """Each death hits a batch of its own; its successor begins without knowing what was done, and goes on."""
    older = not exactly_once_renews(query)
    deaths = DEATHS + OLDER if older else DEATHS
    for batch_id, death in enumerate(deaths, 1):
        assert commit_and_die(query.options, query.tasks(batch_id), batch_id, death) == DEAD, str(death)
        if (death.api, death.when) == (A.END_TXN, "answered"):
            assert query.marked() == batch_id, "it was decided"
        elif death.api != A.END_TXN or death.when == "before":
            assert sum(map(len, query.seen)) <= len(query.values(*range(batch_id))), f"{death}: none of it is seen"
        assert commit_and_die(query.options, query.tasks(batch_id), batch_id, None) == DONE, str(death)
        assert query.marked() == batch_id, str(death)
    every = range(len(deaths) + 1)
    query.check(*every)
    query.check_reader(*every)


def exactly_once_renews(query: Query) -> bool:
    """Writes batch 0; says whether the cluster has the newer protocol."""
    commit(query, 0)
    return bool(this_process().query_producers.kept)


def test_a_driver_that_dies_time_after_time_in_one_batch(query: Query) -> None:
    for death in (*DEATHS[:-2], *DEATHS[:-2]):
        assert commit_and_die(query.options, query.tasks(0, attempt="x"), 0, death) == DEAD, str(death)
        assert query.marked(stable=False) is None
    commit(query, 0)
    query.check(0)
    query.check_reader(0)


def test_of_two_drivers_one_wins(query: Query) -> None:
    """The older one has its producer still, and finds out with its next batch."""
    commit(query, 0)
    older = dict(this_process().query_producers.kept)
    commit(query, 1, fresh=True)
    newer = dict(this_process().query_producers.kept)
    this_process().query_producers.kept.clear()
    this_process().query_producers.kept.update(older)
    if older:
        with pytest.raises(FencedError, match=f"headrace-{query.id}: a newer producer"):
            commit_batch(query.options, query.tasks(1, attempt="late"), 1)
        assert not this_process().query_producers.kept, "it must look at the mark before it writes again"
    commit_batch(query.options, query.tasks(1, attempt="late"), 1)  # restarted: the mark says that it is done
    this_process().query_producers.kept.clear()
    this_process().query_producers.kept.update(newer)
    commit(query, 2)
    query.check(0, 1, 2)
    query.check_reader(0, 1, 2)


def test_a_driver_that_was_frozen_before_its_decision(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is sent but the end, when another driver takes the query over and writes the batch."""
    from headrace.client.transactions import TransactionalProducer

    commit(query, 0)
    end = TransactionalProducer._end

    def frozen(self: Any, *, committed: bool) -> Any:
        monkeypatch.setattr(TransactionalProducer, "_end", end)
        assert commit_and_die(query.options, query.tasks(1), 1, None) == DONE
        return end(self, committed=committed)

    monkeypatch.setattr(TransactionalProducer, "_end", frozen)
    with pytest.raises(FencedError):
        commit_batch(query.options, query.tasks(1, attempt="frozen"), 1)
    commit_batch(query.options, query.tasks(1, attempt="frozen"), 1)
    query.check(0, 1)
    query.check_reader(0, 1)


def test_a_rival_between_the_first_look_and_the_fence(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    from headrace.client.transactions import TransactionalProducer

    take = TransactionalProducer.initialize_steps

    def late(self: Any) -> Any:
        monkeypatch.setattr(TransactionalProducer, "initialize_steps", take)
        assert commit_and_die(query.options, query.tasks(0), 0, None) == DONE
        return take(self)

    monkeypatch.setattr(TransactionalProducer, "initialize_steps", late)
    commit_batch(query.options, query.tasks(0, attempt="late"), 0)
    query.check(0)


def test_an_answer_that_is_lost_is_found_in_the_mark(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end is decided, its answer does not come, and neither do those to its repetitions."""
    from headrace.client.transacting import State
    from headrace.client.transactions import TransactionalProducer

    end = TransactionalProducer._end
    for batch_id, decided in enumerate((True, False)):

        def lost(self: Any, *, committed: bool, decided: bool = decided) -> Any:
            if decided:
                yield from end(self, committed=committed)
            self.state = State.DEAD
            raise InDoubtError("no answer")

        monkeypatch.setattr(TransactionalProducer, "_end", lost)
        if decided:
            commit(query, batch_id)
        else:
            with pytest.raises(InDoubtError):
                commit(query, batch_id)
        assert not this_process().query_producers.kept
        monkeypatch.setattr(TransactionalProducer, "_end", end)
    commit(query, 1)
    query.check(0, 1)
    query.check_reader(0, 1)


def leader_epochs(query: Query) -> dict[tuple[str, int], int]:
    """Of the partitions that have a leader."""
    topics = query.client.topics([query.topic, "__consumer_offsets", "__transaction_state"])
    return {
        (topic.name, each.index): each.leader_epoch for topic in topics for each in topic.partitions if not each.error
    }


def killed_where_markers_are_kept(query: Query, peer: KafkaPeer, *, is_ended: bool) -> None:
    """Kafka writes no marker to a partition that has no leader when a transaction ends (docs/divergence.md): it is
    killed when none is due, and this returns when all partitions have a leader again."""
    if is_ended:
        assert state_of(query.client, f"headrace-{query.id}") in ENDED
    before = leader_epochs(query)
    peer.kill()
    peer.start()
    until(
        lambda: all(leader_epochs(query).get(at, -1) > epoch for at, epoch in before.items()),
        "every partition has a new leader",
        ClientError,
    )


@pytest.mark.slow
def test_a_broker_killed_in_the_middle_of_a_commit(
    query: Query, peer: HeadracePeer | KafkaPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leads everything and coordinates everything; each batch is committed by the broker that comes back."""
    from headrace.client.transactions import TransactionalProducer
    from headrace.wire.messages.k26_end_txn import EndTxnResponse

    kills = []

    def killed(point: str) -> None:
        kills.append(point)
        if isinstance(peer, KafkaPeer):
            killed_where_markers_are_kept(query, peer, is_ended=point == "answer")
        else:
            peer.kill()
            peer.start()

    flush, end, wait = TransactionalProducer.flush, TransactionalProducer._end, Router.wait

    def before_rows_are_answered(self: Any) -> None:
        monkeypatch.setattr(TransactionalProducer, "flush", flush)
        killed("rows")
        flush(self)

    def before_the_end(self: Any, *, committed: bool) -> Any:
        monkeypatch.setattr(TransactionalProducer, "_end", end)
        killed("end")
        return end(self, committed=committed)

    def answer_of_the_end_is_lost(self: Router, call: Any, deadline: float) -> Any:
        answer = yield from wait(self, call, deadline)
        if isinstance(answer, EndTxnResponse):
            monkeypatch.setattr(Router, "wait", wait)
            killed("answer")
            raise ConnectionLostError("the answer did not come")
        return answer

    commit(query, 0)
    monkeypatch.setattr(TransactionalProducer, "flush", before_rows_are_answered)
    commit(query, 1)
    monkeypatch.setattr(TransactionalProducer, "_end", before_the_end)
    commit(query, 2)
    monkeypatch.setattr(Router, "wait", answer_of_the_end_is_lost)
    commit(query, 3)
    commit(query, 4)
    assert kills == ["rows", "end", "answer"]
    query.check(0, 1, 2, 3, 4)
    query.check_reader(0, 1, 2, 3, 4)


def test_a_checkpoint_and_a_mark_that_do_not_fit(query: Query) -> None:
    for batch_id in range(3):
        commit(query, batch_id)
    commit(query, 2, fresh=True)  # commits/ rewound by one
    with pytest.raises(HistoryError, match=r"comes after batch 2.*nothing was written"):
        commit(query, 0, fresh=True)
    with pytest.raises(HistoryError, match="remembers batch 2 as the last one"):
        commit(query, 5, fresh=True)
    delete_offsets(query.client, f"headrace-{query.id}", [(query.topic, 0)])
    with pytest.raises(HistoryError, match="remembers no batch as the last one"):
        commit(query, 3, fresh=True)
    trusting = replace(query.options, exactly_once=replace(query.options.exactly_once, trusted=True))  # type: ignore[type-var]
    commit(query, 3, trusting, fresh=True)
    commit(query, 4, fresh=True)
    query.check(0, 1, 2, 3, 4)
    commit_offsets(query.client, f"headrace-{query.id}", {(query.topic, 0): 4})
    with pytest.raises(HistoryError, match="no mark of this version"):
        commit(query, 5, fresh=True)


def planned(query: Query, checkpoint: Path, batch_id: int, end: int) -> SinkOptions:
    """The sink's options where Spark has planned a batch up to an offset."""
    log = checkpoint / "offsets" / str(batch_id)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(f'v1\n{{"batchTimestampMs":{time.time_ns()}}}\n{{"in":{{"0":{end}}}}}')
    assert query.options.exactly_once is not None
    return replace(query.options, exactly_once=replace(query.options.exactly_once, checkpoint=str(checkpoint)))


@pytest.mark.parametrize("fresh", [True, False], ids=["another process", "the same process"])
def test_a_checkpoint_that_was_restored_to_before_its_last_batch(query: Query, tmp_path: Path, fresh: bool) -> None:
    """The batch is planned up to what is there now, and its first half is in the topic."""
    for batch_id in range(3):
        commit(query, batch_id, planned(query, tmp_path, batch_id, 10 * batch_id))
    commit(query, 2, planned(query, tmp_path, 2, 20), fresh=fresh)
    with pytest.raises(
        HistoryError, match=r"^Batch 2 .* with other records of its sources.*restored to a state before"
    ):
        commit(query, 2, planned(query, tmp_path, 2, 25), fresh=fresh)
    query.check(0, 1, 2)
    commit(query, 2, planned(query, tmp_path, 2, 20), fresh=fresh)
    commit(query, 3, planned(query, tmp_path, 3, 25))
    query.check(0, 1, 2, 3)
    query.check_reader(0, 1, 2, 3)


def test_a_batch_of_other_rows_is_not_passed_over_silently(query: Query) -> None:
    """Where nobody can read the checkpoint, the number of its rows is all that tells of one that was restored."""
    commit(query, 0)
    commit(query, 0, fresh=True)  # as Spark repeats it
    tasks = query.tasks(0, run="later")
    rows = sum(task.rows for task in tasks)
    more = [*tasks, *tasks[:1]]
    with pytest.warns(RuntimeWarning, match=rf"^Batch 0 .* is not written: run run has written it, with {rows} rows"):
        commit_batch(query.options, more, 0)
    query.check(0)


def test_a_batch_of_other_rows_is_refused_by_their_hashes(query: Query, tmp_path: Path) -> None:
    """As many rows, and others: the tasks have hashed them where nobody can read the checkpoint."""

    def tasks(batch_id: int, run: str, *hashes: int | None) -> list[EncodedTask]:
        return [replace(task, row_hash=each) for task, each in zip(query.tasks(batch_id, run=run), hashes)]

    for batch_id in range(2):
        commit_batch(query.options, tasks(batch_id, "run", batch_id, (1 << 64) - 1), batch_id)
    this_process().query_producers.kept.clear()
    again = tasks(1, "later", 2, -2 & (1 << 64) - 1)  # the rows lie in other tasks, and the sum is the same
    commit_batch(query.options, again, 1)
    this_process().query_producers.kept.clear()
    with pytest.raises(HistoryError, match=r"^Batch 1 .* in the topic with other rows.*run run has.*run, later, has"):
        commit_batch(query.options, tasks(1, "later", 2, 2), 1)
    commit_batch(query.options, tasks(1, "later", 2, None), 1)  # not all are known
    commit_batch(planned(query, tmp_path, 1, 20), tasks(1, "later", 2, 2), 1)  # the driver can read the checkpoint
    commit(query, 2)
    query.check(0, 1, 2)


def test_a_copied_checkpoint(query: Query, tmp_path: Path) -> None:
    """Two queries have one id. The one that comes second with a number hears so, and the first goes on undisturbed."""

    def run(name: str, batch_id: int, end: int) -> None:
        commit_batch(planned(query, tmp_path / name, batch_id, end), query.tasks(batch_id, run=name), batch_id)

    run("original", 0, 10)
    for batch_id, end in ((1, 20), (2, 30)):
        run("original", batch_id, end)
        kept = dict(this_process().query_producers.kept)
        this_process().query_producers.kept.clear()  # the copy is of another process
        with pytest.raises(HistoryError, match=rf"^Batch {batch_id} .*run original wrote it.*run, copy, has planned"):
            run("copy", batch_id, end + 1)
        this_process().query_producers.kept.update(kept)
    kept = dict(this_process().query_producers.kept)
    this_process().query_producers.kept.clear()
    run("copy", 3, 40)
    this_process().query_producers.close()
    this_process().query_producers.kept.update(kept)
    if kept:
        with pytest.raises(FencedError) as fenced:
            run("original", 3, 41)
        (note,) = fenced.value.__notes__
        assert "Run copy has committed batch 3" in note and "this is run original" in note and "a copy" in note
    with pytest.raises(HistoryError, match=r"^Batch 3 .*run copy wrote it.*run, original, has planned"):
        run("original", 3, 41)
    query.check(0, 1, 2, 3)
    query.check_reader(0, 1, 2, 3)


def test_a_query_whose_marks_are_of_an_older_version_goes_on(query: Query, tmp_path: Path) -> None:
    commit(query, 0)  # no checkpoint that can be read: no digest
    assert b"offsets" not in (marked_metadata(query) or "").encode()
    commit(query, 0, planned(query, tmp_path, 0, 10), fresh=True)
    commit(query, 1, planned(query, tmp_path, 1, 20), fresh=True)
    assert '"offsets":"' in (marked_metadata(query) or "")
    query.check(0, 1)


def marked_metadata(query: Query) -> str | None:
    at = (query.topic, 0)
    return fetch_offsets(query.client, f"headrace-{query.id}", [at], require_stable=True)[at].metadata


def test_what_is_too_large_is_not_sent(query: Query) -> None:
    small = replace(query.options, exactly_once=replace(query.options.exactly_once, max_bytes=500))  # type: ignore[type-var]
    with pytest.raises(ValueError, match=r"A batch has \d+ bytes.*exactlyOnceMaxBytes allows 500"):
        commit(query, 0, small)
    assert visible(query.client, query.topic) == [] and query.marked() is None


def test_messages_of_another_batch_are_refused(query: Query) -> None:
    with pytest.raises(ValueError, match="say that they are of others"):
        commit_batch(query.options, query.tasks(1), 2)
    with pytest.raises(ValueError, match="1 of 3 tasks sent no commit message"):
        commit_batch(query.options, [*query.tasks(1), None], 1)


def test_a_batch_write_that_is_all_of_a_streams_batch(query: Query) -> None:
    for batch_id in (0, 0, 1):
        once = replace(query.options.exactly_once, of_batch=OfBatch(batch_id))  # type: ignore[type-var]
        BatchWriter(replace(query.options, exactly_once=once)).commit(query.tasks(batch_id))
        commit(query, batch_id)
    query.check(0, 1)


def test_a_batch_write_is_one_transaction(query: Query) -> None:
    commit_write(query.options, [EncodedTask()], "a")
    commit_write(query.options, query.tasks(0), "b")
    assert sorted(visible(query.client, query.topic)) == query.values(0)
    broken = query.tasks(1)
    broken[1].batches.append((query.topic, 0, bytearray(b"no batch"), 1))
    with pytest.raises(ValueError, match="not one whole record batch"):
        commit_write(query.options, broken, "c")
    assert sorted(visible(query.client, query.topic)) == query.values(0)
    assert settled_ends(query.client, query.topic) == latest_offsets(query.client, query.topic)


FORGETFUL = {
    **SMALL,
    "transactional.id.expiration.ms": "500",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "100",
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["headrace", pytest.param("kafka", marks=[pytest.mark.jvm, pytest.mark.soak])])
def test_a_query_that_rests_until_its_transactional_id_is_forgotten(kind: str) -> None:
    peer = HeadracePeer(settings=FORGETFUL) if kind == "headrace" else KafkaPeer(settings=FORGETFUL)
    with peer, client_of(peer) as client:
        set_transaction_version(client, 2)
        with Query(client) as query:
            commit(query, 0)
            assert this_process().query_producers.kept
            until(lambda: not list_transactions(client), "the id is forgotten")
            commit(query, 1)
            assert sorted(visible(client, query.topic)) == query.values(0, 1)
            assert query.marked() == 1
            query.check_reader(0, 1)
