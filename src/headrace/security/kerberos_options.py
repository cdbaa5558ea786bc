"""The options of Krb5LoginModule in a JAAS line, and the name of the service: as whom a server or a client appears.

    com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab="/x.keytab" principal="kafka/h@R";
    com.sun.security.auth.module.Krb5LoginModule required useTicketCache=true;

Source: Java's Krb5LoginModule; Kafka's `sasl.kerberos.service.name` (KIP-12).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .jaas import LoginModule

KEYTAB_PREFIX: Final = "FILE:"
SERVICE_OPTION: Final = "serviceName"


class KerberosOptionsError(ValueError):
    """Options that nobody can log in by: one sentence."""


@dataclass(frozen=True, slots=True)
class KerberosOptions:
    """Where the keys or tickets of a principal are.

    Exactly one of the first two counts: the path of a keytab, or, where that is empty, a cache of tickets by its name,
    empty for the usual one of this user. `principal` may be empty with a cache: it is the cache's principal.
    """

    keytab: str
    ticket_cache: str
    principal: str


def kerberos_options(module: LoginModule, *, accepts: bool) -> KerberosOptions:
    """`accepts`: they are a server's, which needs a keytab. Raises KerberosOptionsError."""
    options = module.options
    principal = options.get("principal", "").strip()
    if _is_true(options, "useKeyTab"):
        keytab = options.get("keyTab", "").strip().removeprefix(KEYTAB_PREFIX)
        if not keytab or not principal or principal == "*":
            raise KerberosOptionsError('useKeyTab=true needs keyTab="/path" and principal="name@REALM"')
        return KerberosOptions(keytab, "", principal)
    if accepts:
        raise KerberosOptionsError('a listener needs useKeyTab=true keyTab="/path" principal="name/host@REALM"')
    if not _is_true(options, "useTicketCache"):
        raise KerberosOptionsError(
            'it needs useKeyTab=true keyTab="/path" principal="name@REALM", or useTicketCache=true'
        )
    return KerberosOptions("", options.get("ticketCache", "").strip(), principal)


def service_name(module: LoginModule, setting: str | None) -> str:
    """The service whose tickets are asked for, by `sasl.kerberos.service.name` or the JAAS line. Raises
    KerberosOptionsError where neither says it, or they differ."""
    option = module.options.get(SERVICE_OPTION, "").strip()
    given = (setting or "").strip()
    if option and given and option != given:
        raise KerberosOptionsError(f"{SERVICE_OPTION} in the JAAS line and sasl.kerberos.service.name differ")
    name = option or given
    if not name or any(mark in name for mark in "/@\\ "):
        raise KerberosOptionsError("sasl.kerberos.service.name must be the first part of the service's name, as kafka")
    return name


def _is_true(options: dict[str, str], name: str) -> bool:
    return options.get(name, "").strip().lower() == "true"
