"""What is read of a query's checkpoint to say in Kafka how far its sources are."""

from __future__ import annotations

import json
from pathlib import Path

from headrace.client.cluster import Client
from headrace.spark.checkpoint_offsets import SourceEnd, local_directory, of_cluster, parsed, source_ends
from headrace.wire import uuids

SETTINGS = '{"batchWatermarkMs":0,"batchTimestampMs":1700000000000,"conf":{}}'
OURS = {"topics": {"a": {"0": 5, "1": 7}, "b": {"0": 1}}, "ids": {"a": "x", "b": "y"}, "group": "g"}
END = SourceEnd("g", {("a", 0): 5, ("a", 1): 7, ("b", 0): 1}, {"a": "x", "b": "y"})


def test_the_sources_that_are_ours_and_have_a_group() -> None:
    without = {"topics": {"a": {"0": 5}}, "ids": {"a": "x"}}
    others = ["-", '{"flights":{"0":12}}', "17", json.dumps(without)]
    assert parsed(["v1", SETTINGS, *others, json.dumps(OURS)]) == [END]
    numbered = [f"{number}:{text}" for number, text in enumerate([*others, json.dumps(OURS)])]
    assert parsed(["v2", SETTINGS, *numbered]) == [END]
    assert parsed(["v3", SETTINGS, json.dumps(OURS)]) == [] and parsed([]) == []


def test_only_a_checkpoint_of_this_machine_is_read(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "3").write_text(f"v1\n{SETTINGS}\n{json.dumps(OURS)}\n")
    for written in (str(tmp_path), f"file:{tmp_path}", f"file://{tmp_path}"):
        assert source_ends(written, 3) == [END] and source_ends(written, 4) == []
    assert source_ends("", 3) == [] and source_ends(f"hdfs://host{tmp_path}", 3) == []
    assert local_directory("file:/a%20b") == Path("/a b")


def test_what_cannot_be_read_costs_the_lag_alone(tmp_path: Path) -> None:
    good = json.dumps(OURS)
    bad = [{**OURS, "topics": 7}, {**OURS, "topics": {"a": [5]}}, {**OURS, "topics": {"a": {"x": 5}}},
           {**OURS, "topics": {"a": {"0": "5"}}}, {**OURS, "group": 1}, {**OURS, "ids": []}]  # fmt: skip
    for each in bad:
        assert parsed(["v1", SETTINGS, json.dumps(each), good]) == [END]
    (tmp_path / "offsets").mkdir()
    written = tmp_path / "offsets" / "3"
    written.write_bytes(b"v1\n" + SETTINGS.encode() + b"\n\xff\xfe\n")
    assert source_ends(str(tmp_path), 3) == []
    written.unlink()
    written.mkdir()
    assert source_ends(str(tmp_path), 3) == []
    (tmp_path / "file").write_text("")
    assert source_ends(str(tmp_path / "file"), 3) == []


def test_only_topics_of_this_cluster_count(cluster: Client, topic: str) -> None:
    topic_id = uuids.to_text(cluster.topic(topic).id)
    other = uuids.to_text(bytes(range(16)))
    positions = {(topic, 0): 5, (topic, 1): 6, ("elsewhere", 0): 9}
    assert of_cluster(cluster, SourceEnd("g", positions, {topic: topic_id, "elsewhere": other})) == {
        (topic, 0): 5,
        (topic, 1): 6,
    }
    assert of_cluster(cluster, SourceEnd("g", positions, {topic: other, "elsewhere": other})) == {}
