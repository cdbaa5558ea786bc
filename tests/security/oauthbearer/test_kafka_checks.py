"""Kafka's own handlers take and refuse the same tokens, on a clock that is the machine's."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from peers import kafka

from headrace.security.oauthbearer.signed import SignedTokens
from headrace.security.oauthbearer.tokens import Accepted, Refused
from headrace.security.oauthbearer.unsecured import from_options

from .issuing import GOOD, claims, encoded, forged, forgers_key, issued, jwks, keys, private_keys

pytestmark = pytest.mark.jvm
PATIENCE_S = 120
NOW_S = int(time.time())


def ask(tokens: list[str], *arguments: str) -> list[str]:
    source = Path(__file__).with_name("KafkaTokens.java")
    command = kafka.java(str(source), *arguments, flags=kafka.quick("-Xmx512M"))
    done = subprocess.run(
        command, input="\n".join(tokens), capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answers = done.stdout.splitlines()
    assert len(answers) == len(tokens)
    return answers


def said(found: Accepted | Refused) -> str:
    if isinstance(found, Refused):
        return "refused"
    scope = ",".join(sorted(each.encode().hex() for each in found.scope))
    return f"={found.principal_name.encode().hex()} {found.expires_ms} {scope}"


def body(**more: Any) -> dict[str, Any]:
    return claims(**{"iat": NOW_S - 60, "exp": NOW_S + 3600, **more})


SCOPES: list[Any] = ["a b", "", " ", ["a", "b"], ["a", "a"], [""], [], 7, {}]
BODIES = {
    "good": body(),
    "expired": body(exp=NOW_S - 40),
    "within the skew": body(exp=NOW_S - 5),
    "not yet": body(nbf=NOW_S + 3000),
    "from the future": body(iat=NOW_S + 3000),
    "backwards": body(iat=NOW_S + 3700),
    "a fraction": body(exp=NOW_S + 3600.9),
    **{f"no {name}": body(**{name: None}) for name in ("exp", "iat", "sub", "aud", "iss")},
    **{f"{name} is text": body(**{name: "1800000000"}) for name in ("exp", "iat", "nbf")},
    **{f"{name} is true": body(**{name: True}) for name in ("exp", "iat")},
    "iat below zero": body(iat=-5),
    **{f"sub {sub!r}": body(sub=sub) for sub in ("", " ", " ann ", 7, ["ann"], "\tä\n")},
    **{f"aud {aud!r}": body(aud=aud) for aud in ("x", ["x"], ["x", "logs"], [], 7, ["kafka", 7])},
    **{f"iss {iss!r}": body(iss=iss) for iss in ("x", "", 7)},
    **{f"scope {scope!r}": body(scope=scope) for scope in SCOPES},
    "jti is a number": body(jti=7),
}


@pytest.mark.parametrize(("audiences", "issuer"), [("kafka,logs", "https://issuer"), ("-", "-")])
def test_signed_tokens(tmp_path: Path, audiences: str, issuer: str) -> None:
    path = tmp_path / "jwks.json"
    path.write_bytes(jwks())
    cases = {name: issued(each) for name, each in BODIES.items()}
    cases |= {f"{key_id} {algorithm}": issued(body(), key_id, algorithm) for key_id, algorithm in GOOD}
    cases |= {f"{name}, for nobody": issued({**each, "aud": None}) for name, each in BODIES.items()}
    own = private_keys()
    cases |= {
        "no key id": issued(body(), None),
        "unknown key id": issued(body(), "other", "RS256", forgers_key()),
        "a forger's": issued(body(), "rsa", "RS256", forgers_key()),
        "none": forged({"alg": "none"}, body()),
        "none, with a key id": forged({"alg": "none", "kid": "rsa"}, body()),
        "another curve": issued(body(), "p384", "ES256", own["p256"]),
        "another kind of key": issued(body(), "p256", "RS256", own["rsa"]),
        "crit": issued(body(), crit=["exp"]),
        "two parts": issued(body()).rsplit(".", 1)[0],
        "another body": ".".join([issued().split(".")[0], encoded(body()), issued().split(".")[2]]),
    }
    expected = frozenset() if audiences == "-" else frozenset(audiences.split(","))
    ours = SignedTokens(expected, None if issuer == "-" else issuer)
    answers = ask(list(cases.values()), "signed", str(path), audiences, issuer, "sub", "scope")
    differ = {}
    for (name, token), answer in zip(cases.items(), answers):
        mine = said(ours.checked(token, keys(), int(time.time() * 1000)))
        if mine != answer:
            differ[name] = (mine, answer)
    assert differ == {}
    assert 10 < answers.count("refused") < len(cases) - 10


@pytest.mark.parametrize("required", ["-", "a b"])
def test_unsecured_tokens(required: str) -> None:
    cases = {name: forged({"alg": "none"}, each) for name, each in BODIES.items()}
    cases |= {
        "signed": issued(body()),
        "a signature": forged({"alg": "none"}, body(), b"x"),
        "another case": forged({"alg": "None"}, body()),
        "no algorithm": forged({}, body()),
        "no claims": encoded({"alg": "none"}) + "..",
        "two parts": encoded({"alg": "none"}) + "." + encoded(body()),
        "both scopes": forged({"alg": "none"}, body(scope=["b", "a"])),
    }
    ours = from_options({} if required == "-" else {"unsecuredValidatorRequiredScope": required})
    answers = ask(list(cases.values()), "unsecured", required)
    differ = {}
    for (name, token), answer in zip(cases.items(), answers):
        mine = said(ours.checked(token, int(time.time() * 1000)))
        if mine != answer:
            differ[name] = (mine, answer)
    assert set(differ) <= {"scope {}"}  # to Kafka's parser of JSON an object is an empty text
