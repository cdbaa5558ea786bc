"""Dynamic settings that cannot be: refused when they are asked for, named and ignored where they are stored."""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path
from typing import Any

import pytest
from broker.raw import Raw, create_topic

from headrace.broker.broker import Broker
from headrace.broker.storage.storage_format import StorageError
from headrace.machine import Decision
from headrace.metadata.image import ResourceType
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.wire.messages.metadata_records import ConfigRecord

BROKER, TOPIC = int(ResourceType.BROKER), int(ResourceType.TOPIC)


def alter(raw: Raw, name: str, operation: int = 0, **settings: str | None) -> tuple[ErrorCode, str | None]:
    configs = [
        AlterableConfig(name=key.replace("_", "."), config_operation=operation, value=value)
        for key, value in settings.items()
    ]
    asked = AlterConfigsResource(resource_type=BROKER, resource_name=name, configs=configs)
    answer = raw.ask(IncrementalAlterConfigsRequest(resources=[asked]), 1).responses[0]
    return ErrorCode(answer.error_code), answer.error_message


def store(served: TestBroker, *settings: tuple[int, str, str, str]) -> None:
    """Writes (resource type, resource, name, value) past every check, as an adopted directory may hold it."""
    stored = threading.Event()
    records: list[Any] = [
        ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)
        for kind, resource, name, value in settings
    ]

    def submit(broker: Broker) -> None:
        task = asyncio.ensure_future(broker.quorum.submit(lambda _: Decision(None, records)))
        task.add_done_callback(lambda _: stored.set())

    served.call(submit)
    assert stored.wait(30)


@pytest.mark.parametrize(
    ("listeners", "why"),
    [
        ("X://1:2", "Error creating broker listeners from '[X://1:2]': No security protocol defined for listener X"),
        ("garbage", "Error creating broker listeners from '[garbage]': Unable to parse garbage to a broker endpoint"),
        ("SSL://127.0.0.1:0", "Error creating broker listeners from '[SSL://127.0.0.1:0]': listener SSL speaks SSL"),
        (
            "PLAINTEXT://127.0.0.1:1,PLAINTEXT://127.0.0.1:2",
            "Error creating broker listeners from '[PLAINTEXT://127.0.0.1:1, PLAINTEXT://127.0.0.1:2]': "
            "Each listener must have a different name",
        ),
        ("", "Error creating broker listeners"),
        ("PLAINTEXT://127.0.0.1:1", "Cannot update these configs dynamically: [listeners]"),
    ],
)
def test_listeners_are_not_changed_while_the_broker_runs(raw: Raw, listeners: str, why: str) -> None:
    error, message = alter(raw, "1", listeners=listeners)
    assert error is ErrorCode.INVALID_REQUEST
    assert message is not None
    assert message.startswith(why)


def test_listeners_as_they_are_are_taken_and_can_be_taken_back(served: TestBroker, raw: Raw) -> None:
    now = served.inside.config.shown("listeners")
    assert alter(raw, "1", listeners=now)[0] is ErrorCode.NONE
    assert alter(raw, "1", operation=1, listeners=None)[0] is ErrorCode.NONE


def test_a_protocol_that_the_open_listeners_cannot_have_is_refused(raw: Raw) -> None:
    error, message = alter(raw, "1", listener_security_protocol_map="PLAINTEXT:SSL")
    assert error is ErrorCode.INVALID_REQUEST
    assert message is not None
    assert "listener PLAINTEXT speaks SSL" in message
    assert alter(raw, "1", listener_security_protocol_map="PLAINTEXT:PLAINTEXT,MORE:PLAINTEXT")[0] is ErrorCode.NONE
    assert alter(raw, "1", operation=1, listener_security_protocol_map=None)[0] is ErrorCode.NONE


@pytest.mark.parametrize(("broker", "name"), [("", "sasl.client.password"), ("1", "principal.builder.class")])
def test_what_the_table_refuses_is_refused_while_the_broker_runs(raw: Raw, broker: str, name: str) -> None:
    value = "hunter2" if "password" in name else "com.example.Principals"
    error, message = alter(raw, broker, operation=0, **{name: value})
    assert error is ErrorCode.INVALID_REQUEST
    assert message is not None
    assert "this release does not serve that, and data would go unprotected" in message
    assert "hunter2" not in message
    assert alter(raw, broker, operation=0, **{name: ""})[0] is ErrorCode.NONE
    assert alter(raw, broker, operation=1, **{name: None})[0] is ErrorCode.NONE


def test_typed_fields_follow_what_is_altered(served: TestBroker, raw: Raw) -> None:
    """The broker's and the logs': they are read on every connection and every tick."""
    before = served.inside.config
    assert (before.max_connections, before.log_cleaner_backoff_ms) == (2147483647, 15000)
    assert alter(raw, "", max_connections="1234", log_cleaner_backoff_ms="77")[0] is ErrorCode.NONE
    for config in served.call(lambda broker: (broker.config, broker.logs.config)):
        assert (config.max_connections, config.log_cleaner_backoff_ms) == (1234, 77)
    assert before.max_connections == 2147483647
    assert alter(raw, "", operation=1, max_connections=None, log_cleaner_backoff_ms=None)[0] is ErrorCode.NONE
    assert served.inside.config.max_connections == 2147483647


def test_what_is_stored_and_cannot_be_is_named_once_and_ignored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running_broker(data=tmp_path) as served:
        create_topic(served.port, "t")
        store(
            served,
            (BROKER, "1", "listeners", "X://1:2"),
            (BROKER, "1", "listener.security.protocol.map", "PLAINTEXT:SSL"),
            (BROKER, "1", "advertised.listeners", "PLAINTEXT://elsewhere:1"),
            (BROKER, "1", "log.retention.ms", "soon"),
            (BROKER, "1", "message.max.bytes", "4321"),
            (BROKER, "1", "ssl.keystore.password", "hunter2"),
            (BROKER, "", "listeners", "PLAINTEXT://127.0.0.1:1"),
            (BROKER, "", "log.segment.bytes", "2097152"),
            (BROKER, "", "group.consumer.assignment.interval.ms", "15001"),
            (TOPIC, "t", "retention.ms", "never"),
            (TOPIC, "t", "segment.ms", "never"),
            (TOPIC, "t", "max.message.bytes", "1234"),
        )
    caplog.clear()
    with caplog.at_level(logging.WARNING, "headrace"), running_broker(data=tmp_path) as served:
        assert [listener.name for listener in served.inside.listeners] == ["PLAINTEXT"]
        config = served.inside.config
        assert config["message.max.bytes"] == 4321
        assert config["log.segment.bytes"] == 2097152
        assert config["advertised.listeners"] is None
        topic = served.call(lambda broker: broker.dynamic.topic("t"))
        assert (topic.max_message_bytes, topic.retention_ms) == (1234, config["log.retention.ms"])
        store(served, (BROKER, "1", "message.max.bytes", "5432"))
        assert served.inside.config["message.max.bytes"] == 5432
    assert "hunter2" not in caplog.text
    named = [
        (vars(record)["fields"]["of"], vars(record)["fields"]["name"])
        for record in caplog.records
        if record.getMessage().startswith("stored setting ignored")
    ]
    assert sorted(named) == [
        ("all brokers", "group.consumer.assignment.interval.ms"),
        ("all brokers", "listeners"),
        ("broker 1", "advertised.listeners"),
        ("broker 1", "listener.security.protocol.map"),
        ("broker 1", "listeners"),
        ("broker 1", "log.retention.ms"),
        ("broker 1", "ssl.keystore.password"),
        ("topic t", "retention.ms"),
        ("topic t", "segment.ms"),
    ]


def test_what_has_no_effect_is_taken_and_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """librdkafka's test 0081 sets one of them, at a broker whose listeners know no Kerberos."""
    with running_broker(data=tmp_path) as served:
        raw = Raw(served.port)
        taken = {
            "sasl_kerberos_min_time_before_relogin": "58000",
            "sasl_enabled_mechanisms": "PLAIN",
            "ssl_client_auth": "required",
        }
        for _ in range(2):
            assert alter(raw, "1", 0, **taken) == (ErrorCode.NONE, None)
        assert served.inside.config["sasl.kerberos.min.time.before.relogin"] == 58000
        error, message = alter(raw, "", listener_name_x_sasl_mechanism_inter_broker_protocol="PLAIN")
        assert error is ErrorCode.INVALID_REQUEST
        assert "broker id must be specified" in (message or "")
    idle = [vars(each)["fields"] for each in caplog.records if each.getMessage().startswith("stored setting has no")]
    assert sorted((each["of"], each["name"]) for each in idle) == [
        ("broker 1", "sasl.enabled.mechanisms"),
        ("broker 1", "sasl.kerberos.min.time.before.relogin"),
        ("broker 1", "ssl.client.auth"),
    ]


def test_stored_listeners_that_can_be_are_opened(tmp_path: Path) -> None:
    """Kafka opens a listener that is added as it runs; in an adopted directory it is there from the start on."""
    with running_broker(data=tmp_path) as served:
        store(
            served,
            (BROKER, "1", "listeners", "PLAINTEXT://127.0.0.1:0,MORE://127.0.0.1:0"),
            (BROKER, "1", "listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,MORE:PLAINTEXT"),
        )
    with running_broker(data=tmp_path) as served:
        assert [listener.name for listener in served.inside.listeners] == ["PLAINTEXT", "MORE"]


def test_a_topic_in_remote_storage_is_not_taken_over(tmp_path: Path) -> None:
    """What is stored there would be a hole here."""
    with running_broker(data=tmp_path) as served:
        create_topic(served.port, "far")
        store(served, (TOPIC, "far", "remote.storage.enable", "true"))
    with pytest.raises(StorageError, match=r"far keeps data in remote storage"), running_broker(data=tmp_path):
        pass
