"""Whatever a client sends in whatever order: it is served once it has proved who it is, and as nobody else."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from security.scripted import EndingPlain, Passwords

from headrace.metadata.scram_credentials import SCRAM_SHA_256
from headrace.security.mechanisms import ScramServerMechanism
from headrace.security.sasl import Moment, Phase, SaslSession
from headrace.security.scram import ScramClient
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode

RIGHT = (b"\0ann\0pencil", b"\0bob\0pen")
TOKENS = st.sampled_from([*RIGHT, b"\0ann\0pen", b"\0nobody\0pencil", b"", b"n,,n=ann,r=abc", b"c=biws,r=abc,p=AAAA"])
STEPS = st.one_of(
    st.tuples(st.just("ask"), st.sampled_from([ApiKey.API_VERSIONS, ApiKey.PRODUCE, ApiKey.METADATA])),
    st.tuples(st.just("handshake"), st.sampled_from(["PLAIN", "SCRAM-SHA-256", "GSSAPI", ""])),
    st.tuples(st.just("token"), TOKENS),
    st.tuples(st.just("wait"), st.sampled_from([0.1, 1.0, 3.0])),
)


@given(st.lists(STEPS, max_size=14), st.sampled_from([0, 2000]), st.sampled_from([None, 2500]), st.integers(0, 1))
def test_only_who_logged_in_is_served(
    steps: list[tuple[str, Any]], max_reauth_ms: int, expires_ms: int | None, version: int
) -> None:
    plain, count = EndingPlain(), itertools.count(1)
    plain.max_reauth_ms, plain.expires_ms = max_reauth_ms, expires_ms
    scram = ScramServerMechanism(SCRAM_SHA_256, Passwords(), lambda size: next(count).to_bytes(size, "big"))
    session = SaslSession({"PLAIN": plain, "SCRAM-SHA-256": scram})
    now_s, chosen, first, ends_s = 0.0, "", "", None
    for kind, value in steps:
        now = Moment(now_s, int(now_s * 1000))
        if kind == "wait":
            now_s += value
        elif kind == "ask":
            if session.refusal(value, now):
                continue
            if value == ApiKey.API_VERSIONS:
                session.listed()
            else:
                assert session.phase is Phase.READY and first
                assert session.identity is not None and session.identity.principal == first
                assert ends_s is None or now_s <= ends_s
        elif kind == "handshake" and not session.refusal(ApiKey.SASL_HANDSHAKE, now):
            answer = session.handshake(value, version, now)
            chosen = value if answer.error == ErrorCode.NONE else ""
            assert answer.ends == (session.phase is Phase.ENDED)
        elif kind == "token":
            is_raw = session.phase is Phase.RAW
            if not is_raw and session.refusal(ApiKey.SASL_AUTHENTICATE, now):
                continue
            was_ready = session.phase is Phase.READY
            answer = session.authenticate(value, now)
            if was_ready:
                assert answer.error == ErrorCode.ILLEGAL_SASL_STATE
            elif session.phase is Phase.READY:
                assert chosen == "PLAIN" and value in RIGHT
                first = first or ("User:ann" if value == RIGHT[0] else "User:bob")
                ends = [max_reauth_ms] if max_reauth_ms else []
                if expires_ms is not None:
                    ends.append(expires_ms - now.wall_ms)
                ends_s = now_s + max(0, min(ends)) / 1000 if ends else None


@given(st.sampled_from(["ann", "bob"]), st.sampled_from(["pencil", "pen", "x"]))
def test_scram_proves_the_password(name: str, password: str) -> None:
    count = itertools.count(1)

    def random(size: int) -> bytes:
        return (next(count) << 64).to_bytes(size, "big")

    session = SaslSession({"SCRAM-SHA-256": ScramServerMechanism(SCRAM_SHA_256, Passwords(), random)})
    now = Moment(0.0, 0)
    client = ScramClient(SCRAM_SHA_256, name, password, random)
    session.handshake("SCRAM-SHA-256", 1, now)
    challenge = session.authenticate(client.first(), now)
    session.authenticate(client.respond(challenge.token), now)
    assert session.is_ready == ((name, password) in {("ann", "pencil"), ("bob", "pen")})
