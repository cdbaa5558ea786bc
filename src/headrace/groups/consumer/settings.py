"""The settings of consumer groups: the broker's and a group's own."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.groups.consumer.assignors import ASSIGNORS


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """Times and sizes of consumer groups; the defaults are Kafka's."""

    session_timeout_ms: int = 45_000
    """The session timeout of a member."""
    heartbeat_interval_ms: int = 5_000
    """The heartbeat interval that members are given."""
    assignment_interval_ms: int = 1_000
    """The minimum time between two computations of targets (KIP-1263); 0: at once."""
    max_size: int = 2**31 - 1
    """The limit of members; beyond it GROUP_MAX_SIZE_REACHED."""
    regex_refresh_interval_ms: int = 600_000
    """How long the resolved topics of a regular expression are valid."""
    assignors: tuple[str, ...] = tuple(ASSIGNORS)
    """The assignors that members may choose; the first is the default."""
    upgrades: bool = True
    """Whether a classic group with members becomes a consumer group when a member of the newer protocol joins."""
    downgrades: bool = True
    """Whether a consumer group with classic members only becomes a classic group."""
