"""Which settings a running broker takes, plain and behind the name of a listener, for itself and as default of all."""

from __future__ import annotations

from typing import Final

import pytest

from headrace.wire.messages.k32_describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from headrace.wire.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

from .conftest import Both, Side

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

BROKER, VERSION = 4, 1
SAMPLES: Final = {
    "config.providers": "",
    "cordoned.log.dirs": "",
    "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required user_a=b;",
    "sasl.kerberos.service.name": "events",
    "sasl.enabled.mechanisms": "PLAIN",
    "ssl.cipher.suites": "TLS_AES_256_GCM_SHA384",
    "ssl.client.auth": "required",
    "ssl.enabled.protocols": "TLSv1.3",
    "ssl.provider": "SunJSSE",
    "ssl.secure.random.implementation": "SHA1PRNG",
}
"""A value other than the one in force, or where there is none; the others are set to what they are."""
STORES: Final = ("ssl.keystore.", "ssl.truststore.", "ssl.key.password")
NOT_COMPARED: Final = frozenset(
    {"listeners", "listener.security.protocol.map", "principal.builder.class", "ssl.engine.factory.class"}
)
"""See docs/divergence.md; and what has no value to set."""


def dynamic(side: Side) -> dict[str, str]:
    """The settings that a broker says are not read-only, with values to set."""
    resource = DescribeConfigsResource(BROKER, "1", None)
    (said,) = side.ask(DescribeConfigsRequest([resource]), VERSION).results
    found = {each.name: each.value for each in said.configs if not each.read_only}
    return {
        name: SAMPLES.get(name) or value or ""
        for name, value in found.items()
        if name not in NOT_COMPARED and not name.startswith(STORES) and (name in SAMPLES or value is not None)
    }


def altered(side: Side, broker: str, name: str, value: str) -> int:
    resource = AlterConfigsResource(BROKER, broker, [AlterableConfig(name, 0, value)])
    answer = side.ask(IncrementalAlterConfigsRequest([resource], validate_only=True), VERSION)
    return int(answer.responses[0].error_code)


def test_what_kafka_takes_is_taken(both: Both) -> None:
    """The listeners of these brokers speak PLAINTEXT: none would have to follow what it is opened with."""
    asked = dynamic(both.kafka)
    assert {"sasl.kerberos.min.time.before.relogin", "sasl.jaas.config", "remote.log.reader.threads"} <= set(asked)
    for name, value in asked.items():
        for prefix in ("", "listener.name.plaintext.", "listener.name.other."):
            for broker in ("1", ""):
                kafkas, ours = (altered(side, broker, prefix + name, value) for side in (both.kafka, both.ours))
                assert ours == kafkas, (prefix + name, value, broker)


LISTS: Final = {
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.kerberos.principal.to.local.rules": "DEFAULT",
    "ssl.cipher.suites": "TLS_AES_256_GCM_SHA384",
    "ssl.enabled.protocols": "TLSv1.3",
    "log.cleanup.policy": "delete",
}


@pytest.mark.parametrize("name", LISTS)
def test_a_list_with_an_empty_value_is_refused_where_kafka_refuses_it(both: Both, name: str) -> None:
    good = LISTS[name]
    for value in (good, f"{good},", f",{good}", f"{good},,{good}", ",", "", f"{good}, "):
        ours, kafkas = (altered(side, "1", name, value) for side in (both.ours, both.kafka))
        assert ours == kafkas, (name, value)


REFUSED: Final = {
    "cordoned.log.dirs": ("x", "*", "*,x", "a,b"),
    "metric.reporters": ("x", "", "org.apache.kafka.common.metrics.JmxReporter", "java.lang.String"),
    "log.roll.ms": ("0", "1", "-1"),
    "log.roll.jitter.ms": ("0", "-1"),
    "log.cleaner.threads": ("0", "2", "3", "128"),
    "log.cleaner.dedupe.buffer.size": ("1048576", "1048577"),
    "log.local.retention.ms": ("-1", "-2", "0", "604800000", "604800001"),
    "log.local.retention.bytes": ("-1", "5"),
    "max.connections": ("0", "1"),
    "max.connection.creation.rate": ("0", "1"),
    "listener.name.plaintext.max.connections": ("0", "1"),
    "listener.name.plaintext.max.connection.creation.rate": ("0", "1"),
    "max.connections.per.ip": ("0", "1"),
    "max.connections.per.ip.overrides": ("x", "a:1,b", "1.2.3.4:x", "h h:5", "a:1, ", " a : 5 ", "::1:5", ":5", "a:"),
    "background.threads": ("4", "5", "20", "21"),
    "num.io.threads": ("3", "4", "16", "17"),
    "num.network.threads": ("1", "6", "7"),
    "num.replica.fetchers": ("2", "3"),
    "group.share.assignment.interval.ms": ("100000000",),
    "group.streams.assignment.interval.ms": ("100000000",),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_value_that_kafka_refuses_while_it_runs_is_refused_alike(both: Both, name: str) -> None:
    for value in REFUSED[name]:
        for broker in ("1", ""):
            resource = AlterConfigsResource(BROKER, broker, [AlterableConfig(name, 0, value)])
            request = IncrementalAlterConfigsRequest([resource], validate_only=True)
            ours, kafkas = (side.ask(request, VERSION).responses[0] for side in (both.ours, both.kafka))
            told = [(each.error_code, each.error_message) for each in (ours, kafkas)]
            assert told[0] == told[1], (name, value, broker)
