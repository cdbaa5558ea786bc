"""Brokers that follow each other: what one leader has, the others get, byte for byte, whatever happens in between."""

from __future__ import annotations

import asyncio
import errno

import pytest
from broker.partitions.members import Cluster, Member, content, same

from headrace.broker.partitions.replica import Replica
from headrace.replicas.partition import Fetched, Role
from headrace.wire.batch import iter_headers
from headrace.wire.errors import ErrorCode


def cut(cluster: Cluster, one: int, other: int) -> None:
    """What these two send to each other arrives once the network is healed."""
    cluster.world.network.partition(f"broker{one}", f"broker{other}")


def test_a_follower_catches_up_and_counts() -> None:
    cluster = Cluster(3)

    async def test() -> None:
        cluster.create(replicas=(1, 2, 3))
        for number in range(20):
            assert await cluster[1].produce(b"%d" % number) is ErrorCode.NONE
        assert same(cluster, 1, 2, 3)
        follower = cluster[2].replica()
        assert follower.state.role is Role.FOLLOWER
        assert cluster[2].replicas.find("t", 0) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        await cluster.until(lambda: follower.high_watermark == 20, 0.6)
        assert cluster.answers == []

    cluster.run(test)


def test_what_is_followed_later_is_not_kept_waiting_by_a_fetch_that_waits() -> None:
    """Which does not name it, and would end after replica.fetch.wait.max.ms, 500: a producer would wait so long for a
    leader that others make way for."""
    cluster = Cluster(2)

    async def test() -> None:
        cluster.create()
        assert await cluster[1].produce(b"a") is ErrorCode.NONE
        await cluster.until(lambda: cluster[1].fetches.waiting == 1)
        for name in ("u", "v"):
            cluster.create(name)
            assert await cluster[1].produce(b"b", topic=name, timeout_ms=100) is ErrorCode.NONE
        cluster.change("u", leader=2)
        cluster.change("u", leader=1)
        assert await cluster[1].produce(b"c", topic="u", timeout_ms=100) is ErrorCode.NONE

    cluster.run(test)


def test_what_is_followed_while_the_leader_is_connected_to_is_asked_for_at_once() -> None:
    cluster = Cluster(2)

    async def test() -> None:
        cluster.create()
        await asyncio.sleep(0)
        cluster.create("u")
        assert await cluster[1].produce(b"b", topic="u", timeout_ms=100) is ErrorCode.NONE

    cluster.run(test)


@pytest.mark.parametrize("behind_ms", [1, 30, 250])
def test_a_leader_that_hears_later_than_its_follower_is_asked_again_soon(behind_ms: int) -> None:
    cluster = Cluster(2, replica_fetch_backoff_ms="1000")

    async def test() -> None:
        cluster.create("t", replicas=(2, 1), leader=2)
        assert await cluster[2].produce(b"a") is ErrorCode.NONE
        cluster.create("u")
        assert await cluster[1].produce(b"a", topic="u") is ErrorCode.NONE
        cluster.deaf = {1}
        cluster.change(leader=1)
        await asyncio.sleep(behind_ms / 1000)
        cluster.deaf = set()
        cluster.hears(1)
        assert await cluster[1].produce(b"b", timeout_ms=max(100, behind_ms)) is ErrorCode.NONE

    cluster.run(test)


def test_what_was_there_before_is_fetched_in_pieces() -> None:
    cluster = Cluster(2)

    async def test() -> None:
        cluster.create(isr=(1,), segment_bytes="1048576")
        for number in range(60):
            await cluster[1].append(b"x" * 40_000, b"%d" % number)
        for _ in range(400):
            await cluster[1].append(b"y")
        await cluster.until(lambda: same(cluster, 1, 2))
        assert len(cluster[2].log().segments) == len(cluster[1].log().segments) == 3
        await cluster.until(lambda: cluster.partition().isr == (1, 2))

    cluster.run(test)


def test_a_stopped_and_a_killed_follower_come_back() -> None:
    cluster = Cluster(2)

    async def test() -> None:
        cluster.create()
        await cluster[1].produce(b"a")
        await cluster.machines[2].stop()
        await cluster[1].append(b"b")
        await cluster.machines[2].ready()
        await cluster.until(lambda: cluster.partition().isr == (1, 2) and same(cluster, 1, 2))
        cluster.machines[2].kill(power=True)
        await cluster[1].append(b"c")
        await cluster.machines[2].ready()
        assert await cluster[1].produce(b"d", timeout_ms=60_000) is ErrorCode.NONE
        await cluster.until(lambda: same(cluster, 1, 2))

    cluster.run(test)


@pytest.mark.parametrize("stays", [False, True], ids=["out-of-sync", "in-sync"])
def test_a_compacted_log_that_may_have_lost_the_end_of_a_segment_is_fetched_anew_from_there(stays: bool) -> None:
    """After a power loss a file may lack its end, and the next one be whole. One that counts as in sync is not cut: it
    may be asked to lead."""
    cluster = Cluster(2)

    async def test() -> None:
        cluster.create(segment_bytes="1048576", cleanup_policy="compact")
        for number in range(60):
            await cluster[1].append(b"x" * 40_000, key=b"%d" % number)
        await cluster.until(lambda: same(cluster, 1, 2))
        follower = cluster[2].log()
        path, base = follower.segments[0].path, follower.segments[1].base_offset
        cluster.machines[2].take_away()
        disk = cluster.machines[2].disk
        with disk.looked_at():
            *_, (last, header) = iter_headers(disk.read_file(path))
            disk.open(path).truncate(last)
        await cluster[1].append(b"y", key=b"y")
        if not stays:
            await cluster.until(lambda: cluster.partition().isr == (1,), 60)
        cluster.machines[2].bring_back()
        await cluster.machines[2].ready()
        assert header.next_offset == base
        await cluster.until(lambda: cluster[2].log().end_offset == cluster[1].log().end_offset)
        assert same(cluster, 1, 2) is not stays

    cluster.run(test)


def test_the_high_watermark_of_a_follower_is_checkpointed() -> None:
    cluster = Cluster(2)

    async def test() -> None:
        cluster.create()
        await cluster[1].produce(b"a", b"b", b"c")
        await cluster.until(lambda: cluster[2].replica().high_watermark == 3, 1)
        cluster.change(leader=-1)
        for _ in range(2):
            await cluster.machines[2].stop()
            await cluster.machines[2].ready()
            assert cluster[2].replicas.held(("t", 0)) is None, "nobody is to be followed"
        cluster.change(leader=2)
        await cluster.until(lambda: cluster[2].replicas.held(("t", 0)))
        assert cluster[2].replica().high_watermark == 3

    cluster.run(test)


def test_leaders_in_turn_leave_one_log() -> None:
    """Each writes what nobody else has, before it is deposed (KAFKA-6361)."""
    cluster = Cluster(3)

    async def test() -> None:
        cluster.create(replicas=(1, 2, 3))
        await cluster[1].produce(b"common")
        for leader in (1, 2, 3, 2, 1):
            for one, other in ((1, 2), (1, 3), (2, 3)):
                cut(cluster, one, other)
            cluster.change(leader=leader, isr=[leader])
            for number in range(leader):
                await cluster[leader].append(b"%d of %d" % (number, leader))
            assert len({cluster[node].log().end_offset for node in (1, 2, 3)}) > 1
        cluster.change(leader=3, isr=[3])
        cluster.world.network.heal()
        await cluster.until(lambda: same(cluster, 1, 2, 3), 60)
        assert await cluster[3].produce(b"end") is ErrorCode.NONE
        await cluster.until(lambda: same(cluster, 1, 2, 3))
        epochs = {tuple(cluster[node].log().epochs.entries()) for node in (1, 2, 3)}
        assert len(epochs) == 1
        assert sum(cluster[node].metrics.statistics().counters["replicas.truncations"] for node in (1, 2)) >= 2

    cluster.run(test)


def test_a_leader_that_wrote_nothing_loses_its_epoch() -> None:
    cluster = Cluster(2)

    async def test() -> None:
        cluster.create()
        await cluster[1].produce(b"a")
        cluster.deaf.add(1)
        cluster.change(leader=2)
        await cluster.until(lambda: cluster[2].replica().takes_appends)
        assert cluster[2].log().epochs.latest == 1
        cluster.deaf.clear()
        cluster.change(leader=1)
        await cluster[1].append(b"b")
        await cluster.until(lambda: same(cluster, 1, 2))
        assert cluster[2].log().epochs.entries() == cluster[1].log().epochs.entries() == [(0, 0), (2, 1)]

    cluster.run(test)


def test_a_late_answer_of_an_old_leader_writes_nothing() -> None:
    cluster = Cluster(3)

    async def test() -> None:
        cluster.create(replicas=(1, 2, 3))
        await cluster[1].produce(b"a")
        await asyncio.sleep(1)
        # What 1 sends is on its way for a long time: meanwhile 2 leads.
        cut(cluster, 1, 3)
        cut(cluster, 1, 2)
        await cluster[1].append(b"late")
        await asyncio.sleep(0.2)
        cluster.deaf.add(1)
        cluster.change(leader=2, isr=[2])
        cluster.world.network.heal()
        await cluster[2].append(b"b")
        await cluster.until(lambda: cluster[3].log().end_offset == 2)
        assert same(cluster, 2, 3) and b"late" not in content(cluster[3].log())
        cluster.deaf.clear()
        cluster.hears(1)
        await cluster.until(lambda: same(cluster, 1, 2, 3))

    cluster.run(test)


def test_the_same_leader_under_a_new_epoch_is_followed_again() -> None:
    cluster = Cluster(2)

    async def test() -> None:
        cluster.create()
        await cluster[1].produce(b"a")
        for _ in range(3):
            cluster.change(leader=1)
            assert await cluster[1].produce(b"b") is ErrorCode.NONE
        assert same(cluster, 1, 2)

    cluster.run(test)


def test_who_hears_later_waits_and_goes_on() -> None:
    cluster = Cluster(2)

    async def test() -> None:
        cluster.create()
        await cluster[1].produce(b"a")
        cluster.deaf.add(2)
        cluster.change(leader=1)
        await cluster[1].append(b"b")
        await asyncio.sleep(1)
        assert cluster[2].log().end_offset == 1
        cluster.deaf.clear()
        cluster.hears(2)
        await cluster.until(lambda: same(cluster, 1, 2), 1)
        cluster.deaf.add(1)
        cluster.change(leader=1)
        await asyncio.sleep(0.3)
        cluster.hears(1)
        assert await cluster[1].produce(b"c") is ErrorCode.NONE

    cluster.run(test)


def test_without_a_leader_nothing_is_fetched() -> None:
    cluster = Cluster(2)

    async def test() -> None:
        cluster.create()
        await cluster[1].produce(b"a")
        cluster.change(leader=-1)
        await asyncio.sleep(1)
        assert cluster[2].metrics.statistics().gauges["replicas.followed"] == 0
        assert not cluster[1].server.connections
        cluster.change(leader=2)
        assert await cluster[2].produce(b"b") is ErrorCode.NONE

    cluster.run(test)


def test_what_is_deleted_before_the_leaders_start_goes_here_too() -> None:
    cluster = Cluster(2)

    async def test() -> None:
        cluster.create()
        for number in range(5):
            await cluster[1].produce(b"%d" % number, b"x")
        cluster[1].log().delete_records_before(7)
        await cluster.until(lambda: cluster[2].log().log_start_offset == 7, 1)

    cluster.run(test)


def test_a_new_follower_begins_in_the_middle_of_the_leaders_batch() -> None:
    cluster = Cluster(2)

    async def test() -> None:
        cluster.create(replicas=(1,))
        await cluster[1].append(b"a", b"b", b"c", b"d")
        cluster[1].log().delete_records_before(2)
        cluster.change(replicas=[1, 2])
        await cluster.until(lambda: cluster.partition().isr == (1, 2))
        log = cluster[2].log()
        assert (log.log_start_offset, log.end_offset, log.bases) == (2, 4, [0])
        assert content(log) == content(cluster[1].log())

    cluster.run(test)


def test_a_batch_that_does_not_fit_leaves_the_log_beginning_where_the_leader_begins() -> None:
    """The leader counts on that: it has confirmed a deletion, perhaps."""
    cluster = Cluster(2)

    async def test() -> None:
        cluster.create(replicas=(1,))
        await cluster[1].append(b"a", b"b", b"c", b"d")
        cluster[1].log().delete_records_before(2)
        refused: list[str] = []

        def full(operation: str, path: str) -> OSError | None:
            if operation == "write" and path.endswith(".log"):
                refused.append(path)
                return OSError(errno.ENOSPC, "no room", path)
            return None

        cluster.machines[2].disk.fail = full
        cluster.change(replicas=[1, 2])
        for tries in (1, 2):
            await cluster.until(lambda tries=tries: len(refused) >= tries, 30)  # type: ignore[misc]
            await cluster.until(lambda: cluster[2].log().log_start_offset == cluster[2].log().end_offset == 2, 0.01)
        cluster.machines[2].disk.fail = None
        await cluster.until(lambda: cluster.partition().isr == (1, 2), 60)
        log = cluster[2].log()
        assert (log.log_start_offset, log.end_offset, log.bases) == (2, 4, [0])

    cluster.run(test)


def test_a_follower_that_ends_before_its_leader_begins_starts_there() -> None:
    cluster = Cluster(2)

    async def test() -> None:
        cluster.create(segment_bytes="1048576")
        await cluster[1].produce(b"a")
        cut(cluster, 1, 2)
        for _ in range(10):
            await cluster[1].append(b"x" * 600_000)
        await cluster.until(lambda: cluster.partition().isr == (1,))
        cluster[1].log().delete_records_before(8)
        cluster[1].log().maybe_delete_old_segments(0)
        cluster.world.network.heal()
        await cluster.until(lambda: cluster.partition().isr == (1, 2), 60)
        follower = cluster[2].replica()
        assert (follower.log.log_start_offset, follower.log.end_offset) == (8, 11)
        await cluster.until(lambda: follower.high_watermark == 11, 1)

    cluster.run(test)


def test_a_replica_that_others_have_now_is_deleted() -> None:
    cluster = Cluster(3)

    async def test() -> None:
        cluster.create()
        await cluster[1].produce(b"a")
        cluster.change(replicas=[1, 2, 3])
        await cluster.until(lambda: cluster.partition().isr == (1, 2, 3))
        folder = cluster[2].log().directory
        cluster.change(replicas=[1, 3], isr=[1, 3])
        assert cluster[2].logs.get("t", 0) is None and not cluster[2].logs.has("t", 0)
        await cluster.until(lambda: not cluster[2].node.disk.exists(folder))
        assert await cluster[1].produce(b"b") is ErrorCode.NONE and same(cluster, 1, 3)
        assert cluster[2].replicas.find("t", 0) is ErrorCode.NOT_LEADER_OR_FOLLOWER

    cluster.run(test)


def test_a_topic_that_is_made_again_has_nothing_of_the_old_one() -> None:
    cluster = Cluster(2)

    async def test() -> None:
        cluster.create()
        await cluster[1].produce(b"old")
        cluster.deaf.add(2)
        cluster.delete()
        cluster.create()
        await cluster[1].append(b"new", b"one")
        await asyncio.sleep(0.5)
        cluster.deaf.clear()
        cluster.hears(2)
        await cluster.until(lambda: same(cluster, 1, 2))
        assert cluster[2].log().topic_id == cluster.topic_id()
        assert await cluster[1].produce(b"more") is ErrorCode.NONE

    cluster.run(test)


def test_a_full_disk_is_waited_out() -> None:
    cluster = Cluster(2)

    async def test() -> None:
        cluster.create()
        await cluster[1].produce(b"a")
        room, cluster.machines[2].disk.room_bytes = cluster.machines[2].disk.room_bytes, 0
        done = asyncio.ensure_future(cluster[1].produce(b"b", timeout_ms=60_000))
        await asyncio.sleep(1)
        assert not done.done() and cluster[2].replica().is_online
        cluster.machines[2].disk.room_bytes = room
        assert await done is ErrorCode.NONE
        assert same(cluster, 1, 2)

    cluster.run(test)


def test_a_disk_that_fails_takes_the_replica_offline() -> None:
    cluster = Cluster(2)

    async def test() -> None:
        cluster.create()
        await cluster[1].produce(b"a")
        failures: list[str] = []
        member = cluster[2]
        member.on_failure = failures.append
        disk = cluster.machines[2].disk
        disk.fail = lambda operation, path: OSError(errno.EIO, operation) if path.endswith(".log") else None
        await cluster[1].append(b"b")
        await cluster.until(lambda: failures)
        assert member.replicas.offline[("t", 0)] is ErrorCode.KAFKA_STORAGE_ERROR
        assert member.metrics.statistics().gauges["replicas.followed"] == 0
        await cluster.until(lambda: cluster.partition().isr == (1,))
        disk.fail = None

    cluster.run(test)


def test_a_follower_moves_to_another_directory_while_its_log_is_cut() -> None:
    cluster = Cluster(2, log_dirs="/data/one,/data/two")

    async def test() -> None:
        cluster.create()
        for number in range(10):
            await cluster[1].produce(b"%d" % number + b"x" * 100_000)
        cut(cluster, 1, 2)
        for number in range(3):
            await cluster[1].append(b"lost %d" % number + b"x" * 100_000)
        cluster.change(leader=2, isr=[2])
        for number in range(5):
            await cluster[2].append(b"kept %d" % number + b"x" * 100_000)
        member = cluster[1]
        home = member.log().directory.rpartition("/")[0]
        other = "/data/two" if home == "/data/one" else "/data/one"
        assert member.moves.start("t", 0, other) is ErrorCode.NONE
        await asyncio.sleep(0.002)
        cluster.world.network.heal()
        await cluster.until(lambda: member.log().directory == f"{other}/t-0" and same(cluster, 1, 2))
        assert await cluster[2].produce(b"end", timeout_ms=10_000) is ErrorCode.NONE
        await cluster.until(lambda: same(cluster, 1, 2))

    cluster.run(test)


def test_a_slow_follower_leaves_and_comes_back() -> None:
    cluster = Cluster(2)

    async def test() -> None:
        cluster.create()
        await cluster[1].produce(b"a")
        cut(cluster, 1, 2)
        began = cluster.world.loop.time()
        assert await cluster[1].produce(b"b", timeout_ms=60_000) is ErrorCode.NONE
        assert 1.4 <= cluster.world.loop.time() - began <= 4 and cluster.partition().isr == (1,)
        cluster.world.network.heal()
        await cluster.until(lambda: cluster.partition().isr == (1, 2), 60)
        assert same(cluster, 1, 2)

    cluster.run(test)


def test_before_reply_a_follower_syncs_before_it_counts() -> None:
    cluster = Cluster(2, acks_flush="before-reply")

    async def test() -> None:
        cluster.create()
        for number in range(10):
            assert await cluster[1].produce(b"%d" % number) is ErrorCode.NONE
            assert [cluster[node].log().flushing.flushed_offset for node in (1, 2)] == [number + 1] * 2

    cluster.run(test)


def test_a_leader_that_moved_is_found() -> None:
    cluster = Cluster(2)

    async def test() -> None:
        cluster.create()
        await cluster[1].produce(b"a")
        cluster.register(1, port=1)
        await asyncio.sleep(1)
        cluster.register(1)
        assert await cluster[1].produce(b"b") is ErrorCode.NONE

    cluster.run(test)


def test_several_connections_to_a_leader() -> None:
    cluster = Cluster(2, num_replica_fetchers="3")

    async def test() -> None:
        for number in range(9):
            cluster.create(f"t{number}")
        for number in range(9):
            assert await cluster[1].produce(b"a", topic=f"t{number}") is ErrorCode.NONE
        assert len(cluster[1].server.connections) == 3

    cluster.run(test)


def test_what_rests_is_not_looked_at_and_is_in_sync_still(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(2)

    async def test() -> None:
        for number in range(9):
            cluster.create(f"t{number}")
            await cluster[1].produce(b"a", topic=f"t{number}")
        cluster.change("t5", leader=1)  # of an epoch that has no record
        await cluster.until(lambda: all(cluster[2].replica(f"t{number}").high_watermark == 1 for number in range(9)))
        await asyncio.sleep(2)
        looks = 0
        fetched = Replica.fetched

        def count(replica: Replica, *given: int) -> Fetched:
            nonlocal looks
            looks += 1
            return fetched(replica, *given)

        monkeypatch.setattr(Replica, "fetched", count)
        await asyncio.sleep(20)
        assert looks == 0
        await cluster[1].append(b"b", topic="t3")
        assert cluster[1].replica("t3").shrink() is None, "it was there a moment ago, after ten times its patience"
        assert await cluster[1].produce(b"c", topic="t3") is ErrorCode.NONE
        await cluster.until(lambda: cluster[2].replica("t3").high_watermark == 3, 1)
        await asyncio.sleep(2)
        assert 0 < looks < 20
        cut(cluster, 1, 2)
        await asyncio.sleep(5)
        await cluster[1].append(b"d", topic="t3")
        assert cluster[1].replica("t3").shrink() is not None, "it has not been there for more than its patience"

    cluster.run(test)


def test_a_stop_leaves_nothing_running() -> None:
    """While a fetch is under way, and while a leader cannot be reached."""
    cluster = Cluster(3)

    async def test() -> None:
        cluster.create(replicas=(1, 2, 3))
        cluster.create("u", replicas=(3, 2), leader=3)
        await cluster[1].produce(b"a")
        cluster.machines[3].kill()
        await asyncio.sleep(0.01)
        member: Member = cluster[2]
        began = cluster.world.loop.time()
        await cluster.machines[2].stop()
        assert member.node.running == [] and cluster.world.loop.time() - began < 1

    cluster.run(test)
