"""What is in force: layers, synonyms, listeners; and what is altered while the broker runs."""

from __future__ import annotations

import pytest

from headrace.config import (
    BrokerConfig,
    ConfigError,
    Endpoint,
    Type,
    check_broker_overrides,
    check_topic_overrides,
    topic_config,
)
from headrace.config.describe import describe_broker, describe_broker_defaults, describe_topic
from headrace.wire.config_source import ConfigSource


def test_time_units_follow_kafkas_order() -> None:
    assert BrokerConfig({})["log.retention.ms"] == 604_800_000
    assert BrokerConfig({"log.retention.hours": "2"})["log.retention.ms"] == 7_200_000
    assert BrokerConfig({"log.retention.hours": "2", "log.retention.minutes": "3"})["log.retention.ms"] == 180_000
    given = {"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}
    assert BrokerConfig(given)["log.retention.ms"] == 4
    assert BrokerConfig({"log.retention.hours": "-1"})["log.retention.ms"] == -1
    assert BrokerConfig({"log.flush.scheduler.interval.ms": "9"})["log.flush.interval.ms"] == 9


def test_dynamic_settings_lie_over_the_file() -> None:
    config = BrokerConfig({"log.retention.ms": "1", "message.max.bytes": "10"})
    over = config.with_overrides({"message.max.bytes": "30"}, {"message.max.bytes": "20", "log.retention.ms": "2"})
    assert over["message.max.bytes"] == 30
    assert over["log.retention.ms"] == 2
    assert config["log.retention.ms"] == 1


def test_a_topic_has_its_own_settings_and_the_brokers_for_the_rest() -> None:
    config = BrokerConfig({"log.retention.hours": "1", "log.cleanup.policy": "compact"})
    topic = topic_config(config, {"retention.bytes": "5", "a.setting.of.the.future": "x"})
    assert (topic.retention_ms, topic.retention_bytes) == (3_600_000, 5)
    assert topic.compact
    assert not topic.delete


def test_listeners_are_split_into_clients_and_controllers() -> None:
    config = BrokerConfig.load(
        {
            "process.roles": "broker,controller",
            "node.id": "7",
            "listeners": "PLAINTEXT://[::1]:9092,CONTROLLER://:9093",
            "advertised.listeners": "PLAINTEXT://example:19092",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "controller.quorum.voters": "7@localhost:9093",
        }
    )
    assert config.node_id == 7
    assert config.listeners == (Endpoint("PLAINTEXT", "PLAINTEXT", "::1", 9092),)
    assert config.controller_listeners == (Endpoint("CONTROLLER", "PLAINTEXT", "", 9093),)
    assert config.advertised_listeners == (Endpoint("PLAINTEXT", "PLAINTEXT", "example", 19092),)


def test_controllers_speak_plaintext_where_no_map_is_given() -> None:
    """KIP-631: so the server.properties of a combined node needs no listener.security.protocol.map."""
    config = BrokerConfig.load(
        {
            "process.roles": "broker,controller",
            "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
            "controller.listener.names": "CONTROLLER",
        }
    )
    assert config.controller_listeners == (Endpoint("CONTROLLER", "PLAINTEXT", "localhost", 9093),)


@pytest.mark.parametrize(
    ("listeners", "given"),
    [
        ("EXTERNAL://localhost:9092,CONTROLLER://localhost:9093", {}),
        (
            "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
            {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"},
        ),
    ],
)
def test_a_listener_without_a_protocol_is_refused_by_name(listeners: str, given: dict[str, str]) -> None:
    """A map that is given holds for controllers too, and no map says nothing of other names."""
    name = "CONTROLLER" if given else "EXTERNAL"
    with pytest.raises(ConfigError, match=f"No security protocol defined for listener {name}"):
        BrokerConfig.load({"listeners": listeners, "controller.listener.names": "CONTROLLER", **given})


def test_node_id_and_its_older_name_are_one() -> None:
    """Whichever a file names, DescribeConfigs says both, as Kafka's broker does."""
    for name in ("node.id", "broker.id"):
        config = BrokerConfig.load({name: "7"})
        assert config.node_id == 7
        lines = {line.name: line for line in describe_broker(config)}
        for described in (lines["node.id"], lines["broker.id"]):
            assert (described.value, described.source) == ("7", ConfigSource.STATIC_BROKER)
    assert BrokerConfig({}).node_id == 1


def test_topic_settings_are_checked_together() -> None:
    check_topic_overrides({"retention.ms": "1"})
    with pytest.raises(ConfigError, match="Unknown topic config name: nope"):
        check_topic_overrides({"nope": "1"})
    with pytest.raises(ConfigError, match=r"min.compaction.lag.ms \(9\) > max.compaction.lag.ms \(3\)"):
        check_topic_overrides({"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "3"})


def test_a_topic_cannot_ask_for_remote_storage() -> None:
    check_topic_overrides({"remote.storage.enable": "false", "remote.log.copy.disable": "true"})
    with pytest.raises(ConfigError, match="Tiered Storage functionality is disabled in the broker. Topic cannot be"):
        check_topic_overrides({"remote.storage.enable": "TRUE"})


def test_what_needs_a_restart_is_not_taken_while_running() -> None:
    check_broker_overrides({"log.retention.ms": "1", "made.up": "x"}, per_broker=False)
    with pytest.raises(ConfigError, match=r"Cannot update these configs dynamically: \[num.partitions\]"):
        check_broker_overrides({"num.partitions": "2"}, per_broker=True)
    with pytest.raises(ConfigError, match="broker id must be specified"):
        check_broker_overrides({"listeners": "PLAINTEXT://:1"}, per_broker=False)


@pytest.mark.parametrize(
    "name", ["config.providers", "listener.name.external.sasl.login.callback.x", "sasl.login.class"]
)
def test_what_a_file_may_not_ask_for_is_not_taken_while_running(name: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_broker_overrides({name: "hunter2"}, per_broker=True)
    assert refused.value.name == name
    check_broker_overrides({name: ""}, per_broker=True)


def test_describe_says_where_a_value_comes_from() -> None:
    config = BrokerConfig({"message.max.bytes": "10"}).with_overrides({}, {"message.max.bytes": "20"})
    broker = {line.name: line for line in describe_broker(config)}
    assert broker["message.max.bytes"].value == "20"
    assert [synonym.source for synonym in broker["message.max.bytes"].synonyms] == [
        ConfigSource.DYNAMIC_DEFAULT_BROKER,
        ConfigSource.STATIC_BROKER,
        ConfigSource.DEFAULT,
    ]
    topic = {line.name: line for line in describe_topic(config, {"max.message.bytes": "5"})}
    assert (topic["max.message.bytes"].value, topic["max.message.bytes"].source) == ("5", ConfigSource.TOPIC)
    assert topic["retention.ms"].source is ConfigSource.DEFAULT
    assert [line.name for line in describe_broker_defaults(config)] == ["message.max.bytes"]


def test_a_list_is_described_as_it_is_in_force() -> None:
    """As Kafka describes it: a value twice in the file is there once, and its synonym says what the file says."""
    config = BrokerConfig({"log.cleanup.policy": "delete,delete"})
    line = next(line for line in describe_broker(config) if line.name == "log.cleanup.policy")
    assert line.value == "delete"
    assert [synonym.value for synonym in line.synonyms] == ["delete,delete", "delete"]
    topic = {line.name: line for line in describe_topic(config, {"cleanup.policy": "compact, compact"})}
    assert topic["cleanup.policy"].value == "compact"


def test_a_name_without_a_row_is_described_without_its_value() -> None:
    """Its value may be a secret of whatever reads the file."""
    config = BrokerConfig({"my.plugin": "hunter2", "listener.name.a.made.up": "hunter2"}).with_overrides(
        {"another": "hunter2"}, {"my.plugin": "hunter2", "of.all": "hunter2"}
    )
    lines = {line.name: line for line in describe_broker(config)}
    assert "hunter2" not in str(lines)
    expected = {
        "my.plugin": [ConfigSource.DYNAMIC_DEFAULT_BROKER, ConfigSource.STATIC_BROKER],
        "listener.name.a.made.up": [ConfigSource.STATIC_BROKER],
        "another": [ConfigSource.DYNAMIC_BROKER],
        "of.all": [ConfigSource.DYNAMIC_DEFAULT_BROKER],
    }
    for name, sources in expected.items():
        line = lines[name]
        assert (line.value, line.read_only, line.sensitive, line.type) == (None, True, True, Type.UNKNOWN)
        assert (line.source, [each.source for each in line.synonyms]) == (sources[0], sources)
    defaults = {line.name: line for line in describe_broker_defaults(config)}
    assert set(defaults) == {"my.plugin", "of.all"}
    assert all(line.sensitive and line.value is None for line in defaults.values())
