"""Tables of Parquet files: buckets rewritten, manifests swapped, files that go when their time has come."""

from __future__ import annotations

import json
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from headrace_pipelines.tables import read_table
from headrace_pipelines.tables.following import TableError, Topic
from headrace_pipelines.tables.layout import Layout, layout_of
from headrace_pipelines.tables.parquet import FILES, MANIFEST, ParquetTable
from headrace_pipelines.tables.places import ParquetPlace

from .batches import PRICES, Change, batch

TOPIC = Topic("prices", "0a" * 16)
BUCKETS = 4


def opened(directory: Path, layout: Layout = PRICES, **options: Any) -> ParquetTable:
    table = ParquetTable(ParquetPlace(directory), layout, **{"buckets": BUCKETS, **options})
    table.open(TOPIC, "run")
    return table


def apply(table: ParquetTable, *changes: Change, layout: Layout = PRICES) -> None:
    table.apply(batch(*changes, layout=layout, buckets=table.buckets, nested_as_json=False))


def rows(directory: Path) -> dict[int, tuple[Any, ...]]:
    found = read_table(directory).to_pylist()
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: (row["name"], row["price"]) for row in found}


def files(directory: Path) -> dict[int, str]:
    said = json.loads((directory / MANIFEST).read_text())["files"]
    return {int(bucket): path for bucket, path in said.items()}


def test_upserts_deletes_and_what_comes_again(tmp_path: Path) -> None:
    table = opened(tmp_path)
    assert (read_table(tmp_path).num_rows, read_table(tmp_path).column_names) == (0, ["id", "name", "price"])
    first = [(0, n, n, (f"n{n}", float(n))) for n in range(40)]
    second: list[Change] = [(0, 40, 3, ("new", 0.0)), (0, 41, 5, None), (1, 0, 99, ("other", None)), (0, 42, 77, None)]
    apply(table, *first)
    assert rows(tmp_path) == {n: (f"n{n}", float(n)) for n in range(40)}
    apply(table, *second)
    done = rows(tmp_path)
    assert done == {n: (f"n{n}", float(n)) for n in range(40) if n != 5} | {3: ("new", 0.0), 99: ("other", None)}
    manifest = (tmp_path / MANIFEST).read_bytes()
    apply(table, *first)
    apply(table, *second)
    apply(table)
    assert (tmp_path / MANIFEST).read_bytes() == manifest
    table.close()
    again = opened(tmp_path)
    apply(again, *first, *second)
    assert rows(tmp_path) == done
    assert read_table(str(tmp_path), ["price"]).column_names == ["price"]


def test_only_the_buckets_of_a_batch_are_rewritten(tmp_path: Path) -> None:
    table = opened(tmp_path)
    apply(table, *((0, n, n, ("x", 1.0)) for n in range(40)))
    before = files(tmp_path)
    assert len(before) == BUCKETS
    apply(table, (0, 40, 7, ("y", 1.0)))
    after = files(tmp_path)
    assert len({bucket for bucket in before if before[bucket] != after[bucket]}) == 1
    apply(table, *((0, 41 + n, n, None) for n in range(40)))
    assert files(tmp_path) == {}
    assert rows(tmp_path) == {}


def test_random_batches_are_what_a_dict_is(tmp_path: Path) -> None:
    wanted: dict[int, tuple[Any, ...]] = {}
    table, seed = opened(tmp_path), random.Random(7)
    offset = 0
    replay: list[Change] = []
    for _ in range(30):
        changes: list[Change] = []
        for _ in range(seed.randrange(20)):
            key, value = seed.randrange(25), None if seed.random() < 0.3 else (f"v{offset}", seed.random())
            changes.append((key % 2, offset, key, value))
            offset += 1
            wanted.pop(key, None) if value is None else wanted.update({key: value})
        apply(table, *seed.choice([replay, []]), *changes)
        replay = changes
        assert rows(tmp_path) == wanted


def test_nested_values_stay_as_they_are(tmp_path: Path) -> None:
    layout = layout_of("id BIGINT", "tags ARRAY<STRING>, at TIMESTAMP, shop STRUCT<name: STRING, no: INT>")
    table = opened(tmp_path, layout)
    for offset in range(3):
        apply(table, (0, offset, offset % 2, (["a", None], None, {"name": "x", "no": offset})), layout=layout)
    found = read_table(tmp_path).sort_by("id").to_pylist()
    assert [row["shop"] for row in found] == [{"name": "x", "no": 2}, {"name": "x", "no": 1}]
    assert found[0]["tags"] == ["a", None] and found[0]["at"] is None


def test_replaced_files_stay_for_a_while_and_strays_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    table = opened(tmp_path, grace_s=60.0)

    def there() -> int:
        return len(list((tmp_path / FILES).iterdir()))

    for offset in range(3):
        apply(table, (0, offset, 1, ("x", 1.0)))
        now[0] += 30.0
    assert there() == 3
    apply(table, (0, 3, 1, ("x", 1.0)))
    assert there() == 3, "the first was replaced 60 s ago"
    stray = tmp_path / FILES / "00001-of-a-killed-batch.parquet"
    stray.write_bytes(b"half")
    table.close()
    opened(tmp_path, grace_s=60.0)
    assert there() == 3 and not stray.exists()
    assert rows(tmp_path) == {1: ("x", 1.0)}


def test_a_batch_that_fails_before_the_swap_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = opened(tmp_path)
    apply(table, (0, 0, 1, ("x", 1.0)))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(ParquetTable, "_swap", full)
        with pytest.raises(OSError, match="No space left"):
            apply(table, (0, 1, 1, None), (0, 2, 2, ("y", 2.0)))
    assert rows(tmp_path) == {1: ("x", 1.0)}
    apply(table, (0, 1, 1, None), (0, 2, 2, ("y", 2.0)))
    assert rows(tmp_path) == {2: ("y", 2.0)}


@pytest.mark.slow
def test_readers_see_whole_batches(tmp_path: Path) -> None:
    """While batches are written, and replaced files are removed at once."""
    table = opened(tmp_path, grace_s=0.0)
    apply(table, *((0, n, n, ("x", 0.0)) for n in range(20)))
    failures: list[BaseException] = []
    done = threading.Event()

    def read() -> None:
        try:
            while not done.is_set():
                prices = set(read_table(tmp_path)["price"].to_pylist())
                assert len(prices) == 1
        except BaseException as error:
            failures.append(error)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for round_number in range(1, 30):
        apply(table, *((0, 20 * round_number + n, n, ("x", float(round_number))) for n in range(20)))
    done.set()
    for reader in readers:
        reader.join()
    assert failures == []


def test_what_does_not_fit(tmp_path: Path) -> None:
    table = opened(tmp_path)
    with pytest.raises(TableError, match="another run writes .*; one table has one writer"):
        opened(tmp_path)
    table.close()
    with pytest.raises(TableError, match="has buckets 4, not 8"):
        opened(tmp_path, buckets=8)


@pytest.mark.parametrize(
    ("layout", "topic", "words"),
    [
        (layout_of("id INT", "name STRING, price DOUBLE"), TOPIC, "has key `id` bigint, not `id` int"),
        (layout_of("id BIGINT", "name STRING"), TOPIC, "has value `name` string, `price` double, not"),
        (PRICES, Topic("costs"), "follows the topic prices; it cannot follow costs too"),
        (PRICES, Topic("prices", "0b" * 16), "the topic prices was deleted and made again"),
    ],
)
def test_a_table_of_something_else(tmp_path: Path, layout: Layout, topic: Topic, words: str) -> None:
    opened(tmp_path).close()
    with pytest.raises(TableError, match=words):
        ParquetTable(ParquetPlace(tmp_path), layout, buckets=BUCKETS).open(topic, "run")


def test_manifests_of_other_formats_and_none(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no table"):
        read_table(tmp_path)
    opened(tmp_path).close()
    said = json.loads((tmp_path / MANIFEST).read_text())
    (tmp_path / MANIFEST).write_text(json.dumps({**said, "format": 2}))
    with pytest.raises(TableError, match="has format 2; this release reads 1"):
        read_table(tmp_path)
