"""Dynamic settings that Apache Kafka 4.3.1 refuses, in its words: each was asked of a running one."""

from __future__ import annotations

import pytest

from headrace.config import BrokerConfig, ConfigError
from headrace.config.dynamic import check_dynamic

FILE = {"log.dirs": "/one,/two"}
_WRAPPED = "Invalid value org.apache.kafka.common.config.ConfigException: "
_END = " for configuration Invalid dynamic configuration"
REPORTER = "org.apache.kafka.common.metrics.JmxReporter"
_CORDONED = (
    "requirement failed: All entries in cordoned.log.dirs must be present in log.dirs or log.dir. Missing entries : "
)
_REPORTERS = (
    f"{_WRAPPED}Validation of dynamic config update of Set(metric.reporters) failed with class class "
    f"kafka.server.DynamicMetricsReporters{_END}"
)
_PER_IP = "max.connections.per.ip"
_PARSING = f"Error parsing configuration property '{_PER_IP}.overrides': begin 0, end -1, length "
_BUFFER = "requirement failed: log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread."
_THREADS = f"{_WRAPPED}Dynamic thread count update validation failed for num.io.threads="

REFUSED = [
    ("cordoned.log.dirs", "x", f"{_CORDONED}x"),
    ("cordoned.log.dirs", "/one,a,b", f"{_CORDONED}a, b"),
    (
        "cordoned.log.dirs",
        "x,*",
        "requirement failed: When cordoned.log.dirs is set to *, it must not contain other values",
    ),
    ("metric.reporters", "x", _REPORTERS),
    ("metric.reporters", f"{REPORTER},x", _REPORTERS),
    ("log.roll.ms", "0", "requirement failed: log.roll.ms must be greater than or equal to 1"),
    ("log.roll.jitter.ms", "-1", "requirement failed: log.roll.jitter.ms must be greater than or equal to 0"),
    ("log.cleaner.threads", "0", "/ by zero"),
    ("log.cleaner.threads", "128", _BUFFER),
    (
        "log.cleaner.threads",
        "3",
        f"{_WRAPPED}Log cleaner threads cannot be increased to more than double the current value 1{_END}",
    ),
    ("log.cleaner.dedupe.buffer.size", "1048576", _BUFFER),
    (
        "log.local.retention.ms",
        "-1",
        f"{_WRAPPED}Invalid value -1 for configuration log.local.retention.ms: Value must not be -1 as "
        f"log.retention.ms value is set as 604800000.{_END}",
    ),
    (
        "log.local.retention.ms",
        "604800001",
        f"{_WRAPPED}Invalid value 604800001 for configuration log.local.retention.ms: Value must not be more than "
        f"log.retention.ms property value: 604800000{_END}",
    ),
    ("max.connections", "0", f"{_WRAPPED}Invalid max.connections 0{_END}"),
    ("listener.name.plaintext.max.connections", "0", f"{_WRAPPED}Invalid max.connections 0{_END}"),
    ("max.connection.creation.rate", "0", f"{_WRAPPED}Invalid max.connection.creation.rate 0{_END}"),
    (
        _PER_IP,
        "0",
        f"requirement failed: {_PER_IP} can be set to zero only if {_PER_IP}.overrides property is set.",
    ),
    (f"{_PER_IP}.overrides", "a:1,b", f"{_PARSING}1"),
    (f"{_PER_IP}.overrides", "1.2.3.4:x", 'For input string: "x"'),
    (f"{_PER_IP}.overrides", "h h:5", f"{_PER_IP}.overrides contains invalid addresses : h h"),
    ("num.io.threads", "17", f"{_THREADS}17, value should not be greater than double the current value 8{_END}"),
    ("num.io.threads", "3", f"{_THREADS}3, value should be at least half the current value 8{_END}"),
    (
        "group.share.assignment.interval.ms",
        "100000000",
        "group.share.assignment.interval.ms must be less than or equal to group.share.max.assignment.interval.ms",
    ),
]
TAKEN = [
    ("cordoned.log.dirs", "/two"),
    ("cordoned.log.dirs", "*"),
    ("cordoned.log.dirs", ""),
    ("metric.reporters", REPORTER),
    ("metric.reporters", ""),
    ("log.roll.ms", "1"),
    ("log.roll.jitter.ms", "0"),
    ("log.cleaner.threads", "2"),
    ("log.cleaner.dedupe.buffer.size", "1048577"),
    ("log.local.retention.ms", "604800000"),
    ("log.local.retention.bytes", "-1"),
    ("max.connections", "1"),
    ("listener.name.plaintext.max.connection.creation.rate", "1"),
    (f"{_PER_IP}.overrides", " a : 5 "),
    (f"{_PER_IP}.overrides", "a:1, "),
    (f"{_PER_IP}.overrides", "::1:-1,:5"),
    ("num.io.threads", "16"),
    ("num.io.threads", "4"),
]


def checked(name: str, value: str) -> None:
    now = BrokerConfig.load(FILE)
    asked = {name: value}
    check_dynamic(now, now.with_overrides(asked, {}), asked)


@pytest.mark.parametrize(("name", "value", "line"), REFUSED)
def test_what_kafka_refuses_is_refused_in_its_words(name: str, value: str, line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        checked(name, value)
    assert str(caught.value) == line


@pytest.mark.parametrize(("name", "value"), TAKEN)
def test_what_kafka_takes_is_taken(name: str, value: str) -> None:
    checked(name, value)


def test_a_limit_of_nothing_with_exceptions() -> None:
    now = BrokerConfig.load(FILE)
    asked = {_PER_IP: "0", f"{_PER_IP}.overrides": "a:1"}
    check_dynamic(now, now.with_overrides(asked, {}), asked)


def test_what_a_file_says_stands_in_no_other_settings_way() -> None:
    now = BrokerConfig.load(FILE | {"log.roll.ms": "0"})
    asked = {"log.roll.jitter.ms": "5"}
    check_dynamic(now, now.with_overrides(asked, {}), asked)
