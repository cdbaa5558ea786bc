"""What a setting is: its type, default, bounds and scope, and how its text is read and written.

Types, parsing and the wording of errors are Apache Kafka's, because clients and operators match on them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

Value = int | float | bool | str | tuple[str, ...] | None
Scope = Literal["broker", "topic", "group"]
Update = Literal["read-only", "per-broker", "cluster-wide"]
By = Literal["", "listener", "mechanism"]

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
DOUBLE_MAX = 1.7976931348623157e308
LOOPBACK = "127.0.0.1"


class Type(IntEnum):
    """A setting's type, numbered as in DescribeConfigs responses."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


INTEGER_RANGES = {
    Type.SHORT: (-(2**15), 2**15 - 1),
    Type.INT: (-(2**31), INT_MAX),
    Type.LONG: (-(2**63), LONG_MAX),
}


class ConfigError(ValueError):
    """A setting that cannot be taken. `str()` is one line, worded as Kafka words it.

    `name` and `value` say which; the answer to a client carries INVALID_CONFIG with this line.
    """

    def __init__(self, name: str, value: object, why: str = "", *, line: str = "") -> None:
        self.name = name
        self.value = value
        self.why = why
        super().__init__(line or f"Invalid value {value} for configuration {name}" + (f": {why}" if why else ""))


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table of settings.

    `default` is the typed value (None: not set). `at_least`, `at_most` bound numbers; `choices` bounds strings and the
    elements of lists; `check` is a further test that returns an error text, or "".
    `synonyms`: for a topic or group setting, the broker settings that supply its default, the first that is set wins.
    `unserved` says why setting it has no effect here; empty: it has. `refused` says why it is refused: to ignore it
    silently would weaken security or durability. `ours` marks what Kafka does not have. `by`: a listener may have a
    value of its own, behind `listener.name.NAME.`, or each SASL mechanism of a listener, behind
    `listener.name.NAME.MECHANISM.`. `repeats`: a list keeps a value that is named twice; others keep the first of them
    (KIP-1161). `opened_with`: logins of clients and of nodes are opened with it, see
    `config/opened.py`.
    """

    name: str
    type: Type
    default: Value
    about: str
    scope: Scope = "broker"
    update: Update = "read-only"
    at_least: int | float | None = None
    at_most: int | float | None = None
    choices: tuple[str, ...] = ()
    check: Callable[[Value], str] | None = None
    synonyms: tuple[str, ...] = ()
    unserved: str = ""
    refused: str = ""
    ours: bool = False
    internal: bool = False
    by: By = ""
    repeats: bool = False
    opened_with: bool = False

    @property
    def restart(self) -> bool:
        """Whether a change needs a restart of the broker."""
        return self.scope == "broker" and self.update == "read-only"

    @property
    def sensitive(self) -> bool:
        """Whether the value must never be shown."""
        return self.type is Type.PASSWORD

    @property
    def bounds(self) -> str:
        """What values are allowed, for people; empty when the type says it all."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        if self.at_least is not None and self.at_most is not None:
            return f"{self.at_least} to {self.at_most}"
        if self.at_least is not None:
            return f"at least {self.at_least}"
        return "" if self.at_most is None else f"at most {self.at_most}"


@dataclass(frozen=True, slots=True)
class Family:
    """Broker settings that begin alike and of which none is served, in one row; `refused` is as for a Setting.

    `listener.name.external.ssl.keystore.location` belongs to the family of `ssl.keystore.location`.
    """

    prefix: str
    about: str
    refused: str

    def holds(self, name: str) -> bool:
        """Whether a setting of this name is of this family."""
        is_of_one_listener = name.startswith("listener.name.") and name.count(".") >= 3
        return (name.split(".", 3)[-1] if is_of_one_listener else name).startswith(self.prefix)


def asks_for_nothing(text: str) -> bool:
    """Whether this value leaves a setting off: what is refused may be named with it."""
    return text.strip().lower() in ("", "false", "0")


def parse_value(setting: Setting, text: str) -> Value:
    """The typed value that `text` means. Raises ConfigError in Kafka's words."""
    value = parse_type(setting, text)
    validate(setting, value)
    return value


def parse_type(setting: Setting, text: str) -> Value:
    """`text` as the setting's type, its bounds not yet looked at. Raises ConfigError."""
    trimmed = text.strip()
    kind = setting.type
    if kind is Type.BOOLEAN:
        lowered = trimmed.lower()
        if lowered not in ("true", "false"):
            raise ConfigError(setting.name, text, "Expected value to be either true or false")
        return lowered == "true"
    if kind in INTEGER_RANGES:
        return _parse_integer(setting, text, trimmed)
    if kind is Type.DOUBLE:
        try:
            if "_" in trimmed:
                raise ValueError
            return float(trimmed)
        except ValueError:
            raise ConfigError(setting.name, text, "Not a number of type DOUBLE") from None
    if kind is Type.LIST:
        parts = _parts_of(trimmed) if trimmed else ()
        if "" in parts and not setting.repeats:
            line = f"Configuration '{setting.name}' values must not be empty."
            raise ConfigError(setting.name, text, line=line)
        return parts if setting.repeats else tuple(dict.fromkeys(parts))
    return trimmed


def names_twice(setting: Setting, text: str) -> bool:
    """Whether a list has a value twice, of which one goes."""
    if setting.type is not Type.LIST or setting.repeats:
        return False
    parts = _parts_of(text)
    return len(set(parts)) < len(parts)


def _parts_of(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(","))


def _parse_integer(setting: Setting, text: str, trimmed: str) -> int:
    low, high = INTEGER_RANGES[setting.type]
    digits = trimmed[1:] if trimmed[:1] in ("-", "+") else trimmed
    if digits.isascii() and digits.isdigit() and len(digits) <= 30 and low <= int(trimmed) <= high:
        return int(trimmed)
    raise ConfigError(setting.name, text, f"Not a number of type {setting.type.name}")


def validate(setting: Setting, value: Value) -> None:
    """Raises ConfigError when a typed value is outside what the setting allows."""
    if value is None:
        return
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        shown = format_value(setting, value)
        if setting.at_least is not None and value < setting.at_least:
            raise ConfigError(setting.name, shown, f"Value must be at least {setting.at_least}")
        if setting.at_most is not None and value > setting.at_most:
            raise ConfigError(setting.name, shown, f"Value must be no more than {setting.at_most}")
    if setting.choices:
        for item in value if isinstance(value, tuple) else (value,):
            if item not in setting.choices:
                raise ConfigError(setting.name, item, "String must be one of: " + ", ".join(setting.choices))
    why = setting.check(value) if setting.check is not None else ""
    if why:
        shown = f"[{', '.join(value)}]" if isinstance(value, tuple) else format_value(setting, value)
        raise ConfigError(setting.name, shown, why)


def format_value(setting: Setting, value: Value) -> str | None:
    """A typed value as Kafka writes it in DescribeConfigs; None when it is not set."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if setting.type is Type.DOUBLE:
        return "1.7976931348623157E308" if value == DOUBLE_MAX else str(float(value))
    return str(value)


def gzip_level_check(value: Value) -> str:
    """-1 (zlib's own choice) or 1 to 9."""
    good = value == -1 or (isinstance(value, int) and 1 <= value <= 9)
    return "" if good else "Value must be between 1 and 9 or equal to -1"


def retention_check(value: Value) -> str:
    """A retention time is unlimited (-1) or at least 1."""
    good = isinstance(value, int) and (value == -1 or value >= 1)
    return "" if good else "Value must be unlimited (-1) or at least 1"


def parse_metrics_listener(text: str) -> tuple[str, int] | None:
    """`metrics.listener`: a host (empty: every interface) and a port; None where `-1` turns it off.

    A port alone is one of this machine's loopback. Raises ValueError.
    """
    host, colon, port = text.strip().rpartition(":")
    if port == "-1":
        return None
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535):
        raise ValueError(text)
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise ValueError(text)
    return (host.strip("[]") if colon else LOOPBACK), int(port)


def metrics_listener_check(value: Value) -> str:
    """HOST:PORT, a port, or -1."""
    try:
        parse_metrics_listener(str(value))
    except ValueError:
        return "it must read HOST:PORT, with an IPv6 address in brackets, or -1"
    return ""


def throttled_replicas_check(name: str) -> Callable[[Value], str]:
    """`*`, or partition:broker pairs."""

    def check(value: Value) -> str:
        assert isinstance(value, tuple)
        if value in ((), ("*",)):
            return ""
        for pair in filter(None, value):
            partition, colon, broker = pair.partition(":")
            if not (colon and partition.isdigit() and broker.isdigit()):
                return (
                    f"{name} must be the literal '*' or a list of replicas in the following format: "
                    "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
                )
        return ""

    return check
