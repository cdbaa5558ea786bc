"""One partition of `__consumer_offsets` that this broker coordinates: its shard, and what its shard writes.

Imported when there is such a partition: a broker that serves no groups does without the machine.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final

from headrace.broker.coordinator_log import build_coordinator_batch, replay_log
from headrace.groups.outcome import GroupSettings
from headrace.groups.records import Record, encode
from headrace.groups.shard import GroupShard
from headrace.wire.errors import ErrorCode

if TYPE_CHECKING:
    import asyncio

    from headrace.config import BrokerConfig
    from headrace.env.entropy import Entropy
    from headrace.log.log import Log

_BATCH_BYTES_MAX: Final = 512 * 1024
"""Records of one decision that take more than this go out as several batches (mass tombstones)."""


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

    __slots__ = ("error", "index", "leader_epoch", "load_task", "sequence", "shard", "state")

    def __init__(self, index: int, leader_epoch: int, config: BrokerConfig, entropy: Entropy) -> None:
        self.index = index
        self.leader_epoch = leader_epoch
        self.shard = GroupShard(settings_of(config), lambda: str(uuid.UUID(bytes=entropy.uuid())))
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

    async def load(self, log: Log) -> int:
        """Feeds the log to the shard; returns how many records it held. Raises OSError, CorruptBatch or DecodeError."""
        return await replay_log(log, self.shard)

    def batches(self, records: Sequence[Record], now_ms: int) -> Iterator[tuple[Sequence[Record], bytes, bool]]:
        """(records, their batch, whether it is the last) of what one decision appends: one, unless it is huge."""
        pairs = [encode(record) for record in records]
        size = sum(len(key) + len(value or b"") for key, value in pairs)
        step = len(records)
        if size > _BATCH_BYTES_MAX:
            step = max(1, step * _BATCH_BYTES_MAX // size)
        for at in range(0, len(records), step):
            batch = build_coordinator_batch(pairs[at : at + step], now_ms)
            yield records[at : at + step], batch, at + step >= len(records)


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
    )
