"""ssl.principal.mapping.rules: what Kafka's SslPrincipalMapper makes of names, and rules that try to be misread."""

from __future__ import annotations

import itertools
import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.config.java_regex import JavaPattern, JavaRegexError, compiled
from headrace.security.principal_rules import MATCHED_CHARACTERS_MAX, PrincipalRulesError, parsed

from .kafka_names import ask, word

ANN = "CN=ann,OU=logs,O=Headrace,C=DE"

GOOD = [
    ("DEFAULT", ANN, ANN),
    ("", ANN, None),
    (" , ,", ANN, None),
    ("RULE:^CN=(.*?),OU=(.*?),O=(.*?),C=(.*?)$/$1@$2/", ANN, "ann@logs"),
    ("RULE:^CN=(.*?),OU=(.*?),O=(.*?),C=(.*?)$/$1@$2/U", ANN, "ANN@LOGS"),
    ("RULE:^CN=(.*?),.*$/$1/L, DEFAULT", "CN=ANN,C=DE", "ann"),
    ("RULE:^CN=bob,.*$/bob/,RULE:^CN=(\\w+),.*$/$1/,DEFAULT", ANN, "ann"),
    ("RULE:^CN=bob,.*$/bob/,DEFAULT", ANN, ANN),
    ("RULE:^CN=bob,.*$/bob/", ANN, None),
    ("DEFAULT,RULE:.*/x/", ANN, ANN),
    ("RULE:CN=ann/x/,DEFAULT", ANN, ANN),
    ("RULE:.*/x/", ANN, "xx"),
    ("RULE:^.*$/x/", ANN, "x"),
    ("RULE:(CN=a|CN=ann,.*)/<$1>/", ANN, "<CN=a>nn,OU=logs,O=Headrace,C=DE"),
    ("RULE:^CN=(.*?),.*$/$1@$4/", ANN, "ann@$4"),
    ("RULE:^CN=(.*?),.*$/$12/", ANN, "ann2"),
    ("RULE:^CN=(.*?),.*$/$01$0x/", "CN=a,x", "aCN=a,xx"),
    ("RULE:^CN=(?<who>.*?),.*$/${who}!/", ANN, "ann!"),
    ("RULE:^CN=(a)|(.*)$/$1-$2/", ANN, "a--nn,OU=logs,O=Headrace,C=DE-"),
    ("RULE:^CN=(.*?),.*$/\\$1\\\\x\\/y/", ANN, "$1\\x/y"),
    ("RULE:^CN=a\\/b$/x/", "CN=a/b", "x"),
    ("RULE:^CN=(.*)$//", "CN=a", ""),
    ("  RULE:^CN=(.*)$/$1/L  ,  DEFAULT  ", "CN=A", "a"),
    ("RULE:^CN=(.*)$/$1/U", "CN=straße ﬁ ŉ", "STRASSE FI ʼN"),
    ("RULE:^CN=(.*)$/$1/L", "CN=İΣ ΑΣ", "i̇ς ας"),
    ("RULE:^CN=([^,]*),.*$/$1/", "CN=a\nb,C=DE", "a\nb"),
    ("RULE:^CN=(.*)$/$1/,DEFAULT", "CN=a\nb", "CN=a\nb"),
    ("RULE:^CN=(.*)$/$1/,DEFAULT", "CN=a\rb", "CN=a\rb"),
    ("RULE:^CN=(.*)$/$1/,DEFAULT", "CN=a\u2028b", "CN=a\u2028b"),
    ("RULE:(?s)^CN=(.*)$/$1/", "CN=a\rb", "a\rb"),
    ("RULE:^CN=b$/x/,DEFAULT", "CN=b\t", "CN=b\t"),
    ("RULE:(?i)^cn=(.*)$/$1/", "CN=Ä", "Ä"),
    ("RULE:(?i)^CN=ä$/x/,DEFAULT", "CN=Ä", "CN=Ä"),
]
"""Rules, a name, and what becomes of it; None: the connection fails."""

BAD = [
    "default",
    "DEFAULTS",
    "DEFAULT DEFAULT",
    "DEFAULT;DEFAULT",
    "RULE",
    "RULE:",
    "RULE:x",
    "RULE:x/y",
    "RULE:x/y\\/",
    "RULE:x/y/X",
    "RULE:x/y/LU",
    "RULE:x/y/ L",
    "RULE:x/y/l",
    "RULE:x/y/L/",
    "RULE:(x/y/",
    "RULE:x)/y/",
    "RULE:*/y/",
    "RULE:[/y/",
    "RULE:x{/y/",
    "RULE:a**/y/",
    "RULE:(?<1a>x)/y/",
    "RULE:\\k<a>/y/",
    "rule:x/y/",
    "RULE :x/y/",
]
"""Rules that Kafka refuses too."""

STRICTER = [
    "RULE:x/$1/",
    "RULE:(x)/$/",
    "RULE:(x)/a$b/",
    "RULE:(x)/${y}/",
    "RULE:\\p{Lu}/y/",
    "RULE:a(?i)b/y/",
    "RULE:\\1(a)/y/",
]
"""Rules that Kafka takes: it fails when they are used, or reads them in a way that Python has not."""


@pytest.mark.parametrize(("rules", "name", "expected"), GOOD)
def test_what_becomes_of_a_name(rules: str, name: str, expected: str | None) -> None:
    assert parsed(rules).principal_name(name) == expected


@pytest.mark.parametrize("rules", [*BAD, *STRICTER])
def test_rules_that_are_refused(rules: str) -> None:
    with pytest.raises(PrincipalRulesError) as told:
        parsed(rules)
    assert "\n" not in str(told.value)
    with pytest.raises(PrincipalRulesError):
        parsed(f"DEFAULT,{rules},DEFAULT")


def test_a_long_name_is_no_way_to_keep_a_pattern_busy_nor_past_it() -> None:
    rules = parsed("RULE:^CN=(.*?),OU=(.*?),OU=(.*?)$/$1/,DEFAULT")
    many = parsed("RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1/")
    before = time.monotonic()
    assert many.principal_name("CN=a" + "".join(f",{part}=a" * 45 for part in ("OU", "O", "L", "ST"))) is None
    long = "CN=" + ",OU=a" * (MATCHED_CHARACTERS_MAX // 5)
    assert rules.principal_name(long[:MATCHED_CHARACTERS_MAX] + "\n\n") is None
    assert rules.principal_name(long[:MATCHED_CHARACTERS_MAX]) == ""
    assert time.monotonic() - before < 1
    assert parsed("DEFAULT").principal_name(long * 2) == long * 2
    for end in "\n\r\x85\u2028\u2029":
        assert parsed("RULE:^CN=b$/x/,DEFAULT").principal_name("CN=a" + end) is None
        assert parsed("DEFAULT").principal_name("CN=a" + end) == "CN=a" + end


def test_too_many_rules_and_too_long_patterns() -> None:
    with pytest.raises(PrincipalRulesError, match="more than 256 rules"):
        parsed("DEFAULT," * 257)
    with pytest.raises(PrincipalRulesError, match="more than 4096 characters"):
        parsed("RULE:" + "a" * 5000 + "/x/")


@settings(max_examples=500)
@given(st.text(alphabet="RULE:DFAT,/\\$1()[]{}*?+^-&|.xsi<>= \n", max_size=40))
def test_any_rules_are_read_or_refused(text: str) -> None:
    try:
        rules = parsed(text)
    except PrincipalRulesError:
        return
    assert rules.principal_name("CN=x") is None or isinstance(rules.principal_name("CN=x"), str)


PATTERNS = [
    "a.b", "^.$", "^a$", "a$", "$", "a\\Z", "a\\z", "\\Aa", "(?s)a.b", "(?s:a.)b", "(?i:A)b", "(?is)A.B",
    "(?i)[A-C]", "\\d+", "\\D", "\\w+", "\\W", "\\s+", "\\S", "\\h", "\\H", "\\v", "\\V", "[\\h\\v]", "[^\\s]",
    "[\\w-]+", "\\bab", "a\\B", "\\x41", "\\x{1F600}", "\\u00e4", "\\0101", "\\t", "\\e", "\\Qa.b\\E+", "\\Q.*",
    "[\\Q", "\\.", "(a)(b)\\2", "(a)\\11", "(?<x>a)\\k<x>", "(a|b)*?b", "a++b", "(?>a|ab)c", "a{2}", "a{1,}b",
    "a{0,2}+a", "x*", "(?=a).", "(?!a).", "(?<=a).", "(?<!a).", "[a-c]+", "[^a-c]+", "[a\\-c]", "[-a]", "[a-]",
    "[.^$|]", "[a-c-9]", "[\\]]", "[\\[]", "[a&b]", "a|", "()", "(?:a|b)+", "\\p{Alpha}+", "\\P{Alpha}",
    "[\\p{Digit}x]", "\\p{Punct}", "\\p{Space}", "]", "}", "\\ä", "[ä-ü]", "\U0001f600", "[\U0001f600a]", "^",
    "^*", "\\x{110000}", "[b-a]", "a{2,1}", "(?<a>x)(?<a>y)", "\\", "\\p{Cntrl}", "[\\x00-\\x1f]",
    "[a-c&&[^b]]", "[a[0-9]]+", "[^a&&b]", "[a&&b]", "(?i)[^a]", "(?i:[^B-Z])+", "(?i)(?-i:a)", "(?i:a)A", "\\R",
    "a\\Rb", "\\cA", "[^\\H]", "[^\\x00-\\x{10FFFF}]", "[ä-ü&&[^ü]]", "(?-s:.)", "(?s)a(?-s:.)b",
    "\\P{Space}+", "[\\D&&\\w]+", "(a(b)?)+\\2", "\\07", "\\0777",
]  # fmt: skip
TEXTS = [
    "", "a", "b", "ab", "aab", "abb", "a.b", "a\nb", "a\rb", "a\u0085b", "a\u2028b", "a\n", "a\r\n", "a\r",
    "a\n\n", "\n", "aa", "A", "AB", "a\nB", "Ab", "1", "12a", "_", "-", " ", "\t", "\x0b", "\xa0", "ä", "Ä",
    "ü", "\U0001f600", "a\U0001f600", "A1", ".*", "aabb", "a1", "ac", "abc", "c", "9", "]", "[", "^", "$", "&",
    "\x1b", "\0", "\x07", "?7", "aaa", "x", "a\u2029", "٣",
]  # fmt: skip


@pytest.mark.jvm
def test_java_reads_every_pattern_so_or_we_refuse_it() -> None:
    cases = [(p, t) for p in PATTERNS for t in TEXTS]
    asked = [f"map {word('RULE:' + pattern + '/<$0>/')} {word(text)}" for pattern, text in cases]
    wrong = []
    refused = set()
    for (pattern, text), answer in zip(cases, ask(asked)):
        try:
            found = compiled(pattern)
        except JavaRegexError:
            refused.add(pattern)
            continue
        for each in (found, JavaPattern(found.exact, None)):
            ours = "none" if not each.is_whole(text) else "=" + each.replaced(text, lambda match: f"<{match[0]}>")
            if ours != answer:
                wrong.append((pattern, text, each.linear is not None, ours, answer))
    assert not wrong
    assert refused == {"^*", "[\\Q", "\\x{110000}", "[b-a]", "a{2,1}", "(?<a>x)(?<a>y)", "\\"}


@pytest.mark.jvm
def test_kafka_maps_every_name_so() -> None:
    names = sorted({name for _, name, _ in GOOD})
    cases = list(itertools.product([rules for rules, _, _ in GOOD], names))
    ours = [parsed(rules).principal_name(name) for rules, name in cases]
    answers = ask([f"map {word(rules)} {word(name)}" for rules, name in cases])
    assert answers == ["none" if name is None else "=" + name for name in ours]


@pytest.mark.jvm
def test_kafka_refuses_the_same_rules() -> None:
    assert ask([f"map {word(rules)} {word('x')}" for rules in BAD]) == ["refused"] * len(BAD)
    assert "refused" not in ask([f"map {word(rules)} {word('q')}" for rules in STRICTER[:4]])


@pytest.mark.jvm
def test_kafka_splits_any_list_of_rules_so() -> None:
    chance = random.Random(20261126)
    pieces = ["DEFAULT", "RULE:", "^CN=(.*)$", "/", "$1", "L", "U", ",", " ", "\\/", "x", "\\\\", "RULE:^CN=(.*)$/$1/L"]
    texts = ["".join(chance.choices(pieces, k=chance.randint(1, 7))) for _ in range(3_000)]
    wrong = []
    for text, answer in zip(texts, ask([f"map {word(text)} {word('CN=Ann')}" for text in texts])):
        try:
            name = parsed(text).principal_name("CN=Ann")
            ours = "none" if name is None else "=" + name
        except PrincipalRulesError as error:
            late = "names a group that the pattern has not" in str(error) or "names no group" in str(error)
            ours = answer if late and answer != "refused" else "refused"  # Kafka says so where it applies such a rule
        if ours != answer:
            wrong.append((text, ours, answer))
    assert not wrong
