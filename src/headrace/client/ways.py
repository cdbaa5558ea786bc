"""How a node's own connections are protected: to the brokers, and to the controllers, by the settings of the listener
that it connects to.

A way is made once for the settings in force, and again when they change: its stores are read then. Source: KIP-103,
KIP-631.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from headrace.client.security import Read, Tls, opened
from headrace.config.listener import PREFIX
from headrace.config.tls import TLS_PROTOCOLS, tls_of

if TYPE_CHECKING:
    from headrace.config import BrokerConfig

WAYS_MAX: Final = 32
"""Ways that a process remembers: two a node and state of its settings."""


@lru_cache(maxsize=WAYS_MAX)
def way_to_brokers(config: BrokerConfig, read: Read) -> Tls | None:
    """What connections between brokers are opened with; None where they are plain. Raises ConfigError."""
    return _way(config, config.inter_broker_listener, config.inter_broker_protocol, read)


@lru_cache(maxsize=WAYS_MAX)
def way_to_controllers(config: BrokerConfig, read: Read) -> Tls | None:
    """The same for connections to controllers, and between them."""
    return _way(config, config.controller_listener, config.controller_protocol, read)


def _way(config: BrokerConfig, listener: str, protocol: str, read: Read) -> Tls | None:
    if protocol not in TLS_PROTOCOLS:
        return None
    return opened(tls_of(config.of_listener(listener), protocol), read, f"{PREFIX}{listener.lower()}.")
