"""`headrace.scan` against a real broker."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

import headrace
import headrace.testing
from headrace.arrow.decode import COLUMN_NAMES, schema_of
from headrace.client.admin import create_topic
from headrace.client.cluster import Client
from headrace.client.errors import ClientError
from headrace.client.producer import Producer
from headrace.wire.records import Compression


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with headrace.testing.broker() as broker, Client(broker.bootstrap) as client:
        create_topic(client, "full", partitions=2)
        create_topic(client, "empty", partitions=2)
        for codec in Compression:
            with Producer(client, compression=codec) as producer:
                for number in range(20):
                    at = codec * 20 + number
                    producer.send("full", b"%d" % at, key=b"k", partition=at % 2, timestamp_ms=1000 * at)
        yield broker.bootstrap


def offsets(bootstrap: str, **more: object) -> list[tuple[int, int]]:
    table = headrace.scan("full", bootstrap=bootstrap, columns=["offset", "partition"], **more)  # type: ignore[arg-type]
    assert table.schema.names == ["partition", "offset"]
    return list(zip(table["partition"].to_pylist(), table["offset"].to_pylist()))


def test_everything(bootstrap: str) -> None:
    table = headrace.scan("full", bootstrap=bootstrap)
    assert table.schema.equals(schema_of(COLUMN_NAMES)) and table.num_rows == 100
    assert [int(value) for value in table["value"].to_pylist()] == [*range(0, 100, 2), *range(1, 100, 2)]
    assert table["offset"].to_pylist() == [*range(50), *range(50)]
    assert list(table.to_pandas()["topic"].unique()) == ["full"]


def test_an_empty_topic_is_an_empty_table(bootstrap: str) -> None:
    table = headrace.scan("empty", bootstrap=bootstrap)
    assert table.num_rows == 0 and table.schema.equals(schema_of(COLUMN_NAMES))


def test_places(bootstrap: str) -> None:
    assert offsets(bootstrap, start=48) == [(0, 48), (0, 49), (1, 48), (1, 49)]
    assert offsets(bootstrap, end={0: 1, 1: 2}, start="earliest") == [(0, 0), (1, 0), (1, 1)]
    assert offsets(bootstrap, start="latest") == []
    assert offsets(bootstrap, start={1: 49}, partitions=[1], end=10**6) == [(1, 49)]
    assert offsets(bootstrap, start=datetime.fromtimestamp(97, UTC)) == [(0, 49), (1, 48), (1, 49)]
    assert offsets(bootstrap, start=datetime.fromtimestamp(1000, UTC)) == []


def test_a_start_after_the_end_is_refused(bootstrap: str) -> None:
    for start, end in ((5, 2), ("latest", 2), (5, "earliest"), ({0: 0, 1: 5}, {0: 5, 1: 2})):
        with pytest.raises(ValueError, match="starts at offset .*, after its end at offset [02]$"):
            offsets(bootstrap, start=start, end=end)
    assert offsets(bootstrap, start=5, end=5) == []
    assert offsets(bootstrap, start=5, end={1: 6}) == [(1, 5)]


def test_wrong_arguments_are_said_in_one_line(bootstrap: str) -> None:
    with pytest.raises(ValueError, match="'first' is not a place in a topic"):
        headrace.scan("full", bootstrap=bootstrap, start="first")
    with pytest.raises(ValueError, match="there is no column 'values'"):
        headrace.scan("full", bootstrap=bootstrap, columns=["values"])
    with pytest.raises(ValueError, match="has no partition 9"):
        headrace.scan("full", bootstrap=bootstrap, partitions=[0, 9])
    with pytest.raises(ClientError, match="nowhere"):
        headrace.scan("nowhere", bootstrap=bootstrap)


def test_without_pyarrow_it_names_the_extra() -> None:
    code = """
import sys
sys.modules["pyarrow"] = None
import headrace
try:
    headrace.scan("orders")
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "headrace.scan needs pyarrow: pip install 'headrace[arrow]'\n"
