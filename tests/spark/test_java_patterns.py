"""subscribePattern: what Java's regular expressions mean, as Java itself says it, or a refusal."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.spark.java_patterns import to_python

NAMES = ["a", "A", "b1", "flights", "flights-2024", "flights.raw", "Flights_3", "x.y", "x-y", "9", "_", "__", "a.b.c"]
NAMES += ["aa", "abab", "q", "Z", "az9", "...", "-", "flight", "é"]


def matched(pattern: str, names: list[str] = NAMES) -> list[str]:
    return [name for name in names if re.fullmatch(to_python(pattern), name)]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        (r"flights-\p{Digit}+", ["flights-2024"]),
        (r"flights-\d{4}", ["flights-2024"]),
        (r"\Qflights.raw\E", ["flights.raw"]),
        (r"\Qx.y", ["x.y"]),
        (r"\p{Upper}.*", ["A", "Flights_3", "Z"]),
        (r"\p{javaLowerCase}", ["a", "q"]),
        (r"\pL\p{Nd}", ["b1"]),
        (r"\p{IsAlphabetic}+", ["a", "A", "flights", "aa", "abab", "q", "Z", "flight"]),
        (r"\P{Alnum}+", ["_", "__", "...", "-"]),
        (r"\p{Punct}", ["_", "-"]),
        (r"\p{gc=Lu}", ["A", "Z"]),
        (r"[a-z&&[^bq]]", ["a"]),
        (r"[a-c[x-z]][.]y", ["x.y"]),
        (r"[\p{L}&&[^\p{Lu}]]", ["a", "q"]),
        (r"[\Qa.\E]+", ["a", "aa", "..."]),
        (r"(?i)FLIGHT", ["flight"]),
        (r"(?i)[^f].", ["b1", "__", "aa"]),
        (r"(?i)\p{Lower}", ["a", "A", "q", "Z"]),
        (r"(?i:Z|Q)", ["q", "Z"]),
        (r"(?<first>a)\k<first>", ["aa"]),
        (r"(ab)\1", ["abab"]),
        (r"a++b?", ["a", "aa"]),
        (r"(?>a|ab)c?", ["a"]),
        (r"\x61\u0061", ["aa"]),
        (r"(?!flights).*\z", [name for name in NAMES if not name.startswith("flights")]),
        (r"flights(?=-).*", ["flights-2024"]),
        (r"[-_]", ["_", "-"]),
        (r"[a\-z]", ["a", "-"]),
        (r"[+--]", ["-"]),
        ("flights|flight", ["flights", "flight"]),
    ],
)
def test_what_java_means(pattern: str, names: list[str]) -> None:
    assert matched(pattern) == names


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        (r"\p{IsGreek}", r"\\p{IsGreek} is not known"),
        (r"\p{Digit", "is not closed"),
        (r"(?x)a b", "the flag 'x' is not supported"),
        (r"a(?i)b", "put them at the beginning, or give them a colon"),
        (r"\G", r"\\G is not supported"),
        (r"\b{g}", "is not supported"),
        (r"\N{DIGIT ONE}", r"\\N is not supported"),
        (r"(?i:a)[^b]", "beside a flag 'i' for a part"),
        (r"[a", "is not closed"),
        (r"[]a]", "is empty; write a ] in it as"),
        (r"[a&&]", "is empty"),
        (r"(?i)(?-i:a)", "are not supported together"),
        (r"[z-a]", "has no end"),
        (r"[\b]", "in a class of characters is not supported"),
        (r"(", r"missing \)"),
        (r"a**", "multiple repeat"),
        (r"\12", "more than one digit"),
        ("a\\", "it ends too early"),
        (r"\xg", "followed by no number"),
        (r"(?#a)", "the group"),
        (r"\k", "needs the name of a group"),
    ],
)
def test_what_cannot_be_taken_over_is_refused(pattern: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        to_python(pattern)


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
        translated = to_python(pattern)
    except ValueError as error:
        assert str(error)
    else:
        re.compile(translated)


@pytest.mark.jvm
@pytest.mark.slow
def test_java_agrees(spark: Any) -> None:
    """What is not refused matches what Java's own Pattern matches, of names that a topic can have."""
    java = spark._jvm.java.util.regex.Pattern
    names = [name for name in NAMES if name.isascii()]
    compared = 0

    @settings(max_examples=400, deadline=None)
    @given(PATTERNS)
    def agree(pattern: str) -> None:
        nonlocal compared
        try:
            found = matched(pattern, names)
        except ValueError:
            return
        try:
            compiled = java.compile(pattern)
        except Exception as error:
            assert "PatternSyntaxException" in str(error)
            return
        assert found == [name for name in names if compiled.matcher(name).matches()]
        compared += 1

    agree()
    assert compared > 200
