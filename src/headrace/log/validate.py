"""What a client's batch must satisfy before it is appended, beyond what `Log.append` checks of every batch.

The usual batch of the usual topic never gets here. What does: topics that compact, stamp their own time, bound
timestamps, recompress or validate in full; and batches that failed a check, to find out what to say. Errors and their
sentences are those of Kafka's LogValidator.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace.config.topic import TopicConfig
from headrace.wire.batch import (
    BATCH_OVERHEAD,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME,
    MAGIC,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    check_crc,
    null_key_indexes,
    read_header,
    set_log_append_time,
    walk_record_count,
)
from headrace.wire.errors import ErrorCode
from headrace.wire.primitives import Buffer
from headrace.wire.records import Compression, CorruptBatch, Record, decode_batch, rebuild_batch

LONG_MAX = (1 << 63) - 1

RecordError = tuple[int, str]
"""(index of the record in its batch, what is wrong with it), as in a Produce response."""

_CODECS = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}


class Invalid(NamedTuple):
    """Why a batch is refused. `examined`: the log looked into it, and Kafka then answers with the log's start."""

    error: ErrorCode
    message: str
    record_errors: Sequence[RecordError] = ()
    examined: bool = True


def _misshapen(error: ErrorCode, message: str) -> Invalid:
    return Invalid(error, message, examined=False)


class Accepted(NamedTuple):
    """A batch as it is to be appended: as it came, or rewritten."""

    data: Buffer
    max_timestamp: int
    log_append_time_ms: int


def needs_care(config: TopicConfig) -> bool:
    """Whether a topic's batches need more than the checks of their headers."""
    return (
        config.compact
        or config.log_append_time
        or config.compression_type != "producer"
        or config.message_timestamp_before_max_ms != LONG_MAX
        or config.record_validation != "headers"
    )


def check_shape(data: Buffer, config: TopicConfig, name: str) -> BatchHeader | Invalid:
    """The header of a client's one batch, or what is wrong with its frame, header or checksum."""
    if len(data) < BATCH_OVERHEAD:
        return _misshapen(ErrorCode.INVALID_RECORD, f"Produce requests must have exactly one record batch for {name}")
    header = read_header(data)
    if header.batch_length < BATCH_OVERHEAD - LENGTH_OVERHEAD and header.magic >= MAGIC:
        return _misshapen(ErrorCode.CORRUPT_MESSAGE, f"Record batch of {header.size} bytes is too small in {name}.")
    if header.magic != MAGIC:
        return _misshapen(
            ErrorCode.INVALID_RECORD,
            f"Produce requests are only allowed to contain record batches with magic version 2, not {header.magic}, "
            f"in {name}",
        )
    if header.size != len(data):
        return _misshapen(
            ErrorCode.INVALID_RECORD,
            f"Produce requests must have exactly one record batch: {header.size} bytes of {len(data)} in {name}",
        )
    if header.base_offset != 0:
        return Invalid(
            ErrorCode.INVALID_RECORD,
            f"The baseOffset of the record batch in the append to {name} should be 0, but it is {header.base_offset}",
        )
    if header.size > config.max_message_bytes:
        return _misshapen(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The record batch size in the append to {name} is {header.size} bytes which exceeds the maximum "
            f"configured value of {config.max_message_bytes}.",
        )
    if not check_crc(data, 0, header):
        return _misshapen(
            ErrorCode.CORRUPT_MESSAGE, f"Record is corrupt (stored crc = {header.crc}) in topic partition {name}."
        )
    if header.size > config.segment_bytes:
        return _misshapen(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"Message batch size is {header.size} bytes in append to partition {name}, which exceeds the maximum "
            f"configured segment size of {config.segment_bytes}.",
        )
    return _check_header(header, name) or header


def _check_header(header: BatchHeader, name: str) -> Invalid | None:
    from_offsets = header.last_offset_delta + 1
    message = ""
    if from_offsets <= 0:
        message = f"Batch has an invalid offset range: [0, {header.last_offset_delta}] in topic partition {name}"
    elif header.record_count <= 0:
        message = f"Invalid reported count for record batch: {header.record_count} in topic partition {name}"
    elif from_offsets != header.record_count:
        message = (
            f"Inconsistent batch offset range [0, {header.last_offset_delta}] and count of records "
            f"{header.record_count} in topic partition {name}"
        )
    elif header.is_control:
        message = f"Clients are not allowed to write control records in topic partition {name}"
    elif header.producer_id >= 0 and header.base_sequence < 0:
        message = (
            f"Invalid sequence number {header.base_sequence} in record batch with producerId {header.producer_id} "
            f"in topic partition {name}"
        )
    elif header.compression > Compression.ZSTD:
        message = f"Unknown compression type id {header.compression} in topic partition {name}"
    return Invalid(ErrorCode.INVALID_RECORD, message) if message else None


def check_client_batch(data: Buffer, config: TopicConfig, name: str, now_ms: int) -> Accepted | Invalid:
    """All checks of a client's batch, in Kafka's order, and the rewriting that its topic asks for."""
    header = check_shape(data, config, name)
    if isinstance(header, Invalid):
        return header
    if header.compression == Compression.NONE and not walk_record_count(data, 0, header):
        return Invalid(
            ErrorCode.INVALID_RECORD,
            f"The record lengths of a batch do not add up to its {header.record_count} records in {name}",
        )
    codec = _CODECS.get(config.compression_type, header.compression)
    records: list[Record] | None = None
    if _needs_records(header, config, codec, now_ms):
        try:
            records = decode_batch(data)
        except CorruptBatch as error:
            return Invalid(ErrorCode.INVALID_RECORD, f"{error} in topic partition {name}")
        invalid = _check_offsets(records, name) if config.record_validation != "headers" else None
        if invalid is not None:
            return invalid
    errors = _null_key_errors(data, header, records, name) if config.compact else []
    errors += _timestamp_errors(header, records, config, now_ms)
    if errors:
        return _refuse_records(errors)
    if records is not None and codec != header.compression:
        data = rebuild_batch(header, records, compression=codec, level=_level(config, codec))
    max_timestamp = header.max_timestamp
    if config.log_append_time:
        data = bytearray(data)
        set_log_append_time(data, 0, now_ms)
        max_timestamp = now_ms
    elif records is not None and header.timestamp_type != LOG_APPEND_TIME:
        max_timestamp = max(record.timestamp for record in records)
        if max_timestamp != header.max_timestamp:
            data = rebuild_batch(header, records, compression=codec, level=_level(config, codec))
    if len(data) > config.max_message_bytes:
        return Invalid(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"Message batch size is {len(data)} bytes in append to partition {name}, which exceeds the maximum "
            f"configured size of {config.max_message_bytes}.",
        )
    return Accepted(data, max_timestamp, now_ms if config.log_append_time else -1)


def _needs_records(header: BatchHeader, config: TopicConfig, codec: int, now_ms: int) -> bool:
    """Whether the records themselves must be decoded; else header and lengths are enough."""
    if config.record_validation != "headers" or codec != header.compression:
        return True
    if config.log_append_time:
        return config.compact and header.compression != Compression.NONE
    if config.message_timestamp_before_max_ms != LONG_MAX:
        return True
    too_late = header.max_timestamp > now_ms + config.message_timestamp_after_max_ms
    return too_late or (config.compact and header.compression != Compression.NONE)


def _check_offsets(records: list[Record], name: str) -> Invalid | None:
    for index, record in enumerate(records):
        if record.offset != index:
            return Invalid(
                ErrorCode.INVALID_RECORD,
                f"Inner record offsets must rise by one: record {index} has offset {record.offset} in {name}",
                ((index, f"Expected offset {index} and found {record.offset}"),),
            )
    return None


_Error = tuple[ErrorCode, RecordError]


def _null_key_errors(data: Buffer, header: BatchHeader, records: list[Record] | None, name: str) -> list[_Error]:
    if records is not None:
        missing = [index for index, record in enumerate(records) if record.key is None]
    else:
        missing = null_key_indexes(data, 0, header) or []
    message = f"Compacted topic cannot accept message without key in topic partition {name}."
    return [(ErrorCode.INVALID_RECORD, (index, message)) for index in missing]


def _timestamp_errors(
    header: BatchHeader, records: list[Record] | None, config: TopicConfig, now_ms: int
) -> list[_Error]:
    if config.log_append_time:
        if header.attributes & TIMESTAMP_TYPE_BIT:
            message = "Invalid timestamp type in message. Producer should not set timestamp type to LogAppendTime."
            return [(ErrorCode.INVALID_TIMESTAMP, (index, message)) for index in range(header.record_count)]
        return []
    earliest = now_ms - config.message_timestamp_before_max_ms
    latest = now_ms + config.message_timestamp_after_max_ms
    errors: list[_Error] = []
    for index, record in enumerate(records or ()):
        if record.timestamp != NO_TIMESTAMP and not earliest <= record.timestamp <= latest:
            message = (
                f"Timestamp {record.timestamp} of message with offset {index} is out of range. The timestamp should be "
                f"within [{earliest}, {latest}]"
            )
            errors.append((ErrorCode.INVALID_TIMESTAMP, (index, message)))
    return errors


def _refuse_records(errors: list[_Error]) -> Invalid:
    record_errors = [error for _, error in errors]
    if any(code is ErrorCode.INVALID_TIMESTAMP for code, _ in errors):
        return Invalid(
            ErrorCode.INVALID_TIMESTAMP,
            "One or more records have been rejected due to invalid timestamp",
            record_errors,
        )
    shown = [f"RecordError(batchIndex={index}, message='{message}')" for index, message in record_errors[:3]]
    return Invalid(
        ErrorCode.INVALID_RECORD,
        f"One or more records have been rejected due to {len(errors)} record errors in total, and only showing the "
        f"first three errors at most: [{', '.join(shown)}]",
        record_errors,
    )


def _level(config: TopicConfig, codec: int) -> int | None:
    if codec == Compression.GZIP:
        return config.compression_gzip_level if config.compression_gzip_level >= 0 else None  # -1: the default
    if codec == Compression.LZ4:
        return config.compression_lz4_level
    if codec == Compression.ZSTD:
        return config.compression_zstd_level
    return None
