"""`headrace debug bundle`: what is in the archive, and what is not."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest
from cli.commanding import Run, command
from hypothesis import given
from hypothesis import strategies as st
from peers.secured import ROOT_PASSWORD

import headrace.testing
from headrace.cli.debug import REMOVED, without_secrets


def files_of(path: Path) -> dict[str, str]:
    """The files of an archive, below its folder."""
    files = {}
    with tarfile.open(path) as archive:
        for each in archive.getmembers():
            stream = archive.extractfile(each)
            assert stream is not None
            files[each.name.partition("/")[2]] = stream.read().decode()
    return files


def test_a_bundle_describes_a_cluster(run: Any, topic: str, tmp_path: Path) -> None:
    run("topic", "create", topic, "-p", "2", "--set", "retention.ms=5000")
    run("produce", topic, stdin="the value of a record\n")
    run("consume", topic, "--group", topic)
    log = tmp_path / "server.log"
    log.write_text("INFO starts\n")
    path = tmp_path / "found.tar.gz"
    wrote = run("debug", "bundle", "-o", str(path), "--log", str(log)).stdout
    assert wrote == f"wrote {path}\n"
    files = files_of(path)
    assert json.loads(files["about.json"])["headrace"]
    (broker,) = json.loads(files["cluster.json"])["brokers"]
    assert any(each["name"] == "log.dirs" for each in json.loads(files[f"settings/broker-{broker['id']}.json"]))
    assert "healthy" in json.loads(files["health.json"])
    assert topic in [each["name"] for each in json.loads(files["topics.json"])]
    (group,) = [each for each in json.loads(files["groups.json"]) if each["group_id"] == topic]
    assert sum(group["offsets"].values()) == 1
    settings = {each["name"]: each["value"] for each in json.loads(files["settings/topics.json"])[topic]}
    assert settings["retention.ms"] == "5000"
    assert files["logs/1-server.log"] == "INFO starts\n"
    assert "the value of a record" not in "".join(files.values())
    assert path.stat().st_mode & 0o777 == 0o600
    other = tmp_path / "other.tar.gz"
    assert json.loads(run("debug", "bundle", "-o", str(other), "--json").stdout) == {"file": str(other), "missing": []}
    assert "File exists" in run("debug", "bundle", "-o", str(path), code=1).stderr


def test_the_metrics_of_a_node(tmp_path: Path) -> None:
    with headrace.testing.broker({"metrics.listener": "127.0.0.1:0"}) as broker:
        port = broker.call(lambda inside: inside.monitor.port)
        page, path = f"http://127.0.0.1:{port}/metrics", tmp_path / "m.tar.gz"
        command("debug", "bundle", "-b", broker.bootstrap, "-o", str(path), "--metrics", page)
    assert "headrace_" in files_of(path)["metrics/1.txt"]


def test_what_cannot_be_had_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "alone.tar.gz"
    wrote = command("debug", "bundle", "-b", "127.0.0.1:1", "-o", str(path), "--metrics", "file:///etc/passwd").stdout
    assert "not in it: cluster.json, health.json, topics.json, groups.json" in wrote
    files = files_of(path)
    assert "127.0.0.1:1" in files["cluster.json.error.txt"]
    assert "is not the address of a page" in files["metrics/1.txt.error.txt"]


def test_no_password_of_a_secured_broker_is_in_it(root: Run, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(f'sasl.jaas.config=x.Y required username="root" password="{ROOT_PASSWORD}";\n')
    path = tmp_path / "secured.tar.gz"
    root("debug", "bundle", "-o", str(path), "--log", str(log))
    text = "".join(files_of(path).values())
    assert "sasl.jaas.config" in text and ROOT_PASSWORD not in text


@pytest.mark.parametrize(
    "line",
    [
        "ssl.keystore.password=hunter2",
        'password="hunter2"',
        "{'sasl.password': 'hunter2'}",
        '{"client_secret": "hunter2"}',
        "Authorization: Bearer hunter2",
        "access_token=hunter2",
        'x required username="ann" password="hun\\"ter2 hunter2";',
        "ssl.keystore.private_key: hunter2",
    ],
)
def test_what_looks_like_a_secret_is_removed(line: str) -> None:
    cleaned = without_secrets(line)
    assert "hunter2" not in cleaned and REMOVED in cleaned


@given(st.text())
def test_any_text_is_cleaned_at_once_or_twice_alike(text: str) -> None:
    assert without_secrets(without_secrets(text)) == without_secrets(text)


def test_lines_without_secrets_stay_as_they_are() -> None:
    line = "2026-11-27 INFO headrace.broker: topic created topic=orders partitions=3" + os.linesep
    assert without_secrets(line) == line
