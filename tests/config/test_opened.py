"""Which dynamic settings Kafka 4.3.1 takes, and which a node of ours takes: nothing that an open listener would have to
follow and does not."""

from __future__ import annotations

import pytest

from headrace.config import BrokerConfig, ConfigError, check_broker_overrides
from headrace.config.opened import check_opened_with, places_of

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
    after = PLAIN.with_overrides(asked, {})
    check_opened_with(PLAIN, after, places_of(after))


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


@pytest.mark.parametrize("name", FOLLOWED)
@pytest.mark.parametrize("prefix", ["", "listener.name.tls."])
def test_what_open_listeners_follow_is_taken(name: str, prefix: str) -> None:
    after = SECURED.with_overrides({prefix + name: FOLLOWED[name]}, {})
    check_opened_with(SECURED, after, places_of(after))
    assert after.of_listener("TLS")[name] != SECURED.of_listener("TLS")[name]


@pytest.mark.parametrize("name", OF_LOGINS)
@pytest.mark.parametrize("of_listener", [False, True])
def test_what_an_open_listener_would_have_to_follow_is_refused(name: str, *, of_listener: bool) -> None:
    """Taken and not applied, a restriction would be a hole."""
    listener = "LOGIN"
    asked = f"listener.name.{listener.lower()}.{name}" if of_listener else name
    if asked in ("sasl.enabled.mechanisms", "listener.name.login.sasl.mechanism.inter.broker.protocol"):
        SECURED.with_overrides({asked: OPENED_WITH[name]}, {})  # the listener has its own; this is of all listeners
        return
    with pytest.raises(ConfigError) as refused:
        SECURED.with_overrides({asked: OPENED_WITH[name]}, {})
    assert refused.value.name == asked
    assert f"listener {listener} is open with another value" in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_the_users_of_a_mechanism_are_those_that_the_listener_was_opened_with() -> None:
    name = "listener.name.login.plain.sasl.jaas.config"
    SECURED.with_overrides({name: "line"}, {})
    with pytest.raises(ConfigError, match="listener LOGIN is open with another value"):
        SECURED.with_overrides({name: "another line"}, {})


def test_the_value_that_is_in_force_is_taken() -> None:
    SECURED.with_overrides(
        {"listener.name.tls.ssl.client.auth": "requested", "listener.name.login.sasl.enabled.mechanisms": "PLAIN"}, {}
    )


def test_a_stored_listener_is_opened_with_what_is_stored_and_keeps_it() -> None:
    name = "listener.name.more.sasl.enabled.mechanisms"
    stored = {"listeners": f"{SECURED.static['listeners']},MORE://127.0.0.1:9094"}
    opened = SECURED.with_overrides({**stored, name: "SCRAM-SHA-512"}, {})
    assert opened.of_listener("MORE").sasl_enabled_mechanisms == ("SCRAM-SHA-512",)
    for other in ({}, {name: "SCRAM-SHA-256"}):
        after = SECURED.with_overrides({**stored, **other}, {})
        with pytest.raises(ConfigError, match="listener MORE is open with another value"):
            check_opened_with(opened, after, places_of(after))
