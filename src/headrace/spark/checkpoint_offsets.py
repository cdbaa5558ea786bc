"""What a batch has read, by the query's checkpoint: the offsets of our own sources, and the groups that show their lag;
and a digest of the offsets of all sources, which tells a batch that is repeated from one that was planned again.

Spark keeps them in `<checkpoint>/offsets/<batch>`: a line with the version, one with settings, one with JSON for each
source; from version 2 on the source's number and a colon precede the JSON. Offsets of other machines or other sources
are skipped when offsets are only shown.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from headrace.client.cluster import Client
from headrace.client.metadata import TopicPartition
from headrace.spark.planning import topic_ids
from headrace.wire import uuids

VERSIONS: Final = ("v1", "v2")
DIGEST_SIZE: Final = 16
"""In characters."""


@dataclass(frozen=True, slots=True)
class SourceEnd:
    """Where one source ends with a batch: the group that follows it, positions, and ids of the topics as text."""

    group: str
    positions: dict[TopicPartition, int]
    ids: dict[str, str]


def local_directory(checkpoint: str) -> Path | None:
    """The checkpoint's directory where it is one of this machine; None for those of other file systems."""
    if not checkpoint:
        return None
    parts = urlsplit(checkpoint)
    if parts.scheme == "":
        return Path(checkpoint)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def query_id(checkpoint: Path) -> str:
    """The id of the query that has the checkpoint. Raises OSError before it has begun."""
    found: str = json.loads((checkpoint / "metadata").read_text("utf-8"))["id"]
    return found


def query_of(checkpoint: str) -> str:
    """The same for whom Spark does not tell of which query a batch is. Raises ValueError, in one sentence, where the
    directory is not one of this machine, or has no query."""
    directory = local_directory(checkpoint)
    try:
        if directory is not None:
            return query_id(directory)
    except (OSError, ValueError, KeyError):
        pass  # the sentence has the error
    raise no_query(checkpoint)


def no_query(checkpoint: str) -> ValueError:
    """The error, over Spark Connect, for a checkpoint without a query."""
    return ValueError(
        "Over Spark Connect, write_updates with delivery exactly-once needs the option 'checkpointLocation', the "
        f"query's own, in a directory that the server can read: {checkpoint!r} has no query."
    )


def source_ends(checkpoint: str, batch_id: int) -> list[SourceEnd]:
    """Of our sources, those that commit offsets to a group; none where the file cannot be read here."""
    return parsed(_lines(_reader(checkpoint), batch_id))


Reader = Callable[[PurePosixPath], bytes | None]
"""Reads a file of a checkpoint; None where it is not there, or cannot be read."""


def _reader(checkpoint: str) -> Reader:
    directory = local_directory(checkpoint)

    def read(name: PurePosixPath) -> bytes | None:
        try:
            return None if directory is None else (directory / name).read_bytes()
        except OSError:
            return None  # no batch fails for it

    return read


def _lines(read: Reader, batch_id: int) -> list[str]:
    """The lines of a batch's file; none where it cannot be read."""
    try:
        return (read(PurePosixPath("offsets", str(batch_id))) or b"").decode("utf-8").splitlines()
    except UnicodeDecodeError:
        return []


def digest(checkpoint: str, batch_id: int) -> str:
    """A digest of where a batch ends in all of its sources, of whatever kind they are. Empty where the file cannot be
    read here.

    It is the same whenever Spark repeats the batch, as it does that from this file. A source of files counts what it
    has found, and keeps the names in a file of that number, which is taken in.
    """
    return digest_by(_reader(checkpoint), batch_id)


def digest_by(read: Reader, batch_id: int) -> str:
    """The same of a checkpoint that is read in another way."""
    lines = _lines(read, batch_id)
    if not lines or lines[0] not in VERSIONS:
        return ""
    found = hashlib.sha256()
    for place, line in enumerate(lines[2:]):
        found.update(line.encode() + b"\n")
        found.update(_found_files(read, place, line.partition(":")[2] if lines[0] == "v2" else line))
    return found.hexdigest()[:DIGEST_SIZE]


def _found_files(read: Reader, place: int, text: str) -> bytes:
    """What a source of files has found with its last number; nothing of other sources."""
    try:
        offset = json.loads(text)
    except ValueError:
        return b""
    match offset:
        case {"logOffset": int() as number}:
            at = PurePosixPath("sources", str(place))
            return read(at / str(number)) or read(at / f"{number}.compact") or b""
    return b""


def parsed(lines: list[str]) -> list[SourceEnd]:
    """The same of the file's lines."""
    if not lines or lines[0] not in VERSIONS:
        return []
    found = []
    for line in lines[2:]:
        text = line.partition(":")[2] if lines[0] == "v2" else line
        try:
            offset = json.loads(text)
        except ValueError:
            continue  # "-", a source without an offset
        if (end := _source_end(offset)) is not None:
            found.append(end)
    return found


def _source_end(offset: Any) -> SourceEnd | None:
    match offset:
        case {"topics": dict() as topics, "ids": dict() as ids, "group": str() as group}:
            try:
                positions = {(topic, int(index)): at for topic, part in topics.items() for index, at in part.items()}
            except (AttributeError, ValueError):
                return None
            return SourceEnd(group, positions, ids) if all(type(at) is int for at in positions.values()) else None
    return None


def of_cluster(client: Client, end: SourceEnd) -> dict[TopicPartition, int]:
    """The positions in topics that this cluster has, by their ids: none where the source reads another cluster."""
    names = {topic for topic, _ in end.positions}
    names -= client.refresh(sorted(names)).keys()
    ids = {name: uuids.to_text(topic_id) for name, topic_id in topic_ids(client, names).items()}
    return {at: offset for at, offset in end.positions.items() if at[0] in ids and ids[at[0]] == end.ids.get(at[0])}
