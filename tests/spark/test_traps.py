"""What PySpark's data source API makes easy to get wrong, and is not checked beside the code that it concerns."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from headrace.client.admin import create_topic
from headrace.client.cluster import Client
from headrace.client.producer import Producer
from headrace.spark.options import source_options
from headrace.spark.rows import row_schema

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

ROWS = 40
PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(scope="module")
def options(broker: Any) -> dict[str, str]:
    """Options that read a topic of two partitions; some keys, values and headers are null."""
    with Client(broker.bootstrap) as client:
        create_topic(client, "trapped", partitions=2)
        create_topic(client, "void", partitions=1)
        with Producer(client) as producer:
            for number in range(ROWS):
                key = b"%d" % number if number % 3 else None
                value = b'{"id": %d}' % number if number % 5 else None
                headers = [("n", None)] if number % 2 else []
                producer.send("trapped", value, key=key, headers=headers, partition=number % 2)
    return {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "trapped"}


def settings(spark: Any) -> dict[str, Any]:
    """All that a session and its context are set to."""
    said = {row["key"]: row["value"] for row in spark.sql("SET -v").collect()}
    return {"context": dict(spark.sparkContext.getConf().getAll()), "session": dict(spark.conf.getAll), "said": said}


def test_register_changes_no_setting(spark: Any, options: dict[str, str]) -> None:
    import headrace.spark

    before = settings(spark)
    headrace.spark.register(spark)
    assert spark.read.format("headrace").options(**options).load().count() == ROWS
    assert settings(spark) == before
    assert spark.conf.get(PUSH_DOWN) == "false"


@pytest.mark.parametrize("push_down", ["false", "true"])
def test_a_filter_takes_nothing_from_a_frame_that_is_used_again(
    spark: Any, options: dict[str, str], push_down: str
) -> None:
    """Spark 4.3 remembers the filters that a reader has taken: this one takes none."""
    spark.conf.set(PUSH_DOWN, push_down)
    try:
        frame = spark.read.format("headrace").options(**options).load()
        assert frame.where("partition = 1 and offset < 5").count() == 5
        assert frame.count() == ROWS
        assert frame.where("partition = 0").count() == ROWS // 2
        assert frame.where("partition = 1 and offset < 5").union(frame).count() == ROWS + 5
    finally:
        spark.conf.unset(PUSH_DOWN)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"includeHeaders": "true"},
        {"columns": "offset"},
        {"columns": "timestamp,key,headers", "includeHeaders": "true"},
        {"valueFormat": "string", "eventTime": "timestamp"},
        {"valueFormat": "json", "valueSchema": "id BIGINT, at TIMESTAMP, more ARRAY<STRUCT<a: STRING>>"},
        {"valueFormat": "json", "valueSchema": "id BIGINT", "eventTime": "id", "columns": "event_time,value"},
    ],
    ids=str,
)
@pytest.mark.parametrize("topic", ["trapped", "void"])
def test_rows_have_the_schema_that_was_declared_exactly(
    spark: Any, options: dict[str, str], topic: str, more: dict[str, str]
) -> None:
    """Spark takes Arrow batches as they come: one of another type is an error, or another value."""
    chosen = {**options, **more, "subscribe": topic}
    frame = spark.read.format("headrace").options(**chosen).load()
    declared = row_schema(source_options(chosen, streaming=False).row)
    # where columns have no nulls Arrow's fields may say so, and Spark's may not
    assert to_arrow_schema(frame.schema, timezone="UTC").equals(declared)
    assert frame.toArrow().num_rows == (ROWS if topic == "trapped" else 0)
