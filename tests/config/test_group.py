"""A group's settings: within the broker's bounds when they are set, and when those bounds changed afterwards."""

from __future__ import annotations

import pytest

from headrace.config import BrokerConfig, ConfigError
from headrace.config.group import SESSION_TIMEOUT, check_group_overrides, group_time_ms

BOUNDS = {"group.consumer.min.session.timeout.ms": "10000", "group.consumer.session.timeout.ms": "20000"}


def test_the_groups_own_then_the_brokers() -> None:
    broker = BrokerConfig(BOUNDS)
    assert group_time_ms(broker, {}, SESSION_TIMEOUT) == 20_000
    assert group_time_ms(broker, {SESSION_TIMEOUT: "30000"}, SESSION_TIMEOUT) == 30_000


def test_bounds_that_changed_afterwards_hold() -> None:
    broker = BrokerConfig(BOUNDS)
    assert group_time_ms(broker, {SESSION_TIMEOUT: "9999"}, SESSION_TIMEOUT) == 10_000
    assert group_time_ms(broker, {SESSION_TIMEOUT: "60001"}, SESSION_TIMEOUT) == 60_000


def test_what_is_stored_and_no_number_is_none() -> None:
    assert group_time_ms(BrokerConfig(BOUNDS), {SESSION_TIMEOUT: "soon"}, SESSION_TIMEOUT) == 20_000


@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        ({"no.such": "1"}, "Unknown group config name: no.such"),
        (
            {"consumer.session.timeout.ms": "9999"},
            "consumer.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms",
        ),
        (
            {"consumer.session.timeout.ms": "60001"},
            "consumer.session.timeout.ms must be less than or equal to group.consumer.max.session.timeout.ms",
        ),
        (
            {"consumer.heartbeat.interval.ms": "4999"},
            "consumer.heartbeat.interval.ms must be greater than or equal to group.consumer.min.heartbeat.interval.ms",
        ),
        (
            {"consumer.assignment.interval.ms": "15001"},
            "consumer.assignment.interval.ms must be less than or equal to group.consumer.max.assignment.interval.ms",
        ),
        (
            {"consumer.heartbeat.interval.ms": "15000", "consumer.session.timeout.ms": "15000"},
            "consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms",
        ),
    ],
)
def test_what_may_not_be_set(overrides: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_group_overrides(BrokerConfig(BOUNDS), overrides)
    assert str(refused.value) == why


def test_what_may_be_set() -> None:
    check_group_overrides(BrokerConfig(BOUNDS), {"consumer.heartbeat.interval.ms": "14999", SESSION_TIMEOUT: "15000"})
    check_group_overrides(BrokerConfig({}), {"share.session.timeout.ms": "45000"})
