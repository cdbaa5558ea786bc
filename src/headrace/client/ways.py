"""How a node's own connections are protected: to the brokers, and to the controllers, by the settings of the listener
that it connects to.

A way is made once for the settings in force, and again when they change: its stores are read then. Source: KIP-103,
KIP-631.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from headrace.client.security import JAAS, PLAIN_WAY, Read, Way, credentials, opened
from headrace.config.security_table import PLAINTEXT, SASL_PROTOCOLS
from headrace.config.tls import TLS_PROTOCOLS, tls_of

if TYPE_CHECKING:
    from headrace.config import BrokerConfig

BROKER_MECHANISM: Final = "sasl.mechanism.inter.broker.protocol"
CONTROLLER_MECHANISM: Final = "sasl.mechanism.controller.protocol"
WAYS_MAX: Final = 32
"""Ways that a process remembers: two a node and state of its settings."""


@lru_cache(maxsize=WAYS_MAX)
def way_to_brokers(config: BrokerConfig, read: Read) -> Way:
    """What connections between brokers are opened with. Raises ConfigError."""
    return _way(config, config.inter_broker_listener, config.inter_broker_protocol, BROKER_MECHANISM, read)


@lru_cache(maxsize=WAYS_MAX)
def way_to_controllers(config: BrokerConfig, read: Read) -> Way:
    """The same for connections to controllers, and between them."""
    return _way(config, config.controller_listener, config.controller_protocol, CONTROLLER_MECHANISM, read)


def check_ways(config: BrokerConfig, read: Read) -> None:
    """Raises ConfigError, one line, where this node could not connect to others as its settings say."""
    if not config.is_by_itself:
        way_to_controllers(config, read)
        if not config.is_controller_alone:
            way_to_brokers(config, read)


def _way(config: BrokerConfig, listener: str, protocol: str, mechanism: str, read: Read) -> Way:
    if protocol == PLAINTEXT:
        return PLAIN_WAY
    settings = config.of_listener(listener)
    tls = opened(tls_of(settings, protocol), read, settings.prefix) if protocol in TLS_PROTOCOLS else None
    if protocol not in SASL_PROTOCOLS:
        return Way(tls)
    name = str(settings[mechanism])
    own = settings.mechanism(name)
    return Way(tls, credentials(name, own.sasl_jaas_config, mechanism, f"{own.prefix}{JAAS}"))
