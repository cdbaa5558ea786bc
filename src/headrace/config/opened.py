"""What the logins of listeners, and of connections between nodes, are opened with: Kafka takes such settings while a
broker runs, for listeners to come.

A restriction that is taken and not applied would be a hole, so listeners of ours follow them: the next login goes by
what is in force then, as the next connection does by the settings of TLS (`net/tls`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .table import broker_setting

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .broker import BrokerConfig


def opened_with(names: Iterable[str]) -> list[str]:
    """Those of these settings that logins are opened with, sorted."""
    rows = ((name, broker_setting(name)) for name in sorted(names))
    return [name for name, row in rows if row is not None and row.opened_with]


def places_of(config: BrokerConfig) -> dict[str, str]:
    """The protocol of each listener, of this node or of others that it connects to."""
    places = {point.name: point.protocol for point in config.all_listeners}
    if not config.is_by_itself:
        places.setdefault(config.inter_broker_listener, config.inter_broker_protocol)
    if config.is_broker_alone:
        places.setdefault(config.controller_listener, config.controller_protocol)
    return places
