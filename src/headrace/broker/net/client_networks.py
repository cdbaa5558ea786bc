"""The address or network by which clients of one place share a bound."""

from __future__ import annotations

import ipaddress
from typing import Final

NETWORK_BITS: Final = 64


def network_of(host: str) -> str:
    """Returns the address, or the /64 network of an IPv6 address, all of which one machine may have."""
    if ":" not in host:
        return host
    address = ipaddress.IPv6Address(host.partition("%")[0])
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return f"{int(address) >> (address.max_prefixlen - NETWORK_BITS):x}/{NETWORK_BITS}"
