"""Values are read and refused in Kafka's words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.config import (
    BROKER_SETTINGS,
    TOPIC_SETTINGS,
    ConfigError,
    Setting,
    Type,
    format_value,
    parse_value,
)
from headrace.config.setting import names_twice, parse_type

# What Apache Kafka 4.3.1 answers to each.
REFUSALS = [
    ("segment.bytes", "abc", "Invalid value abc for configuration segment.bytes: Not a number of type INT"),
    ("segment.bytes", "5", "Invalid value 5 for configuration segment.bytes: Value must be at least 1048576"),
    ("segment.bytes", "0x10", "Invalid value 0x10 for configuration segment.bytes: Not a number of type INT"),
    (
        "segment.bytes",
        "99999999999",
        "Invalid value 99999999999 for configuration segment.bytes: Not a number of type INT",
    ),
    ("retention.ms", "", "Invalid value  for configuration retention.ms: Not a number of type LONG"),
    (
        "cleanup.policy",
        "foo",
        "Invalid value foo for configuration cleanup.policy: String must be one of: compact, delete",
    ),
    (
        "compression.type",
        "GZIP",
        "Invalid value GZIP for configuration compression.type: String must be one of: "
        "uncompressed, zstd, lz4, snappy, gzip, producer",
    ),
    (
        "preallocate",
        "maybe",
        "Invalid value maybe for configuration preallocate: Expected value to be either true or false",
    ),
    (
        "min.cleanable.dirty.ratio",
        "2",
        "Invalid value 2.0 for configuration min.cleanable.dirty.ratio: Value must be no more than 1",
    ),
    (
        "compression.gzip.level",
        "0",
        "Invalid value 0 for configuration compression.gzip.level: Value must be between 1 and 9 or equal to -1",
    ),
    (
        "leader.replication.throttled.replicas",
        "x",
        "Invalid value [x] for configuration leader.replication.throttled.replicas: "
        "leader.replication.throttled.replicas must be the literal '*' or a list of replicas in the following format: "
        "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
    ),
]


@pytest.mark.parametrize(("name", "text", "line"), REFUSALS)
def test_refusals_are_worded_as_kafkas(name: str, text: str, line: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_value(TOPIC_SETTINGS[name], text)
    assert str(refused.value) == line


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("retention.ms", " 5 ", 5),
        ("preallocate", "TRUE", True),
        ("cleanup.policy", " compact , delete ", ("compact", "delete")),
        ("cleanup.policy", "", ()),
        ("min.cleanable.dirty.ratio", "1e-1", 0.1),
        ("leader.replication.throttled.replicas", "0:1,1:2", ("0:1", "1:2")),
    ],
)
def test_what_kafka_takes_is_taken(name: str, text: str, value: object) -> None:
    assert parse_value(TOPIC_SETTINGS[name], text) == value


@pytest.mark.parametrize("setting", [*BROKER_SETTINGS.values(), *TOPIC_SETTINGS.values()], ids=lambda each: each.name)
def test_every_default_reads_back_as_itself(setting) -> None:  # type: ignore[no-untyped-def]
    if setting.default is None or setting.name in ("node.id", "broker.id"):
        return
    shown = format_value(setting, setting.default)
    assert shown is not None
    assert parse_value(setting, shown) == setting.default


@given(st.text())
def test_any_text_is_a_value_or_a_config_error(text: str) -> None:
    for name in ("segment.bytes", "retention.ms", "preallocate", "cleanup.policy", "min.cleanable.dirty.ratio"):
        try:
            parse_value(TOPIC_SETTINGS[name], text)
        except ConfigError as error:
            assert error.name == name


KEEPS_BOTH = {
    "controller.quorum.voters",
    "controller.quorum.bootstrap.servers",
    "follower.replication.throttled.replicas",
    "leader.replication.throttled.replicas",
}
"""Lists in which Kafka 4.3.1 leaves a value that is named twice; it drops the second one in all others (KIP-1161)."""
LISTS = [each for each in (*BROKER_SETTINGS.values(), *TOPIC_SETTINGS.values()) if each.type is Type.LIST]


@pytest.mark.parametrize("setting", LISTS, ids=lambda each: each.name)
def test_a_list_has_each_value_once(setting: Setting) -> None:
    assert setting.repeats == (setting.name in KEEPS_BOTH)
    found = parse_type(setting, "b, a,b,a, b")
    assert found == (("b", "a", "b", "a", "b") if setting.repeats else ("b", "a"))
    assert names_twice(setting, "b,a, b") is not setting.repeats
    assert not names_twice(setting, "b,a")


@pytest.mark.parametrize("setting", LISTS, ids=lambda each: each.name)
@pytest.mark.parametrize("text", ["a,", ",a", "a,,b", ",", "a, "])
def test_a_list_has_no_empty_value(setting: Setting, text: str) -> None:
    """As Apache Kafka 4.3.1, in the file and while a broker runs; its lists that keep a value twice keep these too."""
    if setting.repeats:
        assert "" in parse_type(setting, text)  # type: ignore[operator]
        return
    with pytest.raises(ConfigError, match=f"^Configuration '{setting.name}' values must not be empty.$"):
        parse_type(setting, text)


def test_throttled_replicas_may_have_empty_values() -> None:
    """As Apache Kafka 4.3.1 takes them."""
    for text in ("0:1,", ",0:1", "0:1,,1:1", ","):
        parse_value(TOPIC_SETTINGS["leader.replication.throttled.replicas"], text)
