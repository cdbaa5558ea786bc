"""The settings of SASL on one listener, and of one mechanism on it."""

from __future__ import annotations

import pytest

from headrace.config import BrokerConfig, ConfigError

FILE = {
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


def test_the_nearest_value_counts() -> None:
    lines: list[str] = []
    config = BrokerConfig.load(FILE, lines.append)
    assert lines == []
    outside, inside = config.of_listener("OUTSIDE"), config.of_listener("INSIDE")
    assert outside.sasl_enabled_mechanisms == ("PLAIN", "SCRAM-SHA-256")
    assert inside.sasl_enabled_mechanisms == ("PLAIN",)
    assert (outside.sasl_server_max_receive_size, inside.sasl_server_max_receive_size) == (100, 524_288)
    scram, plain = outside.mechanism("SCRAM-SHA-256"), outside.mechanism("PLAIN")
    assert (scram.connections_max_reauth_ms, plain.connections_max_reauth_ms) == (3000, 2000)
    assert inside.mechanism("PLAIN").connections_max_reauth_ms == 1000


def test_only_the_line_of_a_mechanism_on_a_listener_counts() -> None:
    outside = BrokerConfig.load(FILE).of_listener("OUTSIDE")
    assert outside.mechanism("SCRAM-SHA-256").sasl_jaas_config == "line of the mechanism"
    assert outside.mechanism("PLAIN").sasl_jaas_config is None


def test_an_unknown_name_behind_a_prefix_is_named() -> None:
    lines: list[str] = []
    BrokerConfig.load({"listener.name.x.num.io.threads": "1", "listener.name.x.plain.made.up": "1"}, lines.append)
    assert len(lines) == 2 and all("is not a setting of this broker" in line for line in lines)


def test_a_value_behind_a_prefix_is_looked_at() -> None:
    with pytest.raises(ConfigError, match="Not a number"):
        BrokerConfig.load({"listener.name.outside.connections.max.reauth.ms": "soon"})
