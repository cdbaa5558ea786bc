"""Which listeners the nodes of `headrace serve --brokers N` have, by the settings for all of them.

A listener is named with the address of the first node: the others count on from its port. Where the settings name none
for controllers, or clients have to log in and no listener is named that brokers use among themselves, the nodes get one
on this machine's loopback, and log in there by a password that is drawn at each start: reaching the machine does not
make a process a node, and the operator needs no user for the nodes.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from headrace.cli.failures import Failure
from headrace.wire.address import address_text

if TYPE_CHECKING:
    from headrace.config import BrokerConfig
    from headrace.config.endpoints import Endpoint

LOOPBACK: Final = "127.0.0.1"
"""Nodes of one machine speak with each other alone."""
FURTHER: Final = 10_000
"""The first controller's port, counted from the first client's; that of brokers among themselves is as far again."""
BROKERS: Final = "NODES"
"""The listener of brokers among themselves, where the settings name none."""
NODE_NAME: Final = "headrace-node-{}"
"""As whom a node logs in at a listener of its own."""
EVERY_INTERFACE: Final = ("", "0.0.0.0", "::")

PROTOCOLS: Final = "listener.security.protocol.map"
CONTROLLERS: Final = "controller.listener.names"
SUPER_USERS: Final = "super.users"
BROKERS_NAMED: Final = (
    "inter.broker.listener.name",
    "security.inter.broker.protocol",
    "sasl.mechanism.inter.broker.protocol",
)
"""Options that determine how brokers find each other, and with which credentials."""
CONTROLLERS_NAMED: Final = (CONTROLLERS, "sasl.mechanism.controller.protocol")
OWN: Final = frozenset(
    {
        "broker.id",
        "controller.quorum.bootstrap.servers",
        "controller.quorum.voters",
        "log.dir",
        "log.dirs",
        "metadata.log.dir",
        "node.id",
    }
)
"""Settings that each node has of its own: they cannot be given for all."""
ROLES: Final = "process.roles"
BOTH_ROLES: Final = ("broker", "controller")


@dataclass(frozen=True, slots=True)
class Listener:
    """One listener of every node: where the first node has it, and where clients find it if that is elsewhere."""

    name: str
    host: str
    port: int
    """Of the first node; 0: each node takes a free one."""
    advertised: tuple[str, int] | None = None
    is_controllers: bool = False

    @property
    def reached_at(self) -> str:
        """The host by which the other nodes reach it."""
        host = self.advertised[0] if self.advertised else self.host
        return LOOPBACK if host in EVERY_INTERFACE else host

    def shown(self, port: int) -> str:
        """HOST:PORT for people; the machine's name where it is every interface without a name."""
        return address_text(self.host or (self.advertised[0] if self.advertised else socket.gethostname()), port)


@dataclass(frozen=True, slots=True)
class Plan:
    """The settings that all nodes share:

    `listeners`, of which the first one is for clients, and the `settings`. Nodes log in by credentials of their own at
    the listeners `own`.
    """

    listeners: tuple[Listener, ...]
    settings: Mapping[str, str]
    own: tuple[str, ...] = ()

    @property
    def clients(self) -> Listener:
        return self.listeners[0]

    @property
    def controllers(self) -> Listener:
        """The first listener of controllers: there is always one."""
        names = [name.strip().upper() for name in self.settings[CONTROLLERS].split(",")]
        return next(each for each in self.listeners if each.name == names[0])

    def credentials(self, node_id: int, brokers: int, password: str) -> dict[str, str]:
        """By what a node logs in, and lets the others in, at the listeners of its own."""
        from headrace.security.mechanisms import MODULE_OF
        from headrace.security.plain import PLAIN

        names = [NODE_NAME.format(each) for each in range(1, brokers + 1)]
        users = "".join(f' user_{name}="{password}"' for name in names)
        line = f'{MODULE_OF[PLAIN]} required username="{names[node_id - 1]}" password="{password}"{users};'
        found = {}
        for listener in self.own:
            prefix = f"listener.name.{listener.lower()}."
            found[f"{prefix}sasl.enabled.mechanisms"] = PLAIN
            found[f"{prefix}plain.sasl.jaas.config"] = line
            found[f"{prefix}plain.sasl.server.callback.handler.class"] = ""
        return found


def plan_nodes(given: Mapping[str, str], controller_port: int | None, brokers: int) -> Plan:
    """What nodes have under these settings of all, `listeners` among them. Raises ConfigError, and Failure for what
    cannot be given for all."""
    from headrace.config import BrokerConfig
    from headrace.config.endpoints import protocol_map

    refused = sorted(OWN & given.keys())
    if refused:
        where = "; --data names their folder" if "dir" in refused[0] else ""
        raise Failure(f"{refused[0]} is each node's own with --brokers, and cannot be set for all{where}")
    config = BrokerConfig(given)
    if config.is_given(ROLES) and set(config.process_roles) != set(BOTH_ROLES):
        raise Failure(f"process.roles={given[ROLES]}: with --brokers every node is a broker and a controller")
    if not config.listeners:
        raise Failure("listeners: it must name a listener that is not a controller's")
    protocols = protocol_map(config.listener_security_protocol_map)
    if not config.is_given(PROTOCOLS):
        protocols = {**dict.fromkeys(config.controller_listener_names, "PLAINTEXT"), **protocols}
    settings = {name: text for name, text in given.items() if name not in ("listeners", "advertised.listeners", ROLES)}
    found = [*_listeners(config, config.listeners)]
    found += [replace(each, is_controllers=True) for each in _listeners(config, config.controller_listeners)]
    _check_room(found, brokers)
    has_logins = any(point.protocol != "PLAINTEXT" for point in config.listeners)
    own = []
    name = config.controller_listener
    names_controllers = any(config.is_given(each) for each in CONTROLLERS_NAMED) or name in protocols
    if not config.controller_listeners:
        port = _further(found[0].port, 1, brokers)
        found.append(Listener(name, LOOPBACK, port, is_controllers=True))
        settings[CONTROLLERS] = config.shown(CONTROLLERS) or name
        if has_logins and not names_controllers:
            protocols[name] = "SASL_PLAINTEXT"
            settings["sasl.mechanism.controller.protocol"] = "PLAIN"
            own.append(name)
        else:
            protocols.setdefault(name, "PLAINTEXT")
    if controller_port is not None:
        found = [replace(each, port=controller_port) if each.name == name else each for each in found]
    if has_logins and not any(config.is_given(each) for each in BROKERS_NAMED):
        if BROKERS in protocols or any(each.name == BROKERS for each in found):
            raise Failure(f"{BROKERS} is a listener of the nodes' own with --brokers: inter.broker.listener.name says "
                          "which one they are to use, or give yours another name")  # fmt: skip
        protocols[BROKERS] = "SASL_PLAINTEXT"
        found.append(Listener(BROKERS, LOOPBACK, _further(found[0].port, 2, brokers)))
        settings |= {"inter.broker.listener.name": BROKERS, "sasl.mechanism.inter.broker.protocol": "PLAIN"}
        own.append(BROKERS)
    settings[PROTOCOLS] = ",".join(f"{each}:{protocol}" for each, protocol in protocols.items())
    if own and config.authorizer_class_name:
        nodes = [f"User:{NODE_NAME.format(node_id)}" for node_id in range(1, brokers + 1)]
        settings[SUPER_USERS] = ";".join([*filter(None, [given.get(SUPER_USERS, "").strip().strip(";")]), *nodes])
    _check_room(found, brokers)
    _check_mechanism(BrokerConfig(settings), name, protocols[name], brokers)
    return Plan(tuple(found), settings, tuple(own))


def _listeners(config: BrokerConfig, points: tuple[Endpoint, ...]) -> list[Listener]:
    names = {text.partition("://")[0].strip().upper() for text in config.shown("advertised.listeners").split(",")}
    advertised = {point.name: point for point in (*config.advertised_listeners, *config.advertised_controllers)}
    return [
        Listener(
            point.name,
            point.host,
            point.port,
            (advertised[point.name].host, advertised[point.name].port) if point.name in names else None,
        )
        for point in points
    ]


def _further(first: int, times: int, brokers: int) -> int:
    """A port that much further on than the first client's, or before it where there are none; 0 for 0."""
    if not first:
        return 0
    port = first + times * FURTHER
    return port if port <= 65536 - brokers else first - times * FURTHER


def _check_room(listeners: list[Listener], brokers: int) -> None:
    for each in listeners:
        advertised = each.advertised[1] if each.advertised else 0
        for first in (each.port, advertised):
            if first > 65536 - brokers:
                raise Failure(f"{brokers} ports from {first} on are more than there are")


def _check_mechanism(config: BrokerConfig, name: str, protocol: str, brokers: int) -> None:
    """Controllers find SCRAM's users in the metadata, and there are none before a controller is elected."""
    mechanism = str(config.of_listener(name)["sasl.mechanism.controller.protocol"])
    if brokers > 1 and protocol.startswith("SASL") and mechanism.startswith("SCRAM"):
        raise Failure(
            f"sasl.mechanism.controller.protocol={mechanism}: its users are in the metadata, which controllers elect a "
            "leader for first; let them log in by PLAIN, or show certificates (SSL)"
        )
