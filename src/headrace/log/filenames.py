"""Every file and folder name of a log directory, made and parsed in this one place.

The names are Kafka's (UnifiedLog, LogFileUtils, LocalLog): do not change.
"""

from __future__ import annotations

LOG = ".log"
INDEX = ".index"
TIME_INDEX = ".timeindex"
TRANSACTION_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
SEAL = ".seal"
"""Ours: what the derived files of a segment are to be. Kafka leaves such a name alone."""

DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"
REBUILT = ".rebuilt"
"""Ours: an index that is being built again. Kafka leaves such a name alone."""

DELETE_DIRECTORY = "-delete"
FUTURE_DIRECTORY = "-future"
STRAY_DIRECTORY = "-stray"

LOCK = ".lock"
PROBE = ".headrace-probe"
"""Ours: written and removed again to find out whether a directory works."""
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
PARTITION_METADATA = "partition.metadata"
LEADER_EPOCHS = "leader-epoch-checkpoint"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"

CLUSTER_METADATA_TOPIC = "__cluster_metadata"

DIRECTORY_NAME_MAX = 255
"""Longest name of a folder; a topic's name is shortened in `-delete` names so that they stay within it."""

SEGMENT_KINDS = (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX, SEAL)
"""The files of a segment, in the order in which they are renamed."""


def offset_name(offset: int, suffix: str) -> str:
    """`00000000000000000042.log`: twenty digits, so that names sort as offsets do."""
    return f"{offset:020d}{suffix}"


def parse_offset_name(name: str, suffix: str) -> int | None:
    """The offset in a name that ends in `suffix`, None for other names."""
    if not name.endswith(suffix):
        return None
    digits = name[: -len(suffix)]
    return int(digits) if len(digits) == 20 and digits.isascii() and digits.isdigit() else None


def directory_name(topic: str, partition: int) -> str:
    """`topic-0`."""
    return f"{topic}-{partition}"


def _unique_name(topic: str, partition: int, unique: bytes, suffix: str) -> str:
    tail = f"-{partition}.{unique.hex()}{suffix}"
    return topic[: DIRECTORY_NAME_MAX - len(tail)] + tail


def delete_directory_name(topic: str, partition: int, unique: bytes) -> str:
    """`topic-0.<32 hex digits>-delete`: a partition that is going."""
    return _unique_name(topic, partition, unique, DELETE_DIRECTORY)


def future_directory_name(topic: str, partition: int, unique: bytes) -> str:
    """`topic-0.<32 hex digits>-future`: a copy that will take the place of the partition elsewhere."""
    return _unique_name(topic, partition, unique, FUTURE_DIRECTORY)


def stray_directory_name(topic: str, partition: int, unique: bytes) -> str:
    """`topic-0.<32 hex digits>-stray`: a partition that the cluster's metadata does not know."""
    return _unique_name(topic, partition, unique, STRAY_DIRECTORY)


def parse_directory_name(name: str) -> tuple[str, int, str] | None:
    """(topic, partition, state) with state one of "", "-delete", "-future", "-stray"; None for other folders."""
    state = ""
    for suffix in (DELETE_DIRECTORY, FUTURE_DIRECTORY, STRAY_DIRECTORY):
        if name.endswith(suffix):
            stem, dot, unique = name[: -len(suffix)].rpartition(".")
            if dot and len(unique) == 32 and all(digit in "0123456789abcdef" for digit in unique):
                name, state = stem, suffix
            break
    topic, dash, partition = name.rpartition("-")
    if not dash or not topic or not partition.isascii() or not partition.isdigit() or len(partition) > 10:
        return None
    return topic, int(partition), state


def is_segment_file(name: str) -> bool:
    """Whether a name (without `.deleted`, `.cleaned`, `.swap`) is one of a segment's files."""
    return any(parse_offset_name(name, suffix) is not None for suffix in SEGMENT_KINDS)
