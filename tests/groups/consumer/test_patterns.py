"""Patterns of subscriptions: they mean what Python's own would, and no pattern takes long."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.groups.consumer.patterns import Pattern, PatternError

ATOMS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "[a-c]", "\\.", "\\w", "\\d", "^", "$", "-", "(?:)", "[^\\d-]"])
REPEATS = st.sampled_from(["", "", "*", "+", "?", "{2}", "{1,2}", "{0,}", "*?"])
PATTERNS = st.recursive(
    st.tuples(ATOMS, REPEATS).map(lambda pair: pair[0] + (pair[1] if pair[0] not in "^$" else "")),
    lambda inner: (
        st.lists(inner, max_size=3).map("".join)
        | st.lists(inner, min_size=1, max_size=3).map(lambda each: f"({'|'.join(each)})")
        | st.tuples(inner, REPEATS).map(lambda pair: f"(?:{pair[0]}){pair[1]}")
    ),
    max_leaves=6,
)
NAMES = st.text("abc.-1", max_size=6)


@given(PATTERNS, st.lists(NAMES, min_size=1, max_size=8))
def test_they_mean_what_pythons_do(text: str, names: list[str]) -> None:
    ours, pythons = Pattern(text), re.compile(text)
    for name in names:
        assert ours.matches(name) is (pythons.fullmatch(name) is not None), (text, name)


@pytest.mark.parametrize(
    ("text", "name", "means_it"),
    [
        ("orders.*", "orders-eu", True),
        ("orders", "orders-eu", False),
        ("^orders$", "orders", True),
        ("\\Aorders\\z", "orders", True),
        ("\\Qa.b\\E+", "a.bbb", False),
        ("\\Qa.b\\E", "a.b", True),
        ("\\Qa.b\\E", "axb", False),
        ("\\x61", "a", True),
        ("(?P<name>a|b)c", "bc", True),
        ("(?<name>a|b)c", "bc", True),
        ("a{", "a{", True),
        ("[]a]+", "]a", True),
        ("[a-]", "-", True),
        ("", "", True),
        ("", "a", False),
        ("a||b", "", True),
    ],
)
def test_what_they_mean(text: str, name: str, means_it: bool) -> None:
    assert Pattern(text).matches(name) is means_it


@pytest.mark.parametrize(
    "text",
    [
        *("(", ")", "a)", "[a", "*", "a**", "(?=a)", "(?!a)", "(?<=a)b", "(?i)a", "(a)\\1", "\\p{L}", "\\b", "\\"),
        *("a{2,1}", "a{1001}", "(a{1000}){1000}", "(" * 200, "[[:alpha:]]", "[z-a]", "\\xg0", "[\\D]"),
    ],
)
def test_what_is_refused(text: str) -> None:
    with pytest.raises(PatternError):
        Pattern(text)


def test_no_pattern_runs_away() -> None:
    """Python's own would take longer than the universe is old."""
    pattern = Pattern("(a+)+(a|aa)*(.*.*.*)*b")
    before = time.perf_counter()
    assert not pattern.matches("a" * 249)
    assert time.perf_counter() - before < 1
