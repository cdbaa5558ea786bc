"""kcat (librdkafka, the version that a distribution ships) against our broker."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable

import pytest
from cli.commanding import command
from peers.headrace import HeadracePeer

pytestmark = pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed (make system-deps)")

Fresh = Callable[[str], str]


def kcat(ours: HeadracePeer, *arguments: str, stdin: bytes = b"") -> str:
    return kcat_bytes(ours, *arguments, stdin=stdin).decode()


def kcat_bytes(ours: HeadracePeer, *arguments: str, stdin: bytes = b"") -> bytes:
    done = subprocess.run(
        ["kcat", "-b", ours.bootstrap, *arguments], check=False, input=stdin, capture_output=True, timeout=60
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


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


@pytest.mark.slow
def test_a_balanced_group_goes_on_where_it_was(ours: HeadracePeer, fresh: Fresh) -> None:
    topic, group = fresh("kcat-group"), fresh("kcat-members")
    kcat(ours, "-P", "-t", topic, stdin=b"a\nb\n")
    first = ("-G", group, "-X", "auto.offset.reset=earliest", "-q", "-e", topic)
    assert kcat(ours, *first).split() == ["a", "b"]
    kcat(ours, "-P", "-t", topic, stdin=b"c\n")
    assert kcat(ours, *first).split() == ["c"]


@pytest.mark.parametrize(
    "template", [r"%t [%p] @%o %k: %s\n", r"%K %S %T %h|", "%R", r"\x41\t\r\n%%" "{}\u00e9", "no letters"]
)
def test_a_template_prints_what_kcat_prints(ours: HeadracePeer, fresh: Fresh, template: str) -> None:
    topic = fresh("kcat-template")
    lines = '{"key": "k", "value": "v1", "headers": [{"name": "a", "value": "1"}, {"name": "b", "value": null}]}\n'
    lines += '{"key": "", "value": ""}\n{"value": null}\n'
    command("produce", topic, "--format", "json", "-b", ours.bootstrap, stdin=lines)
    printed = command("consume", topic, "-t", template, "-b", ours.bootstrap)
    assert printed.stdout_bytes == kcat_bytes(ours, "-C", "-t", topic, "-e", "-q", "-f", template)
