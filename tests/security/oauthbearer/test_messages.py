"""The first message of a client, and the ways in which it is none."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from peers.tried import tried

from headrace.security.oauthbearer.messages import EXTENSIONS_MAX, FirstMessage, MessageError, challenge, first_message


def test_a_token_an_authzid_and_extensions() -> None:
    assert first_message(b"n,,\x01auth=Bearer a.b-_~+/c==\x01\x01") == FirstMessage("a.b-_~+/c==")
    assert first_message(b"n,a=ann,\x01auth=bEaReR   x\x01\x01") == FirstMessage("x", "ann")
    assert first_message(b"n,a=a=2Cb=3Dc,\x01auth=Bearer x\x01\x01").authzid == "a,b=c"
    found = first_message(b"n,,\x01one=1=2 \t\r\n\x01auth=Bearer x\x01two=,\x01\x01")
    assert found.extensions == (("one", "1=2 \t\r\n"), ("two", ","))
    assert "secret" not in repr(first_message(b"n,,\x01auth=Bearer secret\x01\x01"))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01",
        b"n",
        b"n,,",
        b"n,,\x01",
        b"n,,\x01\x01",
        b"n,,\x01\x01\x01",
        b"y,,\x01auth=Bearer x\x01\x01",
        b"p=tls-unique,,\x01auth=Bearer x\x01\x01",
        b"N,,\x01auth=Bearer x\x01\x01",
        b"n,a=,\x01auth=Bearer x\x01\x01",
        b"n,a=a=2D,\x01auth=Bearer x\x01\x01",
        b"n,a=a=2c,\x01auth=Bearer x\x01\x01",
        b"n,a=\0,\x01auth=Bearer x\x01\x01",
        b"n,b=a,\x01auth=Bearer x\x01\x01",
        b"n,,auth=Bearer x\x01\x01",
        b"n,,\x01auth=Bearer x\x01",
        b"n,,\x01auth=Bearer x",
        b"n,,\x01auth=Bearer x\x01\x01\x01",
        b"n,,\x01auth=Bearer x\x01\x01x",
        b"n,,\x01auth=Bearer x\x01\x01n",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01auth=Basic x\x01\x01",
        b"n,,\x01auth=Bearer x y\x01\x01",
        b"n,,\x01auth=Bearer x=y\x01\x01",
        b"n,,\x01auth=Bearer\tx\x01\x01",
        b"n,,\x01Auth=Bearer x\x01\x01",
        b"n,,\x01one=1\x01\x01",
        b"n,,\x01auth=Bearer x\x01auth=Bearer y\x01\x01",
        b"n,,\x01auth=Bearer x\x01a=1\x01a=1\x01\x01",
        b"n,,\x01auth=Bearer x\x01a1=1\x01\x01",
        b"n,,\x01auth=Bearer x\x01a=\x01\x01",
        b"n,,\x01auth=Bearer x\x01a=\0\x01\x01",
        b"n,,\x01auth=Bearer x\x01\x01a=1\x01\x01",
        "n,,\x01auth=Bearer é\x01\x01".encode(),
        b"n,,\x01auth=Bearer \xff\x01\x01",
        b"n,,\x01auth=Bearer " + b"x" * 300_000 + b"\x01\x01",
        b"n,,"
        + b"".join(b"\x01" + b"a" * number + b"=1" for number in range(1, EXTENSIONS_MAX + 3))
        + b"\x01auth=Bearer x\x01\x01",
    ],
    ids=lambda data: repr(data[:60]),
)
def test_what_is_no_first_message(data: bytes) -> None:
    with pytest.raises(MessageError) as told:
        first_message(data)
    assert "\n" not in str(told.value)


def test_what_a_client_hears() -> None:
    assert challenge("invalid_token", None) == '{"status":"invalid_token"}'
    odd = 'a", "status":"ok'
    assert json.loads(challenge("insufficient_scope", odd)) == {"status": "insufficient_scope", "scope": odd}


@settings(max_examples=tried(500))
@given(st.binary(max_size=60) | st.text(alphabet="n,a=\x01uthBer x.2CD", max_size=60).map(str.encode))
def test_anything_is_read_or_refused(data: bytes) -> None:
    try:
        assert first_message(data).token
    except MessageError:
        pass
