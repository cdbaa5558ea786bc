"""How many connections there may be, and how quickly they may come.

Rates are so small that what is over them would wait for the most that anybody waits: one second. No test says that it
does: they look at what is held and at what is not accepted.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from broker.raw import Raw
from compat.kafka_says.quotas import alter
from peers.waiting import until

from headrace.config import BrokerConfig, ConfigError, Endpoint, endpoints, node_settings
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker
from headrace.wire.messages.k03_metadata import MetadataRequest

PATIENCE_S = 60.0
TWO = {
    "listeners": "BROKERS://127.0.0.1:0,CLIENTS://127.0.0.1:0",
    "listener.security.protocol.map": "BROKERS:PLAINTEXT,CLIENTS:PLAINTEXT",
    "inter.broker.listener.name": "BROKERS",
}


def ask(raw: Raw) -> None:
    raw.ask(MetadataRequest(topics=[]), 9)


def is_served(raw: Raw) -> bool:
    """Whether a connection is answered now, or only later: the broker has had its turn in between."""
    raw.send(MetadataRequest(topics=[]), 9)
    raw.socket.settimeout(0.3)
    try:
        raw.receive(3, 9)
    except TimeoutError:
        return False
    finally:
        raw.socket.settimeout(PATIENCE_S)
    return True


def count(broker: TestBroker) -> int:
    return broker.call(lambda inside: len(inside.server.connections))


def port_of(broker: TestBroker, name: str) -> int:
    return broker.call(lambda inside: next(each.port for each in inside.listeners if each.name == name))


@contextmanager
def crowd(port: int, size: int) -> Iterator[list[Raw]]:
    with ExitStack() as stack:
        held = [stack.enter_context(Raw(port)) for _ in range(size)]
        for each in held:
            ask(each)
        yield held


def test_beyond_the_limit_nobody_is_accepted_and_nobody_is_closed() -> None:
    with running_broker({"max.connections": "3"}) as broker, crowd(broker.port, 3) as held, Raw(broker.port) as fourth:
        assert not is_served(fourth)
        assert count(broker) == 3
        for each in held:
            ask(each)
        held[0].socket.close()
        assert fourth.receive(3, 9)[0] == 1
        assert count(broker) == 3


def test_the_limit_of_a_listener_stops_that_listener_alone() -> None:
    settings = {**TWO, "listener.name.clients.max.connections": "2"}
    with running_broker(settings) as broker:
        clients, brokers = port_of(broker, "CLIENTS"), port_of(broker, "BROKERS")
        with crowd(clients, 2) as held, crowd(brokers, 3), Raw(clients) as third:
            assert not is_served(third)
            held[1].socket.close()
            assert third.receive(3, 9)[0] == 1


def test_brokers_go_past_the_limit_and_the_client_that_rests_longest_gives_way() -> None:
    settings = {**TWO, "max.connections": "3", "listener.name.brokers.max.connections": "100"}
    with running_broker(settings) as broker:
        clients, brokers = port_of(broker, "CLIENTS"), port_of(broker, "BROKERS")
        with crowd(clients, 3) as held:
            broker.call(lambda inside: _rests(inside, held[1]))
            with Raw(brokers) as node:
                ask(node)
                assert held[1].is_closed()
                ask(held[0])
                ask(held[2])
                assert count(broker) == 3
                with Raw(clients) as waits, crowd(brokers, 2):
                    # Three brokers fill what there is. No client is left; nor is any accepted.
                    until(lambda: count(broker) == 3)
                    assert not is_served(waits)
                    with Raw(brokers) as more:
                        ask(more)
                        assert count(broker) == 4


def test_what_is_said_of_the_broker_is_said_of_each_listener_too() -> None:
    with running_broker({**TWO, "max.connections": "2"}) as broker:
        brokers = port_of(broker, "BROKERS")
        with crowd(brokers, 2) as held, Raw(brokers) as third:
            assert not is_served(third)
            held[0].socket.close()
            assert third.receive(3, 9)[0] == 1


def _rests(inside: Any, raw: Raw) -> None:
    port = raw.socket.getsockname()[1]
    for each in inside.server.connections:
        each.active = each.stream.peer_port != port


def test_a_lower_limit_closes_what_is_over_it() -> None:
    with running_broker({"max.connections": "3"}) as broker, crowd(broker.port, 3):
        broker.call(lambda inside: setattr(inside.server.admission, "_config", lambda: _limited(inside.config, 1)))
        broker.call(lambda inside: inside.server.admission.look())
        assert count(broker) == 1


def _limited(config: BrokerConfig, most: int) -> BrokerConfig:
    return config.with_overrides({}, {"max.connections": str(most)})


@pytest.mark.parametrize(
    "settings", [{"max.connection.creation.rate": "1"}, {"listener.name.plaintext.max.connection.creation.rate": "1"}]
)
def test_who_comes_too_quickly_waits_outside(settings: dict[str, str]) -> None:
    """Ten come at once, as the window allows; then the listener rests."""
    with running_broker(settings) as broker:
        rests = broker.call(_resting)
        assert rests == []
        with crowd(broker.port, 11):
            assert broker.call(_resting) == ["PLAINTEXT"]
            with Raw(broker.port) as late:
                late.send(MetadataRequest(topics=[]), 9)
                # It is served in the end, a second later at most.
                assert late.receive(3, 9)[0] == 1


def _resting(inside: Any) -> list[str]:
    return [name for name, arrivals in inside.server.admission._arrivals.items() if arrivals.rests is not None]


def test_the_rate_of_the_whole_broker_does_not_hold_brokers_up() -> None:
    with running_broker(
        {**TWO, "max.connection.creation.rate": "1", "listener.name.brokers.max.connection.creation.rate": "1000"}
    ) as broker:
        with crowd(port_of(broker, "CLIENTS"), 11):
            assert broker.call(_resting) == ["CLIENTS"]
            with crowd(port_of(broker, "BROKERS"), 11):
                assert broker.call(_resting) in (["CLIENTS"], [])


def test_an_address_that_connects_too_often_is_held_and_then_closed() -> None:
    with running_broker() as broker:
        with Raw(broker.port) as raw:
            rate: Any = [([("ip", "127.0.0.1")], [("connection_creation_rate", 1.0)])]
            assert alter(raw, rate)[0][0] == 0
        with crowd(broker.port, 10) as held, ExitStack() as stack:
            late = [stack.enter_context(Raw(broker.port)) for _ in range(15)]
            for each in late:
                each.send(MetadataRequest(topics=[]), 9)
            until(lambda: broker.call(lambda inside: inside.metrics.counter("connections.throttled").value) == 15)
            assert count(broker) == 10, "none of them is served"
            assert all(each.is_closed(PATIENCE_S) for each in late)
            assert broker.call(lambda inside: inside.server.admission.held) == 0
            rate[0][1][0] = ("connection_creation_rate", 2.0)
            assert alter(held[0], rate)[0][0] == 0
            with Raw(broker.port) as again:
                ask(again)  # what was not served did not count


def test_other_addresses_are_not_held() -> None:
    with running_broker() as broker:
        with Raw(broker.port) as raw:
            rate: Any = [([("ip", "10.0.0.1")], [("connection_creation_rate", 1.0)])]
            assert alter(raw, rate)[0][0] == 0
        with crowd(broker.port, 20):
            assert broker.call(lambda inside: inside.server.admission.held) == 0


def test_what_is_held_is_bounded_and_ends_with_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.broker.net.admission.HELD_MAX", 3)
    with ExitStack() as stack:
        with running_broker() as broker:
            with Raw(broker.port) as raw:
                rate: Any = [([("ip", None)], [("connection_creation_rate", 1.0)])]
                assert alter(raw, rate)[0][0] == 0
            late = [stack.enter_context(Raw(broker.port)) for _ in range(40)]
            until(lambda: broker.call(lambda inside: inside.metrics.counter("connections.throttled").value) >= 3)
            assert broker.call(lambda inside: inside.server.admission.held) <= 3
        assert all(each.is_closed() for each in late)


def test_a_limit_of_a_listener_that_is_no_number_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"listener\.name\.plaintext\.max\.connections|max\.connections"):
        BrokerConfig.load({"listener.name.plaintext.max.connections": "many"})
    said: list[str] = []
    BrokerConfig.load({"listener.name.plaintext.max.connections": "5"}, said.append)
    assert said == []


def test_a_connection_reads_no_listener_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strangers may come by the thousand: what the settings say of listeners is read when it changes."""
    read: list[str] = []
    parse = endpoints.parse_endpoint

    def counting(setting: str, text: str, protocols: Mapping[str, str]) -> Endpoint:
        read.append(text)
        return parse(setting, text, protocols)

    with running_broker(TWO) as broker:
        port = port_of(broker, "CLIENTS")
        with crowd(port, 2):
            pass
        until(lambda: count(broker) == 0)
        monkeypatch.setattr(node_settings, "parse_endpoint", counting)
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as link:
                link.sendall(b"\xff" * 8)
                assert link.recv(1) == b""
    assert len(read) < 20
