"""What a process keeps from task to task: taken by one at a time, bounded, and left to its own process."""

from __future__ import annotations

import os

import pytest

from headrace.spark.client_settings import cluster_settings
from headrace.spark.process_state import KEPT_MAX, Pool, ProcessState, this_process


@pytest.fixture
def closed() -> list[str]:
    return []


def test_a_value_belongs_to_one_taker(closed: list[str]) -> None:
    pool: Pool[int, str] = Pool(closed.append)
    pool.put(1, "a")
    assert pool.take(1) == "a"
    assert pool.take(1) is None
    pool.put(1, "b")  # of another taker meanwhile
    pool.put(1, "a")
    assert closed == ["b"] and pool.take(1) == "a"


def test_the_least_recently_used_makes_room(closed: list[str]) -> None:
    pool: Pool[int, str] = Pool(closed.append, most=2)
    pool.put(1, "a")
    pool.put(2, "b")
    first = pool.take(1)
    assert first is not None
    pool.put(1, first)
    pool.put(3, "c")
    assert closed == ["b"] and list(pool.kept) == [1, 3]


def test_all_are_closed(closed: list[str]) -> None:
    pool: Pool[int, str] = Pool(closed.append)
    pool.put(1, "a")
    pool.put(2, "b")
    pool.drop(3)
    pool.drop(2)
    pool.close()
    assert closed == ["b", "a"] and not pool.kept


def test_two_tasks_have_two_clients_and_one_is_kept() -> None:
    state = ProcessState()
    cluster = cluster_settings({"kafka.bootstrap.servers": "h:1"})
    with state.writer(cluster) as outer, state.writer(cluster) as inner:
        assert outer is not inner
    with state.writer(cluster) as again:
        assert again is outer
    state.close()
    assert not state.writers.kept


def test_clients_are_bounded() -> None:
    state = ProcessState()
    for port in range(1, KEPT_MAX + 3):
        with state.writer(cluster_settings({"kafka.bootstrap.servers": f"h:{port}"})):
            pass
    assert len(state.writers.kept) == KEPT_MAX


def test_a_forked_process_begins_with_none() -> None:
    with this_process().writer(cluster_settings({"kafka.bootstrap.servers": "h:1"})):
        pass
    assert this_process().writers.kept
    child = os.fork()
    if child == 0:
        os._exit(len(this_process().writers.kept))
    _, state = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(state) == 0
