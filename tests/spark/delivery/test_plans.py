"""Marks of tasks that are gone when another run takes over: they have expired, or the plan before had less room."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from peers.headrace import HeadracePeer
from peers.settling import client_of
from peers.transactions import SMALL, set_transaction_version, visible

from headrace.client.cluster import Client
from headrace.client.groups import delete_offsets
from headrace.spark.delivery.exactly_once import commit_batch
from headrace.spark.delivery.markers import HistoryError, group_of, task_group_of
from headrace.spark.delivery.per_task import PerTask
from headrace.spark.process_state import this_process

from .test_exactly_once import Query
from .test_per_task import per_task, plan_in, rows_of, run, thirds, whole


@pytest.fixture(scope="module")
def cluster() -> Iterator[Client]:
    with HeadracePeer(settings=SMALL) as peer, client_of(peer) as client:
        set_transaction_version(client, 2)
        yield client


@pytest.fixture
def query(cluster: Client) -> Iterator[Query]:
    with Query(cluster) as query:
        yield query


def test_a_plan_with_less_room_remembers_all_tasks_that_have_committed(query: Query) -> None:
    whole(query, 0)
    rows = [*rows_of(query, 1, 0), *rows_of(query, 1, 1)]
    run(query, 1, 18, rows[18::20])
    for each in ("second", "third"):
        run(query, 1, 0, of=each)
        assert plan_in(query).kept == 19


def expire(query: Query, group: str) -> None:
    delete_offsets(query.client, group, [(query.topic, 0)])
    this_process().query_producers.kept.clear()


@pytest.mark.parametrize("mode", ["exactly-once", "exactly-once-per-task"])
def test_marks_of_tasks_that_may_have_expired_are_missed(query: Query, mode: str) -> None:
    """The commit topic has the query's mark, but not those of its tasks."""
    options = per_task(query, commit_topic="commits")
    PerTask().commit_batch(options, [run(query, 0, task, options=options) for task in range(2)], 0)
    run(query, 1, 0, options=options)
    expire(query, task_group_of(query.id, 0))
    expire(query, group_of(query.id))
    assert options.exactly_once is not None
    chosen = replace(options, exactly_once=replace(options.exactly_once, mode=mode))
    before = sorted(visible(query.client, query.topic))
    with pytest.raises(HistoryError, match="the mark has expired"):
        if mode == "exactly-once":
            commit_batch(chosen, [replace(task, run_id="second") for task in query.tasks(1)], 1)
        else:
            run(query, 1, 0, options=chosen, of="second")
    assert sorted(visible(query.client, query.topic)) == before


@pytest.mark.parametrize(("of", "trusted"), [("run", False), ("second", True)])
def test_a_query_goes_on_without_its_mark_if_nothing_was_begun(query: Query, of: str, trusted: bool) -> None:
    """By the run that wrote the batch before, or where the option says so."""
    options = per_task(query, commit_topic="commits", trusted=trusted)
    PerTask().commit_batch(options, [run(query, 0, task, options=options) for task in range(2)], 0)
    expire(query, group_of(query.id))
    PerTask().commit_batch(options, [run(query, 1, task, options=options, of=of) for task in range(2)], 1)
    query.check(0, 1)


def test_a_batch_that_is_passed_over_renews_the_mark(query: Query) -> None:
    """The run repeats the last batch, so no other run has begun the next one."""
    options = per_task(query, commit_topic="commits")
    PerTask().commit_batch(options, [run(query, 0, task, options=options) for task in range(2)], 0)
    expire(query, group_of(query.id))
    for batch_id in range(2):
        again = [run(query, batch_id, task, options=options, of="second") for task in range(2)]
        PerTask().commit_batch(options, again, batch_id)
    query.check(0, 1)


def test_a_task_whose_mark_has_expired_since_the_plan_is_missed(query: Query) -> None:
    """The query's mark is newer, as runs have taken over since."""
    whole(query, 0)
    three = thirds(query, 1)
    run(query, 1, 0, three[0])
    PerTask().abort(per_task(query), [run(query, 1, 1, three[1], of="second")], "")
    expire(query, task_group_of(query.id, 0))
    before = sorted(visible(query.client, query.topic))
    for _ in range(2):
        with pytest.raises(HistoryError, match="Task 0 of batch 1 .* its mark has expired since"):
            run(query, 1, 0, three[0], of="third")
    assert sorted(visible(query.client, query.topic)) == before
