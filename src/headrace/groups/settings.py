"""The broker settings of groups."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.groups.consumer.settings import ConsumerSettings


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The broker settings of groups; the defaults are Kafka's."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 2**31 - 1
    initial_rebalance_delay_ms: int = 3_000
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    retention_check_interval_ms: int = 600_000
    groups_max: int = 100_000
    """The limit of groups in all shards of a broker; beyond it COORDINATOR_NOT_AVAILABLE."""
    consumer: ConsumerSettings = field(default_factory=ConsumerSettings)
    """The settings of consumer groups without their own."""
