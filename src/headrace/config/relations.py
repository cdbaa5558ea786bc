"""Checks over several settings: the names that a file holds, and values that must agree."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headrace.wire.address import address_text

from .endpoints import NONROUTABLE_HOST
from .exposure import REMEDY, open_listeners, opening_text
from .node_settings import NodeSettings
from .security_table import SASL_PROTOCOLS, SERVED_PROTOCOLS, UNPROTECTED
from .setting import ConfigError, names_twice
from .table import broker_setting, check_refused, refusal
from .tls import TLS_PROTOCOLS, tls_of


def check_file(properties: Mapping[str, str], warn: Callable[[str], None]) -> None:
    """One warning for each key that is unknown or has no effect here. Raises ConfigError for keys that the table
    refuses: those whose absence would weaken security, durability or topology."""
    for name, text in properties.items():
        check_refused(name, text)
    for name, text in properties.items():
        setting = broker_setting(name)
        if setting is not None and names_twice(setting, text):
            warn(f"{name} names a value twice, and keeps the first of them")
        if setting is not None and setting.unserved:
            warn(f"{name} has no effect: {setting.unserved}")
        elif setting is None and not refusal(name):
            warn(f"{name} is not a setting of this broker and has no effect")


def check_relations(config: NodeSettings) -> None:
    """Settings that are each possible and together are not. Raises ConfigError, one line."""
    _check_protocols(config)
    _check_listeners(config)
    _check_strict(config)
    _check_node(config)
    _check_mechanism(config)
    if config.is_broker_alone:
        _check_broker_alone(config)
    else:
        _check_voters(config)
    _check_consumer_groups(config)
    if not config.log_dirs or not all(config.log_dirs):
        raise ConfigError("log.dirs", "", "it must name at least one directory")


def _check_listeners(config: NodeSettings) -> None:
    listeners = config.all_listeners
    shown = config.shown("listeners")
    if len({point.name for point in listeners}) < len(listeners):
        raise ConfigError("listeners", shown, "Each listener must have a different name")
    bound = [(point.host, point.port) for point in listeners if point.port]
    if len(set(bound)) < len(bound):
        raise ConfigError("listeners", shown, "Each listener must have a different port")
    if config.is_controller_alone:
        if config.listeners or not config.controller_listeners:
            why = "process.roles=controller: all of its listeners must be in controller.listener.names"
            raise ConfigError("listeners", shown, why)
    elif not config.listeners:
        raise ConfigError("listeners", shown, "it must name a listener that is not a controller's")
    names = {point.name for point in listeners}
    for name in () if config.is_broker_alone else config.controller_listener_names:
        if name not in names:
            why = "controller.listener.names must only contain values appearing in the 'listeners' configuration"
            raise ConfigError("controller.listener.names", name, why)
    inter_broker = config.inter_broker_listener_name
    if inter_broker is not None and config.is_given("security.inter.broker.protocol"):
        why = "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set."
        raise ConfigError("inter.broker.listener.name", inter_broker, why)
    is_elsewhere = config.is_controller_alone  # where brokers listen is theirs to say
    if inter_broker is not None and not is_elsewhere and inter_broker not in {point.name for point in config.listeners}:
        raise ConfigError("inter.broker.listener.name", inter_broker, "it is not among the listeners")
    for name in config.early_start_listeners or ():
        if name.upper() not in {*names, *config.controller_listener_names}:
            why = "it is not contained in listeners or controller.listener.names"
            raise ConfigError("early.start.listeners", name, why)
    for point in config.advertised_listeners:
        if point.host == NONROUTABLE_HOST:
            why = (
                "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP address: "
                "set advertised.listeners, or give --advertise HOST:PORT"
            )
            raise ConfigError("advertised.listeners", f"{point.name}://{address_text(point.host, point.port)}", why)


def _check_protocols(config: NodeSettings) -> None:
    for point in config.all_listeners:
        if point.protocol not in SERVED_PROTOCOLS:
            why = f"listener {point.name} speaks {point.protocol}; {UNPROTECTED}"
            raise ConfigError("listeners", config.shown("listeners"), why)
        settings = config.of_listener(point.name)
        if point.protocol in TLS_PROTOCOLS and not tls_of(settings, point.protocol).key_store.is_given:
            why = f"listener {point.name} speaks {point.protocol} and needs {settings.prefix}ssl.keystore.location"
            raise ConfigError("listeners", config.shown("listeners"), why)


def _check_strict(config: NodeSettings) -> None:
    for point in open_listeners(config) if config.security_strict else ():
        why = f"{opening_text(point)}, and security.strict=true refuses that: {REMEDY}"
        raise ConfigError("listeners", config.shown("listeners"), why)


def _check_consumer_groups(config: NodeSettings) -> None:
    """Times of consumer groups, whose members must beat more often than they may be silent."""
    for kind in ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms"):
        name, lowest, highest = (f"group.consumer.{prefix}{kind}" for prefix in ("", "min.", "max."))
        for lesser, greater in ((lowest, highest), (lowest, name)):
            if _number(config, greater) < _number(config, lesser):
                why = f"{greater} must be greater than or equal to {lesser}"
                raise ConfigError(greater, config.shown(greater), why)
        if _number(config, name) > _number(config, highest):
            raise ConfigError(name, config.shown(name), f"{name} must be less than or equal to {highest}")
    interval_ms, timeout_ms = config.group_consumer_heartbeat_interval_ms, config.group_consumer_session_timeout_ms
    if interval_ms >= timeout_ms:
        name, other = "group.consumer.heartbeat.interval.ms", "group.consumer.session.timeout.ms"
        raise ConfigError(name, interval_ms, f"{name} must be less than {other}")


def _number(config: NodeSettings, name: str) -> int:
    value = config[name]
    assert isinstance(value, int)
    return value


def _check_node(config: NodeSettings) -> None:
    node_id, broker_id = config["node.id"], config["broker.id"]
    if config.is_given("node.id") and broker_id != node_id:
        raise ConfigError("broker.id", broker_id, f"it must equal node.id, which is {node_id}")


def _check_mechanism(config: NodeSettings) -> None:
    """Brokers log in to one another by what the listener for that offers."""
    if config.is_by_itself or config.is_controller_alone or config.inter_broker_protocol not in SASL_PROTOCOLS:
        return
    name, enabled = "sasl.mechanism.inter.broker.protocol", "sasl.enabled.mechanisms"
    settings = config.of_listener(config.inter_broker_listener)
    if config[name] not in settings.sasl_enabled_mechanisms:
        altered = (each for each in (settings.prefix + enabled, enabled, name) if each in config.per_broker)
        line = f"{name} must be included in {enabled} when SASL is used for inter-broker communication"
        raise ConfigError(next(altered, name), config[name], line=line)


def _check_broker_alone(config: NodeSettings) -> None:
    """Of a broker that is no controller: where it finds one, and over which protocol."""
    shown = config.shown("controller.listener.names")
    if not config.controller_listener_names:
        why = "process.roles=broker: it must name the listener of the controllers"
        raise ConfigError("controller.listener.names", shown, why)
    if config.controller_listeners:
        why = "process.roles=broker: it must not contain a value that appears in the 'listeners' configuration"
        raise ConfigError("controller.listener.names", shown, why)
    protocol = config.controller_protocol
    if protocol not in SERVED_PROTOCOLS:
        raise ConfigError("controller.listener.names", shown, f"the listener speaks {protocol}; {UNPROTECTED}")
    voters = _voter_ids(config)
    if not voters and not config.bootstrap_servers:
        why = (
            "process.roles=broker: controller.quorum.bootstrap.servers must name controllers, or "
            "controller.quorum.voters the voters"
        )
        raise ConfigError("controller.quorum.bootstrap.servers", "", why)
    if config.node_id in voters:
        why = f"process.roles=broker: it must not name this node, which is {config.node_id}"
        raise ConfigError("controller.quorum.voters", config.shown("controller.quorum.voters"), why)


def _voter_ids(config: NodeSettings) -> list[int]:
    ids = [voter.id for voter in config.static_voters]
    if len(set(ids)) < len(ids):
        raise ConfigError("controller.quorum.voters", config.shown("controller.quorum.voters"), "it names a node twice")
    return ids


def _check_voters(config: NodeSettings) -> None:
    ids = _voter_ids(config)
    shown = config.shown("controller.quorum.voters")
    if ids and config.node_id not in ids:
        raise ConfigError("controller.quorum.voters", shown, f"it does not name this node, which is {config.node_id}")
    if config.is_by_itself and config.waits_for_others:
        name = "controller.quorum.voters" if ids else "controller.quorum.bootstrap.servers"
        why = "a node that has other controllers beside it needs a listener of those in controller.listener.names"
        raise ConfigError(name, config.shown(name), why)
    if config.controller_quorum_auto_join_enable:
        _check_auto_join(config)


def _check_auto_join(config: NodeSettings) -> None:
    """Raises ConfigError where a controller cannot become a voter by itself."""
    why = None
    if config.static_voters:
        why = "controller.quorum.voters names the voters"
    elif not config.names_its_controller:
        why = "the listener of controllers must name a host by which the others reach this node"
    if why is not None:
        raise ConfigError("controller.quorum.auto.join.enable", "true", why)
