"""Distinguished names: exactly Java's text of them, on the subjects that try to pass for somebody else."""

from __future__ import annotations

import pytest
from cryptography import x509
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID
from hypothesis import given, settings
from hypothesis import strategies as st
from peers.certificates import HOSTILE, Authority, der_of, named, subject

from headrace.security import der, names

from .kafka_names import ask, word

CN, ORG, OU = NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME
AUTHORITY = Authority.new()

CASES = {
    "comma": "CN=ann\\,OU\\=admins",
    "newline": "CN=ann\nCN\\=admin",
    "null": "CN=admin\\00.example.org",
    "plus": "CN=ann\\+OU\\=admins",
    "backslash": "CN=ann\\\\\\,OU\\=admins\\\\",
    "hash": "CN=\\#0403",
    "spaces": "CN=\\ \\ ann\\ \\ ",
    "one space": "CN=\\ ",
    "multi-valued": "CN=ann+OU=admins",
    "common name twice": "CN=admin,CN=ann",
    "e-mail": "CN=ann,1.2.840.113549.1.9.1=#160f616e6e406578616d706c652e6f7267",
    "every keyword": (
        "CN=ann,UID=ann,DC=org,DC=example,OU=logs,O=Head\\, Race,STREET=Weg 1\\, Hof,L=München,ST=Bayern,C=DE"
    ),
}


def certificate(who: x509.Name) -> bytes:
    return der_of(AUTHORITY.issue(who).certificate)


def tagged(kind: _ASN1Type, text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(CN, text, kind)])


def further() -> list[x509.Name]:
    """Subjects beside the hostile ones: every kind of text that a certificate may hold, and edges."""
    return [
        *(tagged(kind, "Änn, x") for kind in (_ASN1Type.UTF8String, _ASN1Type.T61String, _ASN1Type.BMPString)),
        tagged(_ASN1Type.UniversalString, "Änn, x"),
        *(
            tagged(kind, "12")
            for kind in (
                _ASN1Type.PrintableString,
                _ASN1Type.IA5String,
                _ASN1Type.NumericString,
                _ASN1Type.VisibleString,
            )
        ),
        *(named(text) for text in ("\r ann, \r", " \0 ", "\t\n x \n\t", "a=b#c", "\u2028ann\u2028", " \r")),
    ]


@pytest.mark.parametrize("what", CASES)
def test_a_subject_cannot_pass_for_another(what: str) -> None:
    assert names.subject(certificate(HOSTILE[what])) == CASES[what]


def test_all_hostile_subjects_have_names_of_their_own() -> None:
    said = {names.subject(certificate(who)) for what, who in HOSTILE.items() if what != "empty"}
    assert len(said) == len(HOSTILE) - 1
    assert not said & {"CN=ann", "CN=admin", "CN=ann,OU=admins", "CN=admin,CN=admin"}


def test_nobody_is_named_by_alternative_names_alone() -> None:
    with pytest.raises(der.DerError, match="nobody"):
        names.subject(certificate(x509.Name([])))
    assert names.subject(der_of(AUTHORITY.issue(x509.Name([]), names=["localhost"]).certificate)) == ""


def test_alternative_names_are_found() -> None:
    read = names.read(der_of(AUTHORITY.server().certificate))
    assert read.alternatives == {b"\x82\x09localhost", b"\x87\x04\x7f\0\0\1", b"\x87\x10" + bytes(15) + b"\1"}
    assert names.text(read.issuer) == "CN=Headrace test CA"
    assert names.read(certificate(named("ann"))).alternatives == frozenset()


def test_object_identifiers_of_any_size() -> None:
    for dotted in ("0.9.2342.19200300.100.1.1", "2.25.329800735698586629295641978511506172918", "1.2.3", "2.999.1"):
        data = certificate(subject((x509.ObjectIdentifier(dotted), "x"), (CN, "a")))
        assert {each.kind for part in names.read(data).subject for each in part} == {dotted, "2.5.4.3"}
    huge = b"\x06\x7f" + b"\xff" * 126 + b"\x01"
    for wrong in (huge, b"\x06\x00", b"\x06\x01\x80", b"\x02\x01\x01"):
        with pytest.raises(der.DerError):
            der.object_identifier(wrong, der.element(wrong))


@settings(max_examples=500)
@given(st.binary(max_size=200))
def test_anything_is_read_or_is_no_der(data: bytes) -> None:
    for read in (names.read, names.subject):
        with pytest.raises(der.DerError):
            read(data)


def same(one: x509.Name, other: x509.Name) -> bool:
    first, second = (names.read(certificate(each)).subject for each in (one, other))
    return names.canonical(first) == names.canonical(second)


PAIRS = [
    (named("ann"), named("ANN"), True),
    (named("ann"), named(" ann "), True),
    (named("a  b"), named("A b"), True),
    (named("ann"), named("bob"), False),
    (named("ann"), tagged(_ASN1Type.PrintableString, "ann"), True),
    (named("ann"), tagged(_ASN1Type.IA5String, "ann"), False),
    (named("A\u0308rger"), named("Ärger"), True),
    (named("straße"), named("STRASSE"), True),
    (named("a,b"), named("a\\,b"), False),
    (subject(((CN, "a"), (OU, "b"))), subject(((OU, "b"), (CN, "a"))), True),
    (subject((CN, "a"), (OU, "b")), subject((OU, "b"), (CN, "a")), False),
    (subject((CN, "a"), (OU, "b")), subject(((CN, "a"), (OU, "b"))), False),
    (subject((ORG, "a"), (ORG, "b")), subject((ORG, "a"), (ORG, "b")), True),
    (named("\tann"), named(" ann"), True),
    (named("a\tb"), named("a b"), False),
    (subject((NameOID.EMAIL_ADDRESS, "a@b")), subject((NameOID.EMAIL_ADDRESS, "A@b")), False),
]


@pytest.mark.parametrize(("one", "other", "equal"), PAIRS)
def test_names_that_java_takes_for_equal(one: x509.Name, other: x509.Name, equal: bool) -> None:
    assert same(one, other) is equal


@pytest.mark.jvm
def test_java_gives_the_same_names() -> None:
    certificates = [certificate(who) for who in (*HOSTILE.values(), *further())]
    ours = []
    for each in certificates:
        try:
            ours.append("=" + names.subject(each))
        except der.DerError:
            ours.append("refused")
    assert ask([f"name {word(each)}" for each in certificates]) == ours


@pytest.mark.jvm
def test_java_takes_the_same_names_for_equal() -> None:
    asked = [f"equal {word(certificate(one))} {word(certificate(other))}" for one, other, _ in PAIRS]
    assert ask(asked) == [str(equal).lower() for _, _, equal in PAIRS]


def test_a_certificate_of_version_1_names_nobody_else() -> None:
    """It has no field for its version, so that all others come one earlier (RFC 5280, 4.1)."""
    data = certificate(named("ann"))
    outer = der.whole(data, der.SEQUENCE)
    body = der.element(data, outer.body, outer.end)
    _version, *fields = der.children(data, body)
    inner = b"".join(der.raw(data, each) for each in fields)
    rest = data[body.end : outer.end]
    of_version_1 = sequence(sequence(inner) + rest)
    assert names.read(of_version_1).subject == names.read(data).subject
    assert names.read(of_version_1).issuer == names.read(data).issuer
    assert names.subject(of_version_1) == "CN=ann"


def sequence(content: bytes) -> bytes:
    return b"\x30\x82" + len(content).to_bytes(2, "big") + content
