"""The sink for `foreachBatch`, without Spark: which batch, and which write of it, a batch write is said to be."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import cloudpickle

from headrace.spark import updates, write_updates
from headrace.spark.delivery_options import OfBatch
from headrace.spark.options import sink_options

BROKERS = {"kafka.bootstrap.servers": "h:1"}
ONCE = {**BROKERS, "delivery": "exactly-once", "topic": "t", "checkpointLocation": "/nowhere"}


class Stream:
    """What stands for the rows of a query's batches: it takes note of what they are written with."""

    def __init__(self, run_id: str = "run", query_id: str | None = "query") -> None:
        self.given: list[dict[str, str]] = []
        told = {"sql.streaming.queryId": query_id, "spark.jobGroup.id": run_id}
        self.sparkSession = SimpleNamespace(sparkContext=SimpleNamespace(getLocalProperty=told.get))
        self.write = SimpleNamespace(format=lambda _: SimpleNamespace(options=self._taken))
        self.fails = False

    def _taken(self, **options: str) -> Any:
        if self.fails:
            raise OSError("the job has failed")
        self.given.append(options)
        return SimpleNamespace(mode=lambda _: SimpleNamespace(save=lambda: None))

    @property
    def said(self) -> list[OfBatch]:
        found = (sink_options(each).exactly_once for each in self.given)
        return [each.of_batch for each in found if each is not None and each.of_batch is not None]


@pytest.fixture(autouse=True)
def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(updates, "COUNTS", updates.Counts())


def test_at_least_once_nothing_is_said() -> None:
    rows: Any = Stream()
    write_updates({**BROKERS, "topic": "t"})(rows, 8)
    assert rows.given == [{**BROKERS, "topic": "t"}]
    with pytest.raises(ValueError, match="markerTopic"):
        write_updates({**BROKERS, "delivery": "exactly-once"})


def test_the_writes_of_all_sinks_of_a_query_are_counted_together() -> None:
    rows: Any = Stream()
    good, bad = write_updates(ONCE), write_updates({**ONCE, "topic": "u"})
    for batch_id in (3, 4):
        good(rows, batch_id)
        bad(rows, batch_id)
        good(rows, batch_id)
    bad(rows, 5)
    assert rows.said == [
        *(OfBatch(3, number) for number in range(3)),
        *(OfBatch(4, number, (3, 3)) for number in range(3)),
        OfBatch(5, 0, (4, 3)),
    ]


def test_another_query_and_another_run_have_a_count_of_their_own() -> None:
    """A query that starts again in the same process repeats its batch from the first write on."""
    write = write_updates(ONCE)
    first: Any = Stream("run 1")
    for _ in range(2):
        write(first, 3)
    other: Any = Stream("run 1", "another query")
    write(other, 3)
    again: Any = Stream("run 2")
    for _ in range(2):
        write(again, 3)
    assert [each.write for each in first.said] == [0, 1]
    assert other.said == [OfBatch(3)] and again.said == [OfBatch(3, 0), OfBatch(3, 1)]


def test_a_write_that_failed_can_only_be_done_again() -> None:
    """It may be there, and other rows would be taken for it."""
    write = write_updates(ONCE)
    rows: Any = Stream()
    other: Any = Stream()
    write(rows, 3)
    rows.fails = True
    with pytest.raises(OSError, match="the job has failed"):
        write(rows, 3)
    with pytest.raises(ValueError, match=r"^Write 2 of batch 3 has failed.*let the query end"):
        write(other, 3)
    rows.fails = False
    write(rows, 3)
    write(other, 3)
    assert [each.write for each in rows.said] == [0, 1] and other.said == [OfBatch(3, 2)]


def test_what_is_no_batch_of_a_stream_is_refused() -> None:
    rows: Any = Stream(query_id=None)
    with pytest.raises(ValueError, match="writes batches of a stream: give it to foreachBatch"):
        write_updates(ONCE)(rows, 3)


def test_over_connect_it_says_of_which_query_the_batch_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark tells the tasks nothing there: the query's checkpoint does. The functions are sent to the server."""
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    rows: Any = Stream()
    options = {**ONCE, "checkpointLocation": f"file://{tmp_path}"}
    with pytest.raises(ValueError, match=r"needs the option 'checkpointLocation'.*has no query\.$"):
        write_updates(options)(rows, 0)
    (tmp_path / "metadata").write_text('{"id": "some-query"}')
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "3").write_text("v1\n{}\n17")
    good, bad = write_updates(options), write_updates({**options, "topic": "u"})
    runs = []
    dumps: Any = cloudpickle.dumps
    for _ in range(2):  # each run of the query unpickles them once
        sent = cloudpickle.loads(dumps(lambda rows, batch_id: [w(rows, batch_id) for w in (good, bad)]))
        rows.given.clear()
        for batch_id in (3, 4):
            sent(rows, batch_id)
        said = rows.said
        assert [(each.batch_id, each.write, each.before) for each in said] == [
            (3, 0, None), (3, 1, None), (4, 0, (3, 2)), (4, 1, (3, 2)),
        ]  # fmt: skip
        assert said[0].offsets == said[1].offsets != "" and said[2].offsets == ""
        (query,) = {each.query for each in said}
        assert query is not None and query[0] == "some-query"
        runs.append(query[1])
    assert runs[0] != runs[1] and all(runs)
    without = {key: value for key, value in ONCE.items() if key != "checkpointLocation"}
    with pytest.raises(ValueError, match="needs the option 'checkpointLocation'"):
        write_updates(without)


def test_a_sink_says_where_it_writes_and_how() -> None:
    assert repr(write_updates({**BROKERS, "topic": "t"})) == "<sink for foreachBatch: topic t, at least once>"
    assert repr(write_updates(BROKERS)) == "<sink for foreachBatch: the topics of its rows, at least once>"
    assert repr(write_updates(ONCE)) == "<sink for foreachBatch: topic t, exactly once>"
