"""Settings that change while the broker runs: from the image into the broker's configuration and the open logs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from headrace.config import ConfigError, TopicConfig, check_broker_overrides, topic_config
from headrace.config.opened import opened_with, places_of
from headrace.config.security_table import SASL_PROTOCOLS
from headrace.config.table import broker_setting
from headrace.config.tls import TLS_PROTOCOLS, names_tls
from headrace.metadata.delta import ImageDelta
from headrace.metadata.image import ClusterImage, ResourceType

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.config import BrokerConfig
    from headrace.env import LogSink
    from headrace.log.manager import LogManager

_NO_LOGINS: Final = "no listener of this node asks for a login"
_NO_TLS: Final = "no listener of this node speaks TLS"
_RELATED: Final = ("listener.security.protocol.map", "listeners")
"""Dynamic settings that `check_relations` looks at."""


class DynamicConfig:
    """Keeps `config`, the broker's, and every log's topic configuration as the image says.

    Values in the image were checked when they were written; one that this release cannot take (an adopted directory may
    hold such) is left out with a warning, and `refused` says why, by resource and setting.
    """

    def __init__(self, config: BrokerConfig, logs: LogManager | None, log: LogSink) -> None:
        """`config` is what the file says, before any change. A node that is no broker has no `logs`."""
        self._log = log
        self.config = config
        """The configuration in force; a new value after each change."""
        self._logs = logs
        self._image: Callable[[], ClusterImage] = ClusterImage
        self.refused: dict[tuple[str, str], str] = {}
        self._idle: frozenset[tuple[str, str]] = frozenset()

    def start(self, image: Callable[[], ClusterImage]) -> None:
        """Applies the image's settings; `changed` is the listener for later images."""
        self._image = image
        self._update_broker(image())

    def topic(self, name: str, image: ClusterImage | None = None) -> TopicConfig:
        """Returns the configuration in force for a topic."""
        overrides = dict((image or self._image()).configs.topic_overrides(name))
        while True:
            try:
                return topic_config(self.config, overrides)
            except ConfigError as error:
                self._leave_out(f"topic {name}", overrides, error)

    def changed(self, _: ClusterImage, new: ClusterImage, delta: ImageDelta) -> None:
        """Follows a change of the image."""
        own = ("", str(self.config.node_id))
        if any(kind == ResourceType.BROKER and name in own for kind, name in delta.changed_configs):
            self._update_broker(new)
            changed = (topic.name for topic in new.topics)
        else:
            changed = (name for kind, name in sorted(delta.changed_configs) if kind == ResourceType.TOPIC)
        if self._logs is not None:
            for name in changed:
                self._configure(self._logs, name, new)

    def warn(self, error: ConfigError) -> None:
        """Stores of keys that have changed cannot be used: those of before stay in force."""
        self._log.warning("keys are not exchanged", name=error.name, why=error)

    def _configure(self, logs: LogManager, name: str, image: ClusterImage) -> None:
        topic = image.topics.by_name(name)
        if topic is None:
            return
        config = self.topic(name, image)
        for partition in topic.partitions:
            log = logs.get(name, partition.index)
            if log is not None:
                log.configure(config)

    def _update_broker(self, image: ClusterImage) -> None:
        """Applies the valid dynamic settings; the values of the file hold for the rest."""
        node_id = self.config.node_id
        per_broker = self._possible(f"broker {node_id}", image.configs.broker_overrides(node_id), per_broker=True)
        default = self._possible("all brokers", image.configs.cluster_overrides(), per_broker=False)
        while True:
            try:
                new = self.config.with_overrides(per_broker, default)
                break
            except ConfigError as error:
                # Possible each and not together: these are the dynamic ones that others must agree with.
                culprit = next((name for name in (error.name, *_RELATED) if name in per_broker), None)
                if culprit is not None:
                    self._leave_out(f"broker {node_id}", per_broker, error, culprit)
                elif error.name in default:
                    self._leave_out("all brokers", default, error)
                else:
                    raise
        self.config = new
        if self._logs is not None:
            self._logs.configure(new)
        self._say_what_is_idle()

    def _say_what_is_idle(self) -> None:
        """Once of each dynamic setting that has been taken and has no effect."""
        layers = (
            (f"broker {self.config.node_id}", self.config.per_broker),
            ("all brokers", self.config.cluster_default),
        )
        idle: dict[tuple[str, str], str] = {}
        for resource, overrides in layers:
            for name in overrides:
                setting = broker_setting(name)
                if setting is not None and setting.unserved:
                    idle[resource, name] = setting.unserved
            protocols = set(places_of(self.config).values())
            if protocols.isdisjoint(SASL_PROTOCOLS):
                idle |= {(resource, name): _NO_LOGINS for name in opened_with(overrides)}
            if protocols.isdisjoint(TLS_PROTOCOLS):
                idle |= {(resource, name): _NO_TLS for name in overrides if names_tls(name)}
        for (resource, name), why in idle.items():
            if (resource, name) not in self._idle:
                self._log.warning("stored setting has no effect", of=resource, name=name, why=why)
        self._idle = frozenset(idle)

    def _possible(self, resource: str, stored: Mapping[str, str], *, per_broker: bool) -> dict[str, str]:
        possible = dict(stored)
        for name, text in stored.items():
            try:
                check_broker_overrides({name: text}, per_broker=per_broker)
            except ConfigError as error:
                self._leave_out(resource, possible, error)
        return possible

    def _leave_out(self, resource: str, overrides: dict[str, str], error: ConfigError, name: str = "") -> None:
        name = name or error.name
        del overrides[name]
        if self.refused.get((resource, name)) != str(error):
            self.refused[resource, name] = str(error)
            self._log.warning("stored setting ignored", of=resource, name=name, why=error)
