"""The small text files of a log directory: offset checkpoints, leader epochs, partition.metadata, clean shutdown.

All but `.kafka_cleanshutdown` (JSON) and `partition.metadata` (keys and values) share one form:

    0            version
    2            how many entries follow
    events 0 42  one entry a line

Reading raises `CheckpointError` for a file that is not of that form; a missing file reads as empty.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence

from headrace.env import Disk
from headrace.wire import uuids

TopicPartition = tuple[str, int]

VERSION = 0


class CheckpointError(Exception):
    """A checkpoint file that cannot be read as one: names the file and the line."""


def _encode(lines: Sequence[str]) -> bytes:
    return ("\n".join([str(VERSION), str(len(lines)), *lines]) + "\n").encode("ascii")


def _decode(path: str, data: bytes) -> list[list[str]]:
    if not data:
        return []  # Kafka creates some of its checkpoints empty
    try:
        lines = data.decode("utf-8").splitlines()
        if int(lines[0]) != VERSION:
            raise CheckpointError(f"{path}: version {lines[0]} is not known")
        count = int(lines[1])
    except (UnicodeDecodeError, ValueError, IndexError) as error:
        raise CheckpointError(f"{path}: does not start with a version and a count") from error
    entries = [line.split() for line in lines[2:] if line.strip()]
    if count != len(entries):
        raise CheckpointError(f"{path}: announces {count} entries and has {len(entries)}")
    return entries


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Encodes an offset checkpoint, its entries sorted."""
    return _encode([f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())])


def decode_offsets(path: str, data: bytes) -> dict[TopicPartition, int]:
    """Decodes an offset checkpoint. Raises CheckpointError."""
    offsets: dict[TopicPartition, int] = {}
    for entry in _decode(path, data):
        try:
            topic, partition, offset = entry
            offsets[topic, int(partition)] = int(offset)
        except ValueError as error:
            raise CheckpointError(f"{path}: {' '.join(entry)!r} is not `topic partition offset`") from error
    return offsets


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """Reads the offsets of a checkpoint file. Raises CheckpointError."""
    try:
        data = disk.read_file(path)
    except FileNotFoundError:
        return {}
    return decode_offsets(path, data)


def encode_epochs(epochs: Iterable[tuple[int, int]]) -> bytes:
    """Encodes a leader-epoch-checkpoint of (epoch, first offset) entries."""
    return _encode([f"{epoch} {offset}" for epoch, offset in epochs])


def decode_epochs(path: str, data: bytes) -> list[tuple[int, int]]:
    """Decodes a leader-epoch-checkpoint. Raises CheckpointError."""
    epochs: list[tuple[int, int]] = []
    for entry in _decode(path, data):
        try:
            epoch, offset = entry
            epochs.append((int(epoch), int(offset)))
        except ValueError as error:
            raise CheckpointError(f"{path}: {' '.join(entry)!r} is not `epoch offset`") from error
    return epochs


def encode_partition_metadata(topic_id: bytes) -> bytes:
    """Encodes `partition.metadata` with the topic id of a folder."""
    return f"version: 0\ntopic_id: {uuids.to_text(topic_id)}".encode("ascii")


def is_torn_partition_metadata(data: bytes) -> bool:
    """Returns whether the data are a prefix of a `partition.metadata`, perhaps followed by zeros, as a crash leaves of
    an unsynced file. Anything else was damaged."""
    written = data.rstrip(b"\0")
    sample = encode_partition_metadata(bytes(16))
    before_id = sample[: sample.rindex(b" ") + 1]
    id_begun = re.fullmatch(rb"[A-Za-z0-9_-]*", written[len(before_id) :]) and written.startswith(before_id)
    return len(written) < len(sample) and bool(before_id.startswith(written) or id_begun)


def decode_partition_metadata(path: str, data: bytes) -> bytes:
    """Decodes the topic id of a `partition.metadata`. Raises CheckpointError."""
    try:
        fields = dict(line.split(": ", 1) for line in data.decode("ascii").splitlines() if line.strip())
        if fields["version"].strip() != "0":
            raise CheckpointError(f"{path}: version {fields['version']} is not known")
        return uuids.from_text(fields["topic_id"].strip())
    except (UnicodeDecodeError, ValueError, KeyError) as error:
        raise CheckpointError(f"{path}: is not `version: 0` and `topic_id: ...`") from error


def encode_clean_shutdown(broker_epoch: int) -> bytes:
    """Encodes `.kafka_cleanshutdown`, which exists while all logs are cleanly closed."""
    return json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode("ascii")


def decode_clean_shutdown(data: bytes) -> int:
    """Decodes the broker epoch of a `.kafka_cleanshutdown`; -1 if it has none (Kafka before 3.7 wrote an empty
    file)."""
    try:
        return int(json.loads(data)["brokerEpoch"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return -1
