"""Stores that Java's keytool made are read, of every kind that it makes, and Java's own list of authorities."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from peers.certificates import (
    HOSTILE,
    PASSWORD,
    Authority,
    der_of,
    keytool,
    write_trust_jks,
    write_trust_pkcs12,
)

from headrace.security.stores.entries import StoreError
from headrace.security.stores.store import load_keystore, load_truststore

from .made import KEY_PASSWORD, authority, chain_of, root_der, server

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

OLD = "-J-Dkeystore.pkcs12.legacy"


@pytest.mark.parametrize("kind", ["ec", "rsa"])
def test_a_jks_with_a_password_for_its_key(tmp_path: Path, kind: str) -> None:
    one = authority().intermediate("below").server(kind="rsa" if kind == "rsa" else "ec")
    data = one.write_jks(tmp_path / "own.jks", key_password=KEY_PASSWORD).read_bytes()
    for named in ("JKS", "PKCS12"):
        entry = load_keystore(named, data, PASSWORD, KEY_PASSWORD)
        assert (entry.private_key_pem.decode(), entry.chain) == (one.key_pem(), chain_of(one))
    with pytest.raises(StoreError, match=r"check ssl\.key\.password"):
        load_keystore("JKS", data, PASSWORD, None)
    with pytest.raises(StoreError, match="its password is another one"):
        load_keystore("JKS", data, "a wrong one", KEY_PASSWORD)


@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
@pytest.mark.parametrize("old", [(), (OLD,)], ids=["new", "old"])
def test_a_key_that_keytool_made_with_an_authority_beside_it(tmp_path: Path, kind: str, old: tuple[str, ...]) -> None:
    path = tmp_path / "own"
    store = ("-keystore", str(path), "-storetype", kind, "-storepass", PASSWORD, *old)
    algorithm = ("-keyalg", "EC", "-groupname", "secp256r1")
    keytool("-genkeypair", "-alias", "own", *algorithm, "-dname", "CN=ann, O=x", "-keypass", PASSWORD, *store)
    entry = load_keystore("JKS", path.read_bytes(), PASSWORD, None)
    assert len(entry.chain) == 1
    (tmp_path / "ca").write_bytes(root_der())
    keytool("-importcert", "-noprompt", "-alias", "ca", "-file", str(tmp_path / "ca"), *store)
    beside = load_keystore("JKS", path.read_bytes(), PASSWORD, None)
    assert (beside.chain, beside.others) == (entry.chain, (root_der(),))
    keytool("-genkeypair", "-alias", "second", *algorithm, "-dname", "CN=bob", "-keypass", PASSWORD, *store)
    with pytest.raises(StoreError, match="holds 2 private keys"):
        load_keystore("JKS", path.read_bytes(), PASSWORD, None)


def test_truststores(tmp_path: Path) -> None:
    roots = [authority(), Authority.new()]
    both = {der_of(each.root) for each in roots}
    old = write_trust_jks(tmp_path / "a", roots)
    new = write_trust_pkcs12(tmp_path / "b", roots)
    converted = tmp_path / "c"
    keytool("-importkeystore", "-srckeystore", str(old), "-srcstorepass", PASSWORD, "-destkeystore", str(converted),
            "-deststoretype", "PKCS12", "-deststorepass", PASSWORD)  # fmt: skip
    for path in (old, new, converted):
        assert set(load_truststore("JKS", path.read_bytes(), PASSWORD).certificates) == both
        with pytest.raises(StoreError, match="its password is another one"):
            load_truststore("JKS", path.read_bytes(), "a wrong one")
    assert set(load_truststore("JKS", old.read_bytes(), None).certificates) == both


def test_a_pkcs12_truststore_without_any_password(tmp_path: Path) -> None:
    path, certificate = tmp_path / "open", tmp_path / "ca"
    certificate.write_bytes(root_der())
    keytool("-importcert", "-noprompt", "-alias", "ca", "-file", str(certificate), "-keystore", str(path),
            "-storetype", "PKCS12", "-storepass", PASSWORD, "-J-Dkeystore.pkcs12.certProtectionAlgorithm=NONE",
            "-J-Dkeystore.pkcs12.macAlgorithm=NONE")  # fmt: skip
    assert load_truststore("JKS", path.read_bytes(), None).certificates == (root_der(),)


def test_hostile_subjects_and_aliases(tmp_path: Path) -> None:
    for number, what in enumerate(("newline", "null", "every keyword")):
        one = authority().issue(HOSTILE[what])
        path = one.write_jks(tmp_path / f"{number}.jks", alias="Älias, =\n日本 " + what)
        assert load_keystore("JKS", path.read_bytes(), PASSWORD, None).chain == chain_of(one)


@pytest.mark.filterwarnings("ignore:Parsed a serial number")
def test_the_list_of_authorities_that_comes_with_java() -> None:
    java = shutil.which("java")
    assert java is not None
    path = Path(java).resolve().parents[1] / "lib" / "security" / "cacerts"
    listed = keytool("-list", "-keystore", str(path), "-storepass", "changeit").count("trustedCertEntry")
    assert len(load_truststore("JKS", path.read_bytes(), "changeit").certificates) == listed > 50


def test_the_chain_of_a_store_is_the_one_that_was_put_in(tmp_path: Path) -> None:
    path = server().write_pkcs12(tmp_path / "a.p12")
    copy = tmp_path / "b.p12"
    keytool("-importkeystore", "-srckeystore", str(path), "-srcstorepass", PASSWORD, "-destkeystore", str(copy),
            "-deststorepass", PASSWORD)  # fmt: skip
    assert load_keystore("JKS", copy.read_bytes(), PASSWORD, None).chain == chain_of(server())
