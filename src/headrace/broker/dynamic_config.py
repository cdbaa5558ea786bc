"""Settings that change while the broker runs: from the image into the broker's configuration and the open logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.config import ConfigError, TopicConfig, topic_config
from headrace.metadata.delta import ImageDelta
from headrace.metadata.image import ClusterImage, ResourceType

if TYPE_CHECKING:
    from headrace.broker.broker import Broker


class DynamicConfig:
    """Keeps `broker.config` and every log's topic configuration as the image says.

    Values in the image were checked when they were written; one that this release cannot take (an adopted directory may
    hold such) is left out, and `refused` says why, by resource.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.refused: dict[str, str] = {}

    def start(self) -> None:
        """Takes what the image says now, and follows it from here on."""
        self._update_broker(self._broker.image)
        self._broker.quorum.on_image(self._changed)

    def topic(self, name: str, image: ClusterImage | None = None) -> TopicConfig:
        """What is in force for a topic."""
        overrides = (image or self._broker.image).configs.topic_overrides(name)
        try:
            return topic_config(self._broker.config, overrides)
        except ConfigError as error:
            self.refused[f"topic {name}"] = str(error)
            return topic_config(self._broker.config, {k: v for k, v in overrides.items() if k != error.name})

    def _changed(self, _: ClusterImage, new: ClusterImage, delta: ImageDelta) -> None:
        own = {"", str(self._broker.node_id)}
        if any(kind == ResourceType.BROKER and name in own for kind, name in delta.changed_configs):
            self._update_broker(new)
            changed = [topic.name for topic in new.topics]
        else:
            changed = [name for kind, name in sorted(delta.changed_configs) if kind == ResourceType.TOPIC]
        for name in changed:
            self._configure(name, new)

    def _configure(self, name: str, image: ClusterImage) -> None:
        topic = image.topics.by_name(name)
        if topic is None:
            return
        config = self.topic(name, image)
        for partition in topic.partitions:
            log = self._broker.logs.get(name, partition.index)
            if log is not None:
                log.configure(config)

    def _update_broker(self, image: ClusterImage) -> None:
        old = self._broker.config
        per_broker = dict(image.configs.broker_overrides(self._broker.node_id))
        default = dict(image.configs.cluster_overrides())
        while True:
            try:
                new = old.with_overrides(per_broker, default)
                break
            except ConfigError as error:
                self.refused["broker"] = str(error)
                if per_broker.pop(error.name, None) is None and default.pop(error.name, None) is None:
                    return
        self._broker.config = self._broker.logs.config = new
