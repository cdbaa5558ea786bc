"""What of the broker's settings, and of a group's own, a consumer group obeys."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.groups.consumer.assignors import ASSIGNORS


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """Times and sizes of consumer groups; the defaults are Kafka's."""

    session_timeout_ms: int = 45_000
    """How long a member may be silent."""
    heartbeat_interval_ms: int = 5_000
    """The heartbeat interval that members are given."""
    assignment_interval_ms: int = 1_000
    """The least time between two computations of targets (KIP-1263); 0: at once."""
    max_size: int = 2**31 - 1
    """Members of a group; one more is refused with GROUP_MAX_SIZE_REACHED."""
    regex_refresh_interval_ms: int = 600_000
    """How long what a regular expression was found to mean is believed."""
    assignors: tuple[str, ...] = tuple(ASSIGNORS)
    """Those that members may ask for; the first is the one of groups whose members ask for none."""
    upgrades: bool = True
    """Whether a classic group with members becomes a consumer group when somebody of the newer protocol joins."""
    downgrades: bool = True
    """Whether a consumer group that only classic members are left of becomes a classic one."""
