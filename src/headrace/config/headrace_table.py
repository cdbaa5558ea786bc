"""Broker settings that Apache Kafka does not have: how an acknowledgement waits for the disk, what the broker
publishes of itself, and our named bounds."""

from __future__ import annotations

from typing import Final

from .setting import Setting, Type, metrics_listener_check
from .topic_table import VALIDATIONS

ACKS_FLUSH_POLICIES: Final = ("none", "before-reply")

HEADRACE_ROWS: Final[tuple[Setting, ...]] = (
    Setting("acks.flush", Type.STRING, "none",
            "`before-reply`: the broker syncs a write to disk before it acknowledges it; `none`: replicas protect it.",
            choices=ACKS_FLUSH_POLICIES, ours=True),
    Setting("record.validation", Type.STRING, "headers", "Default of the topic setting of this name.",
            choices=VALIDATIONS, update="cluster-wide", ours=True),
    Setting("max.decompressed.bytes", Type.INT, 104857600, "Default of the topic setting of this name.",
            at_least=131072, update="cluster-wide", ours=True),
    Setting("self.topics", Type.BOOLEAN, False,
            "Publish the broker's log lines and metrics, as JSON, in `headrace.logs` and `headrace.metrics`.",
            ours=True),
    Setting("self.topics.metrics.interval.ms", Type.INT, 10000, "How often `self.topics` publishes the metrics.",
            at_least=100, ours=True),
    Setting("metrics.listener", Type.STRING, "127.0.0.1:9404",
            "HOST:PORT of `/metrics`, `/livez` and `/readyz` over HTTP; port 0 takes a free one, `-1` serves none.",
            check=metrics_listener_check, ours=True),
    Setting("metrics.protocol", Type.STRING, "PLAINTEXT",
            "`SSL`: those pages are served over TLS, with the stores of `ssl.*` or `listener.name.metrics.ssl.*`.",
            choices=("PLAINTEXT", "SSL"), ours=True),
    Setting("metrics.token", Type.PASSWORD, None,
            "What a request for those pages has to show: `Authorization: Bearer TOKEN`. Not set: nothing.", ours=True),
    Setting("metrics.topics.max", Type.INT, 100,
            "Topics that `/metrics` has series of their own for; it counts the others in the totals alone.",
            at_least=0, at_most=2000, ours=True),
    Setting("metrics.partitions.max", Type.INT, 1000,
            "Partitions that `/metrics` has series of their own for, such as the size of their log.",
            at_least=0, at_most=20000, ours=True),
    Setting("metrics.offsets.max", Type.INT, 1000,
            "Committed offsets of groups that `/metrics` shows one by one; of the others it gives the lag of topics.",
            at_least=0, at_most=20000, ours=True),
    Setting("queued.max.response.bytes", Type.LONG, 67108864,
            "Bytes of responses in memory, all connections; beyond it the broker stops reading from slow clients.",
            at_least=1048576, ours=True),
    Setting("connection.max.queued.requests", Type.INT, 256,
            "Unanswered requests of one connection; beyond it the broker stops reading from that connection.",
            at_least=1, ours=True),
    Setting("busy.poll.us", Type.INT, 100,
            "How long the broker polls for the next request before it sleeps, if one tends to follow; 0: never.",
            at_least=0, at_most=10000, ours=True),
    Setting("connections.max.waiting.fetches", Type.INT, 10000,
            "Fetches that wait for data, all connections; beyond it the oldest of who has most is answered early.",
            at_least=1, ours=True),
    Setting("producer.ids.max.per.partition", Type.INT, 10000,
            "Producers that a partition remembers; beyond it the partition forgets those that were idle longest.",
            at_least=1, ours=True),
    Setting("log.open.segments.max", Type.INT, 4096,
            "Segments whose files the broker keeps open; beyond it the broker closes those used least recently.",
            at_least=16, ours=True),
    Setting("early.fencing.enable", Type.BOOLEAN, True,
            "Whether the controller fences a broker at once that refuses connections, and voters replace such a leader "
            "at once; false: only silence counts, as in Apache Kafka.",
            ours=True),
    Setting("group.count.max", Type.INT, 100000,
            "Groups that a broker keeps; beyond it a new group is refused. The last tenth is for users with few.",
            at_least=1, ours=True),
)  # fmt: skip
