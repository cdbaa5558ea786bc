"""Which name is suggested instead of one that does not exist."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.suggestions import is_one_edit_away, nearest

NAMES = st.text("ab", max_size=5)


def edits(name: str) -> set[str]:
    """Every name that one edit makes of `name`, by trying all of them."""
    cuts = [(name[:at], name[at:]) for at in range(len(name) + 1)]
    left_out = {a + b[1:] for a, b in cuts if b}
    added = {a + c + b for a, b in cuts for c in "ab"}
    replaced = {a + c + b[1:] for a, b in cuts if b for c in "ab"}
    swapped = {a + b[1] + b[0] + b[2:] for a, b in cuts if len(b) > 1}
    return (left_out | added | replaced | swapped) - {name}


@given(NAMES, NAMES)
def test_one_edit_is_what_trying_all_edits_finds(name: str, other: str) -> None:
    assert is_one_edit_away(name, other) == (other in edits(name))


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("ordes", "orders"),
        ("odrers", "orders"),
        ("order", "orders"),
        ("payment", "payments-2"),
        ("flights", None),
        ("orders", None),
    ],
)
def test_the_nearest_name(name: str, meant: str | None) -> None:
    assert nearest(name, ["orders", "payments-2", "riders-and-drivers"]) == meant
