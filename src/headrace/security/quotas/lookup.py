"""Which quota a client has, of those for users, client ids, both and their defaults, and whose bucket it uses.

The nearest one counts, alone: user and client id, user and any client id, user, any user and client id, any user and
any client id, any user, client id, any client id. A quota of a user is shared by all clients of that user, a default is
one bucket for each entity that it applies to, and one of a client id alone is shared by all users. Source: KIP-55,
KIP-257.
"""

from __future__ import annotations

import hashlib
from math import isfinite
from typing import Final, NamedTuple

from headrace.metadata.client_quotas import (
    CLIENT_ID,
    CLIENT_KEYS,
    CONNECTION,
    IP,
    USER,
    QuotaRecords,
    address_of,
    names_of,
)

CLIENT_ID_MAX: Final = 255
"""The name of a bucket has the digest of a longer client id: clients may send any id, up to 32 KB long."""


class BucketName(NamedTuple):
    """Whose use is counted together: of one user, of one client id, or of both (None: of any)."""

    key: str
    user: str | None
    client_id: str | None


class Limit(NamedTuple):
    """A quota that applies, and the bucket that it limits."""

    bucket: BucketName
    bound: float


class _OfKey:
    """The quotas of one key; None is the default entity."""

    def __init__(self) -> None:
        self.both: dict[tuple[str | None, str | None], float] = {}
        self.users: dict[str | None, float] = {}
        self.clients: dict[str | None, float] = {}

    def find(self, key: str, user: str, client_id: str) -> Limit | None:
        """The one that counts."""
        shown = client_id if len(client_id) <= CLIENT_ID_MAX else _digest(client_id)
        both, alone = BucketName(key, user, shown), BucketName(key, user, None)
        steps: list[tuple[float | None, BucketName]] = [
            (self.both.get((user, client_id)), both),
            (self.both.get((user, None)), both),
            (self.users.get(user), alone),
            (self.both.get((None, client_id)), both),
            (self.both.get((None, None)), both),
            (self.users.get(None), alone),
            (self.clients.get(client_id), BucketName(key, None, shown)),
            (self.clients.get(None), BucketName(key, None, shown)),
        ]
        for bound, bucket in steps:
            if bound is not None:
                return Limit(bucket, bound)
        return None


def _digest(client_id: str) -> str:
    return hashlib.sha256(client_id.encode(errors="surrogatepass")).hexdigest()


class QuotaTable:
    """All quotas of an image, indexed for lookups."""

    def __init__(self, records: QuotaRecords) -> None:
        self._of_key: dict[str, _OfKey] = {}
        self._ips: dict[str | None, float] = {}
        for (entity, key), record in records.items():
            names, value = names_of(entity), record.value
            if not isfinite(value):
                continue  # as good as none
            if IP in names:
                if key == CONNECTION:
                    name = names[IP]
                    self._ips[name if name is None else address_of(name) or name] = value
            elif key in CLIENT_KEYS:
                self._add(self._of_key.setdefault(key, _OfKey()), names, value)

    def _add(self, quotas: _OfKey, names: dict[str, str | None], value: float) -> None:
        if USER in names and CLIENT_ID in names:
            quotas.both[names[USER], names[CLIENT_ID]] = value
        elif USER in names:
            quotas.users[names[USER]] = value
        elif CLIENT_ID in names:
            quotas.clients[names[CLIENT_ID]] = value

    @property
    def limits_clients(self) -> bool:
        """Whether there is any quota but those of addresses."""
        return bool(self._of_key)

    @property
    def limits_addresses(self) -> bool:
        """Whether there is a quota of addresses."""
        return bool(self._ips)

    def find(self, key: str, user: str, client_id: str) -> Limit | None:
        """The quota of a client for `key`, None where it has none. `user` is the name of the principal."""
        quotas = self._of_key.get(key)
        return None if quotas is None else quotas.find(key, user, client_id)

    def connection_rate(self, host: str) -> float | None:
        """How many connections a second an address may make; None: as many as it likes."""
        rate = self._ips.get(address_of(host) or host)
        return self._ips.get(None) if rate is None else rate
