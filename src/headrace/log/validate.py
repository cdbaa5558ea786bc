"""The checks of a client's batch before it is appended, beyond those of `LogWriter` for every batch.

The usual batch of the usual topic never gets here. Those that do are of topics that compact, stamp their own time,
bound timestamps, recompress or validate in full; and batches that failed a check, to find the error. Errors and their
messages are those of Kafka's LogValidator.

A compressed body is opened only if its topic requires it, as bytes that are walked natively: no record becomes an
object. Long checks (`HERE` has the limits) are for a worker: a few KB may decompress to as many MB.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final, NamedTuple

from headrace.config.topic import TopicConfig
from headrace.log.guards import Guard
from headrace.wire._walk import BAD_OFFSET, BAD_TIMESTAMP, MALFORMED, NULL_KEY, examine
from headrace.wire.batch import (
    BATCH_OVERHEAD,
    COMPRESSION_MASK,
    CREATE_TIME,
    LENGTH_OVERHEAD,
    MAGIC,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    check_crc,
    read_header,
    set_max_timestamp,
)
from headrace.wire.errors import ErrorCode
from headrace.wire.primitives import Buffer
from headrace.wire.records import BodyTooLarge, Compression, CorruptBatch, decompress, recompress_batch

LONG_MAX = (1 << 63) - 1

ANY_BATCH_BIT: Final = 0x80
"""A bit that is set in the attributes of no batch: among `opened_bits` it says that every batch is opened."""

OPENED_HERE_BYTES: Final = 32 * 1024
"""What a body may open to on the event loop: it takes 10 to 60 us then, less than the way to a worker and back."""
COMPRESSED_HERE_BYTES: Final = 16 * 1024
"""What is not tried on the event loop; and what is not compressed there, which costs ten times as much."""
RECORD_ERRORS_MAX: Final = 100
"""Records of a batch that are named in its refusal: 1 MB may hold 150,000 without a key, and naming one costs 1 us."""

RecordError = tuple[int, str]
"""(index of the record in its batch, its error), as in a Produce response."""

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


class Accepted:
    """A batch as it is to be appended: as it came, or rewritten. The time of its append is the log's to write."""

    __slots__ = ("data", "guard", "max_timestamp")

    def __init__(self, data: Buffer, max_timestamp: int) -> None:
        self.data = data
        self.max_timestamp = max_timestamp
        self.guard: Guard | None = None
        """What a transactional batch has claimed of its producer's partition; None where transactions are not
        verified."""

    def __len__(self) -> int:
        return len(self.data)


Checked = Accepted | Invalid


class Opening(NamedTuple):
    """How far a check may go: the largest body that it opens, and whether it is in nobody's way."""

    max_bytes: int
    aside: bool
    room: memoryview | None = None
    """Memory for that body."""


HERE: Final = Opening(OPENED_HERE_BYTES, aside=False)
"""On the event loop."""


def needs_full_checks(config: TopicConfig) -> bool:
    """Whether a topic's batches need more than the checks of their headers."""
    return (
        config.compact
        or config.log_append_time
        or config.compression_type != "producer"
        or config.message_timestamp_before_max_ms != LONG_MAX
        or config.record_validation != "headers"
    )


def opens_compressed(config: TopicConfig) -> bool:
    """Whether a topic's compressed batches are opened (or some of them are: those of another codec than its own)."""
    return (
        config.record_validation != "headers"
        or config.compression_type != "producer"
        or config.compact
        or (not config.log_append_time and config.message_timestamp_before_max_ms != LONG_MAX)
    )


def opened_bits(config: TopicConfig) -> int:
    """Returns the bits of a batch's attributes that tell that a topic's batches are opened: `ANY_BATCH_BIT` if all
    are."""
    bits = COMPRESSION_MASK if opens_compressed(config) else 0
    return bits | ANY_BATCH_BIT if compresses(config) else bits


def compresses(config: TopicConfig) -> bool:
    """Whether a topic's uncompressed batches are compressed."""
    return config.compression_type not in ("producer", "uncompressed")


def check_shape(data: Buffer, config: TopicConfig, name: str) -> BatchHeader | Invalid:
    """Returns the header of a client's one batch, or the error in its frame, header or checksum."""
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


def check_client_batch(
    data: Buffer, config: TopicConfig, name: str, now_ms: int, opening: Opening = HERE
) -> Checked | None:
    """All checks of a client's batch, in Kafka's order, and the rewriting that its topic asks for.

    None, and nothing is decided, where that takes more than `opening` allows. A batch that opens to more than its topic
    allows is refused.
    """
    header = check_shape(data, config, name)
    if isinstance(header, Invalid):
        return header
    codec = _CODECS.get(config.compression_type, header.compression)
    view = memoryview(data)
    body: Buffer | None = view[BATCH_OVERHEAD:]
    if header.compression != Compression.NONE:
        if not _opens(header, config, codec):
            body = None
        elif not opening.aside and len(data) > COMPRESSED_HERE_BYTES:
            return None
        else:
            try:
                body = decompress(
                    header.compression, view[BATCH_OVERHEAD:], opening.max_bytes, opening.room, narrow=True
                )
            except BodyTooLarge:
                if opening.max_bytes < config.max_decompressed_bytes:
                    return None
                return Invalid(
                    ErrorCode.MESSAGE_TOO_LARGE,
                    f"A record batch in the append to {name} decompresses to more than {opening.max_bytes} bytes.",
                )
            except CorruptBatch as error:
                return Invalid(ErrorCode.INVALID_RECORD, f"{error} in topic partition {name}")
    if codec != header.compression and not opening.aside and len(body or b"") > COMPRESSED_HERE_BYTES:
        return None
    looked = _look_into(header, body, config, name, now_ms)
    if isinstance(looked, Invalid):
        return looked
    if codec != header.compression:
        assert body is not None, "a batch to recompress is open"
        if codec == Compression.NONE and len(body) + BATCH_OVERHEAD > config.max_message_bytes:
            return _too_large(len(body) + BATCH_OVERHEAD, config, name)
        data = recompress_batch(header, body, compression=codec, level=_level(config, codec), max_timestamp=looked)
    elif not config.log_append_time and (looked != header.max_timestamp or header.attributes & TIMESTAMP_TYPE_BIT):
        data = bytearray(data)
        set_max_timestamp(data, 0, CREATE_TIME, looked)
    if len(data) > config.max_message_bytes:
        return _too_large(len(data), config, name)
    return Accepted(data, looked)


def check_in_helper(data: Buffer, config: TopicConfig, name: str, now_ms: int, max_bytes: int) -> Checked | None:
    """See `check_client_batch`: in a process of its own, with memory of its own for a body of `max_bytes`."""
    return check_client_batch(data, config, name, now_ms, Opening(max_bytes, aside=True))


def _too_large(size: int, config: TopicConfig, name: str) -> Invalid:
    return Invalid(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"Message batch size is {size} bytes in append to partition {name}, which exceeds the maximum configured size "
        f"of {config.max_message_bytes}.",
    )


def _opens(header: BatchHeader, config: TopicConfig, codec: int) -> bool:
    """Whether a compressed batch must be opened; else its header is enough."""
    if config.record_validation != "headers" or codec != header.compression or config.compact:
        return True
    return not config.log_append_time and config.message_timestamp_before_max_ms != LONG_MAX


def _look_into(header: BatchHeader, body: Buffer | None, config: TopicConfig, name: str, now_ms: int) -> int | Invalid:
    """The largest timestamp of the records, in a decompressed body (None: by the header alone), or the error."""
    create_time = not config.log_append_time
    stamped = header.attributes & TIMESTAMP_TYPE_BIT != 0
    # Records have the header's time where that bit is set.
    earliest = max(now_ms - config.message_timestamp_before_max_ms, -LONG_MAX - 1)
    latest = min(now_ms + config.message_timestamp_after_max_ms, LONG_MAX)
    errors: list[tuple[int, int]] = []
    count = 0
    largest = header.max_timestamp
    if body is not None:
        wanted = NULL_KEY if config.compact else 0
        wanted |= BAD_TIMESTAMP if create_time and not stamped else 0
        if header.compression != Compression.NONE or config.record_validation != "headers" or compresses(config):
            wanted |= BAD_OFFSET
        found = array("q", bytes(8 * (1 + 2 * RECORD_ERRORS_MAX)))
        in_records = examine(
            body, 0, len(body), header.record_count, header.base_timestamp, earliest, latest, wanted, found
        )
        if in_records == MALFORMED:
            return Invalid(
                ErrorCode.INVALID_RECORD,
                f"The records of a batch are malformed, or not the {header.record_count} that it announces, in {name}",
            )
        count = found[0]
        errors = [(found[at], found[at + 1]) for at in range(1, 2 * min(count, RECORD_ERRORS_MAX), 2)]
        if not stamped:
            largest = in_records
    elif create_time and not stamped and largest > latest:
        return Invalid(ErrorCode.INVALID_TIMESTAMP, _INVALID_TIMESTAMP)
    if not errors and stamped and not (create_time and largest != NO_TIMESTAMP and earliest <= largest <= latest):
        count = header.record_count
        errors = [(index, BAD_TIMESTAMP) for index in range(min(count, RECORD_ERRORS_MAX))]
    if not errors:
        return largest
    return _refuse_records(errors, count, stamped, (earliest, latest), name)


_INVALID_TIMESTAMP: Final = "One or more records have been rejected due to invalid timestamp"


def _refuse_records(
    errors: list[tuple[int, int]], count: int, stamped: bool, bounds: tuple[int, int], name: str
) -> Invalid:
    """The refusal of a batch with `count` bad records, of which `errors` names the first."""
    messages = {
        NULL_KEY: f"Compacted topic cannot accept message without key in topic partition {name}.",
        BAD_OFFSET: f"Inner record offsets must count up from 0 in topic partition {name}.",
        BAD_TIMESTAMP: "Invalid timestamp type in message. Producer should not set timestamp type to LogAppendTime."
        if stamped
        else f"Timestamp of message is out of range. The timestamp should be within [{bounds[0]}, {bounds[1]}]",
    }
    record_errors = [(index, messages[problem]) for index, problem in errors]
    if any(problem == BAD_TIMESTAMP for _, problem in errors):
        return Invalid(ErrorCode.INVALID_TIMESTAMP, _INVALID_TIMESTAMP, record_errors)
    shown = [f"RecordError(batchIndex={index}, message='{message}')" for index, message in record_errors[:3]]
    return Invalid(
        ErrorCode.INVALID_RECORD,
        f"One or more records have been rejected due to {count} record errors in total, and only showing the "
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
