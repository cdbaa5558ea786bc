"""Addresses as people write them."""

from __future__ import annotations

import pytest

from headrace.wire.address import address_text, parse_addresses


def test_addresses() -> None:
    assert parse_addresses("a:1, b:2,") == [("a", 1), ("b", 2)]
    assert parse_addresses(["a"]) == [("a", 9092)]
    assert parse_addresses("[::1]:5,[::2]") == [("::1", 5), ("::2", 9092)]
    for bad in ("", ",", "a:b", "a:0", "a:65536", "a:"):
        with pytest.raises(ValueError, match=r"HOST:PORT"):
            parse_addresses(bad)


def test_what_is_parsed_is_written_again() -> None:
    for text in ("a:1", "[::1]:5"):
        assert [address_text(host, port) for host, port in parse_addresses(text)] == [text]
