"""What a user of a real Spark is told about options and schemas that are wrong: when, and in which words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from headrace.client.admin import create_topic
from headrace.client.producer import Producer

pytestmark = [pytest.mark.jvm, pytest.mark.slow]


@pytest.fixture(scope="module")
def given(broker: Any) -> dict[str, str]:
    """Options that are right, of a topic with ten JSON values."""
    with broker.client() as client:
        create_topic(client, "t", partitions=2)
        with Producer(client) as producer:
            for number in range(10):
                producer.send("t", b'{"id":%d}' % number, partition=number % 2)
    return {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "t"}


def said_by_load(reader: Any, options: dict[str, str]) -> str:
    with pytest.raises(PySparkException) as caught:
        reader.format("headrace").options(**options).load()
    return str(caught.value)


@pytest.mark.parametrize("kind", ["read", "readStream"])
def test_load_names_what_is_wrong(spark: Any, given: dict[str, str], kind: str) -> None:
    for options, sentence in (
        ({"endingOffsets": "earliest"}, "The option 'endingOffsets' must be 'latest' or offsets as JSON, not"),
        ({"endingOffsets": "latest", "failOnDataLoss": "x"}, "'failOnDataLoss' must be true or false, not 'x'."),
        ({"startingOffset": "latest"}, "no option 'startingOffset'; did you mean 'startingOffsets'?"),
        ({"kafka.bootstrap.servers": "localhost"}, "'localhost' has no port; a broker is HOST:PORT, such as"),
        ({"startingOffsets": "latest", "endingOffsets": "latest"}, "neither a batch read"),
        ({"startingOffsets": "latest", "valueFormat": "json"}, "a stream of JSON values needs the option"),
    ):
        assert sentence in said_by_load(getattr(spark, kind), {**given, **options})


@pytest.mark.parametrize("trigger", [{"processingTime": "0 seconds"}, {"availableNow": True}])
@pytest.mark.parametrize(
    ("options", "schema", "sentence"),
    [
        ({"endingOffsets": "latest"}, None, "The option 'endingOffsets' is for batch reads; a stream has no end."),
        ({"valueFormat": "json"}, None, "A stream of JSON values needs the option 'valueSchema', such as"),
        ({}, "key STRING", "The headrace source has a schema of its own: leave .schema(...) out"),
    ],
)
def test_what_a_stream_may_not_say_ends_it_with_our_sentence_alone(
    spark: Any,
    given: dict[str, str],
    options: dict[str, str],
    schema: str | None,
    sentence: str,
    trigger: dict[str, Any],
    tmp_path: Path,
) -> None:
    reader = spark.readStream.format("headrace").options(**given, **options)
    rows = (reader if schema is None else reader.schema(schema)).load()
    query = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).trigger(**trigger).start()
    with pytest.raises(PySparkException) as caught:
        query.awaitTermination()
    said = str(caught.value)
    assert f"ValueError: {sentence}" in said
    assert "UnboundLocalError" not in said and "another exception" not in said


def test_a_schema_of_somebody_else_is_refused_before_a_task_runs(spark: Any, given: dict[str, str]) -> None:
    reader = spark.read.format("headrace").options(**given)
    with pytest.raises(PySparkException, match="ValueError: The headrace source has a schema of its own"):
        reader.schema("key STRING").load().count()
    typed = {
        "valueFormat": "json",
        "valueSchema": "id BIGINT, at TIMESTAMP, on DATE, wall TIMESTAMP_NTZ, d DECIMAL(10,2), "
        "m MAP<STRING, ARRAY<INT>>, b BINARY, s STRUCT<a: TINYINT, b: FLOAT, `c d`: STRING>",
        "includeHeaders": "true",
        "eventTime": "at",
    }
    own = spark.read.format("headrace").options(**given, **typed).load()
    again = spark.read.format("headrace").options(**given, **typed).schema(own.schema).load()
    assert sorted(row.value.id for row in again.collect()) == list(range(10)), "its own may be said"


def test_a_job_is_ported_by_one_word(spark: Any, given: dict[str, str], tmp_path: Path) -> None:
    """With the options that tune the connector and its clients, which are warned about."""
    tuned = {
        "kafkaConsumer.pollTimeoutMs": "60000",
        "fetchOffset.numRetries": "5",
        "kafka.max.poll.records": "2000",
        "kafka.linger.ms": "5",
        "minOffsetsPerTrigger": "2",
    }
    rows = spark.readStream.format("headrace").options(**given, **tuned, startingOffsets="earliest").load()
    for trigger in ({"availableNow": True}, {"once": True}, {"processingTime": "0 seconds"}):
        where = str(tmp_path / next(iter(trigger)))
        query = rows.writeStream.format("noop").option("checkpointLocation", where).trigger(**trigger).start()
        try:
            if "processingTime" in trigger:
                query.processAllAvailable()
            else:
                query.awaitTermination()
            assert sum(each["numInputRows"] for each in query.recentProgress) == 10
        finally:
            query.stop()
    sink = {"kafka.bootstrap.servers": given["kafka.bootstrap.servers"], "topic": "t", "kafka.group.id": "g"}
    sink |= {"kafkaConsumer.pollTimeoutMs": "60000", "kafka.linger.ms": "5"}
    nothing = spark.read.format("headrace").options(**given).load().select("key", "value").where("false")
    nothing.write.format("headrace").options(**sink).mode("append").save()
