"""One partition of `__consumer_offsets` that this broker coordinates: its shard, and what its shard writes.

Imported when there is such a partition: a broker that serves no groups does without the machine.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final

from headrace.broker.coordinators.coordinator_log import BATCH_BYTES_MAX, build_coordinator_batches, replay_log
from headrace.groups.outcome import GroupSettings, Outcome
from headrace.groups.records import Record, encode
from headrace.groups.shard import GroupShard
from headrace.wire.errors import ErrorCode

if TYPE_CHECKING:
    import asyncio

    from headrace.config import BrokerConfig
    from headrace.env.entropy import Entropy
    from headrace.env.workers import Workers
    from headrace.log.log import Log


class LoadState(Enum):
    """Where a coordinator partition stands."""

    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    """Its log could not be read: NOT_COORDINATOR, until the partition is led anew."""


_ERROR_OF: Final = {
    LoadState.LOADING: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    LoadState.ACTIVE: ErrorCode.NONE,
    LoadState.FAILED: ErrorCode.NOT_COORDINATOR,
}


class CoordinatorPartition:
    """A partition that this broker coordinates, under one leader epoch."""

    __slots__ = ("codec", "error", "index", "leader_epoch", "load_task", "sequence", "shard", "state")

    def __init__(
        self, index: int, leader_epoch: int, config: BrokerConfig, entropy: Entropy, group_count: Callable[[], int]
    ) -> None:
        self.index = index
        self.codec = config.integer("offsets.topic.compression.codec")
        self.leader_epoch = leader_epoch
        self.shard = GroupShard(settings_of(config), lambda: str(uuid.UUID(bytes=entropy.uuid())), group_count)
        self.state = LoadState.LOADING
        self.error = _ERROR_OF[LoadState.LOADING]
        """Why its groups cannot be served now; NONE when they can."""
        self.sequence = 0
        """Counts the appends."""
        self.load_task: asyncio.Task[None] | None = None

    def enter(self, state: LoadState) -> None:
        """Says where it stands from now on."""
        self.state = state
        self.error = _ERROR_OF[state]

    @property
    def is_active(self) -> bool:
        """Whether its groups are served."""
        return self.state is LoadState.ACTIVE

    async def load(self, log: Log, workers: Workers) -> int:
        """Feeds the log to the shard; returns how many records it held. Raises OSError, CorruptBatch or DecodeError."""
        return await replay_log(log, self.shard, workers)

    def appends(self, out: Outcome, now_ms: int, max_batch_bytes: int) -> list[tuple[Sequence[Record], bytes]]:
        """(records, their batches) of each append that a decision needs: one, unless it may take effect in parts."""
        pairs = [encode(record) for record in out.records]
        batches = build_coordinator_batches(pairs, now_ms, min(BATCH_BYTES_MAX, max_batch_bytes), self.codec)
        if len(batches) == 1:
            return [(out.records, batches[0][1])]
        if out.is_atomic:
            return [(out.records, b"".join(batch for _, batch in batches))]
        appends: list[tuple[Sequence[Record], bytes]] = []
        at = 0
        for count, batch in batches:
            appends.append((out.records[at : at + count], batch))
            at += count
        return appends


def settings_of(config: BrokerConfig) -> GroupSettings:
    """What the machine obeys of a broker's settings."""
    return GroupSettings(
        min_session_timeout_ms=config.integer("group.min.session.timeout.ms"),
        max_session_timeout_ms=config.integer("group.max.session.timeout.ms"),
        max_size=config.integer("group.max.size"),
        initial_rebalance_delay_ms=config.integer("group.initial.rebalance.delay.ms"),
        offset_metadata_max_bytes=config.integer("offset.metadata.max.bytes"),
        offsets_retention_ms=config.integer("offsets.retention.minutes") * 60_000,
        retention_check_interval_ms=config.integer("offsets.retention.check.interval.ms"),
        groups_max=config.integer("group.count.max"),
    )
