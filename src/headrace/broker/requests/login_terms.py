"""Builds the login terms of a listener from its settings: the mechanisms that it offers, and their users.

PLAIN's users are in the listener's JAAS line, SCRAM's in the cluster's metadata, so changes of these apply while the
node runs. `bearer_terms` has OAUTHBEARER's tokens, `kerberos_terms` the tickets of Kerberos.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.broker.net.logins import LoginTerms, Offer, Source
from headrace.broker.requests.token_access import token_rules
from headrace.config import ConfigError
from headrace.config.kerberos import KERBEROS_RULES, KERBEROS_SERVICE
from headrace.metadata.delegation_tokens import credential_of_token, is_over
from headrace.metadata.scram_credentials import MECHANISMS, ScramCredential, ScramMechanism, credential_in
from headrace.security.gssapi import GSSAPI
from headrace.security.jaas import JaasError, LoginModule
from headrace.security.login import Identity, ServerMechanism
from headrace.security.mechanisms import MODULE_OF, PlainMechanism, ScramServerMechanism, login_module
from headrace.security.oauthbearer.server import OAUTHBEARER
from headrace.security.plain import PLAIN, PlainUsers
from headrace.security.scram import ScramUser
from headrace.security.scram_fakes import FakeCredentials
from headrace.wire.messages.metadata_records import UserScramCredentialRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.broker.requests.services import NodeServices
    from headrace.config import BrokerConfig
    from headrace.config.listener import MechanismConfig
    from headrace.metadata.image import ClusterImage

OWN_SECRET_BYTES: Final = 32
_NOBODY: Final = UserScramCredentialRecord()


def shared_secret(image: ClusterImage) -> bytes | None:
    """Returns a secret that all nodes of a cluster share and that practically never changes: the random id of a log
    directory, of the broker with the lowest id. None if brokers register none (metadata.version below 3.7-IV2).

    A client that may see such an id, in DescribeQuorum, needs Describe on the cluster, and with it may list users.
    """
    found = min((broker.id for broker in image.brokers.values() if broker.directories), default=None)
    return None if found is None else min(image.brokers[found].directories)


class ImageUsers:
    """The users of SCRAM: those in the current metadata, and owners of delegation tokens."""

    def __init__(
        self,
        image: Callable[[], ClusterImage],
        own_secret: bytes,
        secret_key: Callable[[], str] = str,
        now_ms: Callable[[], int] = int,
    ) -> None:
        """`own_secret` is used if the cluster shares none. `secret_key` returns that of delegation tokens, empty if
        tokens are off; `now_ms` is in ms since 1970."""
        self._image = image
        self._own_secret = own_secret
        self._secret_key = secret_key
        self._now_ms = now_ms
        self._made_of: tuple[object, object] = (None, None)
        """The brokers and users of the image from which `_fakes` and `_others` were made."""
        self._others: tuple[UserScramCredentialRecord, ...] = (_NOBODY,)
        """Records that take the place of an unknown user's."""
        self._fakes = FakeCredentials(own_secret, {})

    def find(self, mechanism: ScramMechanism, name: str, *, is_token: bool) -> ScramUser | None:
        """Returns a user, or the owner of a token that has not expired; None if there is none."""
        if is_token:
            return self._find_token(mechanism, name)
        record = self._image().kept.scram.get((name, mechanism.code))
        # An unknown user takes the same steps with another's record, as a difference of two microseconds would show.
        others = self._others
        other = others[hash(name) % len(others)]
        user = ScramUser(credential_in(other if record is None else record), Identity(f"User:{name}"))
        return None if record is None else user

    def fake(self, mechanism: ScramMechanism, name: str, *, is_token: bool) -> ScramCredential:
        """Returns the made-up credential of an unknown user or token, always the same one."""
        fakes = self._made_up()
        return fakes.of_token(mechanism, name) if is_token else fakes.of(mechanism, name)

    def _made_up(self) -> FakeCredentials:
        image = self._image()
        brokers, users = image.brokers, image.kept.scram
        # A record replaces the mapping that it changes, and leaves all others as they are.
        if self._made_of[0] is not brokers or self._made_of[1] is not users:
            self._made_of = brokers, users
            self._fakes.follow(shared_secret(image) or self._own_secret, users)
            self._others = tuple(users.values()) or (_NOBODY,)
        return self._fakes

    def _find_token(self, mechanism: ScramMechanism, token_id: str) -> ScramUser | None:
        secret_key = self._secret_key()
        record = self._image().kept.delegation_tokens.get(token_id) if secret_key else None
        if record is None or is_over(record, self._now_ms()):
            return None
        salt = self._made_up().of_token(mechanism, token_id).salt
        credential = credential_of_token(mechanism, secret_key, token_id, salt)
        return ScramUser(credential, Identity(record.owner, record.expiration_timestamp, is_token=True))


def login_terms(
    services: NodeServices, listener: str, settings: BrokerConfig, before: LoginTerms | None = None
) -> LoginTerms:
    """Returns the login terms of a listener with SASL under these settings. Reuses offers of `before` whose settings
    are the same. Raises ConfigError if a mechanism is not served or its settings are invalid."""
    config = settings.of_listener(listener)
    old = {} if before is None else before.offers
    offers: dict[str, Offer] = {}
    found = LoginTerms(offers, config.sasl_server_max_receive_size, config.connection_failed_authentication_delay_ms)
    try:
        for name in config.sasl_enabled_mechanisms:
            own = config.mechanism(name)
            made_by = (own.sasl_jaas_config, own[KERBEROS_SERVICE], own[KERBEROS_RULES])
            offer = old.get(name)
            if offer is None or offer.made_by != made_by:
                source = None if offer is None else offer.source
                offer = Offer(*_made(services, own, name, listener, source), made_by)
            offers[name] = offer
        if not offers:
            raise ConfigError("sasl.enabled.mechanisms", "", f"listener {listener} offers no mechanism to log in by")
    except ConfigError:
        found.close_sources(before)
        raise
    return found


def _made(
    services: NodeServices, config: MechanismConfig, name: str, listener: str, before: Source | None
) -> tuple[ServerMechanism, Source | None]:
    """Returns a mechanism and its source; `before` is the earlier source of the same mechanism. Raises ConfigError."""
    if name == OAUTHBEARER:
        # Imported only if needed: other listeners need neither JSON nor keys.
        from headrace.broker.requests.bearer_terms import bearer_mechanism

        return bearer_mechanism(services, config, listener, _login_module(config, name), before)
    if name == GSSAPI:
        from headrace.broker.requests.kerberos_terms import kerberos_mechanism

        return kerberos_mechanism(config), None
    return _mechanism(services, config, name), None


def _mechanism(services: NodeServices, config: MechanismConfig, name: str) -> ServerMechanism:
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
        lambda: services.image,
        services.node.entropy.secret(OWN_SECRET_BYTES),
        lambda: token_rules(services.config).secret_key,
        services.node.clock.now_ms,
    )
    return ScramServerMechanism(MECHANISMS[name], users, services.node.entropy.secret, max_reauth_ms)


def _login_module(config: MechanismConfig, name: str) -> LoginModule | None:
    line = config.sasl_jaas_config
    if line is None:
        return None
    try:
        return login_module(name, line)
    except JaasError as error:
        raise ConfigError(f"{config.prefix}sasl.jaas.config", "(hidden)", str(error)) from error
