"""Whose keys a keytab has: made here, and by MIT's program."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from peers.gssapi_package import program

from headrace.security.keytab import KEYTAB_BYTES_MAX, KeytabError, Principal, principal_of, principals

KEY = b"\x00\x12" + (32).to_bytes(2, "big") + b"k" * 32


def sized(text: str) -> bytes:
    return len(text.encode()).to_bytes(2, "big") + text.encode()


def entry(*components: str, realm: str = "R") -> bytes:
    names = len(components).to_bytes(2, "big") + sized(realm) + b"".join(map(sized, components))
    body = names + bytes(4) + bytes(4) + b"\x01" + KEY + (1).to_bytes(4, "big")
    return len(body).to_bytes(4, "big") + body


def hole(size: int) -> bytes:
    return (-size).to_bytes(4, "big", signed=True) + b"x" * size


def keytab(*entries: bytes) -> bytes:
    return b"\x05\x02" + b"".join(entries)


def test_each_principal_is_there_once() -> None:
    broker, ann = entry("kafka", "h.example"), entry("ann", realm="OTHER")
    held = principals(keytab(broker, broker, hole(40), ann, bytes(4), b"what stands behind the end"))
    assert list(map(str, held)) == ["kafka/h.example@R", "ann@OTHER"]
    assert principals(keytab()) == ()


def test_which_is_named() -> None:
    held = Principal(("kafka", "h"), "R")
    assert all(held.is_named(principal_of(text)) for text in ("kafka/h@R", "kafka/h", "kaf\\ka/h@R"))
    for text in ("kafka/h@r", "kafka/H@R", "kafka@R", "kafka\\/h@R", "kafka/h/i@R", "", "kafka/h@"):
        assert not held.is_named(principal_of(text)), text
    for text in ("a@R@S", "a\\"):
        with pytest.raises(KeytabError):
            principal_of(text)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1), st.text("aR/@\\"))
def test_a_name_is_read_as_it_is_written(components: list[str], realm: str) -> None:
    held = Principal(tuple(components), realm)
    assert principal_of(str(held)) == held
    (read,) = principals(keytab(entry(*components, realm=realm)))
    assert read == held


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "no keytab"),
        (b"-----BEGIN PRIVATE KEY-----", "no keytab"),
        (b"\x05\x01" + entry("a"), "old form"),
        (keytab(entry("a")[:-9]), "cut short"),
        (keytab((6).to_bytes(4, "big") + b"\xff\xff\x00\x01R\x00"), "cut short"),
        (keytab(hole(9)[:-1]), "cut short"),
        (keytab(bytes(KEYTAB_BYTES_MAX)), "longer than"),
    ],
)
def test_what_is_no_keytab(data: bytes, why: str) -> None:
    with pytest.raises(KeytabError, match=why) as told:
        principals(data)
    assert "\n" not in str(told.value)


@given(st.binary(max_size=200), st.integers(0, 80), st.binary(max_size=8))
def test_any_bytes_have_an_answer(tail: bytes, at: int, changed: bytes) -> None:
    whole = keytab(entry("kafka", "h")) + tail
    for data in (tail, whole, whole[:at] + changed + whole[at + len(changed) :]):
        try:
            principals(data)
        except KeytabError as error:
            assert "\n" not in str(error)


@pytest.mark.skipif(program("ktutil") is None, reason="MIT's ktutil is not installed")
def test_what_mit_writes(tmp_path: Path) -> None:
    path = tmp_path / "made.keytab"
    names = ["kafka/h.example@R", "ann@OTHER"]
    said = "".join(f"addent -password -p {name} -k 3 -e aes256-cts-hmac-sha1-96\nword\n" for name in names)
    ktutil = program("ktutil")
    assert ktutil is not None
    subprocess.run([ktutil], input=f"{said}wkt {path}\nquit\n", text=True, check=True, capture_output=True, timeout=60)
    assert list(map(str, principals(path.read_bytes()))) == names
