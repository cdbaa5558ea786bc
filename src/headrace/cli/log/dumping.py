"""What is in Kafka's files, entry by entry, as plain values ready to print.

Formats: message format v2 (KIP-98), the indexes and producer snapshots of Kafka's storage module, KRaft's records and
snapshots (KIP-595, KIP-630), the group coordinator's records.
"""

from __future__ import annotations

import base64
import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from headrace.wire import uuids
from headrace.wire.batch import BATCH_OVERHEAD, MAGIC, BatchHeader, CorruptBatch, check_crc, read_header

INDEX_ENTRY = struct.Struct(">ii")
TIME_INDEX_ENTRY = struct.Struct(">qi")
TRANSACTION_INDEX_ENTRY = struct.Struct(">hqqqq")

CHECKPOINTS = {
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
}
LEADER_EPOCHS = "leader-epoch-checkpoint"
BROKER: Final = 4
"""The type of a ConfigRecord about brokers."""
HIDDEN: Final = "(hidden)"
TEXT_FILES = {"meta.properties", "partition.metadata", "quorum-state", ".kafka_cleanshutdown"}
SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".checkpoint")
UNFINISHED = (".deleted", ".cleaned", ".swap")

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


class DumpError(Exception):
    """A file that is not what its name says; the message says where it goes wrong."""


def files_of(path: Path) -> list[Path]:
    """The file itself, or the segments and snapshots of a partition's folder."""
    if path.is_file():
        return [path]
    found = [file for file in sorted(path.iterdir()) if file.is_file() and file.suffix in (".log", ".checkpoint")]
    return found or [file for file in sorted(path.iterdir()) if file.is_file() and _readable(file)]


def _readable(file: Path) -> bool:
    return file.name in CHECKPOINTS | TEXT_FILES | {LEADER_EPOCHS} or _suffix(file) in SUFFIXES


def _suffix(file: Path) -> str:
    """The suffix that says what is inside, beneath `.deleted`, `.cleaned` and `.swap`."""
    name = file.name
    for unfinished in UNFINISHED:
        name = name.removesuffix(unfinished)
    return Path(name).suffix


def entries_of(file: Path, *, records: bool, start: int, kind: str | None) -> Iterator[dict[str, Any]]:
    """The entries of one file. Raises `DumpError`."""
    name, suffix = file.name, _suffix(file)
    if name in CHECKPOINTS:
        return _lines(file, ("topic", "partition", "offset"))
    if name == LEADER_EPOCHS:
        return _lines(file, ("epoch", "start_offset"))
    if name in TEXT_FILES:
        return _text_lines(file)
    if suffix in (".log", ".checkpoint"):
        return _batches(file, records, start, kind or _kind_of(file, suffix))
    if suffix == ".index":
        return _index(file)
    if suffix == ".timeindex":
        return _time_index(file)
    if suffix == ".txnindex":
        return _transaction_index(file)
    if suffix == ".snapshot":
        return _producers(file)
    raise DumpError("not a file that this command can read")


def _kind_of(file: Path, suffix: str) -> str:
    folder = file.resolve().parent.name
    if suffix == ".checkpoint" or folder.startswith("__cluster_metadata-"):
        return "metadata"
    return "groups" if folder.startswith("__consumer_offsets-") else "data"


# -- text files


def _lines(file: Path, names: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    lines = file.read_text().splitlines()
    if len(lines) < 2 or lines[0].strip() != "0":
        raise DumpError("not a checkpoint file of version 0")
    for line in lines[2:]:
        parts = line.rsplit(" ", len(names) - 1)
        if len(parts) != len(names):
            raise DumpError(f"the line {line!r} does not have {len(names)} parts")
        yield {name: int(part) if part.lstrip("-").isdigit() else part for name, part in zip(names, parts, strict=True)}


def _text_lines(file: Path) -> Iterator[dict[str, Any]]:
    for line in file.read_text().splitlines():
        if line and not line.startswith("#"):
            yield {"line": line}


# -- indexes


def _fixed(file: Path, entry: struct.Struct) -> Iterator[tuple[Any, ...]]:
    """Whole entries; a preallocated index of an open segment ends in zeroes, which are none."""
    data = file.read_bytes()
    if len(data) % entry.size:
        raise DumpError(f"{len(data)} bytes are not a multiple of {entry.size}")
    return entry.iter_unpack(data)


def _base_offset(file: Path) -> int:
    digits = file.name.split(".")[0]
    if not digits.isdigit():
        raise DumpError("the name does not begin with an offset")
    return int(digits)


def _index(file: Path) -> Iterator[dict[str, Any]]:
    base = _base_offset(file)
    for number, (relative, position) in enumerate(_fixed(file, INDEX_ENTRY)):
        if number and relative == 0:
            return
        yield {"offset": base + relative, "position": position}


def _time_index(file: Path) -> Iterator[dict[str, Any]]:
    base = _base_offset(file)
    for number, (timestamp, relative) in enumerate(_fixed(file, TIME_INDEX_ENTRY)):
        if number and timestamp == 0 and relative == 0:
            return
        yield {"timestamp": timestamp, "offset": base + relative}


def _transaction_index(file: Path) -> Iterator[dict[str, Any]]:
    for version, producer_id, first, last, stable in _fixed(file, TRANSACTION_INDEX_ENTRY):
        yield {
            "version": version,
            "producer_id": producer_id,
            "first_offset": first,
            "last_offset": last,
            "last_stable_offset": stable,
        }


def _producers(file: Path) -> Iterator[dict[str, Any]]:
    from headrace.wire.messages.storage_records import ProducerSnapshot
    from headrace.wire.primitives import DecodeError

    data = file.read_bytes()
    try:
        snapshot = ProducerSnapshot.decode(data, int.from_bytes(data[:2], "big"), 2)
    except DecodeError as error:
        raise DumpError(f"not a producer snapshot: {error}") from error
    for entry in snapshot.producer_entries:
        yield plain(entry)


# -- segments and metadata snapshots


def _batches(file: Path, records: bool, start: int, kind: str) -> Iterator[dict[str, Any]]:
    with file.open("rb") as stream:
        size = file.stat().st_size
        if size == 0:
            return
        # Access is random only by batch; mapping keeps a 1 GB segment out of memory.
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as view:
            at = 0
            while at < size:
                header = _header(view, at, size)
                if header.last_offset >= start:
                    body = bytes(view[at : at + header.size])
                    yield _batch(header, at, check_crc(body, 0, header))
                    if records or kind != "data":
                        yield from _records(body, header, kind)
                at += header.size


def _header(view: memoryview, at: int, size: int) -> BatchHeader:
    if size - at < BATCH_OVERHEAD:
        raise DumpError(f"{size - at} bytes are left at position {at}, too few for a batch")
    header = read_header(view, at)
    if header.magic != MAGIC:
        raise DumpError(f"magic {header.magic} at position {at}: not a record batch of format 2")
    if header.size < BATCH_OVERHEAD or at + header.size > size:
        raise DumpError(f"the batch at position {at} (offset {header.base_offset}) reaches beyond the file")
    return header


def _batch(header: BatchHeader, position: int, crc_ok: bool) -> dict[str, Any]:
    codec = header.compression
    return {
        "kind": "batch",
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "count": header.record_count,
        "position": position,
        "size": header.size,
        "leader_epoch": header.partition_leader_epoch,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "compression": COMPRESSIONS[codec] if codec < len(COMPRESSIONS) else codec,
        "timestamp_type": "log-append" if header.timestamp_type else "create",
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "crc": f"{header.crc:08x}",
        "crc_ok": crc_ok,
    }


def _records(body: bytes, header: BatchHeader, kind: str) -> Iterator[dict[str, Any]]:
    from headrace.wire.records import decode_batch

    try:
        records = decode_batch(body)
    except CorruptBatch as error:
        raise DumpError(f"the batch at offset {header.base_offset}: {error}") from error
    for record in records:
        shown: dict[str, Any] = {"kind": "record", "offset": record.offset, "timestamp": record.timestamp}
        if header.is_control:
            shown |= _control(record.key, record.value)
        elif kind == "metadata":
            shown |= _metadata(record.value)
        elif kind == "groups":
            shown |= _group(record.key, record.value)
        else:
            shown |= {"key": _payload(record.key), "value": _payload(record.value)}
            if record.headers:
                shown["headers"] = {name: _payload(value) for name, value in record.headers}
        yield shown


def _payload(data: bytes | None) -> str | None:
    """Text where it is UTF-8, else base64 behind a mark."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(data).decode()


def _control(key: bytes | None, value: bytes | None) -> dict[str, Any]:
    """Transaction markers and KRaft's control records."""
    from headrace.raft.control import ControlType, decode_control
    from headrace.wire.primitives import DecodeError

    key, value = key or b"", value or b""
    number = int.from_bytes(key[2:4], "big")
    if number in (ControlType.ABORT, ControlType.COMMIT):
        return {"control_type": ControlType(number).name, "coordinator_epoch": int.from_bytes(value[2:6], "big")}
    try:
        record = decode_control(key, value)
    except DecodeError as error:
        raise DumpError(f"a control record of type {number}: {error}") from error
    if record is None:
        return {"control_type": number, "value": _payload(value)}
    return {"control_type": record.type.name, **plain(record.message)}


def _metadata(value: bytes | None) -> dict[str, Any]:
    from headrace.metadata.framing import MetadataRecordError, decode_record

    try:
        record = decode_record(value or b"")
    except MetadataRecordError as error:
        raise DumpError(str(error)) from error
    return {"type": type(record).__name__, **plain(record), **_hidden(record)}


def _hidden(record: Any) -> dict[str, str]:
    """What of a record must not be shown: what a password can be guessed by, and settings that are one."""
    from headrace.config.table import broker_setting
    from headrace.wire.messages.metadata_records import ConfigRecord, UserScramCredentialRecord

    if isinstance(record, UserScramCredentialRecord):
        return dict.fromkeys(("salt", "stored_key", "server_key"), HIDDEN)
    if isinstance(record, ConfigRecord) and record.resource_type == BROKER and record.value:
        setting = broker_setting(record.name)
        if setting is None or setting.sensitive:
            return {"value": HIDDEN}
    return {}


def _group(key: bytes | None, value: bytes | None) -> dict[str, Any]:
    """A record of __consumer_offsets: key type in front of the key, version in front of the value; null deletes."""
    from headrace.wire.messages.group_records import GROUP_KEYS, GROUP_VALUES
    from headrace.wire.messages.newer_group_records import NEWER_GROUP_KEYS, NEWER_GROUP_VALUES
    from headrace.wire.primitives import DecodeError

    if key is None:
        return {"key": None, "value": _payload(value)}
    number = int.from_bytes(key[:2], "big")
    key_class = GROUP_KEYS.get(number) or NEWER_GROUP_KEYS.get(number)
    if key_class is None:
        return {"key_type": number, "key": _payload(key), "value": _payload(value)}
    value_class = GROUP_VALUES.get(number) or NEWER_GROUP_VALUES[number]
    try:
        shown: dict[str, Any] = {"type": key_class.__name__.removesuffix("Key"), **_versioned(key_class, key, number)}
        if value is None:
            return shown | {"deleted": True}
        version = int.from_bytes(value[:2], "big")
        return shown | {"value": _versioned(value_class, value, version)}
    except DecodeError as error:
        raise DumpError(f"a group record of type {number}: {error}") from error


def _versioned(message: Any, data: bytes, version: int) -> dict[str, Any]:
    """A message behind two bytes. A key's two bytes are its type, and its only version is 0."""
    if message.__name__.endswith("Key") and version > message.MAX_VERSION:
        version = message.MAX_VERSION
    decoded: dict[str, Any] = plain(message.decode(data, version, 2))
    for name in ("subscription", "assignment"):
        for member in decoded.get("members") or []:
            if name in member:
                member[name] = _consumer_bytes(name, member[name])
    return decoded


def _consumer_bytes(name: str, encoded: str) -> Any:
    """A member's subscription or assignment, where it is the consumer protocol; else as it was."""
    from headrace.client.assignment import decode_assignment, decode_subscription
    from headrace.client.errors import ClientError

    data = base64.b64decode(encoded.removeprefix("base64:")) if encoded.startswith("base64:") else encoded.encode()
    try:
        if name == "subscription":
            return {"topics": sorted(decode_subscription(data))}
        return {"partitions": [f"{topic}-{index}" for topic, index in sorted(decode_assignment(data))]}
    except ClientError:
        return encoded


def plain(value: Any) -> Any:
    """A message as dicts and lists; 16-byte ids as Kafka prints them, other bytes as text or base64."""
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    names = getattr(type(value), "__match_args__", None)
    if names is not None:
        return {name: _field(getattr(value, name)) for name in names}
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _payload(bytes(value))
    return value


def _field(value: Any) -> Any:
    if isinstance(value, bytes) and len(value) == 16:
        return uuids.to_text(value)
    if isinstance(value, list) and value and all(isinstance(item, bytes) and len(item) == 16 for item in value):
        return [uuids.to_text(item) for item in value]
    return plain(value)
