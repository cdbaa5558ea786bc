"""How a listener lets clients in, by its settings: the mechanisms that it offers, and the users behind them.

PLAIN's users stand in the listener's JAAS line, SCRAM's in the cluster's metadata: who is made or deleted while the
node runs may, or may not, log in from then on. OAUTHBEARER's tokens are in `bearer_terms`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.broker.net.logins import LoginTerms, Source
from headrace.broker.requests.token_access import token_rules
from headrace.config import ConfigError
from headrace.metadata.delegation_tokens import credential_of_token, is_over
from headrace.metadata.scram_credentials import MECHANISMS, ScramMechanism, credential_in
from headrace.security.jaas import JaasError, LoginModule, parse_jaas
from headrace.security.login import Identity, ServerMechanism
from headrace.security.mechanisms import MODULE_OF, PlainMechanism, ScramServerMechanism
from headrace.security.oauthbearer.server import OAUTHBEARER
from headrace.security.plain import PLAIN, PlainUsers
from headrace.security.scram import ScramUser

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.broker.requests.services import NodeServices
    from headrace.config.listener import MechanismConfig
    from headrace.metadata.image import ClusterImage

FAKE_KEY_BYTES: Final = 32


class ImageUsers:
    """SCRAM's users: those of the metadata as of now, and whoever has a delegation token."""

    def __init__(
        self, image: Callable[[], ClusterImage], secret_key: Callable[[], str] = str, now_ms: Callable[[], int] = int
    ) -> None:
        """`secret_key` is that of delegation tokens, empty where there are none; `now_ms` in ms since 1970."""
        self._image = image
        self._secret_key = secret_key
        self._now_ms = now_ms

    def find(self, mechanism: ScramMechanism, name: str, *, is_token: bool) -> ScramUser | None:
        """See ScramUsers.find. A token whose time is up is none."""
        if is_token:
            return self._find_token(mechanism, name)
        record = self._image().kept.scram.get((name, mechanism.code))
        return None if record is None else ScramUser(credential_in(record), Identity(f"User:{name}"))

    def _find_token(self, mechanism: ScramMechanism, token_id: str) -> ScramUser | None:
        secret_key = self._secret_key()
        record = self._image().kept.delegation_tokens.get(token_id) if secret_key else None
        if record is None or is_over(record, self._now_ms()):
            return None
        credential = credential_of_token(mechanism, secret_key, token_id)
        return ScramUser(credential, Identity(record.owner, record.expiration_timestamp, is_token=True))


def login_terms(services: NodeServices, listener: str) -> LoginTerms:
    """Of a listener whose protocol asks for SASL. Raises ConfigError where its settings ask for what is not served."""
    config = services.config.of_listener(listener)
    fake_key = services.node.entropy.secret(FAKE_KEY_BYTES)
    mechanisms: dict[str, ServerMechanism] = {}
    sources: list[Source] = []
    for name in config.sasl_enabled_mechanisms:
        if name == OAUTHBEARER:
            # Imported where there is one: JSON and keys are nothing to others.
            from headrace.broker.requests.bearer_terms import bearer_mechanism

            own = config.mechanism(name)
            mechanisms[name], keys = bearer_mechanism(services, own, listener, _login_module(own, name))
            sources += [] if keys is None else [keys]
        else:
            mechanisms[name] = _mechanism(services, config.mechanism(name), name, fake_key)
    if not mechanisms:
        raise ConfigError("sasl.enabled.mechanisms", "", f"listener {listener} offers no mechanism to log in by")
    return LoginTerms(
        mechanisms,
        config.sasl_server_max_receive_size,
        config.connection_failed_authentication_delay_ms,
        tuple(sources),
    )


def _mechanism(services: NodeServices, config: MechanismConfig, name: str, fake_key: bytes) -> ServerMechanism:
    if name not in MODULE_OF:
        why = f"the mechanism {name} is not served; there are {', '.join(MODULE_OF)}"
        raise ConfigError("sasl.enabled.mechanisms", name, why)
    handler = config.sasl_server_callback_handler_class
    if handler:
        why = "this class is not known: users stand in the JAAS line (PLAIN) or in the metadata (SCRAM)"
        raise ConfigError("sasl.server.callback.handler.class", handler, why)
    module = _login_module(config, name)
    max_reauth_ms = config.connections_max_reauth_ms
    if name == PLAIN:
        if module is None:
            why = f'PLAIN needs its users: {config.prefix}sasl.jaas.config with user_<name>="<password>"'
            raise ConfigError("sasl.jaas.config", "", why)
        return PlainMechanism(PlainUsers(module.options), max_reauth_ms)
    users = ImageUsers(
        lambda: services.image, lambda: token_rules(services.config).secret_key, services.node.clock.now_ms
    )
    return ScramServerMechanism(MECHANISMS[name], users, services.node.entropy.secret, fake_key, max_reauth_ms)


def _login_module(config: MechanismConfig, name: str) -> LoginModule | None:
    line = config.sasl_jaas_config
    if line is None:
        return None
    try:
        module = parse_jaas(line)
    except JaasError as error:
        raise ConfigError(f"{config.prefix}sasl.jaas.config", "(hidden)", str(error)) from error
    if module.name != MODULE_OF[name]:
        why = f"the login module of {name} is {MODULE_OF[name]}"
        raise ConfigError(f"{config.prefix}sasl.jaas.config", "(hidden)", why)
    return module
