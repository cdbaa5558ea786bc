"""A store in use is replaced only by one that may: Kafka's SslFactory decides the same."""

from __future__ import annotations

import pytest
from cryptography import x509
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID
from peers.certificates import Authority, Identity, der_of, named, subject

from headrace.security.reload import keystore_refusal, truststore_refusal
from headrace.security.stores.entries import KeyEntry, TrustedCertificates

from .kafka_names import ask, word

ROOT = Authority.new()
CN, ORG = NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME
LOCAL = ("localhost", "127.0.0.1")


def printable(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(CN, text, _ASN1Type.IA5String)])


STORES: dict[str, Identity] = {
    "in use": ROOT.issue(named("broker"), names=LOCAL),
    "renewed": ROOT.issue(named("broker"), names=LOCAL),
    "of another authority": Authority.new("other").intermediate("x").issue(named("broker"), names=LOCAL),
    "of RSA": ROOT.issue(named("broker"), names=LOCAL, kind="rsa"),
    "in another case": ROOT.issue(named(" BROKER"), names=LOCAL),
    "in another string": ROOT.issue(printable("Broker"), names=LOCAL),
    "with a name more": ROOT.issue(named("broker"), names=(*LOCAL, "::1")),
    "with a name less": ROOT.issue(named("broker"), names=LOCAL[:1]),
    "with another name": ROOT.issue(named("broker"), names=("localhost", "127.0.0.2")),
    "with a name in another case": ROOT.issue(named("broker"), names=("LOCALHOST", "127.0.0.1")),
    "without names": ROOT.issue(named("broker")),
    "of somebody else": ROOT.issue(named("admin"), names=LOCAL),
    "of one part more": ROOT.issue(subject((ORG, "x"), (CN, "broker")), names=LOCAL),
    "of the other order": ROOT.issue(subject((CN, "broker"), (ORG, "x")), names=LOCAL),
}


def entry(name: str, *others: str) -> KeyEntry:
    one = STORES[name]
    return KeyEntry(b"", tuple(der_of(each) for each in one.chain), tuple(map(own, others)))


def own(name: str) -> bytes:
    return der_of(STORES[name].certificate)


def refusal(old: KeyEntry | None, new: KeyEntry | None, dn: bool = False, san: bool = False) -> str:
    return keystore_refusal(old, new, allow_dn_changes=dn, allow_san_changes=san)


@pytest.mark.parametrize(
    "name", ["renewed", "of another authority", "of RSA", "in another case", "in another string", "with a name more"]
)
def test_a_renewed_certificate_is_taken(name: str) -> None:
    assert refusal(entry("in use"), entry(name)) == ""


@pytest.mark.parametrize("name", ["with a name less", "with another name", "without names"])
def test_names_that_go_are_refused_unless_that_is_allowed(name: str) -> None:
    assert "set ssl.allow.san.changes" in refusal(entry("in use"), entry(name))
    assert "set ssl.allow.san.changes" in refusal(entry("in use"), entry(name), dn=True)
    assert refusal(entry("in use"), entry(name), san=True) == ""


@pytest.mark.parametrize("name", ["of somebody else", "of one part more", "of the other order"])
def test_another_subject_is_refused_unless_that_is_allowed(name: str) -> None:
    assert "set ssl.allow.dn.changes" in refusal(entry("in use"), entry(name))
    assert "set ssl.allow.dn.changes" in refusal(entry("in use"), entry(name), san=True)
    assert refusal(entry("in use"), entry(name), dn=True) == ""


def test_entries_beside_the_key_are_compared_by_their_names() -> None:
    old = entry("in use", "of somebody else", "of one part more")
    assert refusal(old, entry("renewed", "of one part more", "of somebody else")) == ""
    assert "keep their number" in refusal(old, entry("renewed", "of one part more"))
    assert "keep their number" in refusal(old, entry("renewed", "of one part more"), dn=True)
    assert "keep their number" in refusal(old, entry("renewed", "of one part more"), san=True)
    assert refusal(old, entry("renewed", "of one part more"), dn=True, san=True) == ""
    assert "ssl.allow.dn.changes" in refusal(old, entry("renewed", "of one part more", "renewed"))


def test_a_store_neither_appears_nor_vanishes() -> None:
    one, trusted = entry("in use"), TrustedCertificates((own("in use"),))
    other = TrustedCertificates((own("renewed"),))
    assert "cannot be given one" in refusal(None, one, dn=True, san=True)
    assert "cannot be taken away" in refusal(one, None, dn=True, san=True)
    assert refusal(None, None) == ""
    assert "cannot be given one" in truststore_refusal(None, trusted)
    assert "cannot be taken away" in truststore_refusal(trusted, None)
    assert truststore_refusal(trusted, other) == ""
    assert truststore_refusal(None, None) == ""


@pytest.mark.jvm
def test_kafka_takes_and_refuses_the_same() -> None:
    pairs = [("in use", name) for name in STORES] + [(name, "in use") for name in STORES]
    cases = [(*pair, dn, san) for pair in pairs for dn in (False, True) for san in (False, True)]
    asked = []
    for old, new, dn, san in cases:
        texts = [text for name in (old, new) for text in (STORES[name].key_pem(), STORES[name].chain_pem())]
        asked.append(f"reload {' '.join(map(word, texts))} {str(dn).lower()} {str(san).lower()}")
    ours = ["refused" if refusal(entry(old), entry(new), dn, san) else "taken" for old, new, dn, san in cases]
    differ = [(case, answer) for case, mine, answer in zip(cases, ours, ask(asked)) if mine != answer]
    assert not differ
    assert ours.count("refused") > 20
