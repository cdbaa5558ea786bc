"""Apache Kafka itself as the judge of the codecs: its generated classes read what we write, and write the same again.

This covers what kio does not know: the records of the metadata log and of the internal topics. What Kafka 4.3.1 does
not know either, being newer, is named here.
"""

from __future__ import annotations

import random
import re
import subprocess
from pathlib import Path
from zipfile import ZipFile

import pytest
from peers import kafka
from wire.message_values import Choices, message_class, names, value, versions

from headrace.wire.primitives import DecodeError

pytestmark = pytest.mark.jvm

GENERATED = re.compile(r"/(generated|common/message|common/metadata)/")
OUR_OWN = "Headrace"
"""How the messages are named that Kafka has not."""
NEWER_THAN_KAFKA = {
    "AbortedTxn",
    "UnregisterControllerRecord",
    "UnregisterControllerRequest",
    "UnregisterControllerResponse",
} | {
    "StreamsGroupTopologyDescriptionUpdateRequest",
    "StreamsGroupTopologyDescriptionUpdateResponse",
}
NEWER_VERSIONS = {
    (api + kind, version)
    for kind in ("Request", "Response")
    for api, version in (
        ("ApiVersions", 5),
        ("DeleteGroups", 3),
        ("StreamsGroupDescribe", 1),
        ("StreamsGroupHeartbeat", 1),
        ("TxnOffsetCommit", 6),
    )
}
# Where we are stricter than Kafka, which takes any negative length for null and replaces bytes that are not UTF-8.
STRICTER = re.compile("UTF-8|negative|has a length of|version .* ends too early")


def java_classes() -> dict[str, str]:
    """The full names of Kafka's generated classes, by our names."""
    found: dict[str, str] = {}
    for jar in sorted(Path(kafka.class_path().removesuffix("*")).glob("kafka*.jar")):
        with ZipFile(jar) as archive:
            for entry in archive.namelist():
                if entry.endswith(".class") and "$" not in entry and GENERATED.search(entry):
                    found[entry.rpartition("/")[2][:-6]] = entry[:-6].replace("/", ".")
    ours = {name: found.get(f"{name}Data") or found.get(name) for name in names()}
    return {name: java for name, java in ours.items() if java is not None}


def through_kafka(lines: list[str]) -> list[str]:
    """What Kafka makes of each line."""
    source = Path(__file__).with_name("KafkaCodec.java")
    command = kafka.java(str(source), flags=kafka.quick("-Xmx512M"))
    done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, timeout=120, check=True)
    answers = done.stdout.splitlines()
    assert len(answers) == len(lines), done.stderr[-2000:]
    return answers


@pytest.fixture(scope="module")
def classes() -> dict[str, str]:
    reason = kafka.missing()
    if reason:
        pytest.skip(reason)
    return java_classes()


def test_kafka_writes_what_we_write(classes: dict[str, str]) -> None:
    known = {name for name in names() if not name.startswith(OUR_OWN)}
    assert known - classes.keys() == NEWER_THAN_KAFKA
    rng = random.Random(1)
    cases = []
    for name, java in classes.items():
        for version in versions(name):
            for data in (b"", bytes(range(1, 250)), rng.randbytes(300), rng.randbytes(300), rng.randbytes(300)):
                encoded = value(name, version, Choices(data)).encode(version)
                cases.append((name, version, encoded.hex(), f"{java} {version} {encoded.hex()}"))
    answers = through_kafka([line for *_, line in cases])
    unknown = set()
    for (name, version, encoded, _), answer in zip(cases, answers, strict=True):
        if answer == "- newer":
            unknown.add((name, version))
        else:
            assert answer == encoded, f"{name} version {version}"
    assert unknown == NEWER_VERSIONS


def test_kafka_reads_broken_bytes_as_we_do(classes: dict[str, str]) -> None:
    """Where both accept what a mutation has left, both have read the same."""
    rng = random.Random(2)
    cases = []
    for name, java in classes.items():
        for version in versions(name):
            for _ in range(6):
                changed = bytearray(value(name, version, Choices(rng.randbytes(120))).encode(version))
                if not changed or len(changed) > 2000:
                    continue
                changed[rng.randrange(len(changed))] = rng.choice((0, 1, 2, 3, 127, 128, 255))
                cases.append((name, version, bytes(changed), f"{java} {version} {changed.hex()}"))
    answers = through_kafka([line for *_, line in cases])
    both = 0
    for (name, version, encoded, _), answer in zip(cases, answers, strict=True):
        try:
            ours = message_class(name).decode(encoded, version)
        except DecodeError as error:
            assert answer.startswith("-") or STRICTER.search(str(error)), f"{name} {version} {encoded.hex()}: {error}"
            continue
        if answer.startswith("-"):
            # Trailing bytes are the caller's to judge; a tag of another version is unknown to us, an error to Kafka.
            assert re.search("left|newer|is not valid for version", answer), (
                f"{name} {version} {encoded.hex()}: {answer}"
            )
            continue
        both += 1
        again = ours.encode(version).hex()
        # Kafka keeps tagged fields that it does not know, and we do not.
        assert again == answer or len(again) < len(answer), f"{name} {version} {encoded.hex()}"
    assert both > len(cases) // 2
