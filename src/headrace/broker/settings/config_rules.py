"""The controller's rules of configurations, answered from the table of settings."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from headrace.config import (
    BROKER_SETTINGS,
    GROUP_SETTINGS,
    TOPIC_SETTINGS,
    BrokerConfig,
    ConfigError,
    Setting,
    Type,
    check_broker_overrides,
    check_topic_overrides,
    format_value,
)
from headrace.config.describe import describe_topic
from headrace.config.dynamic import check_dynamic
from headrace.config.group import check_group_overrides
from headrace.config.topic import inherited
from headrace.controller.context import DescribedConfig
from headrace.metadata.image import ResourceType

_TABLES: Mapping[int, Mapping[str, Setting]] = {
    ResourceType.TOPIC: TOPIC_SETTINGS,
    ResourceType.BROKER: BROKER_SETTINGS,
    ResourceType.GROUP: GROUP_SETTINGS,
}

LISTENERS = "listeners"

_DESCRIBED_MAX = 64
"""Different sets of overrides whose description is remembered: topics made by one program share theirs."""

_CLIENT_METRICS_SETTINGS = ("interval.ms", "match", "metrics")


class SettingsRules:
    """`ConfigRules` over the table of settings and the configuration of one broker."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._described: dict[tuple[tuple[str, str], ...], list[DescribedConfig]] = {}

    def check_topic(self, overrides: Mapping[str, str]) -> str | None:
        """Why these overrides of a topic are refused, or None."""
        try:
            check_topic_overrides(overrides)
        except ConfigError as error:
            return str(error)
        return None

    def check_broker(self, overrides: Mapping[str, str], per_broker: bool) -> str | None:
        """Why these dynamic settings of a broker (or the cluster's default) are refused whichever broker it is, or
        None."""
        try:
            check_broker_overrides(overrides, per_broker=per_broker)
        except ConfigError as error:
            return str(error)
        return None

    def check_own(self, overrides: Mapping[str, str], per_broker: bool) -> str | None:
        """Why these dynamic settings of this broker (or the cluster's default) do not go with its file, or None."""
        now = self._config
        try:
            check_broker_overrides(overrides, per_broker=per_broker)
            after = self.after(overrides, per_broker)
            check_dynamic(now, after, overrides)
        except ConfigError as error:
            if error.name != LISTENERS or not error.why:
                return str(error)
            wanted = overrides.get(LISTENERS, now.shown(LISTENERS))
            return f"Error creating broker listeners from '[{wanted.replace(',', ', ')}]': {error.why}"
        if after.all_listeners != now.all_listeners:
            # Kafka opens and closes them as it runs. Here they would be described and not be there.
            return f"Cannot update these configs dynamically: [{LISTENERS}]"
        return None

    def after(self, overrides: Mapping[str, str], per_broker: bool) -> BrokerConfig:
        """Returns the configuration in force under these dynamic settings of this broker (or the cluster's default).

        Raises ConfigError.
        """
        now = self._config
        if per_broker:
            return now.with_overrides(overrides, now.cluster_default)
        return now.with_overrides(now.per_broker, overrides)

    def check_group(self, overrides: Mapping[str, str]) -> str | None:
        """Why these overrides of a group are refused, or None."""
        try:
            check_group_overrides(self._config, overrides)
        except ConfigError as error:
            return str(error)
        return None

    def check_client_metrics(self, overrides: Mapping[str, str]) -> str | None:
        """Why this subscription to client metrics is refused, or None."""
        for name in sorted(overrides):
            if name not in _CLIENT_METRICS_SETTINGS:
                return f"Unknown client metrics configuration: {name}"
        return None

    def is_list(self, resource_type: int, name: str) -> bool:
        """Whether a setting is a list, to which values may be appended."""
        if resource_type == ResourceType.CLIENT_METRICS:
            return name in ("match", "metrics")
        setting = _TABLES.get(resource_type, {}).get(name)
        return setting is not None and setting.type is Type.LIST

    def default_text(self, resource_type: int, name: str) -> str | None:
        """The value that a setting has without an override, as text."""
        setting = _TABLES.get(resource_type, {}).get(name)
        if setting is None:
            return None
        if resource_type == ResourceType.TOPIC:
            return format_value(setting, inherited(setting, self._config))
        return format_value(setting, setting.default)

    def describe_topic(self, overrides: Mapping[str, str]) -> list[DescribedConfig]:
        """Every setting of a topic with these overrides, sorted by name; our own only where set."""
        key = tuple(sorted(overrides.items()))
        described = self._described.get(key)
        if described is None:
            if len(self._described) >= _DESCRIBED_MAX:
                self._described.clear()
            described = self._described[key] = [
                DescribedConfig(entry.name, entry.value, False, entry.source, entry.sensitive)
                for entry in describe_topic(self._config, overrides)
                if entry.name in overrides or not TOPIC_SETTINGS[entry.name].ours
            ]
        return described


@lru_cache(maxsize=4)
def rules_of(config: BrokerConfig) -> SettingsRules:
    """The rules of a configuration; the same ones for the same configuration, so that what they remember stays."""
    return SettingsRules(config)
