"""Java's regular expressions, translated: what they match, and which are refused.

Java itself is asked in tests/spark/test_subscribe_pattern.py and tests/security/test_principal_rules.py.
"""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.config.java_regex import JavaRegexError, compiled, for_ascii

NAMES = ["a", "A", "b1", "flights", "flights-2024", "flights.raw", "Flights_3", "x.y", "x-y", "9", "_", "__", "a.b.c"]
NAMES += ["aa", "abab", "q", "Z", "az9", "...", "-", "flight"]


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
        (r"(?i)(?-i:a|Q)", ["a"]),
        (r"(?i:[^a])", [name for name in NAMES if len(name) == 1 and name not in "aA"]),
        (r"(?i:[a-z&&[^Q]])|\p{Upper}", ["a", "A", "Z"]),
        (r"(?i)\P{Upper}", ["9", "_", "-"]),
        (r"(.)(?i:\p{Lu})", ["aa"]),
        ("flights|flight", ["flights", "flight"]),
    ],
)
def test_names_that_a_pattern_matches(pattern: str, names: list[str]) -> None:
    translated = for_ascii(pattern)
    assert [name for name in NAMES if re.fullmatch(translated, name)] == names


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        (r"\p{IsGreek}", r"\\p{IsGreek} is not known"),
        (r"\p{Digit", "one that is not closed"),
        (r"\x{110000}", "there is no character 110000"),
        (r"\ud800", "there is no character d800"),
        (r"\x{dfff}", "there is no character dfff"),
        (r"(?x)a b", "the flag 'x' is not supported"),
        (r"a(?i)b", "put them at the beginning, or give them a colon"),
        (r"\G", r"\\G is not supported"),
        (r"\b{g}", "is not supported"),
        (r"\N{DIGIT ONE}", r"\\N is not supported"),
        (r"[a", "is not closed"),
        (r"[]a]", "is empty; write a ] in it as"),
        (r"[a&&]", "is empty"),
        (r"[z-a]", "has no end"),
        (r"[\b]", "in a class of characters is not supported"),
        (r"(", r"missing \)"),
        (r"a**", "multiple repeat"),
        (r"\12", "there is no group 1 before"),
        ("a\\", "it ends too early"),
        (r"\xg", "followed by no number"),
        (r"(?#a)", "the group"),
        (r"\k", "needs the name of a group"),
    ],
)
def test_a_pattern_without_an_equal_is_refused(pattern: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        for_ascii(pattern)


@settings(max_examples=500)
@given(st.text(alphabet="ab()[]{}*?+^-&|.$\\dDwsQEhvpPxu0123<>=!:iAZz,\n", max_size=30))
def test_any_pattern_is_read_or_refused(pattern: str) -> None:
    try:
        compiled(pattern)
    except JavaRegexError as error:
        assert "\n" not in str(error)


def test_an_end_comes_before_the_last_line_end_as_well() -> None:
    found = compiled("a$")
    assert found.linear is not None, "it has an equal in RE2, for texts that end no line"
    assert found.replaced("a\n", lambda match: f"<{match[0]}>") == "<a>\n"


def test_one_ampersand_in_a_class_is_itself() -> None:
    assert compiled("[a&b]").is_whole("&")
    assert not compiled("[a&&b]").is_whole("&")


def test_classes_of_unicode_are_for_ascii_alone() -> None:
    with pytest.raises(JavaRegexError, match=r"\\p\{Lu\} is not known"):
        compiled("\\p{Lu}")
    assert for_ascii("\\p{Lu}") == "[A-Z]"
    assert compiled("[^a]").is_whole("\u00e9")
    assert compiled("\\W").is_whole("\u00e9")
