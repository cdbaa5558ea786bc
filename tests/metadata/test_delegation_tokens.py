"""What a delegation token is worth: its HMAC, its credential, and that both follow from id and key alone."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.metadata.delegation_tokens import credential_of_token, hmac_of, is_over, password_of, token_of
from headrace.metadata.scram_credentials import (
    MECHANISMS,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    ScramCredential,
    ScramMechanism,
)
from headrace.security.login import Challenge, Identity, Proved
from headrace.security.scram import ScramClient, ScramServer, ScramUser
from headrace.security.scram_fakes import FakeCredentials
from headrace.wire.messages.metadata_records import DelegationTokenRecord


@given(st.text(min_size=1), st.text(max_size=30))
def test_the_hmac(key: str, token_id: str) -> None:
    key, token_id = (each.encode("utf-8", "replace").decode() for each in (key, token_id))
    expected = hmac.new(key.encode(), token_id.encode(), hashlib.sha512).digest()
    assert hmac_of(key, token_id) == expected
    assert base64.b64decode(password_of(key, token_id)) == expected


class One:
    def find(self, mechanism: ScramMechanism, name: str, *, is_token: bool) -> ScramUser | None:
        assert is_token and mechanism in MECHANISMS.values()
        return ScramUser(credential_of_token(mechanism, "key", name, b"salt"), Identity("User:ann", 5, is_token=True))

    def fake(self, mechanism: ScramMechanism, name: str, *, is_token: bool) -> ScramCredential:
        return FakeCredentials(b"secret", {}).of_token(mechanism, name)


def test_its_password_logs_in_by_both_mechanisms() -> None:
    for mechanism in MECHANISMS.values():
        client = ScramClient(mechanism, "id", password_of("key", "id"), os.urandom, is_token=True)
        server = ScramServer(mechanism, One(), os.urandom)
        step = server.respond(client.first())
        assert isinstance(step, Challenge)
        done = server.respond(client.respond(step.token))
        assert isinstance(done, Proved) and done.identity == ("User:ann", 5, True)


def test_credentials_of_tokens_have_nothing_in_common() -> None:
    made = [
        credential_of_token(mechanism, key, token_id, salt)
        for mechanism in (SCRAM_SHA_256, SCRAM_SHA_512)
        for key in ("key", "other")
        for token_id in ("a", "b")
        for salt in (b"s", b"t")
    ]
    assert len({each.stored_key for each in made}) == len({each.server_key for each in made}) == 16
    assert credential_of_token(SCRAM_SHA_256, "key", "a", b"s") == made[0]
    assert all(each.salt in (b"s", b"t") and each.iterations == 4096 for each in made)


class Looked(dict[str, DelegationTokenRecord]):
    """Tokens that count how often somebody goes through all of them."""

    passes = 0

    def items(self) -> Any:
        self.passes += 1
        return super().items()

    def keys(self) -> Any:
        self.passes += 1
        return super().keys()


def test_a_token_is_looked_up_and_not_looked_for() -> None:
    """However many there are. What is new is looked at when an HMAC comes that is not known."""
    names = [f"token-{n}" for n in range(300)]
    tokens = Looked({name: DelegationTokenRecord(token_id=name) for name in names})
    assert token_of(tokens, "looked", hmac_of("looked", names[0])).token_id == names[0]
    tokens.passes = 0
    for name in names:
        assert token_of(tokens, "looked", hmac_of("looked", name)).token_id == name
    assert token_of(tokens, "looked", b"none") is None
    after = Looked({**tokens, "token-7": DelegationTokenRecord(token_id="token-7", owner="User:ann")})  # as if renewed
    assert token_of(after, "looked", hmac_of("looked", "token-7")).owner == "User:ann"
    assert tokens.passes == after.passes == 0


def test_tokens_that_come_and_go() -> None:
    known = {name: DelegationTokenRecord(token_id=name) for name in ("a", "b")}
    for names in ("ab", "b", "bc", "", "a", "abc"):
        tokens = {name: known.get(name) or DelegationTokenRecord(token_id=name) for name in names}
        for name in "abc":
            found = token_of(tokens, "come and go", hmac_of("come and go", name))
            assert found is tokens.get(name)


def test_a_token_is_found_by_its_hmac_alone() -> None:
    tokens = {name: DelegationTokenRecord(token_id=name) for name in ("a", "b")}
    assert token_of(tokens, "key", hmac_of("key", "b")).token_id == "b"
    for other in (hmac_of("other", "b"), hmac_of("key", "c"), b"", hmac_of("key", "b")[:-1]):
        assert token_of(tokens, "key", other) is None


@pytest.mark.parametrize(
    ("expires_ms", "at_most_ms", "is_expired"),
    [(100, 100, False), (99, 100, True), (100, 99, True), (99, 99, True), (101, 101, False)],
)
def test_a_token_ends_after_either_of_its_times(expires_ms: int, at_most_ms: int, is_expired: bool) -> None:
    record = DelegationTokenRecord(expiration_timestamp=expires_ms, max_timestamp=at_most_ms)
    assert is_over(record, 100) is is_expired
