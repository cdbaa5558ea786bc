"""The coordinator over logs in memory: when answers leave, and what an append that fails does."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence

import pytest
from broker.controllers import until
from broker.coordinators.memory import TOPIC_ID, FakeBroker, commit_many, error_of, image, log_index

from headrace.broker.coordinators.coordinator import DUE_AT_ONCE
from headrace.broker.requests.apis import (
    k12_heartbeat,
    k42_delete_groups,
)
from headrace.config import BrokerConfig
from headrace.env.completion import Completion
from headrace.wire.batch import iter_headers, read_header
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k12_heartbeat import HeartbeatRequest
from headrace.wire.messages.k42_delete_groups import DeleteGroupsRequest
from headrace.wire.records import Compression


async def test_a_commit_is_answered_at_once_when_it_is_committed_at_once(broker: FakeBroker) -> None:
    assert error_of(broker.commit(5)) == ErrorCode.NONE
    assert broker.fetched() == [5]


async def test_an_answer_waits_for_the_commit(broker: FakeBroker) -> None:
    broker.replicas.hold()
    answer = broker.commit(5)
    assert isinstance(answer, Completion) and not answer.done
    assert broker.fetched() == []
    await broker.replicas.release()
    assert error_of(answer.take()) == ErrorCode.NONE
    assert broker.fetched() == [5]


async def test_a_refused_append_changes_nothing(broker: FakeBroker) -> None:
    broker.commit(5)
    broker.replicas.refusal = ErrorCode.KAFKA_STORAGE_ERROR
    assert error_of(broker.commit(6)) == ErrorCode.NOT_COORDINATOR
    broker.replicas.refusal = None
    assert broker.fetched() == [5]


async def test_an_append_that_is_lost_later_is_taken_back_without_a_look_at_the_log(broker: FakeBroker) -> None:
    broker.commit(5)
    broker.replicas.hold()
    answer = broker.commit(6)
    log = broker.replicas.logs[broker.groups.partition_for("g")]
    log.data = log.data[: read_header(log.data).size]  # the log lost its tail
    log.end_offset = 1
    await broker.replicas.release(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert error_of(answer.take()) == ErrorCode.NOT_COORDINATOR
    assert broker.fetched() == [5]
    assert error_of(broker.commit(7)) == ErrorCode.NONE
    assert broker.fetched() == [7]


async def test_what_is_due_together_is_done_a_little_at_a_time(broker: FakeBroker) -> None:
    for _ in range(3 * DUE_AT_ONCE):
        broker.join()  # each is given a member id, and does not come back
    group = broker.groups.runtime.shards[log_index(broker)].shard.state.groups["g"]
    left = [len(group.pending_joins)]
    assert left == [3 * DUE_AT_ONCE]
    broker.clock.pass_ms(10_000)
    broker.groups._wake()
    left.append(len(group.pending_joins))
    while left[-1]:
        await asyncio.sleep(0)  # one turn of the loop
        left.append(len(group.pending_joins))
    assert max(before - after for before, after in itertools.pairwise(left)) <= DUE_AT_ONCE


async def test_a_commit_that_the_disk_holds_up_is_answered_in_time(broker: FakeBroker) -> None:
    """offsets.commit.timeout.ms: an error that the client tries again; what comes through later counts."""
    broker.config = BrokerConfig.load({"offsets.commit.timeout.ms": "50"})
    broker.groups._take_up(image(leader=2))
    broker.groups._take_up(image())
    broker.replicas.hold()
    answer = broker.commit(5)
    broker.clock.pass_ms(49)
    broker.groups._wake()
    assert not answer.done
    broker.clock.pass_ms(1)
    broker.groups._wake()
    assert error_of(answer.take()) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert broker.fetched() == []
    await broker.replicas.release()
    assert broker.fetched() == [5]


async def test_an_answer_that_waits_too_long_is_woken_for(broker: FakeBroker) -> None:
    """A timer of its own: nothing else happens that would look at the time."""
    broker.config = BrokerConfig.load({"offsets.commit.timeout.ms": "1"})
    broker.groups._take_up(image(leader=2))
    broker.groups._take_up(image())
    broker.replicas.hold()
    answer = broker.commit(5)
    broker.clock.pass_ms(1)
    await until(lambda: answer.done)
    assert error_of(answer.take()) == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_an_append_that_fails_the_disk_of_others_ends_theirs_too(broker: FakeBroker) -> None:
    """The partitions end the appends of every log on a failed disk before the one that found out returns."""
    broker.replicas.hold()
    other = next(f"g{i}" for i in itertools.count() if broker.groups.partition_for(f"g{i}") != log_index(broker))
    waiting, also_waiting = broker.commit(1), broker.commit(1, other)

    def fail(
        topic: str, partition: int, appends: Sequence[bytes], origin: str = ""
    ) -> list[ErrorCode | Completion[ErrorCode]]:
        for completion in broker.replicas.held:
            completion.complete(ErrorCode.KAFKA_STORAGE_ERROR)
        return [ErrorCode.KAFKA_STORAGE_ERROR for _ in appends]

    broker.replicas.append_internal = fail  # type: ignore[method-assign]
    assert error_of(broker.commit(2)) == ErrorCode.NOT_COORDINATOR
    await until(lambda: waiting.done and also_waiting.done)
    assert error_of(waiting.take()) == error_of(also_waiting.take()) == ErrorCode.NOT_COORDINATOR
    assert broker.fetched() == broker.fetched(other) == []


@pytest.mark.parametrize("codec", list(Compression))
async def test_offsets_are_written_compressed_where_that_is_set(broker: FakeBroker, codec: Compression) -> None:
    broker.config = BrokerConfig.load({"offsets.topic.compression.codec": str(int(codec))})
    broker.groups._take_up(image(leader=2))
    broker.groups._take_up(image())
    assert error_of(broker.commit(5)) == ErrorCode.NONE
    assert [read_header(batch).compression for batch in broker.replicas.appends] == [codec]
    broker.groups._take_up(image(leader=2))
    broker.groups._take_up(image())
    await broker.groups.loaded()
    assert broker.fetched() == [5]


async def test_beyond_group_count_max_no_group_is_made(broker: FakeBroker) -> None:
    """The bound is the broker's: it counts the groups of all its partitions."""
    broker.config = BrokerConfig.load({"group.count.max": "3"})
    broker.groups._take_up(image(leader=2))
    broker.groups._take_up(image())
    names = [f"group-{i}" for i in range(5)]
    assert len({broker.groups.partition_for(name) for name in names[:3]}) == 2
    errors = [error_of(broker.commit(1, name)) for name in names]
    assert errors == [ErrorCode.NONE] * 3 + [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    assert error_of(broker.commit(2, names[0])) == ErrorCode.NONE


async def test_a_join_waits_for_its_rebalance_and_hears_of_the_end(broker: FakeBroker) -> None:
    required = broker.join()
    assert required.done and required.take().error_code == ErrorCode.MEMBER_ID_REQUIRED
    waiting = broker.join(required.take().member_id)
    assert not waiting.done
    await until(lambda: waiting.done)
    assert waiting.take().generation_id == 1
    again = broker.join(required.take().member_id)
    assert again.take().generation_id == 1
    another = broker.join()
    other = broker.join(another.take().member_id)
    await broker.groups.stop()
    assert other.take().error_code == ErrorCode.NOT_COORDINATOR


async def test_a_clock_that_is_set_ends_no_session(broker: FakeBroker) -> None:
    member = broker.join().take().member_id
    waiting = broker.join(member)
    await until(lambda: waiting.done)
    broker.clock.wall_ms += 3_600_000
    broker.groups._wake()
    beat = HeartbeatRequest("g", 1, member)
    assert broker.ask(k12_heartbeat, beat, 4).error_code == ErrorCode.NONE
    broker.clock.pass_ms(70_000)
    broker.groups._wake()
    assert broker.ask(k12_heartbeat, beat, 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_clock_that_is_set_makes_no_timer_late(broker: FakeBroker) -> None:
    """The one that runs is for the end of a session; the rebalance that begins then is not to wait for it."""
    member = broker.join().take().member_id
    broker.clock.wall_ms += 3_600_000
    waiting = broker.join(member)
    async with asyncio.timeout(5):  # a session is 10 s
        await until(lambda: waiting.done)


async def test_a_huge_decision_goes_out_in_several_batches_of_one_append(broker: FakeBroker) -> None:
    assert error_of(commit_many(broker, 3_000)) == ErrorCode.NONE
    broker.replicas.hold()
    broker.replicas.appends.clear()
    answer = broker.ask(k42_delete_groups, DeleteGroupsRequest(["g", "nobody"]), 2)
    (appended,) = broker.replicas.appends
    sizes = [header.size for _, header in iter_headers(appended)]
    assert len(sizes) >= 2 and max(sizes) <= 512 * 1024 and not answer.done
    await broker.replicas.release()
    assert [result.error_code for result in answer.take().results] == [ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND]
    assert broker.fetched() == []


async def test_a_decision_that_finds_no_room_has_no_effect(broker: FakeBroker) -> None:
    log = broker.replicas.logs[log_index(broker)]
    log.room = 600 * 1024  # for the first batch
    assert commit_many(broker, 3_000) == ErrorCode.NOT_COORDINATOR
    assert log.data == b"" and broker.fetched() == []
    log.room = 1 << 20
    assert error_of(commit_many(broker, 3_000)) == ErrorCode.NONE
    assert len(broker.fetched()) == 3_000


async def test_tidying_up_goes_as_far_as_there_is_room_and_on_the_next_time(broker: FakeBroker) -> None:
    commit_many(broker, 3_000)
    index = log_index(broker)
    log, part = broker.replicas.logs[index], broker.groups.runtime.shards[index]
    log.room = 600 * 1024
    nothing_exists: dict[str, bytes] = {}
    deleted = {topic: TOPIC_ID for topic, _ in part.shard.state.offsets.latest["g"].latest}
    broker.groups.decide_alone(part, lambda shard, _: shard.forget_topics(deleted, nothing_exists, ["g"]))
    left = len(broker.fetched())
    assert 0 < left < 3_000
    broker.groups._take_up(image(leader=2))
    broker.groups._take_up(image())
    await broker.groups.loaded()
    assert len(broker.fetched()) == left
    log.room = 1 << 20
    part = broker.groups.runtime.shards[index]
    broker.groups.decide_alone(part, lambda shard, _: shard.forget_topics(deleted, nothing_exists, ["g"]))
    assert broker.fetched() == []


async def test_batches_are_as_small_as_the_topic_wants_them(broker: FakeBroker) -> None:
    log = broker.replicas.logs[log_index(broker)]
    log.config.max_message_bytes = 2_000
    assert error_of(commit_many(broker, 100)) == ErrorCode.NONE
    assert len(broker.fetched()) == 100
    before = log.data
    log.config.max_message_bytes = 200
    assert commit_many(broker, 3) == ErrorCode.UNKNOWN_SERVER_ERROR  # as in Kafka 4
    assert log.data == before and len(broker.fetched()) == 100


async def test_what_cannot_be_written_down_harms_nobody(broker: FakeBroker) -> None:
    """A group id that is longer than Kafka's format can say."""
    name = "g" * 40_000
    assert error_of(broker.commit(1, name)) == ErrorCode.UNKNOWN_SERVER_ERROR  # as in Kafka
    other = next(f"g{i}" for i in itertools.count() if log_index(broker, f"g{i}") == log_index(broker, name))
    assert error_of(broker.commit(1, other)) == ErrorCode.NONE
