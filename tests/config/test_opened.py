"""Which dynamic settings Kafka 4.3.1 takes, and which a node of ours takes."""

from __future__ import annotations

import pytest

from headrace.config import BrokerConfig, ConfigError, check_broker_overrides

WITHOUT_EFFECT = {
    "sasl.kerberos.kinit.cmd": "/bin/kinit",
    "sasl.kerberos.min.time.before.relogin": "58000",
    "sasl.kerberos.ticket.renew.jitter": "0.1",
    "sasl.kerberos.ticket.renew.window.factor": "0.7",
    "sasl.login.refresh.buffer.seconds": "200",
    "sasl.login.refresh.min.period.seconds": "30",
    "sasl.login.refresh.window.factor": "0.7",
    "sasl.login.refresh.window.jitter": "0.1",
    "ssl.keymanager.algorithm": "PKIX",
    "ssl.provider": "SunJSSE",
    "ssl.secure.random.implementation": "SHA1PRNG",
    "ssl.trustmanager.algorithm": "PKIX",
}
OF_ALL = {
    "remote.fetch.max.wait.ms": "100",
    "remote.list.offsets.request.timeout.ms": "100",
    "remote.log.index.file.cache.total.size.bytes": "100",
    "remote.log.manager.copier.thread.pool.size": "5",
    "remote.log.manager.copy.max.bytes.per.second": "5",
    "remote.log.manager.expiration.thread.pool.size": "5",
    "remote.log.manager.fetch.max.bytes.per.second": "5",
    "remote.log.manager.follower.thread.pool.size": "2",
    "remote.log.reader.threads": "5",
}
OF_LOGINS = {
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "sasl.jaas.config": "hunter2",
    "sasl.kerberos.principal.to.local.rules": "RULE:[1:$1]",
    "sasl.kerberos.service.name": "events",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
}
FOLLOWED = {
    "ssl.cipher.suites": "TLS_AES_256_GCM_SHA384",
    "ssl.client.auth": "required",
    "ssl.enabled.protocols": "TLSv1.3",
    "ssl.endpoint.identification.algorithm": "",
    "ssl.protocol": "TLSv1.2",
}
OPENED_WITH = {**OF_LOGINS, **FOLLOWED}
PLAIN = BrokerConfig({"listeners": "PLAINTEXT://127.0.0.1:9092"})
SECURED = BrokerConfig(
    {
        "listeners": "TLS://127.0.0.1:9092,LOGIN://127.0.0.1:9093",
        "listener.security.protocol.map": "TLS:SSL,LOGIN:SASL_PLAINTEXT,MORE:SASL_PLAINTEXT",
        "ssl.keystore.location": "x.p12",
        "listener.name.login.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.login.plain.sasl.jaas.config": "line",
        "ssl.client.auth": "requested",
    }
)


@pytest.mark.parametrize("prefix", ["", "listener.name.plaintext.", "listener.name.other."])
@pytest.mark.parametrize(("name", "value"), [*WITHOUT_EFFECT.items(), *OF_ALL.items(), *OPENED_WITH.items()])
def test_what_kafka_takes_for_one_broker_is_taken_where_no_listener_would_change(
    prefix: str, name: str, value: str
) -> None:
    asked = {prefix + name: value}
    check_broker_overrides(asked, per_broker=True)
    PLAIN.with_overrides(asked, {})


@pytest.mark.parametrize("name", [*WITHOUT_EFFECT, *OPENED_WITH, "made.up", *OF_ALL, "num.io.threads"])
def test_what_is_behind_the_name_of_a_listener_is_of_one_broker(name: str) -> None:
    value = {**WITHOUT_EFFECT, **OPENED_WITH, **OF_ALL}.get(name, "8")
    with pytest.raises(ConfigError, match="broker id must be specified: .listener.name.a."):
        check_broker_overrides({f"listener.name.a.{name}": value}, per_broker=False)
    if name in WITHOUT_EFFECT or name in OPENED_WITH:
        with pytest.raises(ConfigError, match="broker id must be specified"):
            check_broker_overrides({name: value}, per_broker=False)
    else:
        check_broker_overrides({name: value}, per_broker=False)


def test_bounds_on_the_connections_of_a_listener_may_be_those_of_all_brokers() -> None:
    for name in ("max.connections", "max.connection.creation.rate", "num.network.threads"):
        check_broker_overrides({f"listener.name.a.{name}": "8"}, per_broker=False)


@pytest.mark.parametrize("name", OPENED_WITH)
@pytest.mark.parametrize("prefix", ["", "listener.name.tls.", "listener.name.login."])
def test_what_open_listeners_follow_is_taken(name: str, prefix: str) -> None:
    listener = "LOGIN" if prefix == "listener.name.login." or name in OF_LOGINS else "TLS"
    after = SECURED.with_overrides({prefix + name: OPENED_WITH[name]}, {})
    is_hidden = prefix == "listener.name.tls." and listener == "LOGIN"  # it is about another one
    is_hidden |= prefix == "" and name == "sasl.enabled.mechanisms"  # this listener has its own
    is_hidden |= prefix == "listener.name.login." and name == "sasl.mechanism.inter.broker.protocol"  # of no listener
    changes = after.of_listener(listener)[name] != SECURED.of_listener(listener)[name]
    assert changes is not is_hidden


INSIDE = BrokerConfig(
    {
        "process.roles": "broker",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "9@127.0.0.1:9093",
        "listeners": "INSIDE://127.0.0.1:9092",
        "inter.broker.listener.name": "INSIDE",
        "listener.security.protocol.map": "INSIDE:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
    }
)


@pytest.mark.parametrize(
    "asked",
    [
        {"sasl.enabled.mechanisms": "SCRAM-SHA-256"},
        {"listener.name.inside.sasl.enabled.mechanisms": "SCRAM-SHA-256"},
        {"sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256"},
    ],
)
def test_brokers_can_log_in_to_one_another(asked: dict[str, str]) -> None:
    """As Apache Kafka 4.3.1 refuses it, in the file and while a broker runs."""
    with pytest.raises(ConfigError, match=r"inter.broker.protocol must be included in sasl.enabled.mechanisms") as no:
        INSIDE.with_overrides(asked, {})
    assert no.value.name in asked, "who reads what is stored leaves this out"
    if not any(name.startswith("listener.") for name in asked):
        with pytest.raises(ConfigError, match=r"sasl.mechanism.inter.broker.protocol must be included"):
            BrokerConfig.load({**INSIDE.static, **asked})
    both = {"sasl.enabled.mechanisms": "SCRAM-SHA-256", "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256"}
    assert INSIDE.with_overrides(both, {}).of_listener("INSIDE").sasl_enabled_mechanisms == ("SCRAM-SHA-256",)
