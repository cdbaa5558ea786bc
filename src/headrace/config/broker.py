"""A node's settings as they are in force: the file's, and the dynamic ones laid over them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .node_settings import NodeSettings
from .relations import check_file, check_relations


class BrokerConfig(NodeSettings):
    """The settings of a node, whose values have been checked together if `load` or `with_overrides` made them."""

    @classmethod
    def load(cls, properties: Mapping[str, str], warn: Callable[[str], None] | None = None) -> BrokerConfig:
        """The settings of a properties file. Raises ConfigError for values that cannot be, or cannot be served.

        `warn` gets one line for each key that is unknown or has no effect here; None: such keys are not looked at.
        """
        if warn is not None:
            check_file(properties, warn)
        config = cls(properties)
        check_relations(config)
        return config

    def with_overrides(self, per_broker: Mapping[str, str], cluster_default: Mapping[str, str]) -> BrokerConfig:
        """The same file under other dynamic settings. Raises ConfigError for values that cannot be, or not together."""
        config = BrokerConfig(self.static, per_broker, cluster_default)
        check_relations(config)
        return config
