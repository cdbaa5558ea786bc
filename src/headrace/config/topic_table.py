"""The topic settings: Kafka's (release 4.3), and ours."""

from __future__ import annotations

from typing import Final

from .setting import LONG_MAX, Setting, Type, gzip_level_check, throttled_replicas_check

COMPRESSION_TYPES: Final = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
CLEANUP_POLICIES: Final = ("compact", "delete")
TIMESTAMP_TYPES: Final = ("CreateTime", "LogAppendTime")
VALIDATIONS: Final = ("headers", "full")

# Kafka's words, which clients are told as they are.
_NO_TIERING: Final = (
    "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."
)
_NO_TIER = "there is no remote storage yet"
_NO_THROTTLE = "replication is not throttled yet"


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
           "What happens to old data: `delete` by age and size, `compact` by key, both, or nothing when empty.",
           "log.cleanup.policy", choices=CLEANUP_POLICIES),
    Setting("compression.gzip.level", _INT, -1, "How hard gzip tries when the broker recompresses; -1 is its default.",
            scope="topic", update="cluster-wide", check=gzip_level_check, synonyms=("compression.gzip.level",)),
    _topic("compression.lz4.level", _INT, 9, "How hard lz4 tries when the broker recompresses.",
           "compression.lz4.level", at_least=1, at_most=17),
    _topic("compression.type", _STRING, "producer",
           "How batches are stored: `producer` keeps what arrived, another name recompresses what differs.",
           "compression.type", choices=COMPRESSION_TYPES),
    _topic("compression.zstd.level", _INT, 3, "How hard zstd tries when the broker recompresses.",
           "compression.zstd.level", at_least=-131072, at_most=22),
    _topic("delete.retention.ms", _LONG, 86400000, "How long a tombstone stays readable once compaction has met it.",
           "log.cleaner.delete.retention.ms", at_least=0),
    _topic("file.delete.delay.ms", _LONG, 60000, "How long a removed segment's files stay before they are unlinked.",
           "log.segment.delete.delay.ms", at_least=0),
    _topic("flush.messages", _LONG, LONG_MAX, "Records appended to a partition before its log is synced to disk.",
           "log.flush.interval.messages", at_least=1),
    _topic("flush.ms", _LONG, LONG_MAX, "Time that an appended record may wait before its log is synced to disk.",
           "log.flush.interval.ms", "log.flush.scheduler.interval.ms", at_least=0),
    Setting("follower.replication.throttled.replicas", _LIST, (),
            "Replicas whose fetching from leaders is throttled: partition:broker pairs, or `*`.",
            scope="topic", update="cluster-wide", unserved=_NO_THROTTLE,
            check=throttled_replicas_check("follower.replication.throttled.replicas")),
    _topic("index.interval.bytes", _INT, 4096, "Bytes of log between two entries of the offset index.",
           "log.index.interval.bytes", at_least=0),
    Setting("leader.replication.throttled.replicas", _LIST, (),
            "Replicas that leaders feed at a throttled pace: partition:broker pairs, or `*`.",
            scope="topic", update="cluster-wide", unserved=_NO_THROTTLE,
            check=throttled_replicas_check("leader.replication.throttled.replicas")),
    _topic("local.retention.bytes", _LONG, -2, "Local bytes kept of a tiered partition; -2: `retention.bytes`.",
           "log.local.retention.bytes", at_least=-2, unserved=_NO_TIER),
    _topic("local.retention.ms", _LONG, -2, "Age kept locally of a tiered partition; -2 follows `retention.ms`.",
           "log.local.retention.ms", at_least=-2, unserved=_NO_TIER),
    _topic("max.compaction.lag.ms", _LONG, LONG_MAX, "The longest that a record may stay out of reach of compaction.",
           "log.cleaner.max.compaction.lag.ms", at_least=1),
    _topic("max.message.bytes", _INT, 1048588, "The largest record batch that is accepted, headers included.",
           "message.max.bytes", at_least=0),
    _topic("message.timestamp.after.max.ms", _LONG, 3600000,
           "How far ahead of the broker's clock a record's timestamp may be.",
           "log.message.timestamp.after.max.ms", at_least=0),
    _topic("message.timestamp.before.max.ms", _LONG, LONG_MAX,
           "How far behind the broker's clock a record's timestamp may be.",
           "log.message.timestamp.before.max.ms", at_least=0),
    _topic("message.timestamp.type", _STRING, "CreateTime",
           "Whose clock stamps records: the producer's (`CreateTime`) or the broker's (`LogAppendTime`).",
           "log.message.timestamp.type", choices=TIMESTAMP_TYPES),
    _topic("min.cleanable.dirty.ratio", Type.DOUBLE, 0.5,
           "Share of a log that must be uncompacted before the cleaner takes it.",
           "log.cleaner.min.cleanable.ratio", at_least=0, at_most=1),
    _topic("min.compaction.lag.ms", _LONG, 0, "How long a record is out of reach of compaction.",
           "log.cleaner.min.compaction.lag.ms", at_least=0),
    _topic("min.insync.replicas", _INT, 1,
           "Replicas that must be in sync for a write with acks=all to be taken; all of them where a topic has fewer.",
           "min.insync.replicas", at_least=1),
    _topic("preallocate", _BOOLEAN, False, "Whether a new segment's file is given its full size at once.",
           "log.preallocate", unserved="segments grow as they are written"),
    _topic("remote.log.copy.disable", _BOOLEAN, False, "Stops copying to remote storage; what is there stays readable.",
           unserved=_NO_TIER),
    _topic("remote.log.delete.on.disable", _BOOLEAN, False,
           "Whether switching remote storage off deletes what is there.", unserved=_NO_TIER),
    _topic("remote.storage.enable", _BOOLEAN, False, "Whether the topic's old segments move to remote storage.",
           refused=_NO_TIERING),
    _topic("retention.bytes", _LONG, -1, "The size at which a partition's oldest segments go; -1 is unlimited.",
           "log.retention.bytes"),
    _topic("retention.ms", _LONG, 604800000, "The age at which a partition's oldest segments go; -1 is unlimited.",
           "log.retention.ms", "log.retention.minutes", "log.retention.hours", at_least=-1),
    _topic("segment.bytes", _INT, 1073741824, "The size at which a segment ends and the next one begins.",
           "log.segment.bytes", at_least=1048576),
    _topic("segment.index.bytes", _INT, 10485760, "The size at which a full offset index ends its segment.",
           "log.index.size.max.bytes", at_least=4),
    _topic("segment.jitter.ms", _LONG, 0, "Random time taken off `segment.ms`, to spread the rolling of segments.",
           "log.roll.jitter.ms", "log.roll.jitter.hours", at_least=0),
    _topic("segment.ms", _LONG, 604800000, "The age at which a segment ends and the next one begins.",
           "log.roll.ms", "log.roll.hours", at_least=1),
    _topic("unclean.leader.election.enable", _BOOLEAN, False,
           "Whether a replica that is not in sync may lead when no other is left, losing records.",
           "unclean.leader.election.enable", unserved="there are no other replicas to elect yet"),
    Setting("record.validation", _STRING, "headers",
            "What is checked of a compressed batch: its header and CRC, or (`full`) every record in it.",
            scope="topic", update="cluster-wide", choices=VALIDATIONS, synonyms=("record.validation",), ours=True),
    Setting("max.decompressed.bytes", _INT, 104857600,
            "What a batch may decompress to where it is opened: as much as a request could bring without compression.",
            scope="topic", update="cluster-wide", at_least=131072, synonyms=("max.decompressed.bytes",), ours=True),
)  # fmt: skip
