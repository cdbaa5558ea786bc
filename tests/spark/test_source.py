"""Planning and reading against a real broker, without Spark's JVM: what Spark would ask, asked here."""

from __future__ import annotations

import json
import pickle
import time
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, ReadMinRows

from headrace.client.admin import add_partitions, create_topic, delete_records, delete_topic
from headrace.client.cluster import Client
from headrace.client.errors import ClientError, UnknownTopicError
from headrace.client.producer import Producer
from headrace.spark.options import source_options
from headrace.spark.planning import DataLossError, Range, limited
from headrace.spark.source import IDLE_WAIT_S, POLL_S, BatchReader, RangesPartition, StreamReader

from .stand_in import batch_options, options, through_json, values, write

ALL = ReadAllAvailable()


def test_batch_reads_from_start_to_end(cluster: Client, topic: str) -> None:
    write(cluster, topic, 100)
    reader = BatchReader(batch_options(cluster, topic))
    tasks = reader.partitions()
    assert len(tasks) == 1, "small partitions share a task"
    write(cluster, topic, 10, 100)
    assert values(reader, tasks) == list(range(100)), "the end was fixed when the read was planned"
    places = {"startingOffsets": json.dumps({topic: {"0": 10, "1": -2}})}
    places["endingOffsets"] = json.dumps({topic: {"0": 20, "1": 5}})
    reader = BatchReader(batch_options(cluster, topic, **places))
    assert values(reader, reader.partitions()) == sorted([*range(20, 40, 2), *range(1, 11, 2)])


def test_offsets_must_cover_what_is_read(cluster: Client, topic: str) -> None:
    surplus = {"0": 0, "1": 0, "7": 0}
    for offsets, sentence in (({"0": 1}, "no offset for topic"), (surplus, "which this read leaves out")):
        reader = BatchReader(batch_options(cluster, topic, startingOffsets=json.dumps({topic: offsets})))
        with pytest.raises(ValueError, match=sentence):
            reader.partitions()


def test_a_batch_that_begins_after_its_end_is_refused(cluster: Client, topic: str) -> None:
    """As the connector does, whatever `failOnDataLoss` says; one that begins at its end reads nothing."""
    write(cluster, topic, 20)

    def at(first: int, second: int) -> str:
        return json.dumps({topic: {"0": first, "1": second}})

    for fail in ("true", "false"):
        places = {"startingOffsets": at(1, 5), "endingOffsets": at(1, 2), "failOnDataLoss": fail}
        with pytest.raises(ValueError, match="partition 1 begins at offset 5, after its end at offset 2"):
            BatchReader(batch_options(cluster, topic, **places)).partitions()
    reader = BatchReader(batch_options(cluster, topic, startingOffsets=at(1, 5), endingOffsets=at(1, 5)))
    assert values(reader, reader.partitions()) == []


def test_a_stream_reads_everything_once(cluster: Client, topic: str) -> None:
    write(cluster, topic, 10)
    reader = StreamReader(options(cluster, topic, startingOffsets="earliest"))
    start = through_json(reader.initialOffset())
    seen: list[int] = []
    for turn in range(3):
        end = through_json(reader.latestOffset(start, ALL))
        seen += values(reader, reader.partitions(start, end))
        start = end
        write(cluster, topic, 10, 10 + 10 * turn)
        reader._polled = -1.0
    assert seen == list(range(30))
    reader.stop()


def test_nothing_new_is_the_same_offset(cluster: Client, topic: str) -> None:
    write(cluster, topic, 4)
    reader = StreamReader(options(cluster, topic, startingOffsets="earliest"))
    first = reader.initialOffset()
    end = reader.latestOffset(first, ALL)
    assert end != first and reader.latestOffset(end, ALL) == end, "Spark compares the text"
    later = {"topics": end["topics"]}
    assert reader.latestOffset(later, ALL) == later
    assert reader.partitions(end, end) == [] and reader.partitions(end, later) == []


def test_an_idle_query_waits_for_news(cluster: Client, topic: str) -> None:
    reader = StreamReader(options(cluster, topic, startingOffsets="earliest"))
    start = {"topics": reader.initialOffset()["topics"]}
    asked: list[ReadLimit] = []

    def nothing_new(start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        asked.append(limit)
        return start

    reader._next_end = nothing_new  # type: ignore[method-assign]
    before = time.monotonic()
    assert reader.latestOffset(start, ALL) is start
    assert IDLE_WAIT_S <= time.monotonic() - before < IDLE_WAIT_S + 5
    assert 2 <= len(asked) <= IDLE_WAIT_S / POLL_S + 1
    del reader._next_end
    write(cluster, topic, 2)
    assert reader.latestOffset(start, ALL) != start


def test_an_empty_topic_makes_an_empty_first_batch(cluster: Client, topic: str) -> None:
    reader = StreamReader(options(cluster, topic, startingOffsets="earliest"))
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    assert end["from"] == start["topics"] == end["topics"] and reader.partitions(start, end) == []


def test_a_moving_latest_loses_nothing_when_batch_0_is_replayed(cluster: Client, topic: str) -> None:
    write(cluster, topic, 6)
    killed = StreamReader(options(cluster, topic))
    start = killed.initialOffset()
    write(cluster, topic, 4, 6)
    assert killed.initialOffset() == start, "Spark asks twice"
    killed._polled = -1.0
    logged = through_json(killed.latestOffset(start, ALL))
    write(cluster, topic, 2, 10)
    # the driver dies here, before batch 0 is done; the new one starts later, at a later latest
    again = StreamReader(options(cluster, topic))
    moved = through_json(again.initialOffset())
    assert moved["topics"] != start["topics"]
    assert values(again, again.partitions(moved, logged)) == [6, 7, 8, 9]
    after = through_json(again.latestOffset(logged, ALL))
    assert "from" not in after and values(again, again.partitions(logged, after)) == [10, 11]


def test_the_limit_is_shared_out(cluster: Client, topic: str) -> None:
    write(cluster, topic, 100)
    reader = StreamReader(options(cluster, topic, startingOffsets="earliest", maxOffsetsPerTrigger="30"))
    limit = reader.getDefaultReadLimit()
    assert isinstance(limit, ReadMaxRows) and limit.max_rows == 30
    start, seen, turns = reader.initialOffset(), [], 0
    while True:
        end = reader.latestOffset(start, limit)
        if end == start:
            break
        part = values(reader, reader.partitions(start, end))
        assert len(part) <= 30
        seen += part
        start, turns = {"topics": end["topics"]}, turns + 1
    assert sorted(seen) == list(range(100)) and turns == 4


def test_available_now_ends_where_it_began(cluster: Client, topic: str) -> None:
    write(cluster, topic, 10)
    reader = StreamReader(options(cluster, topic, startingOffsets="earliest"))
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    write(cluster, topic, 10, 10)
    end = reader.latestOffset(start, ALL)
    assert values(reader, reader.partitions(start, end)) == list(range(10))


def test_available_now_on_a_topic_that_never_was_names_it_and_advises_nothing(cluster: Client) -> None:
    reader = StreamReader(options(cluster, "nowhere"))
    reader.prepareForTriggerAvailableNow()
    with pytest.raises(UnknownTopicError, match="nowhere") as refused:
        reader.initialOffset()
    assert "failOnDataLoss" not in str(refused.value)


def test_available_now_on_a_topic_deleted_meanwhile_is_a_loss(cluster: Client, topic: str) -> None:
    write(cluster, topic, 10)
    first = StreamReader(options(cluster, topic, startingOffsets="earliest"))
    end = through_json(first.latestOffset(first.initialOffset(), ALL))
    delete_topic(cluster, topic)
    reader = StreamReader(options(cluster, topic))
    reader.prepareForTriggerAvailableNow()
    with pytest.raises(DataLossError, match="does not exist any more.*failOnDataLoss"):
        reader.latestOffset(end, ALL)


def test_new_partitions_are_read_from_their_beginning(cluster: Client, topic: str) -> None:
    write(cluster, topic, 2)
    reader = StreamReader(options(cluster, topic, startingOffsets="latest"))
    start = {"topics": reader.initialOffset()["topics"]}
    add_partitions(cluster, topic, 3)
    cluster.forget([topic])
    with Producer(cluster) as producer:
        producer.send(topic, b"7", partition=2)
    reader._discovered = reader._polled = -10.0
    end = reader.latestOffset(start, ALL)
    assert values(reader, reader.partitions(start, end)) == [7]


def test_lost_data_is_an_error_or_a_warning(cluster: Client, topic: str) -> None:
    write(cluster, topic, 20)
    begin = {"topics": {topic: {"0": 0, "1": 0}}}
    end = {"topics": {topic: {"0": 10, "1": 10}}}
    delete_records(cluster, {(topic, 0): 4})
    strict = StreamReader(options(cluster, topic))
    with pytest.raises(DataLossError, match="begins at offset 4 now.*failOnDataLoss"):
        strict.partitions(begin, end)
    relaxed = StreamReader(options(cluster, topic, failOnDataLoss="false"))
    with pytest.warns(RuntimeWarning, match="begins at offset 4 now"):
        tasks = relaxed.partitions(begin, end)
    assert values(relaxed, tasks) == sorted([*range(8, 20, 2), *range(1, 20, 2)])
    with pytest.raises(DataLossError, match="ends at offset 10, before"):
        strict.partitions({"topics": {topic: {"0": 4, "1": 0}}}, {"topics": {topic: {"0": 4, "1": 11}}})


@pytest.fixture
def doomed(cluster: Client, topic: str) -> str:
    """A topic beside `topic`, to be deleted, whose name a pattern finds with it."""
    name = topic + "-doomed"
    create_topic(cluster, name, partitions=2)
    write(cluster, name, 10, 100)
    write(cluster, topic, 10)
    return name


def both_of(cluster: Client, topic: str, how: str, **more: str) -> StreamReader:
    name = topic + "-doomed"
    chosen = {
        "subscribe": f"{topic},{name}",
        "subscribePattern": topic + ".*",
        "assign": json.dumps({topic: [0, 1], name: [0, 1]}),
    }[how]
    given = {"kafka.bootstrap.servers": cluster.bootstrap_text, how: chosen, **more}  # type: ignore[attr-defined]
    return StreamReader(source_options({"startingOffsets": "earliest", **given}, streaming=True))


def looked_again(reader: StreamReader) -> StreamReader:
    reader._discovered = reader._polled = -10.0
    return reader


@pytest.mark.slow
@pytest.mark.parametrize("how", ["subscribe", "subscribePattern", "assign"])
@pytest.mark.parametrize("noticed", ["when topics are looked for", "before that"])
def test_a_deleted_topic_ends_the_stream_or_is_left_behind(
    cluster: Client, topic: str, doomed: str, how: str, noticed: str
) -> None:
    readers = {fail: both_of(cluster, topic, how, failOnDataLoss=fail) for fail in ("true", "false")}
    start = {"topics": through_json(readers["true"].initialOffset())["topics"]}
    end = {fail: through_json(reader.latestOffset(start, ALL)) for fail, reader in readers.items()}["false"]
    assert set(end["topics"]) == {topic, doomed}
    delete_topic(cluster, doomed)
    write(cluster, topic, 2, 10)
    for reader in readers.values():
        reader._polled = -10.0
        reader._discovered = -10.0 if noticed == "when topics are looked for" else time.monotonic()
    with pytest.raises(DataLossError, match=f"topic {doomed}.* does not exist any more.*failOnDataLoss"):
        readers["true"].latestOffset(end, ALL)
    with pytest.warns(RuntimeWarning, match=f"topic {doomed}.* does not exist any more"):
        after = through_json(readers["false"].latestOffset(end, ALL))
    assert set(after["topics"]) == {topic}
    assert values(readers["false"], readers["false"].partitions(end, after)) == [10, 11]
    assert looked_again(readers["false"])._next_end(after, ALL) == after, "said once, and on it goes"
    create_topic(cluster, doomed, partitions=2)
    write(cluster, doomed, 3, 200)
    later = through_json(looked_again(readers["false"]).latestOffset(after, ALL))
    assert values(readers["false"], readers["false"].partitions(after, later)) == [200, 201, 202], "another topic"
    delete_topic(cluster, doomed)


@pytest.mark.slow
def test_a_query_that_starts_again_goes_on_without_a_topic_deleted_meanwhile(
    cluster: Client, topic: str, doomed: str
) -> None:
    delete_topic(cluster, doomed)
    logged = {"topics": {topic: {"0": 5, "1": 4}, doomed: {"0": 5, "1": 5}}}
    with pytest.raises(DataLossError, match=doomed):
        both_of(cluster, topic, "subscribe").latestOffset(logged, ALL)
    relaxed = both_of(cluster, topic, "subscribe", failOnDataLoss="false")
    relaxed.prepareForTriggerAvailableNow()
    with pytest.warns(RuntimeWarning, match=f"topic {doomed} does not exist any more"):
        end = through_json(relaxed.latestOffset(logged, ALL))
    assert values(relaxed, relaxed.partitions(logged, end)) == [9]
    with pytest.raises(ClientError, match=doomed):
        both_of(cluster, topic, "subscribe", failOnDataLoss="false").initialOffset()


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before it is planned", "before it is read"])
def test_a_topic_deleted_with_a_batch_under_way(cluster: Client, topic: str, doomed: str, when: str) -> None:
    strict, relaxed = both_of(cluster, topic, "subscribe"), both_of(cluster, topic, "subscribe", failOnDataLoss="false")
    start = through_json(relaxed.initialOffset())
    end = through_json(relaxed.latestOffset(start, ALL))
    strict._subscribed()
    if when == "before it is read":
        tasks = relaxed.partitions(start, end)
        delete_topic(cluster, doomed)
        with pytest.raises(DataLossError, match=f"topic {doomed} was deleted during the read.*failOnDataLoss"):
            values(strict, tasks)
        with pytest.warns(RuntimeWarning, match=f"topic {doomed} was deleted"):
            found = values(relaxed, tasks)
    else:
        delete_topic(cluster, doomed)
        with pytest.raises(DataLossError, match=f"topic {doomed} partition 0 does not exist any more"):
            strict.partitions(start, end)
        with pytest.warns(RuntimeWarning, match=f"topic {doomed} partition 1 does not exist any more"):
            found = values(relaxed, relaxed.partitions(start, end))
    assert [value for value in found if value < 100] == list(range(10))


def test_patterns_match_whole_names(cluster: Client, topic: str) -> None:
    create_topic(cluster, topic + "-more", partitions=1)
    write(cluster, topic, 3)
    given = {"kafka.bootstrap.servers": cluster.bootstrap_text, "subscribePattern": topic}  # type: ignore[attr-defined]
    reader = BatchReader(source_options(given, streaming=False))
    assert values(reader, reader.partitions()) == [0, 1, 2]
    delete_topic(cluster, topic + "-more")


def test_an_unknown_topic_is_named(cluster: Client) -> None:
    with pytest.raises(ClientError, match="nowhere"):
        BatchReader(batch_options(cluster, "nowhere")).partitions()


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 50)), min_size=1, max_size=6), st.integers(1, 200))
@example([(0, 1), (0, 1), (0, 2)], 2)
def test_limits_move_forward_and_take_what_they_may(spans: list[tuple[int, int]], limit: int) -> None:
    start = {("t", index): first for index, (first, _) in enumerate(spans)}
    end = {("t", index): first + lag for index, (first, lag) in enumerate(spans)}
    cut = limited(start, dict(end), limit)
    assert all(start[at] <= cut[at] <= end[at] for at in end)
    assert sum(cut[at] - start[at] for at in end) == min(limit, sum(end[at] - start[at] for at in end))


def test_a_limit_lets_no_partition_starve() -> None:
    end = {("t", 0): 1000, ("t", 1): 3, ("t", 2): 3}
    at = dict.fromkeys(end, 0)
    for turn in range(8):
        cut = limited(at, end, 4)
        assert all(cut[part] > at[part] for part in end if at[part] < end[part]), turn
        at = cut
    assert at == {("t", 0): 26, ("t", 1): 3, ("t", 2): 3}


def test_what_was_cut_back_takes_nothing_of_a_limit() -> None:
    assert limited({("t", 0): 50, ("t", 1): 0}, {("t", 0): 30, ("t", 1): 100}, 10) == {("t", 0): 30, ("t", 1): 10}


def test_tasks_are_picklable() -> None:
    task = RangesPartition([Range("t", 0, 1, 2)])
    assert pickle.loads(pickle.dumps(task)).ranges == task.ranges


def remake(client: Client, topic: str) -> None:
    delete_topic(client, topic)
    create_topic(client, topic, partitions=2)
    client.forget([topic])


@pytest.mark.parametrize("count", [10, 30])
def test_a_topic_made_again_is_another_one(cluster: Client, topic: str, count: int) -> None:
    """With more records it could be the old one by its offsets; with as many, nothing but its id is new."""
    write(cluster, topic, 10)
    strict = StreamReader(options(cluster, topic, startingOffsets="earliest"))
    relaxed = StreamReader(options(cluster, topic, startingOffsets="earliest", failOnDataLoss="false"))
    end = through_json(strict.latestOffset(strict.initialOffset(), ALL))
    relaxed.latestOffset(relaxed.initialOffset(), ALL)
    remake(cluster, topic)
    write(cluster, topic, count)
    strict._polled = relaxed._polled = -1.0
    strict._discovered = relaxed._discovered = -10.0
    with pytest.raises(DataLossError, match="was deleted and made again.*failOnDataLoss"):
        strict.latestOffset(end, ALL)
    with pytest.warns(RuntimeWarning, match="was deleted and made again"):
        after = through_json(relaxed.latestOffset(end, ALL))
    assert values(relaxed, relaxed.partitions(end, after)) == list(range(count))
    assert through_json(relaxed.latestOffset(after, ALL)) == after


def test_a_batch_planned_of_a_topic_made_again_is_not_read(cluster: Client, topic: str) -> None:
    write(cluster, topic, 10)
    first = StreamReader(options(cluster, topic, startingOffsets="earliest"))
    start = through_json(first.initialOffset())
    end = through_json(first.latestOffset(start, ALL))
    # the driver dies here
    remake(cluster, topic)
    write(cluster, topic, 30)
    with pytest.raises(DataLossError, match="was deleted and made again"):
        StreamReader(options(cluster, topic)).partitions(start, end)
    relaxed = StreamReader(options(cluster, topic, failOnDataLoss="false"))
    with pytest.warns(RuntimeWarning, match="was deleted and made again"):
        assert values(relaxed, relaxed.partitions(start, end)) == []
    with pytest.warns(RuntimeWarning, match="was deleted and made again"):
        after = through_json(relaxed.latestOffset(end, ALL))
    assert values(relaxed, relaxed.partitions(end, after)) == list(range(30))


def test_a_batch_waits_until_it_is_worth_while_or_has_waited_long(cluster: Client, topic: str) -> None:
    write(cluster, topic, 4)
    more = {"minOffsetsPerTrigger": "10", "maxTriggerDelay": "10m", "startingOffsets": "earliest"}
    reader = StreamReader(options(cluster, topic, **more))
    least = reader.getDefaultReadLimit()
    assert least == ReadMinRows(10)
    end = reader.latestOffset(reader.initialOffset(), least)
    assert end["topics"] == {topic: {"0": 2, "1": 2}}, "the first batch does not wait"
    write(cluster, topic, 8, 4)
    assert reader.latestOffset(end, least) is end
    write(cluster, topic, 2, 12)
    reader._polled = -1.0
    after = reader.latestOffset(end, least)
    assert after["topics"] == {topic: {"0": 7, "1": 7}}
    write(cluster, topic, 2, 14)
    reader._polled = -1.0
    reader._triggered -= 600
    assert reader.latestOffset(after, least)["topics"] == {topic: {"0": 8, "1": 8}}
    frozen = StreamReader(options(cluster, topic, **more))
    frozen._triggered = time.monotonic()
    frozen.prepareForTriggerAvailableNow()
    assert frozen.latestOffset(end, least)["topics"] == {topic: {"0": 8, "1": 8}}, "AvailableNow reads what there is"
    once = StreamReader(options(cluster, topic, **more))
    once._triggered = time.monotonic()
    assert once.latestOffset(end, ALL)["topics"] == {topic: {"0": 8, "1": 8}}, "and so does Once"


def test_a_log_that_was_cut_back_is_waited_for_by_nobody(cluster: Client, topic: str) -> None:
    """Else it may grow beyond the position meanwhile, and what was written below it is passed over."""
    write(cluster, topic, 8)
    more = {"minOffsetsPerTrigger": "10", "maxTriggerDelay": "10m", "startingOffsets": "earliest"}
    reader = StreamReader(options(cluster, topic, **more))
    end = through_json(reader.latestOffset(reader.initialOffset(), ALL))
    end["topics"][topic]["0"] = 7
    reader._triggered = time.monotonic()
    after = reader.latestOffset(end, reader.getDefaultReadLimit())
    with pytest.raises(DataLossError, match="partition 0 ends at offset 4, but the query has read up to 7"):
        reader.partitions(end, after)
