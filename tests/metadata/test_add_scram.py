"""Users that a cluster begins with."""

from __future__ import annotations

import base64

import pytest

from headrace.metadata.add_scram import parse_add_scram
from headrace.metadata.scram_credentials import (
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    credential_in,
    make_credential,
    salted_password,
)

SALT = base64.b64encode(b"pepper").decode()


def test_a_password() -> None:
    record = parse_add_scram("SCRAM-SHA-256=[name=alice,password=alice-secret]", lambda: b"drawn")
    assert (record.name, record.mechanism) == ("alice", 1)
    assert credential_in(record) == make_credential(SCRAM_SHA_256, "alice-secret", b"drawn", 4096)


def test_a_salted_password() -> None:
    salted = base64.b64encode(salted_password(SCRAM_SHA_512, b"x", b"pepper", 8192)).decode()
    text = f' SCRAM-SHA-512=[name="al=ice", iterations=8192, salt="{SALT}", saltedpassword={salted}] '
    record = parse_add_scram(text, lambda: b"drawn")
    assert (record.name, record.mechanism) == ("al=ice", 2)
    assert credential_in(record) == make_credential(SCRAM_SHA_512, "x", b"pepper", 8192)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "SCRAM-SHA-256",
        "SCRAM-SHA-1=[name=a,password=secret]",
        "SCRAM-SHA-256=name=a,password=secret",
        "SCRAM-SHA-256=[password=secret]",
        "SCRAM-SHA-256=[name=,password=secret]",
        "SCRAM-SHA-256=[name=a]",
        "SCRAM-SHA-256=[name=a,password=secret,saltedpassword=c2VjcmV0]",
        "SCRAM-SHA-256=[name=a,saltedpassword=c2VjcmV0]",
        "SCRAM-SHA-256=[name=a,password=secret,iterations=4095]",
        "SCRAM-SHA-256=[name=a,password=secret,iterations=16385]",
        "SCRAM-SHA-256=[name=a,password=secret,iterations=many]",
        "SCRAM-SHA-256=[name=a,password=secret,salt=?]",
        "SCRAM-SHA-256=[name=a,password=secret,password=secret]",
        "SCRAM-SHA-256=[name=a,passwort=secret]",
    ],
)
def test_what_is_refused_shows_no_password(text: str) -> None:
    with pytest.raises(ValueError, match=r".+") as error:
        parse_add_scram(text, lambda: b"drawn")
    assert "secret" not in str(error.value)
