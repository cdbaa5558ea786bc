"""subscribePattern: a pattern is translated so that it matches the names that Java matches, or it is refused."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.config.java_regex import for_ascii

NAMES = ["a", "A", "b1", "flights", "flights-2024", "flights.raw", "Flights_3", "x.y", "x-y", "9", "_", "__", "a.b.c"]
NAMES += ["aa", "abab", "q", "Z", "az9", "...", "-", "flight"]


def matched(pattern: str) -> list[str]:
    return [name for name in NAMES if re.fullmatch(for_ascii(pattern), name)]


ATOMS = st.sampled_from(
    ["a", "b", "f", "Z", r"\x39", r"\.", "-", "_", r"\Qa.\E", r"\d", r"\w", r"\W", r"\p{Lower}", r"\P{Upper}", r"\p{L}"]
)
ITEMS = st.sampled_from(
    ["a", "b", "Z", "a-f", "A-Z", "0-9", r"\.", r"\-", "_", r"\d", r"\p{Lower}", r"\P{L}", r"\w", r"\x41-\x46"]
)


def _class(items: Any) -> Any:
    union = st.lists(items, min_size=1, max_size=3).map("".join)
    sides = st.lists(union, min_size=1, max_size=2).map("&&".join)
    return st.tuples(st.sampled_from(["", "^"]), sides).map(lambda pair: f"[{pair[0]}{pair[1]}]")


CLASSES = _class(st.one_of(ITEMS, _class(ITEMS)))


def _more(inner: Any) -> Any:
    pieces = st.lists(inner, min_size=1, max_size=3).map("".join)
    groups = st.sampled_from(["(", "(?:", "(?<n>", "(?>", "(?=", "(?!", "(?i:", "(?-i:"])
    quantified = st.tuples(inner, st.sampled_from(["*", "+", "?", "{1,2}", "*+", "+?"]))
    return st.one_of(
        pieces,
        st.tuples(groups, pieces).map(lambda pair: f"{pair[0]}{pair[1]})"),
        st.tuples(pieces, pieces).map("|".join),
        quantified.map("".join),
    )


PATTERNS = st.tuples(
    st.sampled_from(["", "(?i)", "(?s)", "(?iu)"]), st.recursive(st.one_of(ATOMS, CLASSES), _more, max_leaves=6)
).map("".join)


@given(PATTERNS)
def test_a_pattern_is_translated_or_refused(pattern: str) -> None:
    try:
        translated = for_ascii(pattern)
    except ValueError as error:
        assert str(error)
    else:
        re.compile(translated)


@pytest.mark.jvm
@pytest.mark.slow
def test_java_agrees(spark: Any) -> None:
    """What is not refused matches what Java's own Pattern matches, of names that a topic can have."""
    java = spark._jvm.java.util.regex.Pattern
    compared = 0

    @settings(max_examples=400, deadline=None)
    @given(PATTERNS)
    def agree(pattern: str) -> None:
        nonlocal compared
        try:
            found = matched(pattern)
        except ValueError:
            return
        try:
            compiled = java.compile(pattern)
        except Exception as error:
            assert "PatternSyntaxException" in str(error)
            return
        assert found == [name for name in NAMES if compiled.matcher(name).matches()]
        compared += 1

    agree()
    assert compared > 200
