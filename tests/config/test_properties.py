"""Java's properties syntax."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.config import load_properties_file, parse_properties


def test_the_syntax() -> None:
    text = """
# a comment
! another
  a = 1
b:2
c 3
d=x\\
   y
e\\ f=g\\=h
i
j=\\u0041\\t
k = trailing
l=1
l=2
"""
    assert parse_properties(text) == {
        "a": "1", "b": "2", "c": "3", "d": "xy", "e f": "g=h", "i": "", "j": "A\t", "k": "trailing", "l": "2",
    }  # fmt: skip


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("node.id=1\r\nlog.dirs=a,b\r\n")
    assert load_properties_file(str(path)) == {"node.id": "1", "log.dirs": "a,b"}


def escaped(text: str) -> str:
    return "".join(f"\\u{ord(char):04x}" for char in text)


TEXT = st.text(st.characters(max_codepoint=0xFFFF), min_size=1)


@given(st.dictionaries(TEXT, TEXT))
def test_what_is_escaped_comes_back(pairs: dict[str, str]) -> None:
    text = "".join(f"{escaped(key)}={escaped(value)}\n" for key, value in pairs.items())
    assert parse_properties(text) == pairs


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\uhunter2", "a=\\u+041", "a=\\u 041", "a=\\u"])
def test_a_broken_escape_is_said_without_the_value(text: str) -> None:
    """It may be a password's."""
    with pytest.raises(ValueError, match="four hexadecimal digits") as broken:
        parse_properties(text)
    assert "hunter" not in str(broken.value)
