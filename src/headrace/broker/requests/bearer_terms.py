"""Builds a listener's OAUTHBEARER mechanism from its settings: for signed tokens, or for unsecured ones if its JAAS
line asks for these.

Source: KIP-255 (unsecured tokens), KIP-768 (signed ones), KIP-1139; Apache Kafka 4.4 for audience and issuer.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from headrace.broker.requests.token_keys import Pace, TokenKeys
from headrace.broker.telemetry.pace import PacedLines
from headrace.client.security import tls_context
from headrace.config import ConfigError
from headrace.config.oauth import (
    ALLOWED_URLS,
    AUDIENCE,
    BACKOFF_MAX_MS,
    BACKOFF_MS,
    CLOCK_SKEW_S,
    ISSUER,
    JWKS_URL,
    REFRESH_MS,
    SCOPE_CLAIM,
    SUB_CLAIM,
    UNVERIFIED_AUDIENCE,
    UNVERIFIED_ISSUER,
    split_url,
)
from headrace.security.oauthbearer.keys import KEY_SET_BYTES_MAX, KeysError, check_packages
from headrace.security.oauthbearer.server import OAUTHBEARER, OAuthBearerMechanism
from headrace.security.oauthbearer.signed import SignedTokens
from headrace.security.oauthbearer.tokens import Accepted, Refused
from headrace.security.oauthbearer.unsecured import UnsecuredOptionsError, UnsecuredTokens, from_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.broker.net.logins import Source
    from headrace.broker.requests.services import NodeServices
    from headrace.config.listener import MechanismConfig
    from headrace.env import LogSink, Node
    from headrace.security.jaas import LoginModule

_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer"
SIGNED_HANDLERS: Final = (
    f"{_PACKAGE}.OAuthBearerValidatorCallbackHandler",
    f"{_PACKAGE}.secured.OAuthBearerValidatorCallbackHandler",
)
"""Kafka's class for signed tokens, and its older name."""
UNSECURED_HANDLER: Final = f"{_PACKAGE}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
"""Kafka's default, the class for unsecured tokens."""
HANDLER: Final = "sasl.server.callback.handler.class"
FETCH_TIMEOUT_S: Final = 5.0
"""Time limit for fetching the keys; a stopping node waits for the fetch to end."""


def bearer_mechanism(
    services: NodeServices,
    config: MechanismConfig,
    listener: str,
    module: LoginModule | None,
    before: Source | None = None,
) -> tuple[OAuthBearerMechanism, TokenKeys | None]:
    """Returns the mechanism, and the source of its keys. Until keys are fetched it uses those of `before`, the
    listener's earlier source. Raises ConfigError if the settings are invalid."""
    handler = config.sasl_server_callback_handler_class or UNSECURED_HANDLER
    if handler not in (*SIGNED_HANDLERS, UNSECURED_HANDLER):
        raise ConfigError(HANDLER, handler, f"this class is not known: {SIGNED_HANDLERS[0]} takes signed tokens")
    check: Callable[[str], Accepted | Refused]
    keys: TokenKeys | None = None
    log = services.node.logger("logins")
    refusals = _Refusals(services.node, log)
    if handler == UNSECURED_HANDLER:
        unsecured = _unsecured(config, listener, module, log)
        check = partial(_check_unsecured, unsecured, services.node, refusals, listener)
    else:
        signed = _signed(config)
        keys = _keys(services, config, module)
        if isinstance(before, TokenKeys):
            keys.keys = before.keys
        check = partial(_check_signed, signed, keys, services.node, refusals, listener)
    return OAuthBearerMechanism(check, config.connections_max_reauth_ms), keys


def _check_signed(
    tokens: SignedTokens, keys: TokenKeys, node: Node, refusals: _Refusals, listener: str, token: str
) -> Accepted | Refused:
    found = tokens.checked(token, keys.keys, node.clock.now_ms())
    if isinstance(found, Refused) and found.unknown_key is not None:
        keys.unknown(found.unknown_key)
    return refusals.say(found, listener)


def _check_unsecured(
    tokens: UnsecuredTokens, node: Node, refusals: _Refusals, listener: str, token: str
) -> Accepted | Refused:
    return refusals.say(tokens.checked(token, node.clock.now_ms()), listener)


class _Refusals:
    """Logs refused tokens at a limited rate, from any thread."""

    def __init__(self, node: Node, log: LogSink) -> None:
        self._lines = PacedLines(log, node.clock.monotonic)
        self._lock = node.lock()

    def say(self, found: Accepted | Refused, listener: str) -> Accepted | Refused:
        """Logs the reason of a refusal; returns `found`."""
        if isinstance(found, Refused):
            with self._lock:
                self._lines.warning(listener, "token refused", listener=listener, why=found.why)
        return found


def _unsecured(config: MechanismConfig, listener: str, module: LoginModule | None, log: LogSink) -> UnsecuredTokens:
    """Returns the check of unsecured tokens. Raises ConfigError if there is no JAAS line that asks for it."""
    if module is None:
        why = (
            f"{OAUTHBEARER} needs {HANDLER}={SIGNED_HANDLERS[0]} for signed tokens; a listener that takes tokens that "
            f"nobody has signed, for tests alone, needs {config.prefix}sasl.jaas.config"
        )
        raise ConfigError(HANDLER, "", why)
    try:
        tokens = from_options(module.options)
    except UnsecuredOptionsError as error:
        raise ConfigError(f"{config.prefix}sasl.jaas.config", "(hidden)", str(error)) from None
    log.warning(
        "this listener takes tokens that nobody has signed: whoever reaches it can be whoever they like",
        listener=listener,
        mechanism=OAUTHBEARER,
    )
    return tokens


def _signed(config: MechanismConfig) -> SignedTokens:
    """Returns the check of signed tokens. Kafka requires audience and issuer since 4.4."""
    audiences, issuer = config.names(AUDIENCE), config.text(ISSUER) or None
    for name, is_given, unverified in (
        (AUDIENCE, bool(audiences), UNVERIFIED_AUDIENCE),
        (ISSUER, issuer is not None, UNVERIFIED_ISSUER),
    ):
        if not is_given and not config.flag(unverified):
            raise ConfigError(name, "", f"signed tokens need it, or {unverified}=true")
    return SignedTokens(
        frozenset(audiences),
        issuer,
        (config.text(SUB_CLAIM) or "").strip(),
        (config.text(SCOPE_CLAIM) or "").strip(),
        config.number(CLOCK_SKEW_S),
    )


def _keys(services: NodeServices, config: MechanismConfig, module: LoginModule | None) -> TokenKeys:
    """Returns the source of keys. Reads a file at once, to report a wrong name; does not wait for a server."""
    url = config.text(JWKS_URL)
    if not url:
        raise ConfigError(JWKS_URL, "", "signed tokens need the address of the issuer's keys")
    if url not in config.names(ALLOWED_URLS):
        raise ConfigError(JWKS_URL, url, f"it is not allowed: {ALLOWED_URLS} must name it too")
    try:
        check_packages()
    except KeysError as error:
        line = f"sasl.enabled.mechanisms: {error}"
        raise ConfigError("sasl.enabled.mechanisms", OAUTHBEARER, str(error), line=line) from None
    node = services.node
    parts = split_url(url)
    fetch: Callable[[], bytes]
    if parts.scheme == "file":
        fetch = partial(_read, node, unquote(parts.path))
        try:
            fetch()
        except OSError as error:
            raise ConfigError(JWKS_URL, url, f"the file cannot be read: {error.strerror or error}") from None
    else:
        options = {} if module is None else {k: v for k, v in module.options.items() if k.startswith("ssl.")}
        context = tls_context(options) if options else None
        fetch = partial(node.web.fetch, url, bytes_max=KEY_SET_BYTES_MAX, timeout_s=FETCH_TIMEOUT_S, context=context)
    pace = Pace(config.number(REFRESH_MS), config.number(BACKOFF_MS), config.number(BACKOFF_MAX_MS))
    return TokenKeys(node, url, pace, fetch)


def _read(node: Node, path: str) -> bytes:
    if node.disk.size(path) > KEY_SET_BYTES_MAX:
        raise OSError(f"it holds more than {KEY_SET_BYTES_MAX} bytes")
    return node.disk.read_file(path)
