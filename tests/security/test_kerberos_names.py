"""sasl.kerberos.principal.to.local.rules: what Kafka's KerberosShortNamer makes of principals."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.security.kerberos_names import parsed
from headrace.security.principal_rules import PrincipalRulesError

from .kafka_names import ask, word

REALM = "EXAMPLE.ORG"

GOOD = [
    (["DEFAULT"], "ann@EXAMPLE.ORG", "ann"),
    (["DEFAULT"], "kafka/host.example.org@EXAMPLE.ORG", "kafka"),
    (["DEFAULT"], "ann@OTHER.ORG", None),
    (["DEFAULT"], "ann@example.org", None),
    (["DEFAULT"], "ann/b/c@EXAMPLE.ORG", None),
    (["DEFAULT"], "ann@x@EXAMPLE.ORG", None),
    (["DEFAULT"], "@EXAMPLE.ORG", ""),
    (["RULE:[1:$1]"], "ann@OTHER.ORG", "ann"),
    (["RULE:[1:$1]"], "ann/host@OTHER.ORG", None),
    (["RULE:[2:$1]"], "ann/host@OTHER.ORG", "ann"),
    (["RULE:[2:$1-$2-$0]"], "ann/host@OTHER.ORG", "ann-host-OTHER.ORG"),
    (["RULE:[2:$1@$0]"], "ann/host@OTHER.ORG", None),
    (["RULE:[1:$1@$0](.*@OTHER.ORG)s/@.*//", "DEFAULT"], "ann@OTHER.ORG", "ann"),
    (["RULE:[1:$1@$0](.*@OTHER.ORG)s/@.*//", "DEFAULT"], "ann@EXAMPLE.ORG", "ann"),
    (["RULE:[1:$1@$0](.*@OTHER.ORG)s/@.*//", "DEFAULT"], "ann@THIRD.ORG", None),
    (["RULE:[1:$1@$0](.*@OTHER)s/@.*//"], "ann@OTHER.ORG", None),
    (["RULE:[1:$1]/U"], "ann@X", "ANN"),
    (["RULE:[1:$1]L"], "ANN@X", "ann"),
    (["RULE:[1:$1](A.*)s/N/m//L"], "ANN@X", "amn"),
    (["RULE:[1:$1](A.*)s/N/m/gL"], "ANN@X", "amm"),
    (["RULE:[1:$1](A.*)s/N/m/g/U"], "ANN@X", "AMM"),
    (["RULE:[1:$1]s/(a)(n+)/$2$1/"], "ann@X", "nna"),
    (["RULE:[1:$1]s/a/\\$/"], "ann@X", "$nn"),
    (["RULE:[1:$1]s/.*/x/g"], "ann@X", "xx"),
    (["RULE:[1:$1]s/a/b@c/", "DEFAULT"], "ann@EXAMPLE.ORG", None),
    (["RULE:[1:$1]s/a/b/", "DEFAULT"], "ann@EXAMPLE.ORG", "bnn"),
    (["RULE:[1:]"], "ann@X", ""),
    (["RULE:[0:x]", "RULE:[7:x]"], "ann@X", None),
    (["RULE:[1:x$1y$1]"], "ann@X", "xannyann"),
    (["RULE:[1:$1](a.*)"], "ann\n@X", None),
    (["RULE:[1:$1]"], "a\nb@X", "a\nb"),
]
"""Rules, a principal, and what becomes of it; None: the login fails."""

BAD = [
    "default",
    "DEFAULT ",
    "RULE",
    "RULE:",
    "RULE:[]",
    "RULE:[:$1]",
    "RULE:[1]",
    "RULE:[x:$1]",
    "RULE:[1:$1",
    "RULE:[1:$1]()x",
    "RULE:[1:$1](a",
    "RULE:[1:$1]s/a/b",
    "RULE:[1:$1]s/a/b/x",
    "RULE:[1:$1]s/(/b/",
    "RULE:[1:$1](*)",
    "RULE:[1:$1]LU",
    "RULE:[1:$1]l",
    "RULE:[1:$1]//L",
    "rule:[1:$1]",
    "RULE:[1:$1]s/a/b/gg",
]
STRICTER = [
    "RULE:[1:$]",
    "RULE:[1:$2]",
    "RULE:[1:$x]",
    "RULE:[1:$1]s/a/$1/",
    "RULE:[1:$1]s/(a)/$2/",
    "RULE:[1:$1]s/a/$/",
]
"""Kafka takes these, and fails whenever they apply."""


@pytest.mark.parametrize(("rules", "principal", "expected"), GOOD)
def test_what_becomes_of_a_principal(rules: list[str], principal: str, expected: str | None) -> None:
    assert parsed(rules, REALM).principal_name(principal) == expected


@pytest.mark.parametrize("rule", [*BAD, *STRICTER])
def test_rules_that_are_refused(rule: str) -> None:
    with pytest.raises(PrincipalRulesError) as told:
        parsed([rule], REALM)
    assert "\n" not in str(told.value)


def test_names_without_a_realm_and_long_ones_fail() -> None:
    rules = parsed(["DEFAULT", "RULE:[1:$1]"], REALM)
    for principal in ("ann", "ann/host", "", "a" * 2_000 + "@EXAMPLE.ORG"):
        assert rules.principal_name(principal) is None
    with pytest.raises(PrincipalRulesError, match="more than 256"):
        parsed(["DEFAULT"] * 257, REALM)


@settings(max_examples=500)
@given(
    st.text(alphabet="RULE:[]1$2(a)s/gLU.*b", max_size=30).map("RULE:[1:".__add__),
    st.text(alphabet="ab/@\n", max_size=12),
)
def test_any_rule_is_read_or_refused_and_makes_simple_names(rule: str, principal: str) -> None:
    try:
        rules = parsed([rule], REALM)
    except PrincipalRulesError:
        return
    name = rules.principal_name(principal)
    assert name is None or not set(name) & {"/", "@"}


@pytest.mark.jvm
def test_kafka_makes_the_same_of_every_principal() -> None:
    principals = sorted({principal for _, principal, _ in GOOD})
    cases = [(rules, principal) for rules, _, _ in GOOD for principal in principals]
    ours = [parsed(rules, REALM).principal_name(principal) for rules, principal in cases]
    asked = [f"kerberos {word(REALM)} {word(chr(10).join(rules))} {word(principal)}" for rules, principal in cases]
    assert ask(asked) == ["none" if name is None else "=" + name for name in ours]


@pytest.mark.jvm
def test_kafka_refuses_the_same_rules() -> None:
    assert ask([f"kerberos {word(REALM)} {word(rule)} {word('ann@X')}" for rule in BAD]) == ["refused"] * len(BAD)
    later = ask([f"kerberos {word(REALM)} {word(rule)} {word('ann@X')}" for rule in STRICTER])
    assert later == ["none"] * len(STRICTER)
