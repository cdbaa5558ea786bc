"""Kerberos as this machine has it: GSS-API through the `gssapi` package and MIT's library under it.

The library reads KRB5_CONFIG or /etc/krb5.conf, keytabs, caches of tickets and its record of tickets seen; beginning a
client's context contacts name servers and a KDC. So everything that may block is called on a worker: `Acceptor`,
`begin` of an `Initiator`, and `step` of a context. To wrap and unwrap is arithmetic.
"""

from __future__ import annotations

import hashlib
import threading
from functools import lru_cache
from typing import Final

import gssapi
from gssapi.exceptions import GSSError

KRB5_ERROR_BASE: Final = -1765328384
"""Where the library's numbers of Kerberos' own errors begin."""
KRB5_ERROR_MAX: Final = 127
CACHES_MAX: Final = 64
"""Principals of keytabs whose tickets a process keeps."""
_ROUTINE: Final = 0xFF0000
_UNNAMED_FAILURE: Final = 13 << 16
"""GSS_S_FAILURE, among the errors of a call that fails."""
_FLAGS: Final = (
    gssapi.RequirementFlag.mutual_authentication,
    gssapi.RequirementFlag.integrity,
    gssapi.RequirementFlag.replay_detection,
    gssapi.RequirementFlag.out_of_sequence_detection,
)
"""What a client asks for: the server's proof, and messages that can be checked. It hands no tickets on."""


class KerberosError(Exception):
    """What the library refused: one line without keys. `code` is the error's number in RFC 4120, or -1."""

    def __init__(self, why: str, code: int = -1) -> None:
        super().__init__(" ".join(why.split()))
        self.code = code


def _kerberos_error(error: GSSError) -> KerberosError:
    """To be called on the thread that met it: the library keeps the words of each thread's last error."""
    # Where GSS-API itself has no name for a failure, Kerberos' number has; elsewhere it may mean nothing.
    is_unnamed = error.maj_code & _ROUTINE == _UNNAMED_FAILURE
    statuses = (
        error.get_all_statuses(error.min_code, False) if is_unnamed else error.get_all_statuses(error.maj_code, True)
    )
    number = _signed(error.min_code) - KRB5_ERROR_BASE
    return KerberosError("; ".join(statuses), number if 0 <= number <= KRB5_ERROR_MAX else -1)


def _signed(number: int) -> int:
    number &= 0xFFFFFFFF
    return number - (1 << 32) if number >= 1 << 31 else number


class Context:
    """One side of one context; of one thread at a time. Everything raises KerberosError."""

    def __init__(self, context: gssapi.SecurityContext, lock: threading.Lock | None = None) -> None:
        """`lock`: held while the library may look into a cache of tickets that others use too."""
        context.__DEFER_STEP_ERRORS__ = False  # an error shows at once, not at the next call
        self._context = context
        self._lock = lock

    @property
    def is_complete(self) -> bool:
        """Whether it is open."""
        return bool(self._context.complete)

    @property
    def is_mutual(self) -> bool:
        """Whether the acceptor has proved who it is."""
        return gssapi.RequirementFlag.mutual_authentication in self._context.actual_flags

    @property
    def initiator(self) -> str:
        """The principal that opened it."""
        try:
            return str(self._context.initiator_name)
        except GSSError as error:
            raise _kerberos_error(error) from None
        except UnicodeDecodeError:
            raise KerberosError("the principal of the ticket has a name that is not UTF-8") from None

    def step(self, token: bytes) -> bytes:
        """Takes a token, empty at first, and returns the next one, empty where there is none. It may wait."""
        try:
            if self._lock is None:
                return self._context.step(token) or b""
            with self._lock:
                return self._context.step(token or None) or b""
        except GSSError as error:
            raise _kerberos_error(error) from None

    def wrap(self, message: bytes) -> bytes:
        """As the other side can check it; not encrypted."""
        try:
            return bytes(self._context.wrap(message, False).message)
        except GSSError as error:
            raise _kerberos_error(error) from None

    def unwrap(self, message: bytes) -> bytes:
        """Unwraps a message of the other side."""
        try:
            return bytes(self._context.unwrap(message).message)
        except GSSError as error:
            raise _kerberos_error(error) from None


class Acceptor:
    """A service with the keys of a keytab; a keytab that is replaced counts from the next context on."""

    def __init__(self, principal: str, keytab: str) -> None:
        """Raises KerberosError where the keytab cannot be read, or has no key of the principal."""
        try:
            name = gssapi.Name(principal, gssapi.NameType.kerberos_principal)
            self._credentials = gssapi.Credentials(
                name=name, usage="accept", mechs=[gssapi.MechType.kerberos], store={"keytab": f"FILE:{keytab}"}
            )
        except GSSError as error:
            raise _kerberos_error(error) from None

    def begin(self) -> Context:
        """The service's side of a new context."""
        return Context(gssapi.SecurityContext(creds=self._credentials, usage="accept"))


class Initiator:
    """A client with a keytab, or with the tickets of a cache that somebody else fills (kinit).

    The tickets of a keytab are kept in memory, for the process. The library fetches new ones at half of their life,
    when a context begins.
    """

    def __init__(self, principal: str, keytab: str, ticket_cache: str) -> None:
        """See `security.kerberos_options.KerberosOptions`. Nothing is looked at yet."""
        self._principal = principal
        self._keytab = keytab
        self._store: dict[str, str] = {}
        if keytab:
            place = hashlib.sha256(f"{principal}\0{keytab}".encode()).hexdigest()[:32]
            self._store = {"client_keytab": f"FILE:{keytab}", "ccache": f"MEMORY:headrace-{place}"}
        elif ticket_cache:
            self._store = {"ccache": ticket_cache}
        self._lock = _lock_of(self._store.get("ccache", ""))

    def begin(self, service: str, host: str) -> Context:
        """The client's side of a context with a service of a host. It may wait for a KDC. Raises KerberosError."""
        if self._keytab:
            _check_readable(self._keytab)
        try:
            principal = self._principal
            name = gssapi.Name(principal, gssapi.NameType.kerberos_principal) if principal else None
            with self._lock:
                credentials = gssapi.Credentials(
                    name=name, usage="initiate", mechs=[gssapi.MechType.kerberos], store=self._store or None
                )
            peer = gssapi.Name(f"{service}@{host}", gssapi.NameType.hostbased_service)
            context = gssapi.SecurityContext(
                name=peer, creds=credentials, mech=gssapi.MechType.kerberos, flags=_FLAGS, usage="initiate"
            )
        except GSSError as error:
            raise _kerberos_error(error) from None
        return Context(context, self._lock)


def _check_readable(keytab: str) -> None:
    """The library says of a keytab that is not there that there is no cache. Raises KerberosError."""
    try:
        with open(keytab, "rb"):
            pass
    except OSError as error:
        raise KerberosError(f"the keytab {keytab} cannot be read: {error.strerror or error}") from None


@lru_cache(maxsize=CACHES_MAX)
def _lock_of(_cache: str) -> threading.Lock:
    """One for each cache: the library empties it before it refills it."""
    return threading.Lock()


def default_realm() -> str:
    """The realm that this machine's configuration names; empty where it names none."""
    try:
        name = gssapi.Name("x", gssapi.NameType.kerberos_principal).canonicalize(gssapi.MechType.kerberos)
        return str(name).partition("@")[2]
    except GSSError:
        return ""
