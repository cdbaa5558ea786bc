"""ListOffsets for the newest record and by time, as Kafka answers it: batches that the broker stamped, records without
timestamps, several records that are the newest, and nothing at all. Of deleted records `docs/divergence.md` speaks."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from peers.waiting import until

from headrace.wire.messages.k02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from headrace.wire.messages.k19_create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from headrace.wire.messages.k21_delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from headrace.wire.records import Compression, Record, build_batch

from .conftest import T0, Both, Side, produce_request

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

VERSION, NEWEST, EARLIEST = 8, -3, -2
CREATED, STAMPED = "CreateTime", "LogAppendTime"
CASES: dict[str, tuple[str, list[list[int | None]]]] = {
    "stamped": (STAMPED, [[0] * 8, [0] * 3, [0] * 4]),
    "several": (CREATED, [[1, 9, 9, 3], [9], [2]]),
    "early": (CREATED, [[100, 50, 50], [10, 20]]),
    "untimed": (CREATED, [[None, None], [None]]),
    "partly": (CREATED, [[None, None], [5, None], [None]]),
    "empty": (CREATED, []),
}


def made(side: Side, name: str, stamp: str, batches: list[list[int | None]], compression: int) -> None:
    configs = [CreatableTopicConfig("message.timestamp.type", stamp), CreatableTopicConfig("retention.ms", "-1")]
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=configs)
    assert side.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7).topics[0].error_code == 0
    until(lambda: listed(side, name, EARLIEST)[0] == 0, "the partition is led")
    for times in batches:
        records = [Record(0, -1 if each is None else T0 + each, b"k", b"v", []) for each in times]
        answer = side.ask(produce_request(name, build_batch(records, compression=compression)), 9)
        part = answer.responses[0].partition_responses[0]
        assert part.error_code == 0
        until_after(part.log_append_time_ms)


def until_after(time_ms: int) -> None:
    """The next batch is stamped with a later time."""
    until(lambda: time.time() * 1000 >= time_ms + 1, "time goes on")


def delete(side: Side, name: str, offset: int) -> None:
    part = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=name, partitions=[part])], timeout_ms=10_000)
    assert side.ask(request, 2).topics[0].partitions[0].error_code == 0


def listed(side: Side, name: str, timestamp: int, stamp: str = CREATED) -> list[Any]:
    """Without the time where each side stamped by a clock of its own."""
    part = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=[part])])
    found = side.ask(request, VERSION).topics[0].partitions[0]
    return [found.error_code, found.offset, found.leader_epoch, found.timestamp if stamp == CREATED else 0]


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
@pytest.mark.parametrize("case", CASES)
def test_the_newest_record(both: Both, fresh: Callable[[str], str], case: str, compression: int) -> None:
    stamp, batches = CASES[case]
    name = fresh(f"says-newest-{case}")
    for side in (both.ours, both.kafka):
        made(side, name, stamp, batches, compression)

    def asked(timestamp: int) -> list[list[Any]]:
        return [listed(side, name, timestamp, stamp) for side in (both.ours, both.kafka)]

    for timestamp in (NEWEST, 0, T0 + 2, T0 + 9, T0 + 60):
        ours, kafkas = asked(timestamp)
        assert ours == kafkas, timestamp
    for start in range(1, sum(map(len, batches)) + 1):
        for side in (both.ours, both.kafka):
            delete(side, name, start)
        ours, kafkas = asked(NEWEST)
        if kafkas[1] >= start or kafkas[1] < 0:
            assert ours == kafkas, start
        else:  # Kafka names a record that is deleted
            assert ours[1] >= start or ours[1] == -1, start
