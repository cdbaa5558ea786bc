"""Listeners and their protocols as text: each is read, or refused with a ConfigError that names the setting."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.config import ConfigError, Endpoint
from headrace.config.endpoints import parse_endpoint, protocol_map

NAMES = st.from_regex(r"[A-Z][A-Z0-9_]{0,8}", fullmatch=True)
HOSTS = st.from_regex(r"[a-z0-9.-]{0,20}", fullmatch=True) | st.ip_addresses().map(str)
PORTS = st.integers(0, 65535)


@given(name=NAMES, host=HOSTS, port=PORTS)
def test_an_endpoint_is_read(name: str, host: str, port: int) -> None:
    shown = f"[{host}]" if ":" in host else host
    found = parse_endpoint("listeners", f"{name.lower()}://{shown}:{port}", {name: "PLAINTEXT"})
    assert found == Endpoint(name, "PLAINTEXT", host, port)


@given(st.text(max_size=40) | st.from_regex(r"[A-Z]*:?//?[^/]*:[0-9]{0,7}", fullmatch=True))
def test_any_other_text_is_refused_by_name(text: str) -> None:
    try:
        found = parse_endpoint("advertised.listeners", text, {"A": "PLAINTEXT"})
    except ConfigError as error:
        assert error.name == "advertised.listeners"
        return
    assert found.name == "A" and 0 <= found.port <= 65535


def test_a_port_of_a_thousand_digits_is_refused() -> None:
    with pytest.raises(ConfigError):
        parse_endpoint("listeners", "A://h:" + "9" * 5000, {"A": "PLAINTEXT"})


@given(st.dictionaries(NAMES, NAMES, max_size=4), st.sampled_from([",", " , ", ",,"]))
def test_a_map_is_read(protocols: dict[str, str], between: str) -> None:
    assert protocol_map(between.join(f"{name}:{protocol}" for name, protocol in protocols.items())) == protocols


@given(st.text(st.sampled_from("ab:, "), max_size=12) | st.text(max_size=20))
def test_any_map_is_read_or_refused_by_name(text: str) -> None:
    try:
        found = protocol_map(text)
    except ConfigError as error:
        assert error.name == "listener.security.protocol.map"
        return
    assert all(name and protocol for name, protocol in found.items())


@pytest.mark.parametrize("text", ["A", "A:", ":B", "A:B,C"])
def test_half_a_pair_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        protocol_map(text)
