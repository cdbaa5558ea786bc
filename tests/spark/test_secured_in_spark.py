"""Spark against a broker that wants TLS and a login: batch and stream, and what plans and errors show."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from peers.secured import ROOT_PASSWORD, Secured, secured_broker
from pyspark.errors import PySparkException

from headrace.client.admin import create_topic
from headrace.client.cluster import Client
from headrace.spark import write_stream

pytestmark = [pytest.mark.jvm, pytest.mark.slow]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_broker(tmp_path_factory.mktemp("secured")) as made:
        with Client(made.bootstrap(), security=made.root()) as client:
            for name in ("in", "out"):
                create_topic(client, name, partitions=2)
        yield made


@pytest.fixture
def options(secured: Secured) -> dict[str, str]:
    said = {f"kafka.{name}": text for name, text in secured.root().items()}
    return {"kafka.bootstrap.servers": secured.bootstrap(), **said}


def test_batch_and_stream_go_over_tls_and_plans_show_no_password(
    spark: Any, options: dict[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rows = spark.range(100).selectExpr("cast(id as string) as value")
    rows.write.format("headrace").options(**options, topic="in").mode("append").save()
    read = spark.read.format("headrace").options(**options, subscribe="in").load()
    assert read.count() == 100
    stream = spark.readStream.format("headrace").options(**options, subscribe="in", startingOffsets="earliest").load()
    writer = write_stream(stream.select("value"), {**options, "topic": "out"})
    query = writer.option("checkpointLocation", str(tmp_path / "state")).trigger(availableNow=True).start()
    query.awaitTermination()
    assert spark.read.format("headrace").options(**options, subscribe="out").load().count() == 100
    read.explain("extended")
    query.explain(True)
    shown = [read._jdf.queryExecution().toString(), str(query.lastProgress), *capfd.readouterr()]
    kept = "".join(path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file())
    assert not [text for text in (*shown, kept) if ROOT_PASSWORD in text]


def test_what_is_wrong_is_said_by_load_and_without_secrets(spark: Any, options: dict[str, str]) -> None:
    for changed, words in (
        ({"kafka.ssl.truststore.location": "/nowhere/ca.pem"}, "/nowhere/ca.pem: No such file"),
        ({"kafka.sasl.mechanism": "OTHER"}, "the mechanism OTHER is not served"),
        ({"kafka.sasl.jaas.config": f"broken {ROOT_PASSWORD}"}, "'kafka.sasl.jaas.config' is wrong"),
    ):
        with pytest.raises(PySparkException, match=words) as said:
            spark.read.format("headrace").options(**{**options, **changed}, subscribe="in").load()
        assert ROOT_PASSWORD not in str(said.value)


def test_a_failed_login_ends_a_read_with_our_line(spark: Any, secured: Secured, options: dict[str, str]) -> None:
    wrong = secured.properties("root", "hunter2", "PLAIN")["sasl.jaas.config"]
    read = spark.read.format("headrace").options(**{**options, "kafka.sasl.jaas.config": wrong}, subscribe="in").load()
    with pytest.raises(PySparkException, match="refuses the login") as said:
        read.count()
    assert "hunter2" not in str(said.value)
