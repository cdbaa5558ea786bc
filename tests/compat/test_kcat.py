"""kcat (librdkafka, the version that a distribution ships) against our broker."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable

import pytest
from peers.headrace import HeadracePeer

pytestmark = pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed (make system-deps)")

Fresh = Callable[[str], str]


def kcat(ours: HeadracePeer, *arguments: str, stdin: bytes = b"") -> str:
    command = ["kcat", "-b", ours.bootstrap, *arguments]
    done = subprocess.run(command, check=False, input=stdin, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def test_metadata(ours: HeadracePeer) -> None:
    answer = json.loads(kcat(ours, "-L", "-J"))
    assert answer["brokers"] == [{"id": 1, "name": ours.bootstrap}]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_produce_and_consume_with_keys_and_headers(ours: HeadracePeer, fresh: Fresh, codec: str) -> None:
    topic = fresh(f"kcat-{codec}")
    lines = b"".join(b"key%d:value%d\n" % (number, number) for number in range(1000))
    kcat(ours, "-P", "-t", topic, "-K:", "-H", "origin=test", "-z", codec, "-X", "acks=all", stdin=lines)
    got = kcat(ours, "-C", "-t", topic, "-e", "-q", "-J").splitlines()
    records = [json.loads(line) for line in got]
    assert [record["payload"] for record in records] == [f"value{number}" for number in range(1000)]
    assert records[7]["key"] == "key7"
    assert records[7]["headers"] == ["origin", "test"]
    assert [record["offset"] for record in records] == list(range(1000))


def test_offsets_by_time(ours: HeadracePeer, fresh: Fresh) -> None:
    topic = fresh("kcat-times")
    kcat(ours, "-P", "-t", topic, stdin=b"a\nb\n")
    assert kcat(ours, "-Q", "-t", f"{topic}:0:-1").split()[-1] == "2"
    assert kcat(ours, "-Q", "-t", f"{topic}:0:-2").split()[-1] == "0"
    assert kcat(ours, "-Q", "-t", f"{topic}:0:1").split()[-1] == "0"


def test_a_balanced_group_goes_on_where_it_was(ours: HeadracePeer, fresh: Fresh) -> None:
    topic, group = fresh("kcat-group"), fresh("kcat-members")
    kcat(ours, "-P", "-t", topic, stdin=b"a\nb\n")
    first = ("-G", group, "-X", "auto.offset.reset=earliest", "-q", "-e", topic)
    assert kcat(ours, *first).split() == ["a", "b"]
    kcat(ours, "-P", "-t", topic, stdin=b"c\n")
    assert kcat(ours, *first).split() == ["c"]
