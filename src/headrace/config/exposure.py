"""Which listeners let in anyone who reaches them, without a login."""

from __future__ import annotations

import ipaddress
from typing import Final

from headrace.wire.address import address_text

from .endpoints import Endpoint
from .node_settings import NodeSettings
from .security_table import SASL_PROTOCOLS
from .tls import TLS_PROTOCOLS, tls_of

REMEDY: Final = (
    "let clients log in (SASL) or show certificates (ssl.client.auth=required), or listen on 127.0.0.1 alone"
)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a host that is listened on. An empty one is every interface; of a name other
    than `localhost` nobody knows."""
    if host.lower() == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def client_auth(config: NodeSettings, point: Endpoint) -> str:
    """What a listener of TLS asks of clients: `none`, `requested` or `required` certificates; `none` without TLS."""
    if point.protocol not in TLS_PROTOCOLS:
        return "none"
    return tls_of(config.of_listener(point.name), point.protocol).client_auth


def asks_who(config: NodeSettings, point: Endpoint) -> bool:
    """Whether nobody comes in at a listener without a login or a certificate."""
    return point.protocol in SASL_PROTOCOLS or client_auth(config, point) == "required"


def open_listeners(config: NodeSettings) -> tuple[Endpoint, ...]:
    """Those that other machines may reach, and that ask nobody who they are. Raises ConfigError where `listeners`
    cannot be read."""
    points = config.all_listeners
    return tuple(point for point in points if not is_loopback(point.host) and not asks_who(config, point))


def opening_text(point: Endpoint) -> str:
    """Describes the open access, as the beginning of a line."""
    at = address_text(point.host or "0.0.0.0", point.port)
    return f"listener {point.name} at {at} lets in anyone who reaches it, without a login"


def exposure_warnings(config: NodeSettings) -> list[str]:
    """One line for each listener that is open; an operator may want it so, in a network of its own."""
    return [f"{opening_text(point)}: {REMEDY}" for point in open_listeners(config)]
