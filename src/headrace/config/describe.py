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
    about: str


def describe_broker(config: BrokerConfig) -> list[Described]:
    """Every setting of a broker, sorted by name; internal ones only where they are set."""
    described = []
    for name, setting in sorted(BROKER_SETTINGS.items()):
        if setting.internal and not config.is_given(name):
            continue
        synonyms = _broker_synonyms(config, name, (name, *_chain(name)))
        given = _layered(config, name)
        value = given if given is not None else format_value(setting, setting.default)
        described.append(_line(setting, value, synonyms, setting.update == "read-only"))
    described += [_of_listener(config, name) for name in config.scoped_names]
    return sorted(described, key=lambda each: each.name)


def _of_listener(config: BrokerConfig, name: str) -> Described:
    """A setting of one listener; what holds for all of them is its synonym, as in Kafka."""
    setting = broker_setting(name)
    assert setting is not None, "whatever is given for a listener has a row"
    synonyms = _broker_synonyms(config, name, (name, setting.name))
    return _line(replace(setting, name=name), _layered(config, name), synonyms, setting.update == "read-only")


def describe_broker_defaults(config: BrokerConfig) -> list[Described]:
    """The settings of all brokers together: the dynamic ones that have been set, sorted by name."""
    described = []
    for name, text in sorted(config.cluster_default.items()):
        setting = BROKER_SETTINGS.get(name)
        if setting is None:
            continue
        shown = None if setting.sensitive else text
        synonyms = (Synonym(name, shown, ConfigSource.DYNAMIC_DEFAULT_BROKER),)
        described.append(_line(setting, text, synonyms, setting.update == "read-only"))
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


def _layered(config: BrokerConfig, name: str) -> str | None:
    for layer in (config.per_broker, config.cluster_default, config.static):
        if name in layer:
            return layer[name]
    return None


def _broker_synonyms(config: BrokerConfig, name: str, chain: tuple[str, ...]) -> tuple[Synonym, ...]:
    """The layers in which `chain` is set, from the first that sets `name` itself on: Kafka's rule."""
    layers = (
        (config.per_broker, ConfigSource.DYNAMIC_BROKER),
        (config.cluster_default, ConfigSource.DYNAMIC_DEFAULT_BROKER),
        (config.static, ConfigSource.STATIC_BROKER),
    )
    found: list[Synonym] = []
    for layer, source in layers:
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
