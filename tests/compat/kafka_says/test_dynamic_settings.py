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
