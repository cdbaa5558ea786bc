"""Broker settings that Apache Kafka does not have: how an acknowledgement waits for the disk, what the broker
publishes of itself, and our named bounds."""

from __future__ import annotations

from typing import Final

from .setting import Setting, Type
from .topic_table import VALIDATIONS

ACKS_FLUSH_POLICIES: Final = ("none", "before-reply")

HEADRACE_ROWS: Final[tuple[Setting, ...]] = (
    Setting("acks.flush", Type.STRING, "none",
            "`before-reply`: nothing is acknowledged before it is synced to disk; `none`: replicas are the safety.",
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
    Setting("queued.max.response.bytes", Type.LONG, 67108864,
            "Bytes of answers held in memory over all connections; beyond it slow readers are not read from.",
            at_least=1048576, ours=True),
    Setting("connection.max.queued.requests", Type.INT, 256,
            "Requests of one connection that are not answered; beyond it reading from it stops.",
            at_least=1, ours=True),
    Setting("busy.poll.us", Type.INT, 100,
            "How long the broker looks for the next request before it sleeps, where one tends to follow; 0: never.",
            at_least=0, at_most=10000, ours=True),
    Setting("connections.max.waiting.fetches", Type.INT, 10000,
            "Fetches that wait for data, over all connections; beyond it a fetch is answered at once.",
            at_least=1, ours=True),
    Setting("producer.ids.max.per.partition", Type.INT, 10000,
            "Producers that a partition remembers; beyond it those that have been idle longest are forgotten.",
            at_least=1, ours=True),
    Setting("log.open.segments.max", Type.INT, 4096,
            "Segments whose files are held open; beyond it those used least recently are closed.",
            at_least=16, ours=True),
    Setting("group.count.max", Type.INT, 100000,
            "Groups that a broker keeps; beyond it a new group is refused.",
            at_least=1, ours=True),
)  # fmt: skip
