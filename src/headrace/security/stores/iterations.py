"""How much work a file may ask for before its password is tried: the rounds of key derivation that it names.

A file of a hundred bytes can name four thousand million rounds, and opening it would hang. Every password-based
scheme in use (PKCS#12's own, PBES1, PBES2 with PBKDF2) writes its salt, an OCTET STRING, and next to it the number of
rounds.
"""

from __future__ import annotations

from typing import Final

from headrace.security import der
from headrace.security.der import DerError

from .entries import ITERATIONS_MAX, StoreError

_DEPTH_MAX: Final = 24
_CONSTRUCTED: Final = 0x20
_INDEFINITE: Final = 0x80


def check_iterations(data: bytes) -> None:
    """Raises StoreError where a scheme anywhere in `data`, also in octet strings within, asks for too many rounds."""
    _scan(data, 0, len(data), 0)


def _scan(data: bytes, at: int, end: int, depth: int) -> int:
    """Walk elements from `at` to `end`, as far as they can be read: what cannot be is refused by who reads it."""
    if depth > _DEPTH_MAX:
        raise StoreError("the store is nested too deep: export it again")
    after_salt = False
    while at < end:
        indefinite = at + 2 <= end and data[at] & _CONSTRUCTED and data[at + 1] == _INDEFINITE
        if indefinite:
            at += 2  # its end is marked by an empty element, which is passed over like any other
            continue
        try:
            each = der.element(data, at, end)
        except DerError:
            return at
        if after_salt and each.tag == der.INTEGER and int.from_bytes(der.content(data, each), "big") > ITERATIONS_MAX:
            raise StoreError(f"the store asks for more than {ITERATIONS_MAX} rounds of key derivation: export it again")
        after_salt = each.tag == der.OCTET_STRING
        if each.tag & _CONSTRUCTED or (after_salt and data[each.body : each.body + 1] == b"\x30"):
            _scan(data, each.body, each.end, depth + 1)
        at = each.end
    return at
