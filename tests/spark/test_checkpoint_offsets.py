"""What is read of a query's checkpoint to say in Kafka how far its sources are."""

from __future__ import annotations

import json
from pathlib import Path

from headrace.client.cluster import Client
from headrace.spark.checkpoint_offsets import SourceEnd, digest, local_directory, of_cluster, parsed, source_ends
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


def logged(checkpoint: Path, *sources: str, version: str = "v1", settings: str = SETTINGS) -> str:
    """The digest of a batch that ends so."""
    (checkpoint / "offsets").mkdir(exist_ok=True)
    (checkpoint / "offsets" / "3").write_text("\n".join([version, settings, *sources]))
    return digest(str(checkpoint), 3)


def test_a_digest_is_of_the_offsets_of_all_sources_whatever_they_are(tmp_path: Path) -> None:
    found = logged(tmp_path, json.dumps(OURS), '{"flights":{"0":12}}', "-")
    assert len(found) == 16
    assert logged(tmp_path, json.dumps(OURS), '{"flights":{"0":12}}', "-", settings='{"batchTimestampMs":9}') == found
    others = {
        logged(tmp_path, json.dumps(OURS), '{"flights":{"0":13}}', "-"),
        logged(tmp_path, json.dumps(OURS), '{"flights":{"0":12}}'),
        logged(tmp_path, json.dumps(OURS), '{"flights":{"0":12}}', "17"),
        logged(tmp_path, "0:17", version="v2"),
        logged(tmp_path, "0:18", version="v2"),
    }
    assert len(others | {found}) == 6
    assert digest(f"file://{tmp_path}", 3) and digest(f"file://{tmp_path}", 3) in others


def test_a_source_of_files_ends_with_the_names_of_files(tmp_path: Path) -> None:
    """Its offset is a number that it counts up; a batch that is planned again can have the number and other files."""
    names = tmp_path / "sources" / "1"
    names.mkdir(parents=True)
    found = set()
    for name, files in (("4", "a"), ("4", "ab"), ("4.compact", "abc")):
        (names / name).write_text(files)
        found.add(logged(tmp_path, "17", '{"logOffset":4}'))
        (names / name).unlink()
    assert len(found) == 3


def test_a_checkpoint_that_is_out_of_reach_has_no_digest(tmp_path: Path) -> None:
    logged(tmp_path, "17")
    assert digest("", 3) == digest(str(tmp_path), 4) == digest(f"hdfs://host{tmp_path}", 3) == ""
    assert logged(tmp_path, "17", version="v9") == ""


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
