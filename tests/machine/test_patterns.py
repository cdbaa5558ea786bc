"""Patterns against Python's own, which has all of that syntax too; and what must be refused, or be quick."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.machine.patterns import PROGRAM_MAX, Pattern, PatternError, matching


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        (
            "",
            [
                "",
            ],
            ["a"],
        ),
        ("abc", ["abc"], ["ab", "abcd", "ABC"]),
        ("a|bc|", ["a", "bc", ""], ["b", "abc"]),
        ("(a|b)*c", ["c", "abbac"], ["ab", "abcd"]),
        ("a+?b??", ["a", "aab"], ["", "abb"]),
        ("a{2}b{1,}c{0,2}", ["aab", "aabbcc"], ["ab", "aabccc", "aac"]),
        ("a{b", ["a{b"], ["ab"]),
        ("a{,2}", ["a{,2}"], ["aa"]),
        (".*", ["", "any"], ["a\nb"]),
        ("(?s).*", ["a\nb"], []),
        ("[a-c_-]+", ["abc", "-_"], ["d", ""]),
        ("[^a-c]", ["d", "\n"], ["a", ""]),
        ("[]a]", ["]", "a"], ["b"]),
        ("[[:digit:]x]+", ["12x"], ["y"]),
        ("[[:^digit:]]+", ["ab"], ["a1"]),
        (r"[\d.\W]+", ["1.-"], ["a"]),
        (r"\d\D\s\S\w\W", ["1a b_-"], ["11 b_-"]),
        (r"\Q.*\E+", [".*", ".***"], ["ab"]),
        (r"\x41\x{42}\103\t\.", ["ABC\t."], ["ABC\tx"]),
        (r"\pL\p{Nd}\PL\p{^L}", ["a1--", "ä٣1."], ["11--", "aa--"]),
        ("(?i)Ab(?-i)c", ["abc", "ABc"], ["abC"]),
        ("(?i:a)b", ["Ab"], ["AB"]),
        ("(?P<n>a)(?<m>b)(?:c)", ["abc"], ["ab"]),
        ("^a$", ["a"], ["\na"]),
        ("(?m)a$\n^b", ["a\nb"], ["ab"]),
        (r"\Aa\b-\Bb?\z", ["a-"], ["a-b"]),
        ("ä.ö", ["äxö", "ä\U0001f600ö"], ["ao"]),
        ("(a*)*b", ["aab", "b"], ["a"]),
        ("(a(?i)b|c)d", ["aBd", "Cd", "cd"], ["aBD"]),
    ],
)
def test_what_matches(pattern: str, yes: list[str], no: list[str]) -> None:
    compiled = Pattern(pattern)
    assert [each for each in yes if not compiled.matches(each)] == []
    assert [each for each in no if compiled.matches(each)] == []
    assert matching(pattern, yes + no) == yes


@pytest.mark.parametrize(
    "pattern",
    [
        *["(", ")", "a)", "[", "[a", "[b-a]", "*", "a**", "a+*", "a{2}{3}", "a{1001}", "a{3,2}", "\\"],
        *[r"\1", r"\C", r"\y", r"\p{Xx}", r"\p{Greek}", r"\x{110000}", r"\xzz", r"[a-\d]", "[[:nothing:]]"],
        *["(?=a)", "(?!a)", "(?<=a)", "(?<!a)", "(?>a)", "(?P=n)", "(?<1>a)", "(?<n>a)(?<n>b)", "(?x)a", "(?", "(?i"],
        *["(" * 60 + ")" * 60, "((a{100}){100}){100}", "a" * 5000, "((((){1000}){1000}){1000}){1000}"],
    ],
)
def test_what_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        Pattern(pattern)


def test_nothing_takes_exponential_time() -> None:
    began = time.monotonic()
    assert not Pattern("(a|a)*" * 20 + "b").matches("a" * 2_000)
    assert not Pattern("(a*)*" * 20 + "b").matches("a" * 2_000)
    assert not Pattern("a?" * 500 + "a" * 500).matches("a" * 499)
    assert time.monotonic() - began < 30
    with pytest.raises(PatternError):
        Pattern("a" * (PROGRAM_MAX + 1))


_ATOMS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\w", r"\b", "^", "$", "(?:)", r"\D"])
_PATTERNS = st.recursive(
    _ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"(?:{'|'.join(parts)})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{0,}"])).map(lambda t: f"(?:{t[0]}){t[1]}"),
    ),
    max_leaves=8,
)


@given(pattern=_PATTERNS, text=st.text(alphabet="ab1-", max_size=8))
def test_as_pythons_own(pattern: str, text: str) -> None:
    wanted = re.fullmatch(pattern.replace("$", r"\Z"), text, re.ASCII) is not None
    assert Pattern(pattern).matches(text) is wanted
