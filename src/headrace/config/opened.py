"""What the logins of listeners, and of connections between nodes, are opened with: Kafka takes such settings while a
broker runs, for listeners to come.

A listener of ours keeps what the file gave it, but for its settings of TLS, which it follows (`net/tls`). A restriction
that is taken and not applied would be a hole, so a value that one of them would have to follow is refused; any other
changes nothing, and is taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .security_table import SASL_PROTOCOLS
from .setting import ConfigError
from .table import broker_setting

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .broker import BrokerConfig


def opened_with(names: Iterable[str]) -> list[str]:
    """Those of these settings that listeners are opened with, sorted."""
    rows = ((name, broker_setting(name)) for name in sorted(names))
    return [name for name, row in rows if row is not None and row.opened_with]


def check_opened_with(before: BrokerConfig, after: BrokerConfig, places: Mapping[str, str]) -> None:
    """Raises ConfigError, one line without secrets, where dynamic settings give one of these listeners, or a connection
    to it, another value than it was opened with."""
    for name in opened_with({**before.per_broker, **after.per_broker}):
        row = broker_setting(name)
        assert row is not None
        for listener in (each for each, protocol in places.items() if protocol in SASL_PROTOCOLS):
            if _differs(before, after, listener, name, row.name):
                why = (
                    f"listener {listener} is open with another value: set it in the file of the node, and restart that"
                )
                raise ConfigError(name, "(hidden)", line=f"Cannot update these configs dynamically: [{name}]: {why}")


def _differs(before: BrokerConfig, after: BrokerConfig, listener: str, name: str, row_name: str) -> bool:
    old, new = before.of_listener(listener), after.of_listener(listener)
    is_of_mechanism = name.startswith(new.prefix) and name != new.prefix + row_name
    return old[row_name] != new[row_name] or (is_of_mechanism and _text(before, name) != _text(after, name))


def _text(config: BrokerConfig, name: str) -> str | None:
    return config.per_broker.get(name, config.static.get(name))


def places_of(config: BrokerConfig) -> dict[str, str]:
    """The protocol of each listener, of this node or of others that it connects to."""
    places = {point.name: point.protocol for point in config.all_listeners}
    if not config.is_by_itself:
        places.setdefault(config.inter_broker_listener, config.inter_broker_protocol)
    if config.is_broker_alone:
        places.setdefault(config.controller_listener, config.controller_protocol)
    return places
