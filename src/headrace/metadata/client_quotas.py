"""Who can have a quota, and for what: the names that ClientQuotaRecord has. Source: KIP-546, KIP-599, KIP-612."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any, Final

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)

PRODUCE: Final = "producer_byte_rate"
"""Bytes a second of Produce requests."""
FETCH: Final = "consumer_byte_rate"
"""Bytes a second of answers to Fetch."""
REQUEST: Final = "request_percentage"
"""Percent of one thread's time that requests may take."""
MUTATION: Final = "controller_mutation_rate"
"""Partitions a second that are created or deleted."""
CONNECTION: Final = "connection_creation_rate"
"""Connections a second from one address."""

CLIENT_KEYS: Final = (PRODUCE, FETCH, REQUEST, MUTATION)
"""What users and client ids have."""

Entity = tuple[tuple[str, str, bool], ...]
"""(type, name, whether it is the default: then the name is empty), sorted: whom a quota is about."""
QuotaRecords = Mapping[tuple[Entity, str], Any]
"""Of an image: the ClientQuotaRecord of each entity and key."""


def entity_of(parts: Mapping[str, str | None]) -> Entity:
    """The entity of names by type, where None is the default."""
    return tuple(sorted((kind, name or "", name is None) for kind, name in parts.items()))


def names_of(entity: Entity) -> dict[str, str | None]:
    """The names by type, where None is the default."""
    return {kind: None if is_default else name for kind, name, is_default in entity}


def address_of(text: str) -> str | None:
    """The one way to write an address; None where the text is none. One of IPv4 inside IPv6 is that of IPv4."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)
