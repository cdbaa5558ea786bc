"""A topic's settings as they are in force: its own, and the broker's for the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from .broker import BrokerConfig
from .listener import PREFIX
from .node_settings import in_ms
from .setting import ConfigError, Setting, Value, asks_for_nothing, parse_value
from .table import TOPIC_SETTINGS, broker_setting, check_refused

_OF_STORES: Final = ("ssl.keystore.", "ssl.truststore.", "ssl.key.password")
_OF_LISTENERS_OF_ALL: Final = ("max.connection.creation.rate", "max.connections", "num.network.threads")


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """Every topic setting under its name in snake case; times in milliseconds, sizes in bytes, -1 unlimited."""

    cleanup_policy: frozenset[str]
    compression_gzip_level: int
    compression_lz4_level: int
    compression_type: str
    compression_zstd_level: int
    delete_retention_ms: int
    file_delete_delay_ms: int
    flush_messages: int
    flush_ms: int
    follower_replication_throttled_replicas: tuple[str, ...]
    index_interval_bytes: int
    leader_replication_throttled_replicas: tuple[str, ...]
    local_retention_bytes: int
    local_retention_ms: int
    max_compaction_lag_ms: int
    max_message_bytes: int
    message_timestamp_after_max_ms: int
    message_timestamp_before_max_ms: int
    message_timestamp_type: str
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    min_insync_replicas: int
    preallocate: bool
    remote_log_copy_disable: bool
    remote_log_delete_on_disable: bool
    remote_storage_enable: bool
    retention_bytes: int
    retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    segment_jitter_ms: int
    segment_ms: int
    unclean_leader_election_enable: bool
    record_validation: str
    max_decompressed_bytes: int

    @property
    def compact(self) -> bool:
        """Whether old records go when a newer one has their key."""
        return "compact" in self.cleanup_policy

    @property
    def delete(self) -> bool:
        """Whether old segments go by age and size."""
        return "delete" in self.cleanup_policy

    @property
    def roll_ms(self) -> int:
        """How long a segment takes batches: segment.ms, and on a compacted topic at most max.compaction.lag.ms, so that
        its records can be compacted in time (KIP-354)."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compact else self.segment_ms

    @property
    def log_append_time(self) -> bool:
        """Whether the broker's clock stamps records."""
        return self.message_timestamp_type == "LogAppendTime"


def topic_config(broker: BrokerConfig, overrides: Mapping[str, str]) -> TopicConfig:
    """The configuration in force for a topic with `overrides` on `broker`. Raises ConfigError for values that cannot
    be.

    Unknown names among the overrides are left out: they were taken by a release that knew them.
    """
    values: dict[str, Value] = {}
    for name, setting in TOPIC_SETTINGS.items():
        text = overrides.get(name)
        value = inherited(setting, broker) if text is None else parse_value(setting, text)
        values[name.replace(".", "_")] = value
    policy = values["cleanup_policy"]
    assert isinstance(policy, tuple)
    return TopicConfig(**{**values, "cleanup_policy": frozenset(policy)})  # type: ignore[arg-type]


def inherited(setting: Setting, broker: BrokerConfig) -> Value:
    """The broker's value for a topic or group setting: of its first synonym, or the table's default."""
    if not setting.synonyms:
        return setting.default
    # A broker setting has followed its own synonyms already; the rest of the chain is for people.
    return in_ms(setting.synonyms[0], broker[setting.synonyms[0]])


def check_topic_overrides(overrides: Mapping[str, str]) -> None:
    """What CreateTopics and the alter requests check of a topic's settings. Raises ConfigError in Kafka's words."""
    for name, text in sorted(overrides.items()):
        setting = TOPIC_SETTINGS.get(name)
        if setting is None:
            raise ConfigError(name, text, line=f"Unknown topic config name: {name}")
        parse_value(setting, text)
        if setting.refused and not asks_for_nothing(text):
            raise ConfigError(name, text, line=setting.refused)
    least = _override(overrides, "min.compaction.lag.ms")
    most = _override(overrides, "max.compaction.lag.ms")
    assert isinstance(least, int) and isinstance(most, int)
    if least > most:
        raise ConfigError(
            "min.compaction.lag.ms",
            least,
            line=f"conflict topic config setting min.compaction.lag.ms ({least}) > max.compaction.lag.ms ({most})",
        )


def _override(overrides: Mapping[str, str], name: str) -> Value:
    setting = TOPIC_SETTINGS[name]
    return parse_value(setting, overrides[name]) if name in overrides else setting.default


def check_broker_overrides(overrides: Mapping[str, str], *, per_broker: bool) -> None:
    """What the alter requests check of dynamic broker settings. Raises ConfigError in Kafka's words.

    `per_broker`: for one broker; otherwise for all of them. An unknown name is taken, as Kafka takes it.
    """
    known = {name: setting for name in sorted(overrides) if (setting := broker_setting(name)) is not None}
    fixed = [name for name, setting in known.items() if setting.update == "read-only"]
    if fixed:
        line = f"Cannot update these configs dynamically: [{', '.join(fixed)}]"
        raise ConfigError(fixed[0], overrides[fixed[0]], line=line)
    stores = [name for name, setting in known.items() if name == setting.name and name.startswith(_OF_STORES)]
    if stores:
        line = (
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            f"[{', '.join(stores)}]"
        )
        raise ConfigError(stores[0], None, line=line)
    single = [] if per_broker else sorted(name for name in overrides if is_of_one_broker(name))
    if single:
        line = (
            f"Cannot update these configs at default cluster level, broker id must be specified: [{', '.join(single)}]"
        )
        raise ConfigError(single[0], overrides[single[0]], line=line)
    for name, text in sorted(overrides.items()):
        check_refused(name, text)
    for name, setting in known.items():
        parse_value(setting, overrides[name])


def is_of_one_broker(name: str) -> bool:
    """Whether a dynamic setting cannot be a default of all brokers: as all that is behind a listener's name, known or
    not, but for the bounds on its connections."""
    if name.startswith(PREFIX):
        listener, _, rest = name.removeprefix(PREFIX).partition(".")
        return bool(listener and rest) and rest not in _OF_LISTENERS_OF_ALL
    setting = broker_setting(name)
    return setting is not None and setting.update == "per-broker"
