"""JAAS lines: what Java's tokenizer makes of them, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.security.jaas import PLAIN_MODULE, SCRAM_MODULE, JaasError, parse_jaas


@pytest.mark.parametrize(
    ("rest", "options"),
    [
        (" required;", {}),
        (" REQUIRED\n  username=\"bob\"\n  password = 'x y' ;", {"username": "bob", "password": "x y"}),
        (" optional user_ann=plain-word_1.2$ ;", {"user_ann": "plain-word_1.2$"}),
        (r' required a="q\"q" b="\\ \t\101\7z\z";', {"a": 'q"q', "b": "\\ \tA\x07zz"}),
        (r' required a="\4001";', {"a": " 01"}),
        (" /* why */ required // to the end\n a=b; # no", None),
        (" required a=b / the rest is a comment\n c=d;", {"a": "b", "c": "d"}),
        (" required a=b, c=d;", None),
        (" required a=1;", None),
        (" required a=-1;", None),
        (" required a=-x;", None),
        (" required a='1';", {"a": "1"}),
        (" required a=;", None),
        (" required a;", None),
        (" required a=b", None),
        (" required a='b", None),
        (" required 'a key'=b;", {"a key": "b"}),
        (" required a=b a=c;", {"a": "c"}),
        (" mandatory;", None),
        (" required; " + SCRAM_MODULE + " required;", None),
        (";", None),
        ("", None),
    ],
)
def test_lines(rest: str, options: dict[str, str] | None) -> None:
    if options is None:
        with pytest.raises(JaasError):
            parse_jaas(PLAIN_MODULE + rest)
    else:
        parsed = parse_jaas(PLAIN_MODULE + rest)
        assert (parsed.name, parsed.options) == (PLAIN_MODULE, options)


@pytest.mark.parametrize("name", ["JndiLoginModule", "LdapLoginModule"])
def test_modules_that_run_what_strangers_name_are_refused(name: str) -> None:
    with pytest.raises(JaasError, match=f"{name} is refused"):
        parse_jaas(f"com.sun.security.auth.module.{name} required a=b;")


def test_an_unknown_module_is_named() -> None:
    with pytest.raises(JaasError, match="org.example.MyLoginModule is not known"):
        parse_jaas("org.example.MyLoginModule required;")


def test_nothing_shows_a_value() -> None:
    assert "s3cret" not in repr(parse_jaas(f"{PLAIN_MODULE} required password=s3cret;"))
    with pytest.raises(JaasError) as error:
        parse_jaas(f"{PLAIN_MODULE} required password='s3cret' other=7;")
    assert "s3cret" not in str(error.value)


@given(st.dictionaries(st.from_regex(r"[a-z][a-z_]{0,8}", fullmatch=True), st.text(st.characters(codec="utf-8"))))
def test_what_is_quoted_comes_back(options: dict[str, str]) -> None:
    def quoted(value: str) -> str:
        marks = {'"': r"\"", "\\": r"\\", "\n": r"\n", "\r": r"\r"}
        return '"' + "".join(marks.get(char, char) for char in value) + '"'

    said = " ".join(f"{name}={quoted(value)}" for name, value in options.items())
    assert parse_jaas(f"{PLAIN_MODULE} required {said};").options == options


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    with pytest.raises(JaasError):
        parse_jaas(text)
