"""Values that each are possible in a file, and which Apache Kafka's running broker refuses as dynamic settings.

The words are Kafka's, also where they are those of a failed requirement or of an exception inside another.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from .listener import PREFIX
from .setting import ConfigError, Value

if TYPE_CHECKING:
    from .broker import BrokerConfig

EVERYWHERE: Final = "*"
"""All log directories, in `cordoned.log.dirs`."""
_REPORTER: Final = "org.apache.kafka.common.metrics.JmxReporter"
"""The one class that Kafka has; another one may be there or not."""
_BUFFER_MIN_BYTES: Final = 1 << 20
_LIKE_RETENTION: Final = -2
_UNLIMITED: Final = -1


_LESS: Final = (
    ("group.share.assignment.interval.ms", "group.share.max.assignment.interval.ms"),
    ("group.streams.assignment.interval.ms", "group.streams.max.assignment.interval.ms"),
)
_POOLS: Final = (
    "background.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.follower.thread.pool.size",
    "remote.log.reader.threads",
)
"""Numbers of threads, which change by half at most, or to the double."""
_ADDRESS: Final = re.compile(r"[0-9a-zA-Z\-%._:]*")


def check_dynamic(now: BrokerConfig, after: BrokerConfig, altered: Mapping[str, str]) -> None:
    """Raises ConfigError if the dynamic settings in `altered` are invalid in the resulting configuration."""
    _check_threads(now, after, altered)
    for check in (_check_segments, _check_cleaner, _check_connections, _check_directories, _check_reporters):
        check(after, altered)
    for of, longer in (("ms", "log.retention.ms"), ("bytes", "log.retention.bytes")):
        if not {f"log.local.retention.{of}", longer}.isdisjoint(altered):
            _check_local_retention(after, f"log.local.retention.{of}", longer)
    for name, highest in _LESS:
        if not {name, highest}.isdisjoint(altered) and _number(after[name]) > _number(after[highest]):
            raise ConfigError(name, after[name], line=f"{name} must be less than or equal to {highest}")


def _check_threads(now: BrokerConfig, after: BrokerConfig, altered: Mapping[str, str]) -> None:
    for name in _POOLS:
        before, count = _number(now[name]), _number(after[name])
        why = ""
        if count > before * 2:
            why = f"value should not be greater than double the current value {before}"
        elif count < before // 2:
            why = f"value should be at least half the current value {before}"
        if name in altered and why:
            inner = f"Dynamic thread count update validation failed for {name}={count}, {why}"
            raise _invalid(name, count, inner)
    name = "log.cleaner.threads"
    before = _number(now[name])
    if name in altered and before and _number(after[name]) > before * 2:
        _check_cleaner(after, altered)
        inner = f"Log cleaner threads cannot be increased to more than double the current value {before}"
        raise _invalid(name, after[name], inner)


def _check_segments(after: BrokerConfig, altered: Mapping[str, str]) -> None:
    for name, lowest in (("log.roll.ms", 1), ("log.roll.jitter.ms", 0)):
        value = after[name]
        if name in altered and value is not None and _number(value) < lowest:
            raise _required(name, value, f"{name} must be greater than or equal to {lowest}")


def _check_cleaner(after: BrokerConfig, altered: Mapping[str, str]) -> None:
    threads, size = "log.cleaner.threads", "log.cleaner.dedupe.buffer.size"
    if {threads, size}.isdisjoint(altered):
        return
    count = _number(after[threads])
    if count == 0:
        raise ConfigError(threads, 0, line="/ by zero")
    if _number(after[size]) // count <= _BUFFER_MIN_BYTES:
        raise _required(size, after[size], f"{size} must be at least 1MB per cleaner thread.")


def _check_connections(after: BrokerConfig, altered: Mapping[str, str]) -> None:
    for name, value in altered.items():
        plain = name.removeprefix(PREFIX).partition(".")[2] if name.startswith(PREFIX) else name
        if plain in ("max.connections", "max.connection.creation.rate") and int(value) == 0:
            raise _invalid(name, 0, f"Invalid {plain} 0")
    each, others = "max.connections.per.ip", "max.connections.per.ip.overrides"
    text = str(after[others] or "")
    if others in altered and text:
        _check_pairs(others, text)
    if not {each, others}.isdisjoint(altered) and _number(after[each]) == 0 and not text:
        raise _required(each, 0, f"{each} can be set to zero only if {others} property is set.")


def _check_pairs(name: str, text: str) -> None:
    """Limits of addresses, as Java splits them."""
    pairs = [pair.strip() for pair in text.rstrip(", ").split(",")]
    for pair in pairs:
        if ":" not in pair:
            line = f"Error parsing configuration property '{name}': begin 0, end -1, length {len(pair)}"
            raise ConfigError(name, text, line=line)
    named = [pair.rpartition(":") for pair in pairs]
    for _, _, count in named:
        if re.fullmatch(r"[-+]?[0-9]+", count.strip()) is None:
            raise ConfigError(name, text, line=f'For input string: "{count.strip()}"')
    wrong = [host.strip() for host, _, _ in named if _ADDRESS.fullmatch(host.strip()) is None]
    if wrong:
        raise ConfigError(name, text, line=f"{name} contains invalid addresses : {','.join(wrong)}")


def _check_directories(after: BrokerConfig, altered: Mapping[str, str]) -> None:
    name = "cordoned.log.dirs"
    if name not in altered or after.cordoned_log_dirs == (EVERYWHERE,):
        return
    if EVERYWHERE in after.cordoned_log_dirs:
        why = f"When {name} is set to {EVERYWHERE}, it must not contain other values"
        raise _required(name, ",".join(after.cordoned_log_dirs), why)
    missing = [path for path in after.cordoned_log_dirs if path not in after.log_dirs]
    if missing:
        why = f"All entries in {name} must be present in log.dirs or log.dir. Missing entries : {', '.join(missing)}"
        raise _required(name, ",".join(after.cordoned_log_dirs), why)


def _check_reporters(after: BrokerConfig, altered: Mapping[str, str]) -> None:
    name = "metric.reporters"
    value = after[name]
    if name in altered and isinstance(value, tuple) and not {_REPORTER}.issuperset(value):
        inner = (
            f"Validation of dynamic config update of Set({name}) failed with class class "
            "kafka.server.DynamicMetricsReporters"
        )
        raise _invalid(name, ",".join(value), inner)


def _check_local_retention(after: BrokerConfig, name: str, longer: str) -> None:
    """Checks that the local retention does not exceed the total."""
    local, kept = _number(after[name]), _number(after[longer])
    if kept == _UNLIMITED or local == _LIKE_RETENTION:
        return
    if local == _UNLIMITED:
        why = f"Value must not be -1 as {longer} value is set as {kept}."
    elif local > kept:
        why = f"Value must not be more than {longer} property value: {kept}"
    else:
        return
    raise _invalid(name, local, f"Invalid value {local} for configuration {name}: {why}")


def _number(value: Value) -> int:
    assert isinstance(value, int)
    return value


def _required(name: str, value: Value, why: str) -> ConfigError:
    return ConfigError(name, value, line=f"requirement failed: {why}")


def _invalid(name: str, value: Value, inner: str) -> ConfigError:
    line = (
        f"Invalid value org.apache.kafka.common.config.ConfigException: {inner} for configuration Invalid dynamic "
        "configuration"
    )
    return ConfigError(name, value, line=line)
