"""Unsecured tokens, as the default handler of Kafka takes them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.security.oauthbearer.tokens import EXPIRES_MS_MAX, Accepted, Refused
from headrace.security.oauthbearer.unsecured import UnsecuredOptionsError, UnsecuredTokens, from_options

from .issuing import NOW_MS, NOW_S, claims, encoded, forged, issued

PREFIX = "unsecuredValidator"


def token(**more: Any) -> str:
    return forged({"alg": "none"}, claims(**more))


def check(text: str, tokens: UnsecuredTokens = UnsecuredTokens(), now_ms: int = NOW_MS) -> Accepted | Refused:  # noqa: B008
    return tokens.checked(text, now_ms)


def why(text: str, tokens: UnsecuredTokens = UnsecuredTokens(), now_ms: int = NOW_MS) -> str:  # noqa: B008
    found = check(text, tokens, now_ms)
    assert isinstance(found, Refused), found
    assert "\n" not in found.why
    return found.why


def test_a_token_says_who_and_until_when() -> None:
    assert check(token()) == Accepted("ann", (NOW_S + 600) * 1000, (NOW_S - 60) * 1000, frozenset())
    assert check(token(exp=NOW_S + 0.5, iat=None)) == Accepted("ann", NOW_MS + 500, None, frozenset())
    found = check(token(sub=" ann ", exp=1e300))
    assert isinstance(found, Accepted) and (found.principal_name, found.expires_ms) == (" ann ", EXPIRES_MS_MAX)


def test_there_is_no_skew_unless_it_is_set() -> None:
    end = (NOW_S + 600) * 1000
    assert isinstance(check(token(), now_ms=end - 1), Accepted)
    assert "expired" in why(token(), now_ms=end)
    late = from_options({PREFIX + "AllowableClockSkewMs": " 1000 "})
    assert isinstance(check(token(), late, end + 999), Accepted)
    assert "expired" in why(token(), late, end + 1000)
    assert "in the future" in why(token(iat=NOW_S + 0.001))
    assert isinstance(check(token(iat=NOW_S + 1), late), Accepted)
    assert "before it begins" in why(
        token(iat=NOW_S + 5, exp=NOW_S + 5), from_options({PREFIX + "AllowableClockSkewMs": "9999"})
    )


def test_signed_tokens_and_signatures_are_refused() -> None:
    assert "a signed token" in why(issued())
    for algorithm in ("None", "HS256", None, ["none"], 7):
        assert "a signed token" in why(forged({"alg": algorithm}, claims()))
    assert "no signature" in why(forged({"alg": "none"}, claims(), b"x"))
    assert "no signature" in why(f"{encoded({'alg': 'none'})}..")


@pytest.mark.parametrize(
    "wrong", ["", "a", "a.b", "..", "a.b.c.d", "%.%.", f"{encoded(b'[]')}.{encoded(b'{}')}.", "x" * 200_000]
)
def test_what_is_no_token(wrong: str) -> None:
    assert why(wrong)


def test_claims_of_the_wrong_kind() -> None:
    for wrong in (None, "", " ", 7, ["ann"], True):
        assert "the claim sub names nobody" in why(token(sub=wrong))
    for name in ("exp", "iat"):
        for value in ("soon", True, [1]):
            assert f"the claim {name} is no number" in why(token(**{name: value}))
    assert "exp is missing" in why(token(exp=None))
    assert "neither a text nor a list" in why(token(scope=7))
    assert "neither a text nor a list" in why(token(scope=[7]))


def test_the_scope_and_what_is_required_of_it() -> None:
    needs = from_options({PREFIX + "RequiredScope": "a b"})
    assert isinstance(check(token(scope=["b", " a ", "c", " "]), needs), Accepted)
    assert check(token(scope=["a"]), needs) == Refused(
        "the token lacks a scope that is required", "insufficient_scope", "[a, b]"
    )
    assert isinstance(check(token(scope="a b"), needs), Refused)  # one text is one scope
    one = from_options(
        {PREFIX + "RequiredScope": "a", PREFIX + "ScopeClaimName": "scp", PREFIX + "PrincipalClaimName": "me"}
    )
    found = check(token(scp="a", me="bob"), one)
    assert isinstance(found, Accepted) and found.principal_name == "bob"


def test_options() -> None:
    assert from_options({}) == UnsecuredTokens()
    assert from_options({PREFIX + "ScopeClaimName": " "}) == UnsecuredTokens()
    for name, value in (("AllowableClockSkewMs", "-1"), ("AllowableClockSkewMs", "1s"), ("RequiredScope", 'a "b"')):
        with pytest.raises(UnsecuredOptionsError, match=name):
            from_options({PREFIX + name: value})


@settings(max_examples=300)
@given(
    st.text(alphabet="ABab01.-_=", max_size=40)
    | st.binary(max_size=40).map(encoded).map(lambda part: f"{part}.{part}.")
)
def test_anything_is_refused(text: str) -> None:
    assert why(text)
