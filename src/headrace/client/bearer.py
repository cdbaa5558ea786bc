"""The token that a client shows by OAUTHBEARER: from a file, from an environment variable, or one of its own making.

- `sasl.oauthbearer.token.endpoint.url=file:/path`: the file holds the token, and is read at each login;
- `sasl.oauthbearer.token.endpoint.url=https://host/path`: an issuer is asked for it (`token_endpoint`);
- `sasl.oauthbearer.token.variable=NAME` (ours): the environment variable holds it;
- neither: the JAAS line says what a token holds that nobody signs (`unsecuredLoginStringClaim_sub="ann"`).

Source: Kafka's client properties (KIP-255, KIP-768, KIP-1139).
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import SplitResult, unquote

from headrace.client.token_endpoint import TlsContext, TokenEndpoint, grant_of
from headrace.config import ConfigError
from headrace.config.oauth import TOKEN_URL, split_url
from headrace.security.jaas import OAUTHBEARER_MODULE, JaasError
from headrace.security.login import LoginFailedError
from headrace.security.mechanisms import login_module
from headrace.security.oauthbearer.client import (
    EXTENSION,
    UNSECURED_EXTENSION,
    UNSECURED_PREFIX,
    BearerCredentials,
    extensions_of,
    unsecured_token,
)
from headrace.security.oauthbearer.messages import MESSAGE_BYTES_MAX
from headrace.security.oauthbearer.server import OAUTHBEARER
from headrace.security.oauthbearer.unsecured import UnsecuredOptionsError

if TYPE_CHECKING:
    from headrace.security.jaas import LoginModule

TOKEN_VARIABLE: Final = "sasl.oauthbearer.token.variable"
LOGIN_HANDLER: Final = "sasl.login.callback.handler.class"
RETRIEVER: Final = "sasl.oauthbearer.jwt.retriever.class"
_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer"
KNOWN_CLASSES: Final = {
    LOGIN_HANDLER: (
        f"{_PACKAGE}.OAuthBearerLoginCallbackHandler",
        f"{_PACKAGE}.secured.OAuthBearerLoginCallbackHandler",
        f"{_PACKAGE}.internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler",
    ),
    RETRIEVER: (
        f"{_PACKAGE}.DefaultJwtRetriever",
        f"{_PACKAGE}.FileJwtRetriever",
        f"{_PACKAGE}.ClientCredentialsJwtRetriever",
    ),
}
"""Kafka's classes that do what this client does in any case: a properties file may name them."""


def bearer_credentials(
    settings: Mapping[str, str], jaas: str | None, jaas_setting: str, tls_context: TlsContext
) -> BearerCredentials:
    """Returns who logs in by these settings. The token itself is read at a login; `tls_context` opens TLS to an issuer.

    Raises ConfigError, one line, which shows nothing of the JAAS line.
    """
    for name, known in KNOWN_CLASSES.items():
        if settings.get(name, known[0]) not in known:
            raise ConfigError(name, settings[name], f"this class is not known; there are {', '.join(known)}")
    url, variable = settings.get(TOKEN_URL), settings.get(TOKEN_VARIABLE)
    if url and variable:
        raise ConfigError(TOKEN_VARIABLE, variable, f"only one of it and {TOKEN_URL} can say where the token is")
    try:
        module = None if jaas is None else login_module(OAUTHBEARER, jaas)
        if url and _parts(url).scheme != "file":
            grant = grant_of(settings, {} if module is None else module.options)
            return BearerCredentials(TokenEndpoint(grant, tls_context).token, _extensions(module), waits=True)
        if url:
            return BearerCredentials(partial(_read, Path(unquote(_parts(url).path))), _extensions(module))
        if variable:
            return BearerCredentials(partial(_from_environment, variable), _extensions(module))
        if module is None or not any(name.startswith(UNSECURED_PREFIX) for name in module.options):
            why = (
                f"OAUTHBEARER needs a token: {TOKEN_URL}=file:/path, {TOKEN_VARIABLE}=NAME, or, where a broker takes "
                f'unsigned ones, {OAUTHBEARER_MODULE} required {UNSECURED_PREFIX}StringClaim_sub="..."; here'
            )
            raise ConfigError(jaas_setting, "(hidden)" if jaas else "", why)
        unsecured_token(module.options, 0)
        make = partial(_made, dict(module.options))
        return BearerCredentials(make, extensions_of(module.options, UNSECURED_EXTENSION))
    except (JaasError, UnsecuredOptionsError) as error:
        raise ConfigError(jaas_setting, "(hidden)", str(error)) from None


def _extensions(module: LoginModule | None) -> tuple[tuple[str, str], ...]:
    return () if module is None else extensions_of(module.options, EXTENSION)


def _made(options: Mapping[str, str]) -> str:
    return unsecured_token(options, time.time_ns() // 1_000_000)


def _parts(url: str) -> SplitResult:
    try:
        return split_url(url)
    except ValueError as error:
        # it may hold somebody's password
        raise ConfigError(TOKEN_URL, "(hidden)" if "@" in url else url.partition("?")[0], str(error)) from None


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(MESSAGE_BYTES_MAX + 1).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise LoginFailedError(f"the token in {path} cannot be read: {why}") from None


def _from_environment(name: str) -> str:
    token = os.environ.get(name, "").strip()
    if not token:
        raise LoginFailedError(f"the environment variable {name} holds no token")
    return token
