"""The certificates of the tests are what they say: a TLS library takes the good ones and refuses the others."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from peers.certificates import (
    EXPIRED,
    HOSTILE,
    NOT_YET,
    PASSWORD,
    Authority,
    Identity,
    keytool,
    trust_pem,
    write_trust_jks,
    write_trust_pkcs12,
)


def shake_hands(folder: Path, server: Identity, client: Identity, trusted: list[Authority], host: str) -> None:
    """A handshake in memory, both sides with a certificate. Raises ssl.SSLError where one side refuses."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = []
    for own, name in ((server, "server"), (client, "client")):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if own is server else ssl.PROTOCOL_TLS_CLIENT)
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=trust_pem(trusted))
        context.load_cert_chain(own.write_pem(folder / f"{name}.pem", PASSWORD), password=PASSWORD)
        if own is server:
            sides.append(context.wrap_bio(to_server, to_client, server_side=True))
        else:
            sides.append(context.wrap_bio(to_client, to_server, server_hostname=host))
    waiting = [sides[1], sides[0]]
    for _ in range(10):
        for side in tuple(waiting):
            try:
                side.do_handshake()
                waiting.remove(side)
            except ssl.SSLWantReadError:
                pass
    assert not waiting


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1"])
@pytest.mark.parametrize("kind", ["ec", "rsa"])
def test_a_server_and_a_client_of_one_authority_shake_hands(tmp_path: Path, kind: str, host: str) -> None:
    authority = Authority.new(kind="rsa" if kind == "rsa" else "ec")
    server = authority.server(kind="rsa" if kind == "rsa" else "ec")
    shake_hands(tmp_path, server, authority.client("ann"), [authority], host)
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake_hands(tmp_path, server, authority.client("ann"), [authority], "example.org")


def test_a_chain_over_two_authorities_holds_both(tmp_path: Path) -> None:
    root = Authority.new()
    below = root.intermediate("one").intermediate("two")
    server = below.server()
    assert [each.subject.rfc4514_string() for each in server.chain] == ["CN=localhost", "CN=two", "CN=one"]
    shake_hands(tmp_path, server, below.client("ann"), [root], "localhost")


def test_expired_future_and_foreign_certificates_are_refused(tmp_path: Path) -> None:
    root = Authority.new()
    client = root.client("ann")
    for server in (root.server(valid=EXPIRED), root.server(valid=NOT_YET), Authority.new().server()):
        with pytest.raises(ssl.SSLCertVerificationError):
            shake_hands(tmp_path, server, client, [root], "localhost")
    expired_between = root.intermediate("old", valid=EXPIRED).server()
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        shake_hands(tmp_path, expired_between, client, [root], "localhost")


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_subject_is_in_a_certificate_as_it_was_given(tmp_path: Path, what: str) -> None:
    root = Authority.new()
    client = root.issue(HOSTILE[what])
    assert client.certificate.subject == HOSTILE[what]
    shake_hands(tmp_path, root.server(), client, [root], "localhost")


@pytest.mark.jvm
def test_java_reads_every_kind_of_store(tmp_path: Path) -> None:
    root = Authority.new()
    server = root.intermediate("below").server()
    written = {
        server.write_pkcs12(tmp_path / "own.p12"): "PrivateKeyEntry",
        server.write_jks(tmp_path / "own.jks", key_password="another-one"): "PrivateKeyEntry",
        write_trust_pkcs12(tmp_path / "ca.p12", [root, Authority.new()]): "trustedCertEntry",
        write_trust_jks(tmp_path / "ca.jks", [root, Authority.new()]): "trustedCertEntry",
    }
    (tmp_path / "old.p12").write_bytes(server.pkcs12_old())
    written[tmp_path / "old.p12"] = "PrivateKeyEntry"
    for path, kind in written.items():
        said = keytool("-list", "-keystore", str(path), "-storepass", PASSWORD)
        assert said.count(kind) == (2 if kind == "trustedCertEntry" else 1), said
    assert (tmp_path / "own.jks").read_bytes()[:4] == b"\xfe\xed\xfe\xed"
