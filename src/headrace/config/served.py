"""What of a properties file we serve: unknown keys are named, and those that would leave a hole refuse to start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from headrace.wire.address import address_text

from .broker import BrokerConfig
from .setting import ConfigError
from .table import BROKER_SETTINGS

PLAINTEXT: Final = "PLAINTEXT"
SERVED_ROLES: Final = frozenset({"broker", "controller"})
NONROUTABLE_HOST: Final = "0.0.0.0"

_SECURITY: Final = "this release serves only PLAINTEXT listeners without authentication: data would go unprotected"

# A key with one of these beginnings is refused, with the reason; an empty value or `false` asks for nothing.
REFUSED_PREFIXES: Final[Mapping[str, str]] = {
    "sasl.": _SECURITY,
    "ssl.": _SECURITY,
    "delegation.token.": _SECURITY,
    "remote.log.": "there is no remote storage yet, and the records in it would be missing",
    "rsm.config.": "there is no remote storage yet, and the records in it would be missing",
    "rlmm.config.": "there is no remote storage yet, and the records in it would be missing",
    "zookeeper.": "there is no ZooKeeper here: the metadata log is in the log directory",
}
REFUSED: Final[Mapping[str, str]] = {
    "authorizer.class.name": "there is no authorizer yet, and everything would be open",
    "super.users": "there is no authorizer yet, and everything would be open",
    "allow.everyone.if.no.acl.found": "there is no authorizer yet, and everything would be open",
    "principal.builder.class": _SECURITY,
    "connections.max.reauth.ms": _SECURITY,
    "security.providers": _SECURITY,
    "early.start.listeners": _SECURITY,
    "create.topic.policy.class.name": "this broker cannot load Java classes, and no policy would vet a request",
    "alter.config.policy.class.name": "this broker cannot load Java classes, and no policy would vet a request",
    "client.quota.callback.class": "this release does not serve quotas, and no client would have a limit",
    "config.providers": "this release cannot fetch values from elsewhere",
}
_ASKS_FOR_NOTHING: Final = frozenset({"", "false", "0"})


def check_served(properties: Mapping[str, str], warn: Callable[[str], None]) -> None:
    """One warning for each key that is unknown or has no effect here. Raises ConfigError for keys that we cannot
    serve and whose absence would weaken security, durability or topology; its text is one line."""
    for name, text in properties.items():
        why = refusal(name)
        if why and text.strip().lower() not in _ASKS_FOR_NOTHING:
            shown = "(hidden)" if "password" in name or "jaas" in name or "secret" in name else text
            raise ConfigError(name, shown, why)
    for name in properties:
        setting = BROKER_SETTINGS.get(name)
        if setting is None and not refusal(name):
            warn(f"{name} is not a setting of this broker and has no effect")
        elif setting is not None and setting.unserved:
            warn(f"{name} has no effect: {setting.unserved}")


def refusal(name: str) -> str:
    """Why a file that asks for this key refuses to start; empty where it does not."""
    if name in REFUSED:
        return REFUSED[name]
    # listener.name.external.ssl.keystore.location is ssl.keystore.location for one listener
    base = name.split(".", 3)[-1] if name.startswith("listener.name.") and name.count(".") >= 3 else name
    return next((why for prefix, why in REFUSED_PREFIXES.items() if base.startswith(prefix)), "")


def check_relations(config: BrokerConfig) -> None:
    """Settings that are each possible and together are not. Raises ConfigError, one line."""
    _check_listeners(config)
    _check_node(config)
    _check_voters(config)
    if not config.log_dirs or not all(config.log_dirs):
        raise ConfigError("log.dirs", "", "it must name at least one directory")
    if len(set(config.log_dirs)) < len(config.log_dirs):
        raise ConfigError("log.dirs", ",".join(config.log_dirs), "it names a directory twice")


def _check_listeners(config: BrokerConfig) -> None:
    listeners = config.all_listeners
    shown = ",".join(config.listing("listeners"))
    for point in listeners:
        if point.protocol != PLAINTEXT:
            why = f"listener {point.name} speaks {point.protocol}; {_SECURITY}"
            raise ConfigError("listeners", shown, why)
    if len({point.name for point in listeners}) < len(listeners):
        raise ConfigError("listeners", shown, "Each listener must have a different name")
    bound = [(point.host, point.port) for point in listeners if point.port]
    if len(set(bound)) < len(bound):
        raise ConfigError("listeners", shown, "Each listener must have a different port")
    if not config.listeners:
        raise ConfigError("listeners", shown, "it must name a listener that is not a controller's")
    names = {point.name for point in listeners}
    for name in config.controller_listener_names:
        if name not in names:
            why = "controller.listener.names must only contain values appearing in the 'listeners' configuration"
            raise ConfigError("controller.listener.names", name, why)
    inter_broker = config["inter.broker.listener.name"]
    if inter_broker is not None and inter_broker not in {point.name for point in config.listeners}:
        raise ConfigError("inter.broker.listener.name", inter_broker, "it is not among the listeners")
    if config["security.inter.broker.protocol"] != PLAINTEXT:
        raise ConfigError("security.inter.broker.protocol", config["security.inter.broker.protocol"], _SECURITY)
    for point in config.advertised_listeners:
        if point.host == NONROUTABLE_HOST:
            why = (
                "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP address: "
                "set advertised.listeners, or give --advertise HOST:PORT"
            )
            raise ConfigError("advertised.listeners", f"{point.name}://{address_text(point.host, point.port)}", why)


def _check_node(config: BrokerConfig) -> None:
    if config.is_given("node.id"):
        node_id, broker_id = config.integer("node.id"), config.integer("broker.id")
        if node_id < 0:
            raise ConfigError("node.id", node_id, "Value must be at least 0")
        if broker_id != node_id:
            raise ConfigError("broker.id", broker_id, f"it must equal node.id, which is {node_id}")
    roles = config.listing("process.roles")
    if config.is_given("process.roles") and set(roles) != SERVED_ROLES:
        raise ConfigError("process.roles", ",".join(roles), "this release serves only broker,controller in one process")


def _check_voters(config: BrokerConfig) -> None:
    for voter in config.listing("controller.quorum.voters"):
        if voter.partition("@")[0] != str(config.node_id):
            raise ConfigError("controller.quorum.voters", voter, "this release serves no other voters than this node")
    own_ports = {point.port for point in config.controller_listeners}
    for address in config.listing("controller.quorum.bootstrap.servers"):
        port = address.rpartition(":")[2]
        if not port.isdigit() or int(port) not in own_ports:
            why = "this release serves no other controllers than this node"
            raise ConfigError("controller.quorum.bootstrap.servers", address, why)
