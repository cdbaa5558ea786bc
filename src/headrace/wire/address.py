"""Addresses as people write them: `host:port`, an IPv6 address in brackets (RFC 3986, 3.2.2)."""

from __future__ import annotations


def address_text(host: str, port: int) -> str:
    """`localhost:9092`, `[::1]:9092`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
