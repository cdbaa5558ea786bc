"""Where the value of a configuration was set, numbered as in DescribeConfigs responses (KIP-226, KIP-848)."""

from __future__ import annotations

from enum import IntEnum


class ConfigSource(IntEnum):
    """A layer of configurations. A topic's and a group's own come first, then those of brokers down to the default."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8
