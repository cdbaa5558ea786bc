"""A node's settings as typed values, and what follows from several of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Final

from .broker_fields import BrokerFields
from .endpoints import (
    NONROUTABLE_HOST,
    Endpoint,
    StaticVoter,
    parse_address,
    parse_endpoint,
    parse_voter,
    protocol_map,
)
from .listener import PREFIX, ListenerConfig
from .setting import ConfigError, Value, format_value, parse_metrics_listener, parse_value
from .table import BROKER_SETTINGS, broker_setting

_THIS_MACHINE: Final = ("localhost", "127.0.0.1", "::1")

DEFAULT_NODE_ID: Final = 1

# A setting that is not set takes the value of the next of its synonyms, in its own unit.
MS_PER_UNIT: Final = {"minutes": 60_000, "hours": 3_600_000}
_DEFAULTS: Final[dict[str, Value]] = {name: setting.default for name, setting in BROKER_SETTINGS.items()}
_FIELDS: Final = {field.name: field.name.replace("_", ".") for field in fields(BrokerFields)}


def in_ms(name: str, value: Value) -> Value:
    """`value` of the setting `name` in milliseconds, where its name ends in another unit of time."""
    factor = MS_PER_UNIT.get(name.rpartition(".")[2])
    if factor is None or not isinstance(value, int):
        return value
    return -1 if value < 0 else value * factor


class NodeSettings(BrokerFields):
    """The typed fields of `BrokerFields`, and what follows from several settings. Immutable: a change makes another.

    `config["log.segment.bytes"]` is any setting's typed value by its name, for the code that goes through the table.
    Synonyms are already followed. Unknown names raise KeyError. Each value is one that its setting can have;
    `relations` checks them together.
    """

    def __init__(
        self,
        static: Mapping[str, str],
        per_broker: Mapping[str, str] | None = None,
        cluster_default: Mapping[str, str] | None = None,
    ) -> None:
        self.static: Final = _with_older_names(static)
        self.per_broker: Final = dict(per_broker or {})
        self.cluster_default: Final = dict(cluster_default or {})
        values = dict(_DEFAULTS)
        scoped: dict[str, Value] = {}
        given: set[str] = set()
        for layer in (self.static, self.cluster_default, self.per_broker):
            for name, text in layer.items():
                setting = BROKER_SETTINGS.get(name)
                if setting is not None:
                    values[name] = parse_value(setting, text)
                    given.add(name)
                elif name.startswith(PREFIX) and (setting := broker_setting(name)) is not None:
                    scoped[name] = parse_value(replace(setting, name=name), text)
        for name in ("log.retention.ms", "log.roll.ms", "log.roll.jitter.ms", "log.flush.interval.ms", "log.dirs"):
            values[name] = _follow(name, values, given)
        self._values: Final = values
        self._scoped: Final = scoped
        # The table has parsed each value as its type.
        super().__init__(**{field: values[name] for field, name in _FIELDS.items()})  # type: ignore[arg-type]

    def __getitem__(self, name: str) -> Value:
        return self._values[name]

    @property
    def scoped_names(self) -> tuple[str, ...]:
        """The settings that are given for single listeners, and mechanisms of them, by their whole names; sorted."""
        return tuple(sorted(self._scoped))

    @property
    def unknown_names(self) -> tuple[str, ...]:
        """The names that are given and have no row; sorted."""
        given = {*self.static, *self.cluster_default, *self.per_broker}
        return tuple(sorted(name for name in given if broker_setting(name) is None))

    def of_listener(self, name: str) -> ListenerConfig:
        """The settings as the listener of this name sees them."""
        return ListenerConfig(name, self._values, self._scoped)

    def is_given(self, name: str) -> bool:
        """Whether a file or a dynamic setting names it."""
        return name in self.per_broker or name in self.cluster_default or name in self.static

    def shown(self, name: str) -> str:
        """The value in force as text; empty where it is not set."""
        return format_value(BROKER_SETTINGS[name], self._values[name]) or ""

    @property
    def node_id(self) -> int:
        """`node.id`, or its older name `broker.id`, or 1."""
        value = self._values["node.id"]
        return value if isinstance(value, int) and value >= 0 else DEFAULT_NODE_ID

    @property
    def metadata_log_dir(self) -> str:
        """Where `__cluster_metadata-0` lives."""
        value = self._values["metadata.log.dir"]
        return value if isinstance(value, str) and value else self.log_dirs[0]

    @property
    def directories(self) -> tuple[str, ...]:
        """Every directory of the node: `log.dirs`, and that of the metadata log where it lies beside them."""
        return tuple(dict.fromkeys([*self.log_dirs, self.metadata_log_dir]))

    @property
    def all_listeners(self) -> tuple[Endpoint, ...]:
        """Every endpoint of `listeners`. Raises ConfigError when it cannot be read."""
        return self._endpoints("listeners", self._values["listeners"])

    @property
    def is_controller_alone(self) -> bool:
        """Whether this node is a controller and no broker."""
        return set(self.process_roles) == {"controller"}

    @property
    def is_broker_alone(self) -> bool:
        """Whether this node is a broker and no controller: an observer of the metadata quorum."""
        return set(self.process_roles) == {"broker"}

    @property
    def names_its_controller(self) -> bool:
        """Whether the settings say at which address other nodes reach the controller of this one."""
        points = self.advertised_controllers
        return bool(points) and all(each.host not in ("", NONROUTABLE_HOST) and each.port for each in points)

    @property
    def is_by_itself(self) -> bool:
        """Whether no other node can be in its cluster: nothing but itself reaches its controller."""
        return not self.is_broker_alone and not self.controller_listeners

    @property
    def waits_for_others(self) -> bool:
        """Whether the settings name other nodes that decide on the metadata, or may do so."""
        if self.static_voters or self.is_broker_alone:
            return self.is_broker_alone or len(self.static_voters) > 1
        return bool(self.other_bootstrap_servers)

    @property
    def controller_listener(self) -> str:
        """The name of the listener on which controllers are asked: the first of `controller.listener.names`."""
        return next((name.upper() for name in self.controller_listener_names), "CONTROLLER")

    @property
    def bootstrap_servers(self) -> tuple[tuple[str, int], ...]:
        """The (host, port) of each of `controller.quorum.bootstrap.servers`. Raises ConfigError."""
        name = "controller.quorum.bootstrap.servers"
        return tuple(parse_address(name, text) for text in self.controller_quorum_bootstrap_servers)

    @property
    def other_bootstrap_servers(self) -> tuple[tuple[str, int], ...]:
        """Those among them that are not this node, as far as the settings tell: a port of another machine may be the
        same. Raises ConfigError."""
        points = (*self.controller_listeners, *self.advertised_controllers)
        own = {(host, each.port) for each in points for host in (each.host, *_THIS_MACHINE)}
        return tuple(server for server in self.bootstrap_servers if server not in own)

    @property
    def static_voters(self) -> tuple[StaticVoter, ...]:
        """Who votes by `controller.quorum.voters`. Raises ConfigError where it cannot be read."""
        return tuple(parse_voter("controller.quorum.voters", text) for text in self.controller_quorum_voters)

    @property
    def listeners(self) -> tuple[Endpoint, ...]:
        """Where clients are served."""
        return tuple(point for point in self.all_listeners if point.name not in self.controller_listener_names)

    @property
    def controller_listeners(self) -> tuple[Endpoint, ...]:
        """Where the controller's API list is served; empty unless the file names one."""
        return tuple(point for point in self.all_listeners if point.name in self.controller_listener_names)

    @property
    def advertised_controllers(self) -> tuple[Endpoint, ...]:
        """Where other nodes reach this controller. An empty host means the machine's host name."""
        return self._advertised(self.controller_listeners)

    @property
    def metrics_address(self) -> tuple[str, int] | None:
        """Where `/metrics` is served: a host (empty: every interface) and a port; None where it is not."""
        return parse_metrics_listener(self.metrics_listener)

    @property
    def advertised_listeners(self) -> tuple[Endpoint, ...]:
        """The addresses that clients get, one per listener. An empty host means the machine's host name."""
        return self._advertised(self.listeners)

    def _advertised(self, listeners: tuple[Endpoint, ...]) -> tuple[Endpoint, ...]:
        given = self._values["advertised.listeners"]
        advertised = {point.name: point for point in self._endpoints("advertised.listeners", given)} if given else {}
        return tuple(advertised.get(point.name, point) for point in listeners)

    @property
    def inter_broker_listener(self) -> str:
        """The name of the listener that brokers use among themselves: the one that is named so, or after their
        protocol, or else the first."""
        name = self.inter_broker_listener_name or self.security_inter_broker_protocol
        names = [point.name for point in self.listeners]
        return name if name in names or not names else names[0]

    @property
    def node_listeners(self) -> frozenset[str]:
        """The names of the listeners that nodes use among themselves; none where no other node can be."""
        if self.is_by_itself:
            return frozenset()
        return frozenset([self.inter_broker_listener, *(name.upper() for name in self.controller_listener_names)])

    @property
    def inter_broker_protocol(self) -> str:
        """The protocol that brokers ask one another in."""
        return self._protocols().get(self.inter_broker_listener, self.security_inter_broker_protocol)

    @property
    def controller_protocol(self) -> str:
        """The protocol that controllers are asked in. Raises ConfigError where no protocol is defined for it."""
        name = self.controller_listener
        protocol = self._protocols().get(name)
        if protocol is None:
            raise ConfigError("controller.listener.names", name, f"No security protocol defined for listener {name}")
        return protocol

    def _protocols(self) -> dict[str, str]:
        protocols = protocol_map(self.listener_security_protocol_map)
        if self.is_given("listener.security.protocol.map"):
            return protocols
        return {**dict.fromkeys(self.controller_listener_names, "PLAINTEXT"), **protocols}

    def _endpoints(self, setting: str, texts: Value) -> tuple[Endpoint, ...]:
        assert isinstance(texts, tuple)
        protocols = self._protocols()
        return tuple(parse_endpoint(setting, text, protocols) for text in texts)


def _with_older_names(static: Mapping[str, str]) -> dict[str, str]:
    """Returns a file's settings with the node's id under its older name too, as Kafka reads them (KIP-631)."""
    found = dict(static)
    for name, other in (("node.id", "broker.id"), ("broker.id", "node.id")):
        if name in static:
            found.setdefault(other, static[name])
    return found


def _follow(name: str, values: Mapping[str, Value], given: set[str]) -> Value:
    """The value of `name`, or of the first of its synonyms that is set, or of the last one's default."""
    chain = (name, *BROKER_SETTINGS[name].synonyms)
    for candidate in chain:
        if candidate in given and values[candidate] is not None:
            return in_ms(candidate, values[candidate])
    return in_ms(chain[-1], values[chain[-1]])
