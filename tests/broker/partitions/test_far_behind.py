"""Followers that are far behind: what nobody waits for makes nobody wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from broker.partitions.members import Cluster, same

from headrace.env.completion import Completion
from headrace.replicas.partition import Role
from headrace.sim.disk import SimDisk
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import metadata_records as mr

T = TypeVar("T")


def test_what_is_far_behind_has_a_connection_of_its_own_for_as_long() -> None:
    cluster = Cluster(2)

    async def test() -> None:
        cluster.create("near")
        cluster.create("far", replicas=(1,))
        for number in range(60):
            await cluster[1].append(b"x" * 90_000, b"%d" % number, topic="far")
        connections = cluster[1].server.connections
        cluster.change("far", replicas=[1, 2])
        await cluster.until(lambda: len(connections) == 2)
        assert cluster.partition("far").isr == (1,)
        assert await cluster[1].produce(b"a", topic="near") is ErrorCode.NONE
        await cluster.until(lambda: cluster.partition("far").isr == (1, 2) and len(connections) == 1)
        assert same(cluster, 1, 2, topic="far")
        assert len(cluster[1].fetch_sessions) == 1, "what is short takes no place of a session"
        for topic in ("far", "near"):
            assert await cluster[1].produce(b"b", topic=topic) is ErrorCode.NONE
        assert len(connections) == 1

    cluster.run(test)


def test_what_is_far_behind_and_alone_stays_where_it_is() -> None:
    cluster = Cluster(2)

    async def test() -> None:
        cluster.create(replicas=(1,))
        for number in range(60):
            await cluster[1].append(b"x" * 90_000, b"%d" % number)
        cluster.change(replicas=[1, 2])
        seen: set[object] = set()

        def is_in_sync() -> bool:
            seen.update(cluster[1].server.connections)
            return cluster.partition().isr == (1, 2)

        await cluster.until(is_in_sync)
        assert len(seen) == 1 and same(cluster, 1, 2)

    cluster.run(test)


@pytest.mark.parametrize("what", ["leads", "another epoch", "deleted", "made again", "spread anew"])
def test_nothing_takes_a_log_from_the_worker_that_appends_to_it(what: str) -> None:
    """What nobody waits for a worker appends: a file system may make it wait, and the loop is not to."""
    cluster = Cluster(2)

    async def test() -> None:
        cluster.create(replicas=(1,))
        for number in range(60):
            await cluster[1].append(b"x" * 90_000, b"%d" % number)
        member, may_go_on = cluster[2], asyncio.Event()
        run = member.node.workers.run

        async def slowly(work: Callable[[], T]) -> T:
            held = member.replicas.held(("t", 0))
            if held is not None and held.is_written_aside:
                await may_go_on.wait()
            return await run(work)

        member.node.workers.run = slowly  # type: ignore[method-assign]
        cluster.change(replicas=[1, 2])
        await cluster.until(lambda: (held := member.replicas.held(("t", 0))) and held.is_written_aside)
        replica, end = member.replica(), member.log().end_offset
        assert await cluster[1].produce(b"y") is ErrorCode.NONE, "the leader does not wait for it"
        if what in ("leads", "another epoch"):
            cluster.change(leader=2 if what == "leads" else 1, isr=[1, 2] if what == "leads" else [1])
        elif what == "spread anew":
            cluster.write(mr.ConfigRecord(resource_type=4, resource_name="2", name="num.replica.fetchers", value="5"))
            assert member.config.num_replica_fetchers == 5
        else:
            cluster.delete()
        if what == "made again":
            cluster.create(replicas=(1, 2))
        await asyncio.sleep(0.5)
        assert (replica.state.role is Role.FOLLOWER) is (what not in ("deleted", "made again"))
        assert replica.log.end_offset == end
        may_go_on.set()
        await cluster.until(lambda: not replica.is_written_aside)
        if what == "deleted":
            await asyncio.sleep(1)
            assert member.replicas.held(("t", 0)) is None
        else:
            await cluster.until(lambda: cluster.partition().isr == (1, 2) and same(cluster, 1, 2), 60)
            leader = cluster[cluster.partition().leader]
            assert await leader.produce(b"z") is ErrorCode.NONE
            assert same(cluster, 1, 2)

    cluster.run(test)


def test_a_disk_that_is_behind_holds_up_what_is_far_behind_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Producers wait for what is in sync."""
    pressure = 0.0
    monkeypatch.setattr(SimDisk, "write_pressure", lambda _: pressure)
    cluster = Cluster(2)

    async def test() -> None:
        nonlocal pressure
        cluster.create("near")
        cluster.create("far", replicas=(1,))
        for number in range(300):
            await cluster[1].append(b"x" * 90_000, b"%d" % number, topic="far")
        follower = cluster[2]
        await cluster.until(lambda: len(cluster[1].fetch_sessions) == 1)
        pressure, syncing = 0.9, follower.node.syncs.submit
        held: list[tuple[Callable[[], Any], Completion[Any]]] = []

        def hold(work: Callable[[], Any]) -> Completion[Any]:
            held.append((work, Completion(follower.node.completions)))
            return held[-1][1]

        follower.node.syncs.submit = hold  # type: ignore[method-assign]
        cluster.change("far", replicas=[1, 2])
        await cluster.until(lambda: held)
        await asyncio.sleep(1)
        stands = follower.log("far").end_offset
        assert stands < cluster[1].log("far").end_offset
        assert await cluster[1].produce(b"a", topic="near") is ErrorCode.NONE
        await asyncio.sleep(1)
        assert follower.log("far").end_offset == stands, "the disk has done nothing yet"
        pressure = 0.1
        follower.node.syncs.submit = syncing  # type: ignore[method-assign]
        for work, completion in held:
            syncing(work).deliver_to(completion.complete)
        await cluster.until(lambda: cluster.partition("far").isr == (1, 2))
        assert same(cluster, 1, 2, topic="far")

    cluster.run(test)
