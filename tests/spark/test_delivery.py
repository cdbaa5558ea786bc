"""The sink's options about delivery, and what contradicts them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.spark import write_updates
from headrace.spark.delivery import ExactlyOnce
from headrace.spark.exactly_once import NO_BATCH, task_names, told
from headrace.spark.options import sink_options
from headrace.spark.sink import BatchWriter

BROKERS = {"kafka.bootstrap.servers": "h:1"}
ONCE = {**BROKERS, "delivery": "exactly-once", "topic": "t"}


def test_at_least_once_is_what_holds_where_nothing_is_said() -> None:
    assert sink_options(BROKERS).exactly_once is None
    assert sink_options({**BROKERS, "delivery": "At-Least-Once", "markerTopic": "m"}).exactly_once is None


def test_what_is_said() -> None:
    assert sink_options(ONCE).exactly_once == ExactlyOnce(256 << 20, "t", False, "")
    more = {"exactlyoncemaxbytes": "1000", "markertopic": "m", "markermissing": "Trust", "checkpointlocation": "/c"}
    assert sink_options(ONCE | more).exactly_once == ExactlyOnce(1000, "m", True, "/c")
    named_by_rows = {**BROKERS, "delivery": "exactly-once", "markerTopic": "m"}
    assert sink_options(named_by_rows).exactly_once == ExactlyOnce(marker_topic="m")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {**BROKERS, "delivery": "once"},
            "'delivery' must be at-least-once, exactly-once or exactly-once-per-task, not 'once'",
        ),
        (ONCE | {"kafka.acks": "1"}, "needs the option 'kafka.acks' to be all, not '1'"),
        (ONCE | {"kafka.enable.idempotence": "false"}, "needs 'kafka.enable.idempotence'"),
        (ONCE | {"kafka.transactional.id": "x"}, "leave 'kafka.transactional.id' out"),
        ({**BROKERS, "delivery": "exactly-once"}, "give the option 'markerTopic'"),
        (ONCE | {"exactlyOnceMaxBytes": "0"}, "'exactlyOnceMaxBytes' must be a positive whole number, not '0'"),
        (ONCE | {"exactlyOnceMaxBytes": "1g"}, "not '1g'"),
        (ONCE | {"markerMissing": "ignore"}, "'markerMissing' must be fail or trust, not 'ignore'"),
    ],
)
def test_complaints(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence) as said:
        sink_options(options)
    assert str(said.value).endswith(".") and "\n" not in str(said.value)


def writing(given: list[dict[str, str]]) -> Any:
    """What stands for a batch's rows: it takes note of the options that they are written with."""

    def taken(**options: str) -> Any:
        given.append(options)
        return SimpleNamespace(mode=lambda _: SimpleNamespace(save=lambda: None))

    return SimpleNamespace(write=SimpleNamespace(format=lambda _: SimpleNamespace(options=taken)))


def test_the_sink_of_update_mode_says_which_batch_it_writes() -> None:
    """Without Spark: what a batch is written with."""
    given: list[dict[str, str]] = []
    rows = writing(given)
    write_updates(ONCE)(rows, 7)
    write_updates({**BROKERS, "topic": "t"})(rows, 8)
    once = sink_options(given[0]).exactly_once
    assert once is not None and once.of_batch == 7
    assert given[1] == {**BROKERS, "topic": "t"}
    with pytest.raises(ValueError, match="markerTopic"):
        write_updates({**BROKERS, "delivery": "exactly-once"})


def test_over_connect_it_says_of_which_query_the_batch_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark tells the tasks nothing there: the query's checkpoint does."""
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    given: list[dict[str, str]] = []
    rows = writing(given)
    options = {**ONCE, "checkpointLocation": f"file://{tmp_path}"}
    write, again = write_updates(options), write_updates(options)
    with pytest.raises(ValueError, match=r"needs the option 'checkpointLocation'.*has no query\.$"):
        write(rows, 0)
    (tmp_path / "metadata").write_text('{"id": "some-query"}')
    for number in (3, 4):
        write(rows, number)
    again(rows, 5)
    said = [sink_options(each).exactly_once for each in given]
    assert [(each.of_query[0], each.of_batch) for each in said if each and each.of_query] == [
        ("some-query", 3), ("some-query", 4), ("some-query", 5),
    ]  # fmt: skip
    runs = [each.of_query[1] for each in said if each and each.of_query]
    assert runs[0] == runs[1] != runs[2] and all(runs)
    writers = [BatchWriter(sink_options(each)) for each in given]
    assert writers[0].options == writers[2].options, "all batches of a query have one producer"
    with pytest.raises(ValueError, match="needs the option 'checkpointLocation'"):
        write_updates(ONCE)
    write_updates({**BROKERS, "topic": "t"})(rows, 8)
    assert given[-1] == {**BROKERS, "topic": "t"}


def test_a_task_is_of_what_it_was_told_to_be() -> None:
    assert task_names() == ("", "", NO_BATCH)
    with told(("query", "run", 7)):
        assert task_names() == ("query", "run", 7)
    assert task_names() == ("", "", NO_BATCH)
