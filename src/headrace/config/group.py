"""A consumer group's settings as they are in force: its own, within the broker's bounds, and the broker's for the rest.

The bounds hold twice, as in Apache Kafka: a value beyond them is refused when it is set, and where a broker's bounds
changed afterwards the nearest of what they allow is in force.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from .setting import ConfigError, parse_value
from .table import GROUP_SETTINGS

if TYPE_CHECKING:
    from .broker import BrokerConfig

SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"
ASSIGNMENT_INTERVAL: Final = "consumer.assignment.interval.ms"


def group_time_ms(broker: BrokerConfig, overrides: Mapping[str, str], name: str) -> int:
    """The configuration in force for a group with `overrides`.

    One that is no number (an adopted directory may hold such) is none.
    """
    default, lowest, highest = _broker_times_ms(broker, name)
    if name not in overrides:
        return default
    try:
        return min(max(_number(name, overrides[name]), lowest), highest)
    except ConfigError:
        return default


def _broker_times_ms(broker: BrokerConfig, name: str) -> tuple[int, int, int]:
    """What a broker has for groups without a value of their own; the least and the greatest that they may set."""
    if name == SESSION_TIMEOUT:
        return (
            broker.group_consumer_session_timeout_ms,
            broker.group_consumer_min_session_timeout_ms,
            broker.group_consumer_max_session_timeout_ms,
        )
    if name == HEARTBEAT_INTERVAL:
        return (
            broker.group_consumer_heartbeat_interval_ms,
            broker.group_consumer_min_heartbeat_interval_ms,
            broker.group_consumer_max_heartbeat_interval_ms,
        )
    return (
        broker.group_consumer_assignment_interval_ms,
        broker.group_consumer_min_assignment_interval_ms,
        broker.group_consumer_max_assignment_interval_ms,
    )


def check_group_overrides(broker: BrokerConfig, overrides: Mapping[str, str]) -> None:
    """What the alter requests check of a group's settings. Raises ConfigError in Kafka's words."""
    for name, text in sorted(overrides.items()):
        setting = GROUP_SETTINGS.get(name)
        if setting is None:
            raise ConfigError(name, text, line=f"Unknown group config name: {name}")
        parse_value(setting, text)
    for name in (HEARTBEAT_INTERVAL, SESSION_TIMEOUT, ASSIGNMENT_INTERVAL):
        if name not in overrides:
            continue
        _, lowest, highest = _broker_times_ms(broker, name)
        kind, _, rest = name.partition(".")
        for is_beyond, bound, word in (
            (_number(name, overrides[name]) < lowest, "min", "greater"),
            (_number(name, overrides[name]) > highest, "max", "less"),
        ):
            if is_beyond:
                why = f"{name} must be {word} than or equal to group.{kind}.{bound}.{rest}"
                raise ConfigError(name, overrides[name], line=why)
    times = [group_time_ms(broker, overrides, name) for name in (SESSION_TIMEOUT, HEARTBEAT_INTERVAL)]
    if (SESSION_TIMEOUT in overrides or HEARTBEAT_INTERVAL in overrides) and times[0] <= times[1]:
        why = f"{SESSION_TIMEOUT} must be greater than {HEARTBEAT_INTERVAL}"
        raise ConfigError(SESSION_TIMEOUT, overrides.get(SESSION_TIMEOUT, ""), line=why)


def _number(name: str, text: str) -> int:
    value = parse_value(GROUP_SETTINGS[name], text)
    assert isinstance(value, int)
    return value
