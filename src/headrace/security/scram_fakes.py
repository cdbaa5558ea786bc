"""What a SCRAM user looks like whom nobody made: a salt and an iteration count, as real users have them.

A server names salt and iterations before a client has proved anything. For a name that nobody has, it names made-up
ones, so that nobody learns who exists. They must reveal nothing when a name is tried twice: they are a function of the
name and of a secret that all nodes of a cluster have in common, the same on each of them, and after a restart. No
user's credential is part of the secret: the values that an unauthenticated client receives would allow an offline
attack on the password.

Iterations, and the form of the salt, are drawn from what the real users of the mechanism have, in proportion; the draw
is fixed for a name, and another user changes it for as few names as can be (weighted rendezvous hashing).
"""

from __future__ import annotations

import hashlib
import hmac
import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from headrace.metadata.scram_credentials import ITERATIONS_MIN, ScramCredential, ScramMechanism, nonce_text

FORMS_MAX: Final = 16
"""So many forms are drawn from, the most usual ones: each costs a hash in every login."""
SALT_BYTES_MAX: Final = 1024
"""The longest salt that is made up."""
_TEXT_SALT: Final = 0
_TEXT_BYTES: Final = range(22, 27)
"""How long salts are that Kafka's tools draw: 130 bits in base 36."""
_TEXT: Final = frozenset(b"0123456789abcdefghijklmnopqrstuvwxyz")
_DRAWN_BYTES: Final = 17


class Form(NamedTuple):
    """How a user's credential looks from outside; `salt_bytes` is 0 for a salt as Kafka's tools draw it."""

    iterations: int
    salt_bytes: int


DEFAULT_FORM: Final = Form(ITERATIONS_MIN, _TEXT_SALT)
"""What `kafka-configs` gives; where a mechanism has no users, its unknown ones look like this."""
TOKEN_FORM: Final = Form(ITERATIONS_MIN, 32)
"""What delegation tokens have."""


def form_of(salt: bytes, iterations: int) -> Form:
    """The form of a real user's credential."""
    is_text = len(salt) in _TEXT_BYTES and _TEXT.issuperset(salt)
    return Form(iterations, _TEXT_SALT if is_text else min(len(salt), SALT_BYTES_MAX))


class FakeCredentials:
    """Of a cluster, as its users are."""

    __slots__ = ("_counts", "_forms", "_secret", "_users")

    def __init__(self, secret: bytes, users: Mapping[tuple[str, int], Any]) -> None:
        """See `follow`."""
        self._users: Mapping[tuple[str, int], Any] = {}
        self._counts: defaultdict[int, Counter[Form]] = defaultdict(Counter)
        self._forms: dict[int, list[tuple[Form, int]]] = {}
        self.follow(secret, users)

    def follow(self, secret: bytes, users: Mapping[tuple[str, int], Any]) -> None:
        """`secret` is the cluster's, random, 16 bytes or more; `users` the UserScramCredentialRecords by name and code
        of the mechanism, which must not be altered afterwards.

        A record that is the same object as before is not looked at again: a login waits for this, and there may be ten
        thousand users of whom one has changed.
        """
        self._secret = secret
        before, self._users = self._users, users
        if before is users:
            return
        for key, record in users.items():
            was = before.get(key)
            if was is not record:
                self._count(key[1], was, -1)
                self._count(key[1], record, 1)
        for key in before.keys() - users.keys():
            self._count(key[1], before[key], -1)
        self._forms = {
            code: sorted(forms.items(), key=lambda each: (-each[1], each[0]))[:FORMS_MAX]
            for code, forms in self._counts.items()
        }

    def _count(self, code: int, record: Any, more: int) -> None:
        # Who has fewer is nobody to a server.
        if record is None or record.iterations < ITERATIONS_MIN:
            return
        forms, form = self._counts[code], form_of(record.salt, record.iterations)
        forms[form] += more
        if not forms[form]:
            del forms[form]

    def of(self, mechanism: ScramMechanism, name: str) -> ScramCredential:
        """Returns a fake credential for a user of that name; nobody can log in with it."""
        seed = self._seed("user", mechanism, name)
        return _credential(mechanism, seed, self._form(mechanism, seed))

    def of_token(self, mechanism: ScramMechanism, token_id: str) -> ScramCredential:
        """The same of a delegation token. One that exists has this salt too."""
        return _credential(mechanism, self._seed("token", mechanism, token_id), TOKEN_FORM)

    def _seed(self, kind: str, mechanism: ScramMechanism, name: str) -> bytes:
        return hmac.digest(self._secret, f"{kind}/{mechanism.name}/{name}".encode(), "sha512")

    def _form(self, mechanism: ScramMechanism, seed: bytes) -> Form:
        forms = self._forms.get(mechanism.code)
        if not forms:
            return DEFAULT_FORM
        # As if each user of a form waited for a random time, fixed for name and form: the first to come is drawn.
        return min(forms, key=lambda each: _wait(seed, each[0]) / each[1])[0]


def _wait(seed: bytes, form: Form) -> float:
    drawn = hmac.digest(seed, f"{form.iterations}/{form.salt_bytes}".encode(), "sha256")
    return -math.log((int.from_bytes(drawn[:6], "big") + 0.5) / (1 << 48))


def _credential(mechanism: ScramMechanism, seed: bytes, form: Form) -> ScramCredential:
    size = hashlib.new(mechanism.hash_name).digest_size
    drawn = hashlib.shake_256(seed).digest(2 * size + (form.salt_bytes or _DRAWN_BYTES))
    keys, salt = drawn[: 2 * size], drawn[2 * size :]
    salt = salt if form.salt_bytes else nonce_text(salt).encode()
    return ScramCredential(salt, keys[:size], keys[size:], form.iterations)
