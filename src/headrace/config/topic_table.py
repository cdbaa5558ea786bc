"""The topic settings: Kafka's (release 4.3), and ours."""

from __future__ import annotations

from typing import Final

from .setting import LONG_MAX, Setting, Type, gzip_level_check, throttled_replicas_check

COMPRESSION_TYPES: Final = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
CLEANUP_POLICIES: Final = ("compact", "delete")
TIMESTAMP_TYPES: Final = ("CreateTime", "LogAppendTime")
VALIDATIONS: Final = ("headers", "full")

# Kafka's words, which clients get unchanged.
_NO_TIERING: Final = (
    "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."
)
_NO_TIER = "there is no remote storage yet"


def _topic(
    name: str,
    kind: Type,
    default: float | bool | str | tuple[str, ...],
    about: str,
    *synonyms: str,
    at_least: float | None = None,
    at_most: float | None = None,
    choices: tuple[str, ...] = (),
    unserved: str = "",
    refused: str = "",
) -> Setting:
    return Setting(
        name, kind, default, about, scope="topic", update="cluster-wide", at_least=at_least, at_most=at_most,
        choices=choices, synonyms=synonyms, unserved=unserved, refused=refused,
    )  # fmt: skip


_INT, _LONG, _BOOLEAN, _STRING, _LIST = Type.INT, Type.LONG, Type.BOOLEAN, Type.STRING, Type.LIST

TOPIC_ROWS: Final[tuple[Setting, ...]] = (
    _topic("cleanup.policy", _LIST, ("delete",),
           "The cleanup policy of old segments: `delete` by age and size, `compact` by key, both, or none when empty.",
           "log.cleanup.policy", choices=CLEANUP_POLICIES),
    Setting("compression.gzip.level", _INT, -1, "gzip's level when the broker recompresses; -1 is its default.",
            scope="topic", update="cluster-wide", check=gzip_level_check, synonyms=("compression.gzip.level",)),
    _topic("compression.lz4.level", _INT, 9, "lz4's level when the broker recompresses.",
           "compression.lz4.level", at_least=1, at_most=17),
    _topic("compression.type", _STRING, "producer",
           "Compression of stored batches: `producer` keeps what came; with a codec the broker recompresses the rest.",
           "compression.type", choices=COMPRESSION_TYPES),
    _topic("compression.zstd.level", _INT, 3, "zstd's level when the broker recompresses.",
           "compression.zstd.level", at_least=-131072, at_most=22),
    _topic("delete.retention.ms", _LONG, 86400000,
           "How long a tombstone stays readable after the cleaner has reached it.",
           "log.cleaner.delete.retention.ms", at_least=0),
    _topic("file.delete.delay.ms", _LONG, 60000, "How long the broker keeps the files of a deleted segment.",
           "log.segment.delete.delay.ms", at_least=0),
    _topic("flush.messages", _LONG, LONG_MAX, "Records that a partition takes before the broker syncs its log to disk.",
           "log.flush.interval.messages", at_least=1),
    _topic("flush.ms", _LONG, LONG_MAX,
           "Time that an appended record may wait before the broker syncs its log to disk.",
           "log.flush.interval.ms", "log.flush.scheduler.interval.ms", at_least=0),
    Setting("follower.replication.throttled.replicas", _LIST, (),
            "Replicas that fetch at `follower.replication.throttled.rate` at most while they are not in sync: "
            "partition:broker pairs, or `*`.",
            scope="topic", update="cluster-wide",
            check=throttled_replicas_check("follower.replication.throttled.replicas"), repeats=True),
    _topic("index.interval.bytes", _INT, 4096, "Bytes of log between two entries of the offset index.",
           "log.index.interval.bytes", at_least=0),
    Setting("leader.replication.throttled.replicas", _LIST, (),
            "Replicas whose leaders feed followers at `leader.replication.throttled.rate` at most while the followers "
            "are not in sync: partition:broker pairs, or `*`.",
            scope="topic", update="cluster-wide",
            check=throttled_replicas_check("leader.replication.throttled.replicas"), repeats=True),
    _topic("local.retention.bytes", _LONG, -2, "Bytes of a tiered partition to keep locally; -2: `retention.bytes`.",
           "log.local.retention.bytes", at_least=-2, unserved=_NO_TIER),
    _topic("local.retention.ms", _LONG, -2, "Age of a tiered partition's records to keep locally; -2: `retention.ms`.",
           "log.local.retention.ms", at_least=-2, unserved=_NO_TIER),
    _topic("max.compaction.lag.ms", _LONG, LONG_MAX, "How long a record may stay uncompacted at most.",
           "log.cleaner.max.compaction.lag.ms", at_least=1),
    _topic("max.message.bytes", _INT, 1048588, "The largest record batch that the broker accepts, headers included.",
           "message.max.bytes", at_least=0),
    _topic("message.timestamp.after.max.ms", _LONG, 3600000,
           "How far ahead of the broker's clock a record's timestamp may be.",
           "log.message.timestamp.after.max.ms", at_least=0),
    _topic("message.timestamp.before.max.ms", _LONG, LONG_MAX,
           "How far behind the broker's clock a record's timestamp may be.",
           "log.message.timestamp.before.max.ms", at_least=0),
    _topic("message.timestamp.type", _STRING, "CreateTime",
           "The clock that stamps records: the producer's (`CreateTime`) or the broker's (`LogAppendTime`).",
           "log.message.timestamp.type", choices=TIMESTAMP_TYPES),
    _topic("min.cleanable.dirty.ratio", Type.DOUBLE, 0.5,
           "Share of a log that must be uncompacted before the cleaner compacts it.",
           "log.cleaner.min.cleanable.ratio", at_least=0, at_most=1),
    _topic("min.compaction.lag.ms", _LONG, 0, "How long the cleaner leaves a new record alone.",
           "log.cleaner.min.compaction.lag.ms", at_least=0),
    _topic("min.insync.replicas", _INT, 1,
           "In-sync replicas that a write with acks=all needs; all replicas if a topic has fewer.",
           "min.insync.replicas", at_least=1),
    _topic("preallocate", _BOOLEAN, False, "Whether the broker gives a new segment's file its full size at once.",
           "log.preallocate", unserved="segments grow as they are written"),
    _topic("remote.log.copy.disable", _BOOLEAN, False,
           "Whether copying to remote storage stops; copied segments stay readable.",
           unserved=_NO_TIER),
    _topic("remote.log.delete.on.disable", _BOOLEAN, False,
           "Whether the broker deletes the copied segments when remote storage is switched off.", unserved=_NO_TIER),
    _topic("remote.storage.enable", _BOOLEAN, False, "Whether the topic's old segments move to remote storage.",
           refused=_NO_TIERING),
    _topic("retention.bytes", _LONG, -1,
           "The size of a partition at which the broker deletes its oldest segments; -1 is unlimited.",
           "log.retention.bytes"),
    _topic("retention.ms", _LONG, 604800000,
           "The age at which the broker deletes a partition's old segments; -1 is unlimited.",
           "log.retention.ms", "log.retention.minutes", "log.retention.hours", at_least=-1),
    _topic("segment.bytes", _INT, 1073741824, "The size at which a segment ends and the next one begins.",
           "log.segment.bytes", at_least=1048576),
    _topic("segment.index.bytes", _INT, 10485760, "The size at which an offset index is full and its segment ends.",
           "log.index.size.max.bytes", at_least=4),
    _topic("segment.jitter.ms", _LONG, 0, "Random time taken off `segment.ms`, to spread the rolling of segments.",
           "log.roll.jitter.ms", "log.roll.jitter.hours", at_least=0),
    _topic("segment.ms", _LONG, 604800000, "The age at which a segment ends and the next one begins.",
           "log.roll.ms", "log.roll.hours", at_least=1),
    _topic("unclean.leader.election.enable", _BOOLEAN, False,
           "Whether a replica out of sync may lead if no other is left, which loses records.",
           "unclean.leader.election.enable"),
    Setting("record.validation", _STRING, "headers",
            "The checks of a compressed batch: its header and CRC, or (`full`) every record in it.",
            scope="topic", update="cluster-wide", choices=VALIDATIONS, synonyms=("record.validation",), ours=True),
    Setting("max.decompressed.bytes", _INT, 104857600,
            "Bytes to which a batch may decompress if the broker opens it; the default is the largest request.",
            scope="topic", update="cluster-wide", at_least=131072, synonyms=("max.decompressed.bytes",), ours=True),
)  # fmt: skip
