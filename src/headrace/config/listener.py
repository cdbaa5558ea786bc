"""The settings of one listener: `listener.name.<name>.<setting>` overrides the plain setting, and
`listener.name.<name>.<mechanism>.<setting>` both. Names of listeners and mechanisms are in lower case there.

Source: KIP-103 (listener names), KIP-226 (their settings while a broker runs).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .setting import Value

PREFIX: Final = "listener.name."


class _Prefixed:
    """Settings as they are behind the first of the prefixes under which they are given. Immutable."""

    def __init__(self, values: Mapping[str, Value], scoped: Mapping[str, Value], *prefixes: str) -> None:
        """`values`: every setting without a prefix, as it is in force; `scoped`: those that have one, under their whole
        names."""
        self._values: Final = values
        self._scoped: Final = scoped
        self._prefixes: Final = prefixes

    @property
    def prefix(self) -> str:
        """What is looked behind first."""
        return self._prefixes[0]

    def __getitem__(self, name: str) -> Value:
        """The typed value of a setting. Unknown names raise KeyError."""
        for prefix in self._prefixes:
            if prefix + name in self._scoped:
                return self._scoped[prefix + name]
        return self._values[name]

    def own(self, name: str) -> Value:
        """The value that is given behind the first prefix alone; None without one."""
        return self._scoped.get(self.prefix + name)

    def text(self, name: str) -> str | None:
        """The value of a setting that is text; None where it is not set."""
        value = self[name]
        assert value is None or isinstance(value, str)
        return value

    def flag(self, name: str) -> bool:
        """The value of a setting that is true or false."""
        value = self[name]
        assert isinstance(value, bool)
        return value

    def number(self, name: str) -> int:
        """The value of a setting that is a whole number."""
        value = self[name]
        assert isinstance(value, int)
        return value

    def names(self, name: str) -> tuple[str, ...]:
        """The value of a setting that is a list."""
        value = self[name]
        assert isinstance(value, tuple)
        return value


class MechanismConfig(_Prefixed):
    """Of one mechanism on one listener."""

    @property
    def sasl_jaas_config(self) -> str | None:
        """The line of this mechanism on this listener alone, as in Kafka."""
        value = self.own("sasl.jaas.config")
        assert value is None or isinstance(value, str)
        return value

    @property
    def sasl_server_callback_handler_class(self) -> str | None:
        """Class that says who may log in."""
        return self.text("sasl.server.callback.handler.class")

    @property
    def connections_max_reauth_ms(self) -> int:
        """How long a session lives; 0: without end."""
        return self.number("connections.max.reauth.ms")


class ListenerConfig(_Prefixed):
    """Of one listener."""

    def __init__(self, name: str, values: Mapping[str, Value], scoped: Mapping[str, Value]) -> None:
        """See the base class; `name` is the listener's."""
        super().__init__(values, scoped, f"{PREFIX}{name.lower()}.")

    def mechanism(self, name: str) -> MechanismConfig:
        """As a mechanism sees them."""
        return MechanismConfig(self._values, self._scoped, f"{self.prefix}{name.lower()}.", self.prefix)

    @property
    def sasl_enabled_mechanisms(self) -> tuple[str, ...]:
        """What clients may log in by."""
        return self.names("sasl.enabled.mechanisms")

    @property
    def sasl_server_max_receive_size(self) -> int:
        """The largest frame before a login is done, in bytes."""
        return self.number("sasl.server.max.receive.size")

    @property
    def connection_failed_authentication_delay_ms(self) -> int:
        """How long the answer to a failed login is delayed."""
        return self.number("connection.failed.authentication.delay.ms")
