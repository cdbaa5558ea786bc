"""Addresses as quotas name them."""

from __future__ import annotations

import pytest

from headrace.metadata.client_quotas import address_of


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::1", "::1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("FE80::A", "fe80::a"),
        ("10.0.0.256", None),
        ("localhost", None),
        ("", None),
    ],
)
def test_an_address_is_written_in_one_form(text: str, address: str | None) -> None:
    assert address_of(text) == address
