"""One SASL session that scripts drive.

The listener offers PLAIN (user `ann`, password `pencil`; bob's is `pen`) and SCRAM-SHA-256 for the same two. A
credential ends where `expires` says so. Time stands still but for `time`.
"""

from __future__ import annotations

import itertools

from scripts.transcript import Scripted, Words

from headrace.metadata.scram_credentials import SCRAM_SHA_256, ScramCredential, ScramMechanism, make_credential
from headrace.security.login import Identity, LoginStep, Proved, ServerLogin
from headrace.security.mechanisms import ScramServerMechanism
from headrace.security.plain import PLAIN, PlainServer, PlainUsers
from headrace.security.sasl import Moment, SaslAnswer, SaslSession
from headrace.security.scram import ScramClient, ScramUser
from headrace.security.scram_fakes import FakeCredentials
from headrace.wire.apis import ApiKey

PASSWORDS = {"ann": "pencil", "bob": "pen"}
_CREDENTIALS = {name: make_credential(SCRAM_SHA_256, word, b"salt", 4096) for name, word in PASSWORDS.items()}


class Passwords:
    """Everybody who has a password."""

    def find(self, mechanism: ScramMechanism, name: str, *, is_token: bool) -> ScramUser | None:
        known = _CREDENTIALS.get(name)
        return None if known is None or is_token else ScramUser(known, Identity(f"User:{name}"))

    def fake(self, mechanism: ScramMechanism, name: str, *, is_token: bool) -> ScramCredential:
        return FakeCredentials(b"secret", {}).of(mechanism, name)


class EndingPlain:
    """PLAIN whose credentials end."""

    name = PLAIN

    def __init__(self) -> None:
        self.max_reauth_ms = 0
        self.expires_ms: int | None = None

    claimed = ""

    def begin(self) -> ServerLogin:
        return self

    def respond(self, token: bytes) -> LoginStep:
        step = PlainServer(PlainUsers({f"user_{name}": word for name, word in PASSWORDS.items()})).respond(token)
        assert isinstance(step, Proved)
        return Proved(step.token, step.identity._replace(expires_ms=self.expires_ms))


class Session(Scripted):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        count = itertools.count(1)
        self.random = lambda size: (next(count) << 64).to_bytes(size, "big")
        self.plain = EndingPlain()
        scram = ScramServerMechanism(SCRAM_SHA_256, Passwords(), self.random)
        self.session = SaslSession({"PLAIN": self.plain, "SCRAM-SHA-256": scram})

    @property
    def now(self) -> Moment:
        return Moment(self.now_ms / 1000, self.now_ms)

    def do_time(self, words: Words) -> None:
        self.now_ms = int(words.plain[0])

    def do_max_reauth(self, words: Words) -> None:
        self.plain.max_reauth_ms = int(words.plain[0])

    def do_expires(self, words: Words) -> None:
        self.plain.expires_ms = int(words.plain[0])

    def do_ask(self, words: Words) -> None:
        """Another request than those of SASL."""
        key = ApiKey[words.plain[0]]
        refused = self.session.refusal(key, self.now)
        if refused:
            self.say(f"closed: {refused}")
            return
        if key == ApiKey.API_VERSIONS:
            self.session.listed()
        self.say("served")

    def do_handshake(self, words: Words) -> None:
        refused = self.session.refusal(ApiKey.SASL_HANDSHAKE, self.now)
        if refused:
            self.say(f"closed: {refused}")
            return
        answer = self.session.handshake(words.plain[0], int(words.named.get("version", "1")), self.now)
        self._show(answer)

    def do_plain(self, words: Words) -> None:
        """A token of PLAIN: name and password."""
        name, password = words.plain
        self._authenticate(f"\0{name}\0{password}".encode())

    def do_scram(self, words: Words) -> None:
        """Both messages of SCRAM: name and password."""
        name, password = words.plain
        client = ScramClient(SCRAM_SHA_256, name, password, self.random)
        answer = self._authenticate(client.first())
        if answer is not None and not answer.ends:
            self._authenticate(client.respond(answer.token))

    def do_token(self, words: Words) -> None:
        self._authenticate(words.plain[0].encode())

    def _authenticate(self, token: bytes) -> SaslAnswer | None:
        refused = "" if "raw" in self.session.phase.value else self.session.refusal(ApiKey.SASL_AUTHENTICATE, self.now)
        if refused:
            self.say(f"closed: {refused}")
            return None
        answer = self.session.authenticate(token, self.now)
        self._show(answer)
        return answer

    def _show(self, answer: SaslAnswer) -> None:
        parts = [answer.error.name]
        if answer.mechanisms:
            parts.append(f"of {','.join(answer.mechanisms)}")
        if answer.text:
            parts.append(f'"{answer.text}"')
        if answer.token:
            parts.append(answer.token.decode())
        if answer.lifetime_ms:
            parts.append(f"for {answer.lifetime_ms} ms")
        if answer.ends:
            parts.append("and closed")
            if self.session.claimed:
                parts.append(f"of one who claimed to be {self.session.claimed}")
        identity = self.session.identity
        who = "nobody" if identity is None else identity.principal
        self.say(f"{' '.join(parts)} ({who}, {self.session.phase.value})")
