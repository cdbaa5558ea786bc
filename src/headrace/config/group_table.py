"""Settings of the group coordinator, classic protocol and offsets."""

from __future__ import annotations

from typing import Final

from .setting import INT_MAX, Setting, Type

_SMALL_PIECES: Final = "the coordinator reads logs in pieces so small that a replay does not stall the event loop"
_ONE_LOOP: Final = "groups share the event loop and write each batch when it is ready"

GROUP_ROWS: Final[tuple[Setting, ...]] = (
    Setting("group.min.session.timeout.ms", Type.INT, 6000, "The shortest session timeout that a member may ask for."),
    Setting(
        "group.max.session.timeout.ms", Type.INT, 1800000, "The longest session timeout that a member may ask for."
    ),
    Setting(
        "group.initial.rebalance.delay.ms",
        Type.INT,
        3000,
        "How long an empty group waits for more members before its first rebalance.",
    ),
    Setting("group.max.size", Type.INT, INT_MAX, "The most members in a group.", at_least=1),
    Setting(
        "group.coordinator.rebalance.protocols",
        Type.LIST,
        ("classic", "consumer", "streams"),
        "Group protocols that members may use: `classic` always, `streams` not yet.",
        choices=("consumer", "classic", "share", "streams"),
    ),
    Setting(
        "offset.metadata.max.bytes",
        Type.INT,
        4096,
        "The longest metadata text that a member may commit with an offset.",
    ),
    Setting(
        "offsets.commit.timeout.ms",
        Type.INT,
        5000,
        "How long a group waits for its records to commit.",
        at_least=1,
    ),
    Setting(
        "offsets.load.buffer.size",
        Type.INT,
        5242880,
        "Bytes that the coordinator reads at a time when it loads groups from the log.",
        at_least=1,
        unserved=_SMALL_PIECES,
    ),
    Setting(
        "offsets.retention.minutes",
        Type.INT,
        10080,
        "How long the coordinator keeps the offsets of an empty group.",
        at_least=1,
    ),
    Setting(
        "offsets.retention.check.interval.ms",
        Type.LONG,
        600000,
        "How often the coordinator looks for expired offsets.",
        at_least=1,
    ),
    Setting("offsets.topic.num.partitions", Type.INT, 50, "Partitions of `__consumer_offsets`.", at_least=1),
    Setting(
        "offsets.topic.replication.factor",
        Type.SHORT,
        3,
        "Replicas of `__consumer_offsets`, at most as many as there are brokers.",
        at_least=1,
    ),
    Setting("offsets.topic.segment.bytes", Type.INT, 104857600, "Segment size of `__consumer_offsets`.", at_least=1),
    Setting(
        "offsets.topic.compression.codec",
        Type.INT,
        0,
        "Compression of batches in `__consumer_offsets`: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
        at_least=0,
        at_most=4,
    ),
    Setting(
        "group.coordinator.threads", Type.INT, 4, "Threads of the group coordinator.", at_least=1, unserved=_ONE_LOOP
    ),
    Setting(
        "group.coordinator.background.threads",
        Type.INT,
        2,
        "Threads for the coordinator's own housekeeping.",
        at_least=1,
        unserved=_ONE_LOOP,
    ),
    Setting(
        "group.coordinator.append.linger.ms",
        Type.INT,
        -1,
        "How long the coordinator gathers writes before it appends them; -1 adapts.",
        at_least=-1,
        unserved=_ONE_LOOP,
    ),
    Setting(
        "group.coordinator.cached.buffer.max.bytes",
        Type.INT,
        1048588,
        "The largest buffer that the coordinator keeps for reuse.",
        at_least=524288,
        update="cluster-wide",
        unserved=_ONE_LOOP,
    ),
)
