"""Every way in which data can be lost, under every trigger: an error, or with failOnDataLoss=false a warning and all
that is left. None is passed over in silence, with whatever limit.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from headrace.client.admin import add_partitions, create_topic, delete_records, delete_topic
from headrace.client.cluster import Client
from headrace.client.producer import Producer
from headrace.spark.options import source_options
from headrace.spark.planning import DataLossError
from headrace.spark.source import BatchReader, StreamReader

from .stand_in import TRIGGERS, batch_options, options, run_stream, through_json, values, write


@dataclass
class Loss:
    """What a query has before it begins, the words about what is lost, and what is left to be read."""

    said: str
    left: list[int]
    logged: dict[str, Any] | None = None
    options: dict[str, str] = field(default_factory=dict)
    subscribe: str = ""


def finished(cluster: Client, topic: str) -> dict[str, Any]:
    """The checkpoint of a query that has read all there is."""
    reader = StreamReader(options(cluster, topic, startingOffsets="earliest"))
    return run_stream(reader, "availableNow")[1]


def records_deleted(cluster: Client, topic: str) -> Loss:
    write(cluster, topic, 10)
    logged = finished(cluster, topic)
    write(cluster, topic, 10, 10)
    delete_records(cluster, {(topic, 0): 8})
    left = [11, 13, 15, 16, 17, 18, 19]
    return Loss(f"topic {topic} partition 0 begins at offset 8 now; offsets from 5 on are gone", left, logged)


def deleted(cluster: Client, topic: str) -> Loss:
    other = topic + "-other"
    create_topic(cluster, other, partitions=2)
    write(cluster, topic, 10)
    write(cluster, other, 2, 100)
    logged = finished(cluster, f"{topic},{other}")
    write(cluster, other, 2, 200)
    delete_topic(cluster, topic)
    said = f"topic {topic} (partition 0 )?does not exist any more"
    return Loss(said, [200, 201], logged, subscribe=f"{topic},{other}")


def made_again(cluster: Client, topic: str) -> Loss:
    write(cluster, topic, 10)
    logged = finished(cluster, topic)
    delete_topic(cluster, topic)
    create_topic(cluster, topic, partitions=2)
    cluster.forget([topic])
    write(cluster, topic, 30, 100)
    return Loss(f"topic {topic} was deleted and made again", list(range(100, 130)), logged)


def cut_back(cluster: Client, topic: str) -> Loss:
    """A broker that was restored from a backup, or a leader elected uncleanly: the id is the same."""
    write(cluster, topic, 10)
    logged = finished(cluster, topic)
    logged["topics"][topic]["0"] = 8
    write(cluster, topic, 2, 10)
    return Loss(f"topic {topic} partition 0 ends at offset 6, but the query has read up to 8", [11], logged)


def cut_back_alone(cluster: Client, topic: str) -> Loss:
    """With nothing new beside it."""
    write(cluster, topic, 10)
    logged = finished(cluster, topic)
    logged["topics"][topic]["1"] = 500
    return Loss(f"topic {topic} partition 1 ends at offset 5, but the query has read up to 500", [], logged)


def cut_back_with_limits(cluster: Client, topic: str) -> Loss:
    loss = cut_back(cluster, topic)
    loss.options = {"minOffsetsPerTrigger": "1000", "maxTriggerDelay": "1h"}
    return loss


def cut_back_with_a_limit_above(cluster: Client, topic: str) -> Loss:
    loss = cut_back(cluster, topic)
    loss.options = {"maxOffsetsPerTrigger": "1"}
    return loss


def began_above(cluster: Client, topic: str) -> Loss:
    """startingOffsets beyond the end."""
    write(cluster, topic, 10)
    said = f"topic {topic} partition 0 ends at offset 5, before offset 50, the first to read"
    return Loss(said, [7, 9], options={"startingOffsets": json.dumps({topic: {"0": 50, "1": 3}})})


def began_below(cluster: Client, topic: str) -> Loss:
    """startingOffsets before the beginning."""
    write(cluster, topic, 10)
    delete_records(cluster, {(topic, 0): 4})
    said = f"topic {topic} partition 0 begins at offset 4 now; offsets from 1 on are gone"
    return Loss(said, [7, 8, 9], options={"startingOffsets": json.dumps({topic: {"0": 1, "1": 3}})})


def new_without_its_beginning(cluster: Client, topic: str) -> Loss:
    write(cluster, topic, 10)
    logged = finished(cluster, topic)
    add_partitions(cluster, topic, 3)
    cluster.forget([topic])
    with Producer(cluster) as producer:
        for number in (20, 21, 22):
            producer.send(topic, b"%d" % number, partition=2)
    delete_records(cluster, {(topic, 2): 2})
    return Loss(f"topic {topic} partition 2 is new to the query and begins at offset 2, not 0", [22], logged)


def subscribed_no_more(cluster: Client, topic: str) -> Loss:
    other = topic + "-left"
    create_topic(cluster, other, partitions=2)
    write(cluster, topic, 4)
    write(cluster, other, 4, 100)
    logged = finished(cluster, f"{topic},{other}")
    write(cluster, topic, 2, 10)
    return Loss(f"topic {other} partition 0 is not in the subscription any more", [10, 11], logged)


def ended_above(cluster: Client, topic: str) -> Loss:
    """endingOffsets beyond the end: of a batch alone."""
    write(cluster, topic, 4)
    said = f"topic {topic} partition 1 ends at offset 2, before offset 9"
    return Loss(said, [0, 1, 2, 3], options={"endingOffsets": json.dumps({topic: {"0": 2, "1": 9}})})


STREAM_LOSSES: list[Callable[[Client, str], Loss]] = [
    records_deleted,
    deleted,
    made_again,
    cut_back,
    cut_back_alone,
    cut_back_with_limits,
    cut_back_with_a_limit_above,
    began_above,
    began_below,
    new_without_its_beginning,
    subscribed_no_more,
]
BATCH_LOSSES = [began_above, began_below, ended_above]


@pytest.mark.slow
@pytest.mark.parametrize("trigger", TRIGGERS)
@pytest.mark.parametrize("lose", STREAM_LOSSES, ids=lambda lose: lose.__name__)
def test_a_stream_says_what_is_lost(
    cluster: Client, topic: str, lose: Callable[[Client, str], Loss], trigger: str
) -> None:
    loss = lose(cluster, topic)

    def reader(fail: str) -> StreamReader:
        more = {"startingOffsets": "earliest", **loss.options, "failOnDataLoss": fail}
        return StreamReader(options(cluster, loss.subscribe or topic, **more))

    for _ in range(2):
        with pytest.raises(DataLossError, match=f"{loss.said}.*failOnDataLoss"):
            run_stream(reader("true"), trigger, loss.logged)
    relaxed = reader("false")
    with pytest.warns(RuntimeWarning, match=loss.said):
        found, last = run_stream(relaxed, trigger, loss.logged)
    assert found == loss.left
    assert run_stream(reader("false"), trigger, last) == ([], last), "said once, and on it goes"


@pytest.mark.parametrize("lose", BATCH_LOSSES, ids=lambda lose: lose.__name__)
def test_a_batch_says_what_is_lost(cluster: Client, topic: str, lose: Callable[[Client, str], Loss]) -> None:
    loss = lose(cluster, topic)
    strict = BatchReader(batch_options(cluster, topic, **loss.options))
    with pytest.raises(DataLossError, match=f"{loss.said}.*failOnDataLoss"):
        strict.partitions()
    relaxed = BatchReader(batch_options(cluster, topic, **loss.options, failOnDataLoss="false"))
    with pytest.warns(RuntimeWarning, match=loss.said):
        assert values(relaxed, relaxed.partitions()) == loss.left


@pytest.mark.parametrize("trigger", TRIGGERS)
def test_what_was_planned_over_a_loss_stays_an_error_when_the_log_has_grown(
    cluster: Client, topic: str, trigger: str
) -> None:
    """Spark logs an end before it plans the batch: the query that was told of a loss is told again, though the log is
    longer by then than it ever was, and what was written below the checkpoint would be passed over."""
    loss = cut_back(cluster, topic)
    assert loss.logged is not None
    strict = StreamReader(options(cluster, topic, startingOffsets="earliest"))
    if trigger == "availableNow":
        strict.prepareForTriggerAvailableNow()
    logged_end = through_json(strict.latestOffset(loss.logged, strict.getDefaultReadLimit()))
    write(cluster, topic, 40, 12)
    again = StreamReader(options(cluster, topic, startingOffsets="earliest"))
    with pytest.raises(DataLossError, match=loss.said):
        again.partitions(loss.logged, logged_end)
    relaxed = StreamReader(options(cluster, topic, startingOffsets="earliest", failOnDataLoss="false"))
    with pytest.warns(RuntimeWarning, match=loss.said):
        found = values(relaxed, relaxed.partitions(loss.logged, logged_end))
    found += run_stream(relaxed, trigger, logged_end)[0]
    assert sorted(found) == list(range(11, 52)), "all that was written since, below the checkpoint too"


@pytest.mark.parametrize("trigger", TRIGGERS)
def test_latest_that_has_moved_since_available_now_began_is_no_loss(cluster: Client, topic: str, trigger: str) -> None:
    write(cluster, topic, 10)
    reader = StreamReader(options(cluster, topic))
    if trigger == "availableNow":
        reader.prepareForTriggerAvailableNow()
        write(cluster, topic, 10, 10)
        reader.prepareForTriggerAvailableNow = lambda: None  # type: ignore[method-assign]
    assert run_stream(reader, trigger)[0] == []


@pytest.mark.parametrize("trigger", TRIGGERS)
def test_a_transaction_that_is_open_is_no_loss(cluster: Client, topic: str, trigger: str) -> None:
    """What was read uncommitted may lie above the last stable offset, where a read of what is committed ends."""
    write(cluster, topic, 10)
    logged = finished(cluster, topic)
    reader = StreamReader(options(cluster, topic, **{"kafka.isolation.level": "read_committed"}))
    stable = reader._ends_now
    reader._ends_now = lambda: {**stable(), (topic, 1): 3}  # type: ignore[method-assign]
    assert run_stream(reader, trigger, logged) == ([], logged)


def test_a_pattern_that_fits_no_topic_any_more(cluster: Client, topic: str) -> None:
    write(cluster, topic, 4)
    logged = finished(cluster, topic)
    given = {"kafka.bootstrap.servers": cluster.bootstrap_text, "subscribePattern": "other-.*"}  # type: ignore[attr-defined]
    for trigger in TRIGGERS:
        reader = StreamReader(source_options(given, streaming=True))
        with pytest.raises(DataLossError, match="is not in the subscription any more"):
            run_stream(reader, trigger, logged)
