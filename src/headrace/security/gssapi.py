"""GSSAPI (Kerberos): both sides of a login, over contexts that somebody else makes and that talk to the library.

A client shows a ticket for the service, the server proves that it has the service's key, and then both agree that no
layer of protection follows: the server offers layers in a wrapped message of four bytes, the client chooses in another.
As in Kafka, "no layer" is the only one offered, and an authorization id after the client's choice is ignored, for
Python clients write the server's name there. The client is the principal of its ticket, as the rules of
`kerberos_names` map that. Source: RFC 4752, RFC 2743 (3.1: what a first token begins with), RFC 4121, KIP-12, KIP-190.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Final, Protocol

from headrace.security.kerberos_names import KerberosRules
from headrace.security.login import (
    Challenge,
    Errand,
    Identity,
    LoginFailedError,
    LoginStep,
    Proved,
    ServerLogin,
)

GSSAPI: Final = "GSSAPI"
TOKEN_BYTES_MAX: Final = 65_536
"""A longer token of a client is refused unread; tickets of large directories take some 48,000 bytes."""
CONTEXT_TOKENS_MAX: Final = 4
"""With how many tokens a client has to open its context; Kerberos takes one, or two."""
NO_LAYER: Final = 1
"""The bit, and the only one here, that says: after the login bytes go as they are."""
OFFER: Final = bytes((NO_LAYER, 0, 0, 0))
"""Layers in one byte, and in three the largest message that would be wrapped."""
ANONYMOUS: Final = "WELLKNOWN/ANONYMOUS@"
"""What the names of those begin with who have shown a KDC nothing."""
_APPLICATION: Final = 0x60
_KERBEROS: Final = bytes.fromhex("06092a864886f712010202")
"""The name of Kerberos 5 among the mechanisms of GSS-API, in DER."""
_LONG: Final = 0x80
_LENGTH_BYTES_MAX: Final = 3


class Context(Protocol):
    """A GSS-API context of either side. What it raises is LoginFailedError, one line without keys."""

    @property
    def is_complete(self) -> bool:
        """Whether it is open: messages can be wrapped."""
        ...

    @property
    def is_mutual(self) -> bool:
        """Whether the server has proved who it is; of a context that is complete."""
        ...

    @property
    def initiator(self) -> str:
        """The client, as its ticket names it: `ann@REALM`; of a context that is complete."""
        ...

    def step(self, token: bytes) -> bytes:
        """Takes a token of the other side, empty at first; returns the next one for it, empty where there is none.
        It may take a while."""
        ...

    def wrap(self, message: bytes) -> bytes:
        """A message as the other side can check it."""
        ...

    def unwrap(self, message: bytes) -> bytes:
        """Unwraps a message of the other side."""
        ...


# --- the server


def begins_context(token: bytes) -> bool:
    """Whether a token is framed as the first one of Kerberos: anything else needs no library to be refused."""
    if len(token) < 2 or token[0] != _APPLICATION:
        return False
    size, at = token[1], 2
    if size >= _LONG:
        count = size - _LONG
        at += count
        if not 1 <= count <= _LENGTH_BYTES_MAX:
            return False
        size = int.from_bytes(token[2:at], "big")
    return size == len(token) - at and token.startswith(_KERBEROS, at)


class _Stage(Enum):
    CONTEXT = "context"
    """The client opens its context."""
    OFFER = "offer"
    """It is open, and the client has the server's proof."""
    CHOICE = "choice"
    """The client has the offer of layers."""


class GssapiServer:
    """A server's side of one login. A ticket proves who it is before the client says a word."""

    claimed = ""

    def __init__(self, context: Context, rules: KerberosRules) -> None:
        self._context = context
        self._rules = rules
        self._stage = _Stage.CONTEXT
        self._tokens = 0

    def respond(self, token: bytes) -> LoginStep | Errand[LoginStep]:
        """See login.ServerLogin."""
        if len(token) > TOKEN_BYTES_MAX:
            raise LoginFailedError(f"a GSSAPI token of more than {TOKEN_BYTES_MAX} bytes")
        if self._stage is _Stage.CONTEXT:
            self._tokens += 1
            if self._tokens > CONTEXT_TOKENS_MAX:
                raise LoginFailedError(f"a GSSAPI context that is not open after {CONTEXT_TOKENS_MAX} tokens")
            if self._tokens == 1 and not begins_context(token):
                raise LoginFailedError("a first GSSAPI token that is none of Kerberos")
            return Errand(partial(self._step, token))
        if self._stage is _Stage.OFFER:
            if token:
                raise LoginFailedError("a client that answers the server's proof with more than nothing")
            return self._offer()
        return self._chosen(token)

    def _step(self, token: bytes) -> LoginStep:
        answer = self._context.step(token)
        if not self._context.is_complete:
            return Challenge(answer)
        self._stage = _Stage.OFFER
        return Challenge(answer) if answer else self._offer()

    def _offer(self) -> LoginStep:
        self._stage = _Stage.CHOICE
        return Challenge(self._context.wrap(OFFER))

    def _chosen(self, token: bytes) -> LoginStep:
        choice = self._context.unwrap(token)
        if len(choice) < len(OFFER):
            raise LoginFailedError("a choice of layers that is too short")
        if choice[0] != NO_LAYER:
            raise LoginFailedError("a client that wants a layer of protection, and none is offered")
        principal = self._context.initiator
        # A backslash escapes a separator within a name: no such name is taken apart here.
        name = None if "\\" in principal else self._rules.principal_name(principal)
        if name is None or not name or principal.startswith(ANONYMOUS):
            raise LoginFailedError(f"no rule of sasl.kerberos.principal.to.local.rules takes {principal!r}")
        return Proved(None, Identity(f"User:{name}"))


@dataclass(frozen=True, slots=True)
class GssapiMechanism:
    """See login.ServerMechanism. `contexts` makes the server's side of one context."""

    contexts: Callable[[], Context] = field(repr=False)
    rules: KerberosRules
    max_reauth_ms: int = 0
    name: str = GSSAPI

    def begin(self) -> ServerLogin:
        """See login.ServerMechanism."""
        return GssapiServer(self.contexts(), self.rules)


# --- the client


class GssapiClient:
    """A client's side of one login: `first`, then `respond` until it is done."""

    def __init__(self, context: Context) -> None:
        self.is_done = False
        self._context = context
        self._has_chosen = False

    def first(self) -> Errand[bytes]:
        """What the client says first."""
        return Errand(partial(self._context.step, b""))

    def respond(self, token: bytes) -> bytes | Errand[bytes]:
        """Returns the answer to the server's message. Raises LoginFailedError."""
        context = self._context
        if self._has_chosen:
            if token:
                raise LoginFailedError("the server has something to say after the choice of layers")
            self.is_done = True
            return b""
        if not context.is_complete:
            return Errand(partial(context.step, token))
        if not context.is_mutual:
            raise LoginFailedError("the server does not prove who it is")
        offer = context.unwrap(token)
        if len(offer) != len(OFFER) or not offer[0] & NO_LAYER:
            raise LoginFailedError("the server wants a layer of protection that this client does not have")
        self._has_chosen = True
        return context.wrap(OFFER)
