"""Shards that come and go with leadership: loads, and logs that are not what a shard thinks."""

from __future__ import annotations

import asyncio
import errno
import itertools
import threading
from dataclasses import replace

import pytest
from broker.controllers import until
from broker.coordinators.memory import FakeBroker, commit_many, error_of, image, log_index

from headrace.broker.coordinators.group_coordinator import OFFSETS_TOPIC
from headrace.broker.requests.apis import (
    k12_heartbeat,
)
from headrace.machine import runtime as runtime_module
from headrace.machine.runtime import ShardState
from headrace.metadata.delta import ImageDelta
from headrace.metadata.image import TopicsImage
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k12_heartbeat import HeartbeatRequest
from headrace.wire.messages.metadata_records import RemoveTopicRecord


async def test_a_log_that_kept_what_was_taken_for_lost_is_loaded_again(broker: FakeBroker) -> None:
    """What its coordinator holds and what the log holds are not the same any more: only the log can tell."""
    broker.commit(5)
    broker.replicas.hold()
    broker.commit(6)
    await broker.replicas.release(ErrorCode.KAFKA_STORAGE_ERROR)
    assert broker.fetched() == [5]
    assert error_of(broker.commit(7)) == ErrorCode.NOT_COORDINATOR
    assert error_of(broker.commit(7)) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await broker.groups.loaded()
    assert broker.fetched() == [6]
    assert error_of(broker.commit(7)) == ErrorCode.NONE


async def test_who_is_deposed_tells_nobody_that_it_worked(broker: FakeBroker) -> None:
    """KAFKA-20634: the end of an append comes after the leader has changed."""
    broker.replicas.hold()
    answer = broker.commit(5)
    broker.groups._take_up(image(leader=2))
    assert error_of(answer.take()) == ErrorCode.NOT_COORDINATOR
    await broker.replicas.release()
    assert error_of(broker.commit(6)) == ErrorCode.NOT_COORDINATOR


async def test_a_shard_of_another_epoch_appends_nothing(broker: FakeBroker) -> None:
    """The partitions follow the metadata first: what is decided between the two must not be written."""
    broker.replicas.leader_epoch = 1
    assert error_of(broker.commit(5)) == ErrorCode.NOT_COORDINATOR
    assert broker.replicas.logs[log_index(broker)].data == b""


async def loads_what_is_not_committed(broker: FakeBroker) -> None:
    """Another coordinator told 5; of 6 nobody here knows whether it was told."""
    broker.commit(5)
    broker.replicas.hold()
    broker.commit(6)
    broker.groups._take_up(image(leader=2))
    broker.replicas.held.clear()
    broker.groups._take_up(image())
    await until(lambda: bool(broker.replicas.held))


async def test_a_loaded_log_is_not_told_before_all_of_it_is_committed(broker: FakeBroker) -> None:
    """KAFKA-2334: its predecessor may have told the end of it."""
    await loads_what_is_not_committed(broker)
    assert error_of(broker.commit(7)) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await broker.replicas.release()
    await broker.groups.loaded()
    assert broker.fetched() == [6]


async def test_a_loaded_log_that_is_not_committed_is_not_served_until_it_is(broker: FakeBroker) -> None:
    await loads_what_is_not_committed(broker)
    await broker.replicas.release(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    await broker.groups.loaded()
    assert error_of(broker.commit(7)) == ErrorCode.NOT_COORDINATOR
    await served_again(broker)
    assert broker.fetched() == [6]


async def test_a_defect_in_a_load_is_reported(broker: FakeBroker) -> None:
    broker.commit(5)

    def fail() -> None:
        raise AssertionError("nobody expects this")

    index = log_index(broker)
    broker.replicas.logs[index].before_read = fail
    broker.groups._take_up(image(leader=2))
    broker.groups._take_up(image())
    await broker.groups.loaded()
    assert broker.groups.runtime.shards[index].state is ShardState.FAILED
    assert broker.node.defects.count == 1 and isinstance(broker.node.defects.first, AssertionError)
    assert error_of(broker.commit(6)) == ErrorCode.NOT_COORDINATOR


async def test_another_coordinator_finds_everything_in_the_log(broker: FakeBroker) -> None:
    for position in range(3_000):
        broker.commit(position, f"group-{position % 100}")
    broker.image = image(leader=2)
    broker.groups._take_up(broker.image)
    assert error_of(broker.commit(1)) == ErrorCode.NOT_COORDINATOR
    broker.image = image()
    broker.groups._take_up(broker.image)
    assert error_of(broker.commit(1)) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    beat = broker.ask(k12_heartbeat, HeartbeatRequest("g", 1, "m"), 4)
    assert beat.error_code == ErrorCode.NONE
    await broker.groups.loaded()
    assert broker.fetched("group-7") == [2907]


async def test_a_slow_disk_holds_up_nothing_but_its_own_groups(broker: FakeBroker) -> None:
    """Kafka answers COORDINATOR_LOAD_IN_PROGRESS meanwhile; everybody else is served."""
    broker.commit(5)
    log = broker.replicas.logs[broker.groups.partition_for("g")]
    is_asked, is_read = threading.Event(), threading.Event()

    def wait() -> None:
        assert threading.current_thread() is not threading.main_thread()
        is_asked.set()
        assert is_read.wait(30)

    log.before_read = wait
    broker.groups._take_up(image(leader=2))
    broker.groups._take_up(image())
    assert await asyncio.to_thread(is_asked.wait, 30)
    assert error_of(broker.commit(6)) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    elsewhere = next(f"g{i}" for i in itertools.count() if broker.groups.partition_for(f"g{i}") != log_index(broker))
    assert error_of(broker.commit(1, elsewhere)) == ErrorCode.NONE
    is_read.set()
    await broker.groups.loaded()
    assert broker.fetched() == [5]


async def test_a_partition_that_goes_while_it_is_read_is_not_taken_for_loaded(broker: FakeBroker) -> None:
    broker.commit(5)
    log = broker.replicas.logs[log_index(broker)]
    is_asked, is_read = threading.Event(), threading.Event()

    def wait() -> None:
        is_asked.set()
        assert is_read.wait(30)

    log.before_read = wait
    broker.groups._take_up(image(leader=2))
    broker.groups._take_up(image())
    assert await asyncio.to_thread(is_asked.wait, 30)
    broker.groups._take_up(image(leader=2))
    is_read.set()
    await broker.groups.loaded()
    assert error_of(broker.commit(6)) == ErrorCode.NOT_COORDINATOR
    broker.groups._take_up(image())
    await broker.groups.loaded()
    assert broker.fetched() == [5]


async def test_offsets_of_topics_that_were_deleted_meanwhile_go(broker: FakeBroker) -> None:
    broker.commit(5)
    broker.groups._take_up(image(leader=2))
    broker.image = replace(image(), topics=TopicsImage({b"\x01" * 16: image().topics.topics_by_name[OFFSETS_TOPIC]}))
    broker.groups._take_up(image())
    await broker.groups.loaded()
    assert broker.fetched() == []


async def test_a_deleted_topic_takes_its_offsets_along(broker: FakeBroker) -> None:
    broker.commit(5)
    old = broker.image
    delta = ImageDelta(old)
    delta.apply(RemoveTopicRecord(topic_id=old.topics.topics_by_name["t"].id))
    broker.image = delta.image(offset=old.offset + 1, epoch=1, timestamp_ms=0)
    broker.groups._image_changed(old, broker.image, delta)
    await asyncio.sleep(0.01)
    assert broker.fetched() == []


async def test_a_log_that_cannot_be_read_leaves_its_groups_unserved_until_it_can(broker: FakeBroker) -> None:
    broker.commit(1)
    index = broker.groups.partition_for("g")
    log = broker.replicas.logs[index]
    whole = log.data
    log.data = log.data[:61] + b"\xff" * (len(log.data) - 61)
    elected_again(broker)
    await broker.groups.loaded()
    assert state_of(broker) is ShardState.FAILED
    assert error_of(broker.commit(1)) == ErrorCode.NOT_COORDINATOR
    log.data = whole
    await served_again(broker)
    assert broker.fetched() == [1]


def elected_again(broker: FakeBroker) -> None:
    """This broker leads again after another: it loads."""
    broker.groups._take_up(image(leader=2))
    broker.groups._take_up(image())


def state_of(broker: FakeBroker, group: str = "g") -> ShardState:
    return broker.groups.runtime.shards[log_index(broker, group)].state


async def served_again(broker: FakeBroker) -> None:
    await until(lambda: state_of(broker) is ShardState.ACTIVE)


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE, errno.ENOENT, errno.ENOSPC])
@pytest.mark.parametrize("piece", range(2))
async def test_a_read_that_fails_is_tried_again(broker: FakeBroker, number: int, piece: int) -> None:
    """Whatever the error and wherever in the log: it may be gone the next time."""
    commit_many(broker, 3_000)
    log = broker.replicas.logs[log_index(broker)]
    reads, failing = itertools.count(), [True]

    def fail() -> None:
        if next(reads) >= piece and failing:
            raise OSError(number, "not now")

    log.before_read = fail
    elected_again(broker)
    await broker.groups.loaded()
    assert next(reads) > piece
    assert state_of(broker) is ShardState.FAILED
    failing.clear()
    await served_again(broker)
    assert len(broker.fetched()) == 3_000


async def test_a_load_that_goes_on_failing_is_logged_once_and_waits_longer(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.commit(5)
    reads: list[float] = []
    loop = asyncio.get_running_loop()

    def fail() -> None:
        reads.append(loop.time())
        raise OSError(errno.EIO, "not now")

    broker.replicas.logs[log_index(broker)].before_read = fail
    elected_again(broker)
    await until(lambda: len(reads) == 4)
    pauses = [later - earlier for earlier, later in itertools.pairwise(reads)]
    assert [pause >= least for pause, least in zip(pauses, (0.1, 0.2, 0.4), strict=True)] == [True] * 3
    lines = [each for each in caplog.records if "cannot load its log" in each.getMessage()]
    assert len(lines) == 1
    broker.clock.pass_ms(60_000)
    await until(lambda: len(reads) == 5)
    await broker.groups.loaded()
    assert len([each for each in caplog.records if "cannot load its log" in each.getMessage()]) == 2


async def test_a_load_that_failed_is_not_tried_again_for_another_leader(broker: FakeBroker) -> None:
    broker.commit(5)
    reads = itertools.count()

    def fail() -> None:
        next(reads)
        raise OSError(errno.EIO, "not now")

    broker.replicas.logs[log_index(broker)].before_read = fail
    elected_again(broker)
    await broker.groups.loaded()
    broker.groups._take_up(image(leader=2))
    before = next(reads)
    await asyncio.sleep(0.3)
    assert next(reads) == before + 1
    assert error_of(broker.commit(6)) == ErrorCode.NOT_COORDINATOR


async def test_a_coordinator_that_stops_tries_no_load_again(broker: FakeBroker) -> None:
    broker.replicas.why_not = ErrorCode.KAFKA_STORAGE_ERROR
    elected_again(broker)
    await broker.groups.stop()
    broker.replicas.why_not = None
    broker.replicas.led(0)
    broker.replicas.led(1)
    assert broker.groups.runtime.shards == {}


@pytest.mark.parametrize(
    ("why", "said"),
    [
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
async def test_a_coordinator_begins_when_its_log_comes(broker: FakeBroker, why: ErrorCode, said: ErrorCode) -> None:
    """The log could not be opened, or a worker still cut it, when this broker was elected."""
    broker.commit(5)
    broker.replicas.why_not = why
    elected_again(broker)
    assert error_of(broker.commit(6)) == said
    broker.replicas.led(log_index(broker))  # still not: other metadata
    assert error_of(broker.commit(6)) == said
    broker.replicas.why_not = None
    broker.replicas.led(log_index(broker))
    await broker.groups.loaded()
    assert broker.fetched() == [5]
    assert error_of(broker.commit(6)) == ErrorCode.NONE


async def test_a_coordinator_that_is_loaded_minds_no_change_of_its_partition(broker: FakeBroker) -> None:
    broker.commit(5)
    runtime = broker.groups.runtime.shards[log_index(broker)]
    broker.replicas.led(log_index(broker))
    assert broker.groups.runtime.shards[log_index(broker)] is runtime


async def test_an_epoch_whose_start_cannot_be_written_is_waited_for(broker: FakeBroker) -> None:
    """The disk is full: the log can be read, and takes nothing."""
    broker.commit(5)
    broker.replicas.takes_appends = False
    elected_again(broker)
    assert error_of(broker.commit(6)) == ErrorCode.NOT_COORDINATOR
    broker.replicas.takes_appends = True
    await served_again(broker)
    assert broker.fetched() == [5]


async def test_a_log_that_takes_no_appends_any_more_is_loaded_again(broker: FakeBroker) -> None:
    """It was moved, and its epoch has to be written down where it lies now: an append would come after the answer."""
    broker.commit(5)
    broker.replicas.takes_appends = False
    assert error_of(broker.commit(6)) == ErrorCode.NOT_COORDINATOR
    broker.replicas.takes_appends = True
    await served_again(broker)
    assert broker.fetched() == [5]
    assert error_of(broker.commit(6)) == ErrorCode.NONE


async def test_a_step_that_fails_half_way_leaves_its_shard_to_the_log(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A defect between append and apply: whoever asked hears of it, the next ones find what the log holds."""
    broker.commit(5)
    runtime = broker.groups.runtime.shards[log_index(broker)]

    def fail(*_: object) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(runtime.shard, "apply", fail)
    with pytest.raises(RuntimeError, match="a defect"):
        broker.commit(6)
    assert error_of(broker.commit(7)) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await broker.groups.loaded()
    assert broker.fetched() == [6]
    assert error_of(broker.commit(7)) == ErrorCode.NONE


async def test_a_step_that_fails_on_an_empty_log_is_got_over_too(broker: FakeBroker) -> None:
    log = broker.replicas.logs[log_index(broker)]
    del log.config.max_message_bytes
    with pytest.raises(AttributeError):
        broker.commit(1)
    log.config.max_message_bytes = 1_048_588
    await asyncio.sleep(0)
    assert error_of(broker.commit(1)) == ErrorCode.NONE


async def test_a_machine_that_no_descriptor_is_free_for_is_imported_later(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Modules are files: the first shard of a broker reads some."""
    broker.commit(5)
    broker.groups._take_up(image(leader=2))
    prepare, short = broker.groups._prepare, [True]

    def fail() -> None:
        if short:
            raise OSError(errno.EMFILE, "Too many open files")
        prepare()

    monkeypatch.setattr(broker.groups, "_prepare", fail)
    broker.groups._take_up(image())
    assert error_of(broker.commit(6)) == ErrorCode.NOT_COORDINATOR
    short.clear()
    await until(lambda: log_index(broker) in broker.groups.runtime.shards)
    await served_again(broker)
    assert broker.fetched() == [5]


async def test_a_shard_serves_once_all_of_its_groups_are_restored(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = [group for number in range(200) if log_index(broker, group := f"g{number}") == log_index(broker)]
    assert len(groups) > 2
    for group in ("g", *groups):
        broker.commit(5, group)
    monkeypatch.setattr(runtime_module, "START_STEPS", 1)
    broker.groups._take_up(image(leader=2))
    broker.groups._take_up(image())
    shard = broker.groups.runtime.shards[log_index(broker)]
    turns = 0
    while not shard.is_active:
        assert error_of(broker.commit(6)) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        turns += len(shard.shard.state.groups) > 0
        await asyncio.sleep(0)
    assert turns > len(groups)
    assert [broker.fetched(group) for group in ("g", *groups)] == [[5]] * (1 + len(groups))


async def test_who_resigns_gives_back_what_members_keep(broker: FakeBroker) -> None:
    broker.join()
    assert broker.groups.member_bytes_counted() > 0
    broker.groups._take_up(image(leader=2))
    assert broker.groups.member_bytes_counted() == 0
