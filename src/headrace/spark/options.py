"""The options of the source and the sink: named and behaving as in Spark's own Kafka connector, checked before a query
starts. Every complaint is a `ValueError` of one sentence.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher, get_close_matches
from typing import TYPE_CHECKING, Any, Final, Literal

from headrace.config.java_regex import for_ascii
from headrace.spark.client_settings import (
    FETCH,
    PRODUCE,
    ClusterSettings,
    FetchSettings,
    ProduceSettings,
    cluster_settings,
    fetch_settings,
    produce_settings,
)
from headrace.spark.delivery_options import OF_BATCH, ExactlyOnce, delivery
from headrace.spark.option_table import BATCH_KEYS, IGNORED, SINK_KEYS, SOURCE_KEYS
from headrace.spark.row_types import CORRUPT, EVENT_TIME, HEADERS, WHOLE_ROW, RowOptions
from headrace.spark.value_formats import value_format
from headrace.wire.records import Compression

if TYPE_CHECKING:
    from headrace.client.reading import Isolation

EARLIEST_OFFSET: Final = -2
LATEST_OFFSET: Final = -1
MAX_TRIGGER_DELAY_S: Final = 900.0
GROUP_PREFIX: Final = "spark-kafka-source"
"""Both are the connector's."""

MODES: Final = ("PERMISSIVE", "FAILFAST")

Positions = Literal["earliest", "latest"] | dict[str, dict[int, int]]
"""`startingOffsets` and `endingOffsets`: a word, or offsets by topic and partition, where -2 and -1 are the words."""


@dataclass(frozen=True, slots=True)
class Times:
    """`startingTimestamp`, `startingOffsetsByTimestamp` and those for the end: the first record at or after a time.

    Milliseconds since 1970: one for every partition, or one by topic and partition.
    """

    everywhere: int | None = None
    by_partition: dict[str, dict[int, int]] = field(default_factory=dict)


Places = Positions | Times
"""Where a read begins or ends."""

_BESIDE: Final = frozenset({"path", "checkpointlocation", "queryname", OF_BATCH})
"""Keys that Spark itself puts among the options, and one of `write_updates`."""

DELAY_UNITS_S: Final = {
    "us": 1e-6, "ms": 1e-3, "": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Subscription:
    """Which partitions are read: topics by name, by pattern, or partitions one by one. One of the three is set.

    `pattern` is for Python's `re`, `written` the same as it was given.
    """

    topics: tuple[str, ...] = ()
    pattern: str = ""
    written: str = ""
    assigned: tuple[tuple[str, int], ...] = ()

    @property
    def names(self) -> list[str]:
        """The topics that are named, one by one or by their partitions; a pattern names none."""
        return sorted({*self.topics, *(topic for topic, _ in self.assigned)})

    def __str__(self) -> str:
        return ", ".join(self.topics) or self.written or ", ".join(f"{topic}-{index}" for topic, index in self.assigned)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What a source reads, and how."""

    cluster: ClusterSettings
    subscription: Subscription
    starting: Places
    ending: Places = "latest"
    latest_where_too_late: bool = False
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_s: float = MAX_TRIGGER_DELAY_S
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    group: str = ""
    group_prefix: str = GROUP_PREFIX
    commit_group_offsets: bool = True
    fail_on_data_loss: bool = True
    include_headers: bool = False
    row: RowOptions = WHOLE_ROW
    isolation: Isolation = "read_uncommitted"
    fetch: FetchSettings = FETCH


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Where a sink writes, and how."""

    cluster: ClusterSettings
    topic: str | None = None
    compression: Compression = Compression.NONE
    batch_headers: bool = False
    produce: ProduceSettings = PRODUCE
    exactly_once: ExactlyOnce | None = None


def _known(options: Mapping[str, str], keys: Sequence[str], side: str) -> dict[str, str]:
    """The options by the names that the documentation has; raises for one that is none of them."""
    names = {key.lower(): key for key in keys}
    ignored = set(ignored_options(options, keys))
    found: dict[str, str] = {}
    for key, value in options.items():
        name = names.get(key.lower())
        if name is not None:
            found[name] = value
        elif key.lower() not in _BESIDE and key not in ignored:
            raise ValueError(_unknown(key, keys, side))
    return found


def ignored_options(options: Mapping[str, str], keys: Sequence[str]) -> list[str]:
    """Those of the options that one side, with these `keys`, passes over; a program that is ported may give them."""
    clients = [name for name in (*SOURCE_KEYS, *SINK_KEYS) if name.startswith("kafka.") and name not in keys]
    passed_over = {name.lower() for name in (*IGNORED, *clients)}
    return [key for key in options if key.lower() in passed_over]


def warn_of_ignored(options: Mapping[str, str], keys: Sequence[str], side: str) -> None:
    """Warns once with the names of ignored options, if there are any."""
    spelled = {name.lower(): name for name in (*IGNORED, *SOURCE_KEYS, *SINK_KEYS)}
    if ignored := sorted(spelled[key.lower()] for key in ignored_options(options, keys)):
        message = f"The headrace {side} has no use for these options and ignores them: {', '.join(ignored)}."
        warnings.warn(message, RuntimeWarning, stacklevel=3)


def _unknown(key: str, keys: Sequence[str], side: str) -> str:
    """The complaint about a name that is no option, with the one that may have been meant."""
    client = key.lower().startswith("kafka.")
    served = [name for name in keys if name.startswith("kafka.") == client]
    near = get_close_matches(key.lower(), [name.lower() for name in served], n=1)
    meant = next((name for name in served if name.lower() in near), None)
    if meant is not None:
        key = _spelled_as(meant, key)
    problem = f"The headrace {side} has no option {key!r}"
    if client:
        problem = f"The headrace {side} does not support the client setting {key!r}"
    return f"{problem}; did you mean {meant!r}?" if meant else f"{problem}; it has {', '.join(served)}."


def _spelled_as(meant: str, key: str) -> str:
    """A name as it was probably given: Spark hands it over in small letters, whatever the program says."""
    if not key.islower():
        return key
    letters = list(key)
    for block in SequenceMatcher(None, meant.lower(), key).get_matching_blocks():
        letters[block.b : block.b + block.size] = meant[block.a : block.a + block.size]
    return "".join(letters)


def _flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name)
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise ValueError(f"The option {name!r} must be true or false, not {text!r}.")
    return text.lower() == "true"


def _json(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise ValueError(f"The option {name!r} is not valid JSON: {text!r}.") from None


def _subscription(options: Mapping[str, str]) -> Subscription:
    given = [name for name in ("subscribe", "subscribePattern", "assign") if name in options]
    if len(given) != 1:
        raise ValueError(
            f"Give exactly one of the options 'subscribe', 'subscribePattern' and 'assign', not {len(given)}."
        )
    text = options[given[0]]
    if given[0] == "subscribe":
        topics = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
        if not topics:
            raise ValueError("The option 'subscribe' names no topic.")
        return Subscription(topics=topics)
    if given[0] == "subscribePattern":
        if not text.strip():
            raise ValueError("The option 'subscribePattern' is empty.")
        try:
            return Subscription(pattern=for_ascii(text), written=text)
        except ValueError as error:
            raise ValueError(
                f"The option 'subscribePattern' is not a regular expression that headrace takes: {error}."
            ) from None
    chosen = _json("assign", text)
    wrong = ValueError(f"""The option 'assign' must look like {{"topic": [0, 1]}}, not {text!r}.""")
    if not isinstance(chosen, dict) or not chosen:
        raise wrong
    assigned: list[tuple[str, int]] = []
    for topic, indexes in chosen.items():
        if not isinstance(indexes, list) or not all(type(index) is int and index >= 0 for index in indexes):
            raise wrong
        assigned += [(topic, index) for index in dict.fromkeys(indexes)]
    return Subscription(assigned=tuple(sorted(assigned)))


def _by_partition(name: str, text: str, least: int, example: str) -> dict[str, dict[int, int]]:
    """Numbers of at least `least` by topic and partition."""
    wrong = ValueError(f"The option {name!r} must look like {example}, not {text!r}.")
    chosen = _json(name, text)
    if not isinstance(chosen, dict):
        raise wrong
    found: dict[str, dict[int, int]] = {}
    for topic, numbers in chosen.items():
        if not isinstance(numbers, dict):
            raise wrong
        for index, number in numbers.items():
            if not index.isascii() or not index.isdigit() or type(number) is not int or number < least:
                raise wrong
            found.setdefault(topic, {})[int(index)] = number
    return found


def _places(options: Mapping[str, str], side: str, default: Positions, words: Sequence[str]) -> Places:
    """Where a read begins (`side` is "starting") or ends; as in the connector, a time goes before an offset."""
    everywhere = _whole_number(options, f"{side}Timestamp", least=0)
    if everywhere is not None:
        return Times(everywhere)
    name = f"{side}OffsetsByTimestamp"
    if name in options:
        example = """{"topic": {"0": 1700000000000, "1": 1700000000000}}"""
        return Times(by_partition=_by_partition(name, options[name], 0, example))
    return _positions(options, f"{side}Offsets", default, words)


def _positions(options: Mapping[str, str], name: str, default: Positions, words: Sequence[str]) -> Positions:
    text = options.get(name)
    if text is None:
        return default
    word = text.strip().lower()
    if word in words:
        return "earliest" if word == "earliest" else "latest"
    choice = " or ".join(repr(word) for word in words)
    if not text.strip().startswith("{"):
        raise ValueError(f"The option {name!r} must be {choice} or offsets as JSON, not {text!r}.")
    positions = _by_partition(name, text, EARLIEST_OFFSET, """{"topic": {"0": 23, "1": -2}}""")
    if name == "endingOffsets" and any(at == EARLIEST_OFFSET for part in positions.values() for at in part.values()):
        raise ValueError("The option 'endingOffsets' cannot end at the earliest offset (-2).")
    return positions


def _whole_number(options: Mapping[str, str], name: str, least: int = 1) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or int(text) < least:
        raise ValueError(f"The option {name!r} must be a {'positive ' if least else ''}whole number, not {text!r}.")
    return int(text)


def _delay_s(options: Mapping[str, str], name: str, default: float) -> float:
    text = options.get(name)
    if text is None:
        return default
    found = re.fullmatch(r"([0-9]+)\s*([a-z]*)", text.strip().lower())
    if found is None or found[2] not in DELAY_UNITS_S:
        raise ValueError(f"The option {name!r} must be a time such as 15m, 10s or 500ms, not {text!r}.")
    return int(found[1]) * DELAY_UNITS_S[found[2]]


def _row_options(options: Mapping[str, str]) -> RowOptions:
    value = value_format(options)
    mode = options.get("mode", MODES[0]).upper()
    if mode not in MODES:
        raise ValueError(f"The option 'mode' must be {' or '.join(MODES)}, not {options['mode']!r}.")
    if "mode" in options and value.name == "raw":
        raise ValueError("The option 'mode' is for a valueFormat other than raw: raw values are never malformed.")
    names = list(WHOLE_ROW.columns)
    if _flag(options, "includeHeaders", False):
        names.append(HEADERS)
    if value.name != "raw" and mode == "PERMISSIVE":
        names.append(CORRUPT)
    if "eventTime" in options:
        names.append(EVENT_TIME)
    row = RowOptions(
        columns=_columns(options, names),
        value=value,
        fail_fast=mode == "FAILFAST",
        event_time=options.get("eventTime", ""),
    )
    check_event_time(row)
    return row


def _columns(options: Mapping[str, str], names: list[str]) -> tuple[str, ...]:
    """Those of `names` that are chosen, in the order in which they are."""
    text = options.get("columns")
    if text is None:
        return tuple(names)
    chosen = [name.strip() for name in text.split(",")]
    if unknown := [name for name in chosen if name not in names]:
        raise ValueError(f"The option 'columns' names {unknown[0]!r}; this read has {', '.join(names)}.")
    if twice := [name for name in chosen if chosen.count(name) > 1]:
        raise ValueError(f"The option 'columns' names {twice[0]!r} twice.")
    return tuple(chosen)


def check_event_time(row: RowOptions) -> None:
    """Whether `eventTime` names something that is a time; ValueError, in one sentence, where it does not."""
    if EVENT_TIME not in row.columns or row.value.to_be_inferred:
        return
    fields = {field.name: field.type for field in row.value.fields or ()}
    if row.event_time not in fields:
        if row.event_time != "timestamp":
            there = ", ".join([*fields, "timestamp"])
            raise ValueError(f"The option 'eventTime' names {row.event_time!r}; this read has {there}.")
        return
    from headrace.spark.schemas import ddl

    kind = ddl(fields[row.event_time])
    if kind not in ("timestamp", "bigint"):
        raise ValueError(
            f"The option 'eventTime' names {row.event_time!r}, which is {kind}; it must be timestamp, or bigint in "
            "milliseconds."
        )


def source_options(options: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """The options of a read. Raises ValueError with one sentence for an unknown, missing or wrong option."""
    chosen = _source_options(options, streaming=streaming)
    if why := _unfit(options, chosen, streaming=streaming):
        raise ValueError(f"{why[0].upper()}{why[1:]}.")
    return chosen


def read_options(options: Mapping[str, str]) -> SourceOptions:
    """The options of a read while Spark does not say yet whether it is of a batch or a stream: it asks for a schema
    before. Raises ValueError with one sentence for an error in either.
    """
    batch = _source_options(options, streaming=False)
    not_batch = _unfit(options, batch, streaming=False)
    if not not_batch:
        return batch
    stream = _source_options(options, streaming=True)
    if not_stream := _unfit(options, stream, streaming=True):
        raise ValueError(f"The options are for neither a batch read ({not_batch}) nor a stream ({not_stream}).")
    return stream


def _unfit(options: Mapping[str, str], chosen: SourceOptions, *, streaming: bool) -> str:
    """Why options that are each right are not those of a stream, or of a batch read; nothing where they are."""
    if not streaming:
        starting = chosen.starting
        if starting == "latest":
            return "the option 'startingOffsets' of a batch read must be 'earliest' or offsets as JSON, not 'latest'"
        parts = starting.values() if isinstance(starting, dict) else ()
        if any(at == LATEST_OFFSET for part in parts for at in part.values()):
            return "the option 'startingOffsets' of a batch read cannot start at the latest offset (-1)"
        return ""
    given = {key.lower() for key in options}
    if ends := [name for name in BATCH_KEYS if name.lower() in given]:
        return f"the option {ends[0]!r} is for batch reads; a stream has no end"
    if chosen.row.value.to_be_inferred:
        return "a stream of JSON values needs the option 'valueSchema', such as 'id BIGINT, name STRING'"
    return ""


def _source_options(options: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    known = _known(options, SOURCE_KEYS, "source")
    isolation = known.get("kafka.isolation.level", "read_uncommitted")
    if isolation not in ("read_uncommitted", "read_committed"):
        levels = "read_uncommitted or read_committed"
        raise ValueError(f"The option 'kafka.isolation.level' must be {levels}, not {isolation!r}.")
    strategy = known.get("startingOffsetsByTimestampStrategy", "error").lower()
    if strategy not in ("error", "latest"):
        raise ValueError(f"The option 'startingOffsetsByTimestampStrategy' must be error or latest, not {strategy!r}.")
    least, most = (_whole_number(known, f"{which}OffsetsPerTrigger") for which in ("min", "max"))
    if least is not None and most is not None and least > most:
        raise ValueError(f"The option 'minOffsetsPerTrigger' ({least}) is larger than 'maxOffsetsPerTrigger' ({most}).")
    return SourceOptions(
        cluster=cluster_settings(known),
        subscription=_subscription(known),
        starting=_places(known, "starting", "latest" if streaming else "earliest", ("earliest", "latest")),
        ending=_places(known, "ending", "latest", ("latest",)),
        latest_where_too_late=strategy == "latest",
        max_offsets_per_trigger=most,
        min_offsets_per_trigger=least,
        max_trigger_delay_s=_delay_s(known, "maxTriggerDelay", MAX_TRIGGER_DELAY_S),
        min_partitions=_whole_number(known, "minPartitions"),
        max_records_per_partition=_whole_number(known, "maxRecordsPerPartition"),
        group=known.get("kafka.group.id", ""),
        group_prefix=known.get("groupIdPrefix", GROUP_PREFIX),
        commit_group_offsets=_flag(known, "commitGroupOffsets", True),
        fail_on_data_loss=_flag(known, "failOnDataLoss", True),
        include_headers=_flag(known, "includeHeaders", False),
        row=_row_options(known),
        isolation="read_committed" if isolation == "read_committed" else "read_uncommitted",
        fetch=fetch_settings(known),
    )


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    """The options of a write. Raises ValueError with one sentence for an unknown, missing or wrong option."""
    if any(key.lower() == "kafka.transactional.id" for key in options):
        raise ValueError("The headrace sink makes transactional ids of its own: leave 'kafka.transactional.id' out.")
    known = _known(options, SINK_KEYS, "sink")
    codec = known.get("kafka.compression.type", "none")
    if codec.upper() not in Compression.__members__:
        raise ValueError(f"The option 'kafka.compression.type' must be none, gzip, snappy, lz4 or zstd, not {codec!r}.")
    return SinkOptions(
        cluster=cluster_settings(known),
        exactly_once=delivery(known, options),
        topic=known.get("topic"),
        compression=Compression[codec.upper()],
        batch_headers=_flag(known, "batchHeaders", False),
        produce=produce_settings(known),
    )
