"""What is checked of settings together: names that a file may not hold, and values that do not agree."""

from __future__ import annotations

import pytest

from headrace.config import BrokerConfig, ConfigError
from headrace.config.security_table import principals_of


def test_keys_without_effect_are_named_once_each() -> None:
    lines: list[str] = []
    BrokerConfig.load({"num.io.threads": "8", "made.up": "1", "log.dirs": "a", "sasl.jaas.config": ""}, lines.append)
    assert lines == [
        "num.io.threads has no effect: requests run on one event loop, blocking work on a small pool; "
        "these sizes do not apply",
        "made.up is not a setting of this broker and has no effect",
    ]


def test_a_value_that_a_list_names_twice_is_kept_once() -> None:
    lines: list[str] = []
    listener = "PLAINTEXT://:9092"
    config = BrokerConfig.load({"log.dirs": "a, b,a", "listeners": f"{listener},{listener}"}, lines.append)
    assert (config.log_dirs, len(config.listeners)) == (("a", "b"), 1)
    assert lines == [f"{name} names a value twice, and keeps the first of them" for name in ("log.dirs", "listeners")]


ALONE = {
    "process.roles": "controller",
    "node.id": "1",
    "listeners": "CONTROLLER://:9093",
    "controller.listener.names": "CONTROLLER",
}


OBSERVER = {
    "process.roles": "broker",
    "node.id": "5",
    "listeners": "PLAINTEXT://:9092",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "a:9093",
}


@pytest.mark.parametrize(
    "properties",
    [
        {"listeners": "SSL://:9092"},
        {"listeners": "EXTERNAL://:9092", "listener.security.protocol.map": "EXTERNAL:SASL"},
        {"sasl.login.class": "x"},
        {"listener.name.external.sasl.oauthbearer.jwks.endpoint.url": "x"},
        {"group.consumer.session.timeout.ms": "44999"},
        {"group.consumer.heartbeat.interval.ms": "15001"},
        {"group.consumer.min.assignment.interval.ms": "2000"},
        {"group.consumer.max.session.timeout.ms": "44000"},
        {"group.consumer.min.session.timeout.ms": "1", "group.consumer.session.timeout.ms": "5000"},
        {"ssl.engine.factory.class": "x"},
        {"listener.name.external.ssl.keystore.type": "BKS"},
        {"ssl.enabled.protocols": "TLSv1.3,TLSv1.1"},
        {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"},
        {"early.start.listeners": "CONTROLLER"},
        {"remote.log.storage.system.enable": "true"},
        {"controller.quorum.voters": "1@a:1,2@b:1,3@c:1", "node.id": "1"},
        {"controller.quorum.bootstrap.servers": "elsewhere:9093"},
        {"process.roles": "broker"},
        {**OBSERVER, "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093"},
        {**OBSERVER, "controller.quorum.bootstrap.servers": ""},
        {**OBSERVER, "controller.quorum.bootstrap.servers": "nowhere"},
        {**OBSERVER, "controller.quorum.voters": "1@a:9093,5@b:9093"},
        {**OBSERVER, "controller.quorum.voters": "1@a:9093,1@b:9093"},
        {**OBSERVER, "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"},
        {**OBSERVER, "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:TLS"},
        {"process.roles": "controller"},
        {"process.roles": "controller", "listeners": "C://:9093,PLAINTEXT://:9092", "controller.listener.names": "C"},
        {**ALONE, "controller.quorum.voters": "2@a:1,3@b:1"},
        {**ALONE, "controller.quorum.voters": "1@a:1,1@b:1"},
        {**ALONE, "controller.quorum.voters": "1@a"},
        {**ALONE, "controller.quorum.voters": "1@a:0"},
        {**ALONE, "controller.quorum.voters": "x@a:1"},
        {**ALONE, "controller.quorum.voters": "1@:9093"},
        {"security.inter.broker.protocol": "TLS"},
        {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"},
        {"super.users": "User:admin;root"},
        {"allow.everyone.if.no.acl.found": "perhaps"},
        {"node.id": "-1"},
        {"node.id": "1", "broker.id": "2"},
        {"listeners": "PLAINTEXT://:1,PLAINTEXT://:2"},
        {"listeners": "nonsense"},
        {"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"},
        {"log.retention.hours": "0"},
        {"num.partitions": "0"},
    ],
    ids=lambda properties: next(iter(properties.items())),
)
def test_what_cannot_be_or_would_leave_a_hole_refuses_in_one_line(properties: dict[str, str]) -> None:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig.load(properties, lambda _line: None)
    assert "\n" not in str(refused.value)


def test_a_value_that_asks_for_nothing_is_taken_without_a_word() -> None:
    lines: list[str] = []
    nothing = {"authorizer.class.name": "", "allow.everyone.if.no.acl.found": "FALSE", "connections.max.reauth.ms": "0"}
    BrokerConfig.load(
        {**nothing, "remote.log.storage.system.enable": "false", "ssl.engine.factory.class": " "}, lines.append
    )
    assert lines == []


def test_an_authorizer_is_named_as_in_kafkas_files() -> None:
    lines: list[str] = []
    named = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin; User:CN=a,O=b ;",
        "allow.everyone.if.no.acl.found": "true",
    }
    config = BrokerConfig.load(named, lines.append)
    assert lines == []
    assert config.authorizer_class_name == named["authorizer.class.name"]
    assert principals_of(config.super_users) == ("User:admin", "User:CN=a,O=b")
    assert config.allow_everyone_if_no_acl_found


def test_a_listener_that_starts_early_has_to_be_one() -> None:
    lines: list[str] = []
    config = BrokerConfig.load({"early.start.listeners": "plaintext"}, lines.append)
    assert config.early_start_listeners == ("plaintext",)
    assert [line.split(":")[0] for line in lines] == ["early.start.listeners has no effect"]


def test_a_refusal_says_why() -> None:
    refusals = {
        "process.roles=broker": "Invalid value  for configuration controller.listener.names: process.roles=broker: it "
        "must name the listener of the controllers",
        "sasl.login.class=kafka": "Invalid value kafka for configuration "
        "sasl.login.class: this release does not serve that, and data would go unprotected",
        "authorizer.class.name=my.Own": "Invalid value my.Own for configuration authorizer.class.name: "
        "org.apache.kafka.metadata.authorizer.StandardAuthorizer is the only one that is served",
        "super.users=User:a;b": "Invalid value User:a;b for configuration super.users: expected a string in format "
        "principalType:principalName but got b",
        "zookeeper.connect=here:2181": "Invalid value here:2181 for configuration zookeeper.connect: "
        "there is no ZooKeeper here: the metadata log is in the log directory",
    }
    for line, why in refusals.items():
        name, _, value = line.partition("=")
        with pytest.raises(ConfigError) as refused:
            BrokerConfig.load({name: value}, lambda _line: None)
        assert str(refused.value) == why


def test_a_refusal_does_not_show_a_secret() -> None:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig.load({"sasl.oauthbearer.assertion.private.key.passphrase": "hunter2"}, lambda _line: None)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    "properties",
    [
        {"listeners": "PLAINTEXT://0.0.0.0:9092"},
        {"listeners": "PLAINTEXT://0.0.0.0:9092", "advertised.listeners": "PLAINTEXT://0.0.0.0:9092"},
    ],
)
def test_an_address_that_nobody_can_connect_to_is_not_advertised(properties: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"nonroutable meta-address 0\.0\.0\.0.*--advertise HOST:PORT"):
        BrokerConfig.load(properties)
    assert BrokerConfig.load({**properties, "advertised.listeners": "PLAINTEXT://example:9092"}).listeners
    controller = {"listeners": "PLAINTEXT://localhost:9092,CONTROLLER://0.0.0.0:9093"}
    assert BrokerConfig.load({**controller, "controller.listener.names": "CONTROLLER"}).controller_listeners


def test_dynamic_settings_are_checked_together_with_the_file() -> None:
    config = BrokerConfig.load({"listeners": "PLAINTEXT://:9092"})
    for impossible in ({"listeners": "X://1:2"}, {"listener.security.protocol.map": "PLAINTEXT:SSL"}):
        with pytest.raises(ConfigError):
            config.with_overrides(impossible, {})


def test_a_controller_names_its_voters() -> None:
    config = BrokerConfig.load({**ALONE, "controller.quorum.voters": "1@a:9093, 2@[::1]:9094"}, lambda _: None)
    assert config.is_controller_alone and not config.listeners
    assert [(voter.id, voter.host, voter.port) for voter in config.static_voters] == [(1, "a", 9093), (2, "::1", 9094)]


def test_a_broker_alone_finds_its_controllers_by_voters_or_by_addresses() -> None:
    addresses = {"controller.quorum.bootstrap.servers": "a:9093, [::1]:9094"}
    config = BrokerConfig.load({**OBSERVER, **addresses}, lambda _: None)
    assert config.is_broker_alone and config.waits_for_others and not config.controller_listeners
    assert config.bootstrap_servers == (("a", 9093), ("::1", 9094))
    voters = {**OBSERVER, "controller.quorum.bootstrap.servers": "", "controller.quorum.voters": "1@a:9093"}
    assert BrokerConfig.load(voters).controller_listener == "CONTROLLER"


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"listeners": "PLAINTEXT://:9092,CONTROLLER://:9093"}, "must not contain a value that appears in the 'listen"),
        ({"controller.quorum.bootstrap.servers": ""}, "controller.quorum.bootstrap.servers must name controllers, or"),
        ({"controller.quorum.voters": "5@a:9093"}, "process.roles=broker: it must not name this node, which is 5"),
    ],
)
def test_a_broker_alone_is_no_controller(wrong: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        BrokerConfig.load({**OBSERVER, **wrong})
