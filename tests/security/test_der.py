"""Elements of DER: their lengths, and what surrounds them."""

from __future__ import annotations

import pytest

from headrace.security.der import DerError, Element, children, content, element, whole


@pytest.mark.parametrize(
    ("data", "body", "end"),
    [
        (b"\x04\x00", 2, 2),
        (b"\x04\x01x", 2, 3),
        (b"\x04\x81\x00", 3, 3),  # nothing follows the bytes of the length
        (b"\x04\x81\x01x", 3, 4),
        (b"\x04\x82\x00\x01xy", 4, 5),
    ],
)
def test_the_length_of_an_element(data: bytes, body: int, end: int) -> None:
    assert element(data) == Element(4, 0, body, end)


@pytest.mark.parametrize(
    "data",
    [b"", b"\x04", b"\x04\x01", b"\x04\x80", b"\x04\x81", b"\x04\x82\x00", b"\x04\x81\x01", b"\x1f\x01\x00"],
)
def test_what_is_no_element(data: bytes) -> None:
    with pytest.raises(DerError):
        element(data)


def test_an_element_ends_where_the_one_around_it_does() -> None:
    data = b"\x30\x04\x04\x00\x02\x00" + b"\x04\x00"
    outer = element(data)
    assert [(each.tag, content(data, each)) for each in children(data, outer)] == [(4, b""), (2, b"")]
    with pytest.raises(DerError):
        element(data, 4, 5)
    with pytest.raises(DerError):
        whole(data, 0x30)  # something follows
    assert whole(data[:6], 0x30) == outer
