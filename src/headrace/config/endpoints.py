"""Addresses in settings: listeners, voters and bootstrap servers, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from .setting import ConfigError

NONROUTABLE_HOST: Final = "0.0.0.0"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One listener: its name, the protocol it speaks, and where. An empty host means every interface."""

    name: str
    protocol: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class StaticVoter:
    """A voter that `controller.quorum.voters` names, and where its controller listener is."""

    id: int
    host: str
    port: int


def protocol_map(text: str) -> dict[str, str]:
    """`listener.security.protocol.map`: the protocol of each listener name. Raises ConfigError."""
    protocols: dict[str, str] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, colon, protocol = pair.upper().partition(":")
        if not (name and colon and protocol):
            raise ConfigError("listener.security.protocol.map", pair, "it must read NAME:PROTOCOL,...")
        protocols[name] = protocol
    return protocols


def parse_endpoint(setting: str, text: str, protocols: Mapping[str, str]) -> Endpoint:
    """Parses `NAME://host:port`; IPv6 hosts are in brackets. Raises ConfigError naming `setting`."""
    name, scheme, address = text.partition("://")
    host, colon, port = address.rpartition(":")
    is_port = port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535
    if not (name and scheme and colon and is_port):
        raise ConfigError(setting, text, f"Unable to parse {text} to a broker endpoint; it must read NAME://host:port")
    name = name.upper()
    if name not in protocols:
        raise ConfigError(setting, text, f"No security protocol defined for listener {name}")
    return Endpoint(name, protocols[name], host.strip("[]"), int(port))


def parse_voter(setting: str, text: str) -> StaticVoter:
    """Parses `id@host:port` as a voter; IPv6 hosts are in brackets. Raises ConfigError naming `setting`."""
    number, at, address = text.strip().partition("@")
    if not (at and number.isascii() and number.isdigit()):
        raise ConfigError(setting, text, "each voter must read id@host:port")
    return StaticVoter(int(number), *parse_address(setting, address, "each voter must read id@host:port"))


def parse_address(setting: str, text: str, why: str = "each address must read host:port") -> tuple[str, int]:
    """Parses `host:port`; IPv6 hosts are in brackets. Raises ConfigError naming `setting`."""
    host, colon, port = text.strip().rpartition(":")
    is_port = port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) <= 65535
    if not (colon and host and is_port):
        raise ConfigError(setting, text, why)
    return host.strip("[]"), int(port)
