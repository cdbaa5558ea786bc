"""What OpenSSL's security level takes and refuses of a chain, and what is said of that."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import pytest

from headrace.env.posix_tls import (
    TlsMaterial,
    TlsMaterialError,
    TlsRules,
    client_context,
    handshake_failure,
    server_context,
)


@pytest.mark.parametrize("between", [False, True])
def test_what_is_signed_with_sha_1(tmp_path: Path, *, between: bool) -> None:
    """A root may be: its signature by itself proves nothing, and whoever trusts it trusts its key. What it has signed
    may not, whether that is the server's certificate or one between the two, and a line says what to do."""
    root = signed(tmp_path, "root", None, "sha1")
    middle = signed(tmp_path, "middle", root, "sha256")
    good = signed(tmp_path, "good", middle, "sha256")
    trusted = (certificate(root),)
    accepted = TlsMaterial(key_of(good), tuple(map(certificate, (good, middle, root))), trusted)
    accepting = server_context(accepted, TlsRules(), "required")
    assert handshake_failure(accepting, client_context(accepted, TlsRules(), checks_name=False)) == ""

    weak = signed(tmp_path, "weak", root, "sha1")
    own = signed(tmp_path, "own", weak, "sha256") if between else weak
    chain = (own, weak, root) if between else (own, root)
    with pytest.raises(TlsMaterialError) as refused:
        server_context(TlsMaterial(key_of(own), tuple(map(certificate, chain)), trusted), TlsRules(), "none")
    assert "signed with SHA-1 or MD5" in str(refused.value)
    assert "sign it with SHA-256" in str(refused.value)
    assert "\n" not in str(refused.value)


def signed(folder: Path, name: str, signer: Path | None, digest: str) -> Path:
    """A certificate beside its key, made by OpenSSL's own command: `cryptography` signs nothing with SHA-1 any more."""
    key, made, request = (folder / f"{name}.{kind}" for kind in ("key", "pem", "csr"))
    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", str(key)]
    common = ["openssl", "req", *new_key, "-subj", f"/CN={name}"]
    authority = folder / "authority.ext"
    authority.write_text("basicConstraints=critical,CA:TRUE\n")
    if signer is None:
        commands = [[*common, "-x509", "-days", "2", f"-{digest}", "-out", str(made)]]
    else:
        by = ["-CA", str(signer), "-CAkey", str(signer.with_suffix(".key")), "-set_serial", "7"]
        out = ["-days", "2", f"-{digest}", "-extfile", str(authority), "-out", str(made)]
        commands = [[*common, "-out", str(request)], ["openssl", "x509", "-req", "-in", str(request), *by, *out]]
    for command in commands:
        subprocess.run(command, check=True, capture_output=True)
    return made


def certificate(path: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert(path.read_text())


def key_of(path: Path) -> bytes:
    return path.with_suffix(".key").read_bytes()
