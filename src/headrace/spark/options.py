"""The options of the source and the sink: named and behaving as in Spark's own Kafka connector, checked before a query
starts. Every complaint is a `ValueError` of one sentence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from headrace.client.cluster import parse_addresses
from headrace.client.reading import Isolation
from headrace.wire.records import Compression

EARLIEST_OFFSET: Final = -2
LATEST_OFFSET: Final = -1

Positions = Literal["earliest", "latest"] | dict[str, dict[int, int]]
"""`startingOffsets` and `endingOffsets`: a word, or offsets by topic and partition, where -2 and -1 are the words."""

_SPARKS_OWN: Final = frozenset({"path", "checkpointlocation", "queryname"})
"""Keys that Spark itself puts among the options."""

SOURCE_KEYS: Final = (
    "kafka.bootstrap.servers",
    "kafka.client.id",
    "kafka.isolation.level",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "endingOffsets",
    "maxOffsetsPerTrigger",
    "failOnDataLoss",
    "includeHeaders",
)
SINK_KEYS: Final = (
    "kafka.bootstrap.servers",
    "kafka.client.id",
    "kafka.compression.type",
    "topic",
)


@dataclass(frozen=True, slots=True)
class Subscription:
    """Which partitions are read: topics by name, by pattern, or partitions one by one. One of the three is set."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    assigned: tuple[tuple[str, int], ...] = ()

    @property
    def names(self) -> list[str]:
        """The topics that are named, one by one or by their partitions; a pattern names none."""
        return sorted({*self.topics, *(topic for topic, _ in self.assigned)})

    def __str__(self) -> str:
        return ", ".join(self.topics) or self.pattern or ", ".join(f"{topic}-{index}" for topic, index in self.assigned)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What a source reads, and how."""

    bootstrap: str
    subscription: Subscription
    starting: Positions
    ending: Positions = "latest"
    max_offsets_per_trigger: int | None = None
    fail_on_data_loss: bool = True
    include_headers: bool = False
    isolation: Isolation = "read_uncommitted"
    client_id: str = "headrace-spark"


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Where a sink writes, and how."""

    bootstrap: str
    topic: str | None = None
    compression: Compression = Compression.NONE
    client_id: str = "headrace-spark"


def _known(options: Mapping[str, str], keys: Sequence[str], side: str) -> dict[str, str]:
    """The options by the names that the documentation has; raises for one that is none of them."""
    names = {key.lower(): key for key in keys}
    found: dict[str, str] = {}
    for key, value in options.items():
        name = names.get(key.lower())
        if name is not None:
            found[name] = value
        elif key.lower() in _SPARKS_OWN:
            continue
        elif key.lower().startswith("kafka."):
            served = ", ".join(name for name in keys if name.startswith("kafka."))
            raise ValueError(f"The client setting {key!r} is not supported by the headrace {side}; it has {served}.")
        else:
            raise ValueError(f"The headrace {side} has no option {key!r}; it has {', '.join(keys)}.")
    return found


def _bootstrap(options: Mapping[str, str]) -> str:
    text = options.get("kafka.bootstrap.servers")
    if text is None:
        raise ValueError("The option 'kafka.bootstrap.servers' is missing; it names brokers as host:port,host:port.")
    try:
        parse_addresses(text)
    except ValueError as error:
        raise ValueError(f"The option 'kafka.bootstrap.servers' is wrong: {error}.") from None
    return text


def _flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name)
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise ValueError(f"The option {name!r} is true or false, not {text!r}.")
    return text.lower() == "true"


def _json(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise ValueError(f"The option {name!r} is no valid JSON: {text!r}.") from None


def _subscription(options: Mapping[str, str]) -> Subscription:
    given = [name for name in ("subscribe", "subscribePattern", "assign") if name in options]
    if len(given) != 1:
        raise ValueError(
            f"Exactly one of the options 'subscribe', 'subscribePattern' and 'assign' is needed; got {len(given)}."
        )
    text = options[given[0]]
    if given[0] == "subscribe":
        topics = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
        if not topics:
            raise ValueError("The option 'subscribe' names no topic.")
        return Subscription(topics=topics)
    if given[0] == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise ValueError(f"The option 'subscribePattern' is no regular expression: {error}.") from None
        if not text.strip():
            raise ValueError("The option 'subscribePattern' is empty.")
        return Subscription(pattern=text)
    chosen = _json("assign", text)
    wrong = ValueError(f"""The option 'assign' looks like {{"topic": [0, 1]}}, not {text!r}.""")
    if not isinstance(chosen, dict) or not chosen:
        raise wrong
    assigned: list[tuple[str, int]] = []
    for topic, indexes in chosen.items():
        if not isinstance(indexes, list) or not all(type(index) is int and index >= 0 for index in indexes):
            raise wrong
        assigned += [(topic, index) for index in dict.fromkeys(indexes)]
    return Subscription(assigned=tuple(sorted(assigned)))


def _positions(options: Mapping[str, str], name: str, default: Positions, words: tuple[str, ...]) -> Positions:
    text = options.get(name)
    if text is None:
        return default
    word = text.strip().lower()
    if word in words:
        return "earliest" if word == "earliest" else "latest"
    choice = " or ".join(repr(word) for word in words)
    if not text.strip().startswith("{"):
        raise ValueError(f"The option {name!r} is {choice} or offsets as JSON, not {text!r}.")
    wrong = ValueError(f"""The option {name!r} looks like {{"topic": {{"0": 23, "1": -2}}}}, not {text!r}.""")
    chosen = _json(name, text)
    positions: dict[str, dict[int, int]] = {}
    for topic, offsets in chosen.items():
        if not isinstance(offsets, dict):
            raise wrong
        for index, offset in offsets.items():
            if not index.isascii() or not index.isdigit() or type(offset) is not int or offset < EARLIEST_OFFSET:
                raise wrong
            positions.setdefault(topic, {})[int(index)] = offset
    if name == "endingOffsets" and any(at == EARLIEST_OFFSET for part in positions.values() for at in part.values()):
        raise ValueError("The option 'endingOffsets' cannot end at the earliest offset (-2).")
    return positions


def _limit(options: Mapping[str, str]) -> int | None:
    text = options.get("maxOffsetsPerTrigger")
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise ValueError(f"The option 'maxOffsetsPerTrigger' is a positive whole number, not {text!r}.")
    return int(text)


def source_options(options: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """The options of a read. Raises ValueError with one sentence for what is unknown, missing or wrong."""
    known = _known(options, SOURCE_KEYS, "source")
    isolation = known.get("kafka.isolation.level", "read_uncommitted")
    if isolation not in ("read_uncommitted", "read_committed"):
        levels = "read_uncommitted or read_committed"
        raise ValueError(f"The option 'kafka.isolation.level' is {levels}, not {isolation!r}.")
    starting_words = ("earliest", "latest") if streaming else ("earliest",)
    if streaming and "endingOffsets" in known:
        raise ValueError("The option 'endingOffsets' is for batch reads; a stream has no end.")
    starting = _positions(known, "startingOffsets", "latest" if streaming else "earliest", starting_words)
    if not streaming and isinstance(starting, dict):
        if any(at == LATEST_OFFSET for part in starting.values() for at in part.values()):
            raise ValueError("The option 'startingOffsets' of a batch read cannot start at the latest offset (-1).")
    return SourceOptions(
        bootstrap=_bootstrap(known),
        subscription=_subscription(known),
        starting=starting,
        ending=_positions(known, "endingOffsets", "latest", ("latest",)),
        max_offsets_per_trigger=_limit(known),
        fail_on_data_loss=_flag(known, "failOnDataLoss", True),
        include_headers=_flag(known, "includeHeaders", False),
        isolation="read_committed" if isolation == "read_committed" else "read_uncommitted",
        client_id=known.get("kafka.client.id", "headrace-spark"),
    )


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    """The options of a write. Raises ValueError with one sentence for what is unknown, missing or wrong."""
    known = _known(options, SINK_KEYS, "sink")
    codec = known.get("kafka.compression.type", "none")
    if codec.upper() not in Compression.__members__:
        raise ValueError(f"The option 'kafka.compression.type' is none, gzip, snappy, lz4 or zstd, not {codec!r}.")
    return SinkOptions(
        bootstrap=_bootstrap(known),
        topic=known.get("topic"),
        compression=Compression[codec.upper()],
        client_id=known.get("kafka.client.id", "headrace-spark"),
    )
