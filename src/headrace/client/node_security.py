"""How a node's own connections are protected: to the brokers, and to the controllers, by the settings of the listener
that it connects to.

Source: KIP-103, KIP-631.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from headrace.client.security import JAAS, PLAIN_CONNECTION, ConnectionSecurity, credentials, open_tls
from headrace.config import BROKER_SETTINGS, ConfigError, format_value
from headrace.config.kerberos import KERBEROS_SERVICE
from headrace.config.oauth import TOKEN_SETTINGS
from headrace.config.security_table import PLAINTEXT, SASL_PROTOCOLS
from headrace.config.tls import TLS_PROTOCOLS, tls_of

if TYPE_CHECKING:
    from headrace.config import BrokerConfig
    from headrace.security.stores.opening import Read

BROKER_MECHANISM: Final = "sasl.mechanism.inter.broker.protocol"
CONTROLLER_MECHANISM: Final = "sasl.mechanism.controller.protocol"


class NodeSecurity:
    """How one node's own connections are protected. Follows the settings: stores that changed are read with them,
    and if they cannot be used those in use stay."""

    def __init__(self, config: Callable[[], BrokerConfig], read: Read, warn: Callable[[ConfigError], None]) -> None:
        """`config` is the configuration in force; `warn` takes why stores that changed cannot be used. Nothing is read
        yet."""
        self._config = config
        self._read = read
        self._warn = warn
        self._seen: BrokerConfig | None = None
        self._brokers = self._controllers = PLAIN_CONNECTION
        self._is_settled = False

    def check(self) -> None:
        """Raises ConfigError, one line, if this node could not connect to others as its settings say."""
        config = self._config()
        if config is not self._seen:
            brokers, controllers = self._made(config)
            if self._is_settled:
                _check_renewal(self._brokers, brokers)
                _check_renewal(self._controllers, controllers)
            self._seen, self._brokers, self._controllers = config, brokers, controllers

    def settle(self) -> None:
        """Makes the stores those in use: others replace them only if both shake hands. Before, stored settings may
        replace those of the file."""
        self._is_settled = True

    def to_brokers(self) -> ConnectionSecurity:
        """Returns what connections between brokers are opened with."""
        self.follow()
        return self._brokers

    def to_controllers(self) -> ConnectionSecurity:
        """Returns what connections to controllers, and between them, are opened with."""
        self.follow()
        return self._controllers

    def follow(self) -> None:
        """Takes the settings that are in force now. A node does so at each change: steps that are possible one after
        the other are not possible at once."""
        try:
            self.check()
        except ConfigError as error:
            assert self._seen is not None, "a node whose settings cannot be used does not start"
            self._seen = self._config()
            self._warn(error)

    def _made(self, config: BrokerConfig) -> tuple[ConnectionSecurity, ConnectionSecurity]:
        if config.is_by_itself:
            return PLAIN_CONNECTION, PLAIN_CONNECTION
        controllers = _security(
            config, config.controller_listener, config.controller_protocol, CONTROLLER_MECHANISM, self._read
        )
        if config.is_controller_alone:
            return PLAIN_CONNECTION, controllers
        brokers = _security(
            config, config.inter_broker_listener, config.inter_broker_protocol, BROKER_MECHANISM, self._read
        )
        return brokers, controllers


def _check_renewal(before: ConnectionSecurity, after: ConnectionSecurity) -> None:
    """Raises ConfigError if a node with the new stores and one with the old ones could not connect to each other."""
    old, new = None if before.tls is None else before.tls.stores, None if after.tls is None else after.tls.stores
    if old is not None and new is not None and old != new:
        from headrace.client.stores import check_renewal

        check_renewal(old, new, of_nodes=True)


def _security(config: BrokerConfig, listener: str, protocol: str, mechanism: str, read: Read) -> ConnectionSecurity:
    if protocol == PLAINTEXT:
        return PLAIN_CONNECTION
    settings = config.of_listener(listener)
    tls = open_tls(tls_of(settings, protocol), read, settings.prefix) if protocol in TLS_PROTOCOLS else None
    if protocol not in SASL_PROTOCOLS:
        return ConnectionSecurity(tls)
    name = str(settings[mechanism])
    own = settings.mechanism(name)
    where = {
        each: text
        for each in (*TOKEN_SETTINGS, KERBEROS_SERVICE)
        if (text := format_value(BROKER_SETTINGS[each], own[each])) is not None
    }
    return ConnectionSecurity(tls, credentials(name, own.sasl_jaas_config, mechanism, f"{own.prefix}{JAAS}", where))
