"""Realms of Kerberos: a KDC of MIT's each, on a free port, as an ordinary process with a folder of its own.

A program is in a realm by `Realm.environment`; nothing of the machine's is touched.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from .gssapi_package import program
from .kafka import free_port

PATIENCE_S: Final = 60
SKEW_S: Final = 2
"""How far clocks may be apart: a ticket is taken so long after its end."""
MODULE: Final = "com.sun.security.auth.module.Krb5LoginModule"

_CLIENTS: Final = """[libdefaults]
default_realm = {name}
dns_lookup_kdc = false
dns_lookup_realm = false
dns_canonicalize_hostname = false
rdns = false
clockskew = {skew}
udp_preference_limit = 1
rcache_name = dfl:
[realms]
{name} = {{
  kdc = 127.0.0.1:{port}
}}
"""
_KDC: Final = """[kdcdefaults]
kdc_listen = 127.0.0.1:{port}
kdc_tcp_listen = 127.0.0.1:{port}
[realms]
{name} = {{
  database_name = {folder}/principal
  key_stash_file = {folder}/stash
  acl_file = {folder}/acl
  max_life = 1h
  supported_enctypes = aes256-cts-hmac-sha1-96:normal aes128-cts-hmac-sha1-96:normal
}}
"""


class Realm:
    """One realm, whose KDC runs while it is entered."""

    def __init__(self, folder: Path, name: str = "HEADRACE.TEST") -> None:
        self.name = name
        self.folder = folder
        self.port = free_port()
        self.configuration = folder / "krb5.conf"
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self.configuration.write_text(_CLIENTS.format(name=name, port=self.port, skew=SKEW_S))
        (folder / "kdc.conf").write_text(_KDC.format(name=name, port=self.port, folder=folder))

    @property
    def environment(self) -> dict[str, str]:
        """What a program needs to be in this realm."""
        return {"KRB5_CONFIG": str(self.configuration), "KRB5CCNAME": f"FILE:{self.folder}/tickets"}

    def _run(self, name: str, *arguments: str) -> None:
        environment = {**os.environ, **self.environment, "KRB5_KDC_PROFILE": str(self.folder / "kdc.conf")}
        command = [program(name) or name, "-r", self.name, *arguments]
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, timeout=PATIENCE_S)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"

    def start(self) -> None:
        """Makes the database, once, and starts the KDC."""
        if not (self.folder / "stash").exists():
            self._run("kdb5_util", "create", "-s", "-W", "-P", "master")
        environment = {**os.environ, **self.environment, "KRB5_KDC_PROFILE": str(self.folder / "kdc.conf")}
        with (self.folder / "kdc.log").open("ab") as log:
            self._process = subprocess.Popen(
                [program("krb5kdc") or "krb5kdc", "-n", "-r", self.name, "-P", str(self.folder / "kdc.pid")],
                env=environment, stdout=log, stderr=log,
            )  # fmt: skip
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                assert time.monotonic() < deadline, (self.folder / "kdc.log").read_text()
                time.sleep(0.02)

    def stop(self) -> None:
        """Ends the KDC; nobody gets a ticket then."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(PATIENCE_S)
            self._process = None

    def keytab(self, principal: str, *options: str) -> Path:
        """Makes a principal with random keys (`-maxlife 2sec` is an option) and returns its keytab."""
        path = self.folder / f"{principal.replace('/', '_')}.keytab"
        self._run("kadmin.local", "-q", f"addprinc {' '.join(options)} -randkey {principal}")
        self._run("kadmin.local", "-q", f"ktadd -norandkey -k {path} {principal}")
        return path

    def jaas(self, principal: str, keytab: Path) -> str:
        """The line of whoever has a keytab; Java takes it too."""
        options = f'useKeyTab=true storeKey=true keyTab="{keytab}" principal="{principal}@{self.name}"'
        return f"{MODULE} required {options};"

    def client(self, principal: str, keytab: Path) -> dict[str, str]:
        """Properties of a client."""
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "sasl.jaas.config": self.jaas(principal, keytab),
        }


@contextmanager
def realm(folder: Path, name: str = "HEADRACE.TEST") -> Iterator[Realm]:
    """A running one."""
    made = Realm(folder, name)
    made.start()
    try:
        yield made
    finally:
        made.stop()
