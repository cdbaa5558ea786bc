"""Where a value comes from: what DescribeConfigs answers, with sources and synonyms, by Kafka's rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from headrace.wire.config_source import ConfigSource

from .broker import BrokerConfig
from .setting import Setting, Type, format_value, parse_value
from .table import BROKER_SETTINGS, GROUP_SETTINGS, TOPIC_SETTINGS, broker_setting
from .topic import inherited


@dataclass(frozen=True, slots=True)
class Synonym:
    """One layer in which a value is set, the one in force first."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class Described:
    """One line of a DescribeConfigs answer. `value` is None when it is not set, or must not be shown."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    type: Type
    synonyms: tuple[Synonym, ...]
    about: str | None


def describe_broker(config: BrokerConfig) -> list[Described]:
    """Every setting of a broker, sorted by name; internal ones only where they are set."""
    described = []
    for name, setting in sorted(BROKER_SETTINGS.items()):
        if setting.internal and not config.is_given(name):
            continue
        synonyms = _broker_synonyms(config, name, (name, *_chain(name)))
        value = _in_force(config, setting, name)
        described.append(_line(setting, value, synonyms, setting.update == "read-only"))
    described += [_of_listener(config, name) for name in config.scoped_names]
    described += [_unknown(config, name) for name in config.unknown_names]
    return sorted(described, key=lambda each: each.name)


def _of_listener(config: BrokerConfig, name: str) -> Described:
    """A setting of one listener; what holds for all of them is its synonym, as in Kafka."""
    setting = broker_setting(name)
    assert setting is not None, "whatever is given for a listener has a row"
    synonyms = _broker_synonyms(config, name, (name, setting.name))
    value = _in_force(config, setting, name)
    return _line(replace(setting, name=name), value, synonyms, setting.update == "read-only")


def _unknown(config: BrokerConfig, name: str) -> Described:
    """A name that is given and has no row."""
    found = (source for layer, source in _layers(config) if name in layer)
    return _without_row(name, tuple(Synonym(name, None, source) for source in found))


def _without_row(name: str, synonyms: tuple[Synonym, ...]) -> Described:
    """Its value may be a secret of whatever reads it, and is not shown, as in Kafka."""
    return Described(name, None, synonyms[0].source, True, True, Type.UNKNOWN, synonyms, None)


def describe_broker_defaults(config: BrokerConfig) -> list[Described]:
    """The settings of all brokers together: the dynamic ones that have been set, sorted by name."""
    described = []
    for name, text in sorted(config.cluster_default.items()):
        setting = broker_setting(name)
        if setting is None:
            synonyms = (Synonym(name, None, ConfigSource.DYNAMIC_DEFAULT_BROKER),)
            described.append(_without_row(name, synonyms))
            continue
        shown = None if setting.sensitive else text
        synonyms = (Synonym(name, shown, ConfigSource.DYNAMIC_DEFAULT_BROKER),)
        described.append(_line(replace(setting, name=name), text, synonyms, setting.update == "read-only"))
    return described


def describe_topic(config: BrokerConfig, overrides: Mapping[str, str]) -> list[Described]:
    """Every setting of a topic with `overrides`, sorted by name."""
    described = []
    for name, setting in sorted(TOPIC_SETTINGS.items()):
        synonyms = _scoped_synonyms(config, setting)
        value = format_value(setting, inherited(setting, config))
        if name in overrides:
            value = format_value(setting, parse_value(setting, overrides[name]))
            synonyms = (Synonym(name, value, ConfigSource.TOPIC), *synonyms)
        described.append(_line(setting, value, synonyms, False))
    return described


def describe_group(config: BrokerConfig, overrides: Mapping[str, str]) -> list[Described]:
    """Every setting of a group with `overrides`, sorted by name."""
    described = []
    for name, setting in sorted(GROUP_SETTINGS.items()):
        synonyms = _scoped_synonyms(config, setting)
        value = format_value(setting, inherited(setting, config))
        if name in overrides:
            value = format_value(setting, parse_value(setting, overrides[name]))
            synonyms = (Synonym(name, value, ConfigSource.GROUP), *synonyms)
        described.append(_line(setting, value, synonyms, False))
    return described


def _line(setting: Setting, value: str | None, synonyms: tuple[Synonym, ...], read_only: bool) -> Described:
    source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
    shown = None if setting.sensitive else value
    return Described(setting.name, shown, source, read_only, setting.sensitive, setting.type, synonyms, setting.about)


def _chain(name: str) -> tuple[str, ...]:
    """The names that Kafka looks under for a broker setting, after the name itself."""
    return BROKER_SETTINGS[name].synonyms if name.startswith("log.") and name != "log.dirs" else ()


def _scoped_synonyms(config: BrokerConfig, setting: Setting) -> tuple[Synonym, ...]:
    if not setting.synonyms:
        return ()
    primary = setting.synonyms[0]
    return _broker_synonyms(config, primary, (primary, *_chain(primary)))


def _in_force(config: BrokerConfig, setting: Setting, name: str) -> str | None:
    """The value of the first layer that names a setting, as Kafka writes it, or the default."""
    text = next((layer[name] for layer, _ in _layers(config) if name in layer), None)
    return format_value(setting, setting.default if text is None else parse_value(setting, text))


def _layers(config: BrokerConfig) -> tuple[tuple[Mapping[str, str], ConfigSource], ...]:
    """Where a broker's settings are given, the layer that counts first."""
    return (
        (config.per_broker, ConfigSource.DYNAMIC_BROKER),
        (config.cluster_default, ConfigSource.DYNAMIC_DEFAULT_BROKER),
        (config.static, ConfigSource.STATIC_BROKER),
    )


def _broker_synonyms(config: BrokerConfig, name: str, chain: tuple[str, ...]) -> tuple[Synonym, ...]:
    """The layers in which `chain` is set, from the first that sets `name` itself on: Kafka's rule."""
    found: list[Synonym] = []
    for layer, source in _layers(config):
        found += [Synonym(each, _shown(each, layer[each]), source) for each in chain if each in layer]
    for each in chain:
        setting = BROKER_SETTINGS.get(each)
        default = None if setting is None else format_value(setting, setting.default)
        if default is not None:
            found.append(Synonym(each, _shown(each, default), ConfigSource.DEFAULT))
    first = next((at for at, synonym in enumerate(found) if synonym.name == name), len(found))
    return tuple(found[first:])


def _shown(name: str, text: str) -> str | None:
    setting = broker_setting(name)
    return None if setting is None or setting.sensitive else text
