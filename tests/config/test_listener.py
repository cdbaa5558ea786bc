"""The settings of one listener, and of one SASL mechanism of it, stand before those of all."""

from __future__ import annotations

import pytest

from headrace.config import BrokerConfig, ConfigError, check_broker_overrides
from headrace.config.describe import describe_broker
from headrace.config.table import broker_setting
from headrace.config.tls import tls_of

FILE = {
    "ssl.keystore.location": "all.jks",
    "ssl.keystore.password": "secret",
    "ssl.client.auth": "required",
    "listener.name.external.ssl.keystore.location": "external.p12",
    "listener.name.external.ssl.keystore.type": "PKCS12",
    "listener.name.other.ssl.client.auth": "requested",
}


def lines_of(properties: dict[str, str]) -> list[str]:
    lines: list[str] = []
    BrokerConfig.load(properties, lines.append)
    return lines


def test_what_a_listener_says_holds_for_it_alone() -> None:
    config = BrokerConfig(FILE)
    external, plain = config.of_listener("EXTERNAL"), config.of_listener("PLAIN")
    assert external["ssl.keystore.location"] == "external.p12"
    assert plain["ssl.keystore.location"] == "all.jks"
    assert external["ssl.keystore.password"] == "secret"
    assert external.own("ssl.keystore.password") is None
    assert config["ssl.keystore.location"] == "all.jks"


def test_the_fields_of_tls() -> None:
    config = BrokerConfig(FILE)
    external = tls_of(config.of_listener("EXTERNAL"), "SSL")
    assert (external.key_store.kind, external.key_store.location) == ("PKCS12", "external.p12")
    assert external.client_auth == "required"
    assert external.key_store.is_given and not external.trust_store.is_given


def test_where_sasl_names_the_client_only_the_listener_asks_for_a_certificate() -> None:
    config = BrokerConfig(FILE)
    assert tls_of(config.of_listener("EXTERNAL"), "SASL_SSL").client_auth == "none"
    assert tls_of(config.of_listener("OTHER"), "SASL_SSL").client_auth == "requested"


def test_a_name_behind_that_of_a_listener_is_known() -> None:
    assert lines_of(FILE) == []
    assert lines_of({"listener.name.external.num.io.threads": "1"}) == [
        "listener.name.external.num.io.threads is not a setting of this broker and has no effect"
    ]


def test_what_is_given_for_a_listener_is_described_without_its_secrets() -> None:
    config = BrokerConfig({**FILE, "listener.name.external.ssl.keystore.password": "hunter2"}).with_overrides(
        {"listener.name.external.ssl.keystore.location": "newer.p12"}, {}
    )
    lines = {line.name: line for line in describe_broker(config)}
    location = lines["listener.name.external.ssl.keystore.location"]
    assert location.value == "newer.p12"
    assert [(each.name, each.value) for each in location.synonyms] == [
        ("listener.name.external.ssl.keystore.location", "newer.p12"),
        ("listener.name.external.ssl.keystore.location", "external.p12"),
        ("ssl.keystore.location", "all.jks"),
    ]
    password = lines["listener.name.external.ssl.keystore.password"]
    assert password.sensitive and password.value is None
    values = [(line.value, line.synonyms) for line in lines.values()]
    assert "hunter2" not in repr(values) and "secret" not in repr(values)
    assert sorted(lines) == list(lines)


@pytest.mark.parametrize(
    "name",
    ["listener.name..ssl.client.auth", "listener.name.a.plain.ssl.client.auth", "listener.name.a", "listener.name.a."],
)
def test_what_is_behind_no_listener_is_no_setting(name: str) -> None:
    assert broker_setting(name) is None


def test_a_bad_value_is_named_whole() -> None:
    with pytest.raises(ConfigError, match="for configuration listener.name.a.ssl.client.auth"):
        BrokerConfig({"listener.name.a.ssl.client.auth": "maybe"})


def test_while_a_broker_runs_a_store_is_changed_for_one_listener() -> None:
    check_broker_overrides({"listener.name.a.ssl.keystore.location": "x"}, per_broker=True)
    with pytest.raises(ConfigError, match="only per-listener using the listener prefix: .ssl.keystore.location"):
        check_broker_overrides({"ssl.keystore.location": "x"}, per_broker=True)
    with pytest.raises(ConfigError, match="broker id must be specified"):
        check_broker_overrides({"listener.name.a.ssl.keystore.location": "x"}, per_broker=False)
    with pytest.raises(ConfigError, match="Cannot update these configs dynamically"):
        check_broker_overrides({"listener.name.a.ssl.principal.mapping.rules": "DEFAULT"}, per_broker=True)


SASL_FILE = {
    "listeners": "INSIDE://:1,OUTSIDE://:2",
    "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:SASL_PLAINTEXT",
    "inter.broker.listener.name": "INSIDE",
    "sasl.enabled.mechanisms": "PLAIN",
    "connections.max.reauth.ms": "1000",
    "sasl.jaas.config": "plain line",
    "listener.name.outside.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.outside.connections.max.reauth.ms": "2000",
    "listener.name.outside.sasl.jaas.config": "line of the listener",
    "listener.name.outside.scram-sha-256.connections.max.reauth.ms": "3000",
    "listener.name.outside.scram-sha-256.sasl.jaas.config": "line of the mechanism",
    "listener.name.outside.sasl.server.max.receive.size": "100",
}


def test_the_nearest_value_of_a_mechanism_counts() -> None:
    assert lines_of(SASL_FILE) == []
    config = BrokerConfig.load(SASL_FILE)
    outside, inside = config.of_listener("OUTSIDE"), config.of_listener("INSIDE")
    assert outside.sasl_enabled_mechanisms == ("PLAIN", "SCRAM-SHA-256")
    assert inside.sasl_enabled_mechanisms == ("PLAIN",)
    assert (outside.sasl_server_max_receive_size, inside.sasl_server_max_receive_size) == (100, 524_288)
    scram, plain = outside.mechanism("SCRAM-SHA-256"), outside.mechanism("PLAIN")
    assert (scram.connections_max_reauth_ms, plain.connections_max_reauth_ms) == (3000, 2000)
    assert inside.mechanism("PLAIN").connections_max_reauth_ms == 1000


def test_only_the_line_of_a_mechanism_on_a_listener_counts() -> None:
    outside = BrokerConfig.load(SASL_FILE).of_listener("OUTSIDE")
    assert outside.mechanism("SCRAM-SHA-256").sasl_jaas_config == "line of the mechanism"
    assert outside.mechanism("PLAIN").sasl_jaas_config is None
