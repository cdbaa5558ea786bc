"""Addresses as people write them: `host:port`, an IPv6 address in brackets (RFC 3986, 3.2.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

DEFAULT_PORT: Final = 9092


def address_text(host: str, port: int) -> str:
    """`localhost:9092`, `[::1]:9092`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_addresses(bootstrap: str | Sequence[str], default_port: int | None = DEFAULT_PORT) -> list[tuple[str, int]]:
    """`host:port,host:port` as pairs; a missing port is `default_port`; IPv6 in brackets.

    Raises `ValueError`, also for a missing port where there is no default.
    """
    texts = bootstrap.split(",") if isinstance(bootstrap, str) else list(bootstrap)
    addresses = []
    for text in (text.strip() for text in texts):
        if not text:
            continue
        host, colon, port = text.rpartition(":")
        if not colon or text.endswith("]"):
            if default_port is None:
                raise ValueError(f"{text!r} has no port; a broker is HOST:PORT, such as {text}:{DEFAULT_PORT}")
            host, port = text, str(default_port)
        if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            raise ValueError(f"{text!r} is not HOST:PORT")
        if ":" in host and not (host.startswith("[") and host.endswith("]")):
            raise ValueError(f"{text!r}: put an IPv6 address in brackets, such as [::1]:{DEFAULT_PORT}")
        addresses.append((host.strip("[]"), int(port)))
    if not addresses:
        raise ValueError("no broker address given; expected HOST:PORT")
    return addresses
