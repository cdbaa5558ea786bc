"""What patterns mean, what is refused, and that none of them takes long."""

from __future__ import annotations

import time

import pytest

from headrace.machine.patterns import PatternError, check, matching


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("", [""], ["a"]),
        ("abc", ["abc"], ["ab", "abcd", "ABC"]),
        ("a|bc|", ["a", "bc", ""], ["b", "abc"]),
        ("orders.*", ["orders", "orders-eu"], ["my-orders"]),
        ("a+?b??", ["a", "aab"], ["", "abb"]),
        ("a{2}b{1,}c{0,2}", ["aab", "aabbcc"], ["ab", "aabccc", "aac"]),
        (".*", ["", "any"], ["a\nb"]),
        ("(?s).*", ["a\nb"], []),
        ("[[:digit:]x]+", ["12x"], ["y"]),
        (r"\Qa.b\E+", ["a.bbb"], ["axb"]),
        (r"\pL\p{Nd}\PL\p{^L}", ["a1--", "ä٣1."], ["11--", "aa--"]),
        ("(?i:a)b", ["Ab"], ["AB"]),
        ("(?P<n>a)(?<m>b)(?:c)", ["abc"], ["ab"]),
        ("^a$", ["a"], ["\na"]),
        ("ä.ö", ["äxö", "ä\U0001f600ö"], ["ao"]),
    ],
)
def test_what_matches(pattern: str, yes: list[str], no: list[str]) -> None:
    assert matching(pattern, yes + no) == yes


@pytest.mark.parametrize(
    "pattern",
    [
        *["(", ")", "[a", "[b-a]", "*", "a**", "a{1001}", "\\", r"\1", r"\y", "[[:nothing:]]", "(?=a)", "(?!a)"],
        *["(?<=a)", "(?>a)", "((a{100}){100}){100}", "a" * 50_000],
    ],
)
def test_what_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError, match="."):
        check(pattern)


def test_nothing_takes_exponential_time(capfd: pytest.CaptureFixture[str]) -> None:
    began = time.monotonic()
    assert matching("(a|a)*" * 20 + "b", ["a" * 2_000]) == []
    assert matching("(a+)+(a|aa)*(.*.*.*)*b", ["a" * 2_000]) == []
    assert matching("a?" * 500 + "a" * 500, ["a" * 499]) == []
    assert time.monotonic() - began < 10
    assert capfd.readouterr().err == "", "the library logs nothing of its own"
