"""The commit topic: what a batch leaves there, and that it stands in for a mark that has expired."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from peers.headrace import HeadracePeer
from peers.kafka import KafkaPeer
from peers.settling import client_of
from peers.transactions import SMALL, set_transaction_version

from headrace.client import admin
from headrace.client.cluster import Client
from headrace.client.groups import delete_offsets
from headrace.client.reading import latest_offsets
from headrace.client.transactions import TransactionalProducer
from headrace.spark.delivery.commit_records import CommitRecord, Span, joined, make_topic, parsed, read_last
from headrace.spark.delivery.exactly_once import commit_batch
from headrace.spark.delivery.markers import HistoryError, Mark
from headrace.spark.options import SinkOptions
from headrace.spark.process_state import this_process
from headrace.wire.apis import ApiKey as A
from spark.dying import DEAD, Death, commit_and_die

from .test_exactly_once import Query

COMMITS = "commits"


@pytest.fixture(scope="module", params=["headrace", pytest.param("kafka", marks=[pytest.mark.jvm, pytest.mark.soak])])
def cluster(request: pytest.FixtureRequest) -> Iterator[Client]:
    peer = HeadracePeer(settings=SMALL) if request.param == "headrace" else KafkaPeer(settings=SMALL)
    with peer, client_of(peer) as client:
        set_transaction_version(client, 2)
        yield client


@pytest.fixture
def query(cluster: Client) -> Iterator[Query]:
    with Query(cluster) as query:
        yield query


def with_commits(query: Query, **more: Any) -> SinkOptions:
    assert query.options.exactly_once is not None
    return replace(query.options, exactly_once=replace(query.options.exactly_once, commit_topic=COMMITS, **more))


def lose_mark(query: Query) -> None:
    delete_offsets(query.client, f"headrace-{query.id}", [(query.topic, 0)])
    this_process().query_producers.kept.clear()


def test_a_record_is_what_it_was() -> None:
    mark = Mark(7, "run", 2, 30)
    for spans in (None, (), (Span("t", 0, 5, 10), Span("t", 1, 0, 20, 100, 140))):
        assert parsed(CommitRecord(mark, spans).value()) == CommitRecord(mark, spans)
    for other in (b"", b"[]", b'{"v": 2, "batch": 1}', b'{"v":1,"batch":1}', b"\xff"):
        assert parsed(other) is None


def test_spans_that_lie_together_are_one() -> None:
    spans = [Span("t", 0, 5, 10), Span("u", 0, 0, 1), Span("t", 0, 15, 2), Span("t", 0, 18, 1), Span("t", 1, 19, 1)]
    assert joined(spans) == [Span("t", 0, 5, 12), Span("t", 0, 18, 1), Span("u", 0, 0, 1), Span("t", 1, 19, 1)]
    dense, gap = Span("t", 0, 0, 10, 100, 109), Span("t", 0, 12, 2, 112, 119)
    assert joined([dense, Span("t", 0, 10, 2, 110, 111), gap]) == [Span("t", 0, 0, 12, 100, 111), gap]
    assert joined([Span("t", 0, -1, 1), Span("t", 0, 0, 1)]) == [Span("t", 0, -1, 1), Span("t", 0, 0, 1)]


def test_it_is_made_compacted_and_says_where_a_batch_is(query: Query) -> None:
    options = with_commits(query)
    spans = commit_batch(options, query.tasks(0), 0)
    entries = admin.describe_configs(query.client, admin.Resource.TOPIC, COMMITS)
    assert {entry.name: entry.value for entry in entries}["cleanup.policy"] == "compact"
    assert spans == [Span(query.topic, index, 0, 8) for index in range(3)]
    record = read_last(query.client, COMMITS, query.id)
    assert record is not None and [(write.number, write.topic) for write in record.mark.writes] == [(0, query.topic)]
    assert record == CommitRecord(Mark(0, "run", 2, 24, writes=record.mark.writes), tuple(spans))
    this_process().query_producers.kept.clear()
    assert commit_batch(options, query.tasks(0), 0) == spans, "found, not written again"
    query.check(0)


def test_it_stands_in_for_a_mark_that_is_gone(query: Query) -> None:
    options = with_commits(query)
    for batch_id in range(3):
        commit_batch(options, query.tasks(batch_id), batch_id)
    lose_mark(query)
    with pytest.raises(HistoryError, match="remembers no batch as the last one"):
        commit_batch(query.options, query.tasks(3), 3)
    for batch_id in (2, 2, 3):
        lose_mark(query)
        commit_batch(options, query.tasks(batch_id), batch_id)
    lose_mark(query)
    with pytest.raises(HistoryError, match="comes after batch 3"):
        commit_batch(options, query.tasks(1), 1)
    with pytest.raises(HistoryError, match="remembers batch 3 as the last one"):
        commit_batch(options, query.tasks(5), 5)
    commit_batch(with_commits(query, trusted=True), query.tasks(4), 4)
    query.check(0, 1, 2, 3, 4)
    query.check_reader(0, 1, 2, 3, 4)


def test_it_goes_with_the_batch_or_not_at_all(query: Query) -> None:
    options = with_commits(query)
    commit_batch(options, query.tasks(0), 0)
    for death in (Death(A.PRODUCE, "answered"), Death(A.TXN_OFFSET_COMMIT, "answered"), Death(A.END_TXN, "before")):
        assert commit_and_die(options, query.tasks(1), 1, death) == DEAD
        lose_mark(query)
        with pytest.raises(HistoryError, match="remembers batch 0 as the last one"):
            commit_batch(options, query.tasks(2), 2)
    assert commit_and_die(options, query.tasks(1), 1, Death(A.END_TXN, "answered")) == DEAD
    lose_mark(query)
    commit_batch(options, query.tasks(1), 1)
    commit_batch(options, query.tasks(2), 2)
    query.check(0, 1, 2)


def test_it_is_read_behind_a_transaction_of_somebody_else(query: Query) -> None:
    """Committed records behind an open transaction are not seen until it ends; a batch that is there must be found."""
    options = with_commits(query)
    make_topic(query.client, COMMITS)
    host, port = query.client.bootstrap[0]
    with Client(f"{host}:{port}") as other:
        slow = TransactionalProducer(other, f"{query.id}-slow")
        slow.begin()
        slow.send(COMMITS, b"{}", key=b"slow", partition=0)
        slow.flush()
        commit_batch(options, query.tasks(0), 0)
        behind = latest_offsets(query.client, COMMITS, isolation="read_committed")
        assert behind[0] < latest_offsets(query.client, COMMITS)[0]
        lose_mark(query)
        ended = threading.Timer(0.5, slow.commit)
        ended.start()
        commit_batch(options, query.tasks(0), 0)
        ended.join()
    query.check_reader(0)


def test_a_commit_topic_holds_marks_where_no_topic_is_named(query: Query) -> None:
    assert query.options.exactly_once is not None
    once = replace(query.options.exactly_once, marker_topic=COMMITS, commit_topic=COMMITS)
    options = replace(query.options, exactly_once=once)
    commit_batch(options, query.tasks(0), 0)
    this_process().query_producers.kept.clear()
    commit_batch(options, query.tasks(0), 0)
    query.check_reader(0)
