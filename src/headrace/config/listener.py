"""The settings as one listener sees them: `listener.name.NAME.x` stands before `x`.

Source: KIP-103 (listener names), KIP-226 (their settings while a broker runs).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .setting import Value

PREFIX: Final = "listener.name."


class ListenerConfig:
    """What holds for one listener, or for one SASL mechanism of it. Immutable, and made of one `BrokerConfig`."""

    def __init__(
        self, name: str, values: Mapping[str, Value], scoped: Mapping[str, Value], prefixes: tuple[str, ...] = ()
    ) -> None:
        """`values`: every setting without a prefix, as it is in force; `scoped`: those that have one, under their whole
        names."""
        self.name: Final = name
        self._values: Final = values
        self._scoped: Final = scoped
        self._prefixes: Final = prefixes or (f"{PREFIX}{name.lower()}.",)

    def mechanism(self, name: str) -> ListenerConfig:
        """What holds for a SASL mechanism: `listener.name.NAME.MECHANISM.x`, then what holds for the listener."""
        own = f"{PREFIX}{self.name.lower()}.{name.lower()}."
        return ListenerConfig(self.name, self._values, self._scoped, (own, *self._prefixes))

    def __getitem__(self, setting: str) -> Value:
        """The typed value of a setting. Unknown names raise KeyError."""
        for prefix in self._prefixes:
            if prefix + setting in self._scoped:
                return self._scoped[prefix + setting]
        return self._values[setting]

    def own(self, setting: str) -> Value:
        """The value that is given for this listener (or its mechanism) alone; None without one."""
        for prefix in self._prefixes:
            if prefix + setting in self._scoped:
                return self._scoped[prefix + setting]
        return None

    def text(self, setting: str) -> str | None:
        """The value of a setting that is text; None where it is not set."""
        value = self[setting]
        assert value is None or isinstance(value, str)
        return value

    def flag(self, setting: str) -> bool:
        """The value of a setting that is true or false."""
        value = self[setting]
        assert isinstance(value, bool)
        return value

    def names(self, setting: str) -> tuple[str, ...]:
        """The value of a setting that is a list."""
        value = self[setting]
        assert isinstance(value, tuple)
        return value
