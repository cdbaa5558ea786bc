"""One table of settings: what each is called, means, may be and defaults to; and configurations made from it.

`table` puts the rows together, `setting` parses and checks values in Kafka's words, `broker` and `topic` hold the
values in force, `describe` says where a value comes from, `relations` says which values cannot be together.
"""

from __future__ import annotations

from .broker import BrokerConfig
from .endpoints import Endpoint
from .properties import load_properties_file, parse_properties
from .setting import ConfigError, Setting, Type, Value, format_value, parse_value
from .table import BROKER_SETTINGS, FAMILIES, GROUP_SETTINGS, SETTINGS, TOPIC_SETTINGS
from .topic import TopicConfig, check_broker_overrides, check_topic_overrides, topic_config

__all__ = [
    "BROKER_SETTINGS",
    "FAMILIES",
    "GROUP_SETTINGS",
    "SETTINGS",
    "TOPIC_SETTINGS",
    "BrokerConfig",
    "ConfigError",
    "Endpoint",
    "Setting",
    "TopicConfig",
    "Type",
    "Value",
    "check_broker_overrides",
    "check_topic_overrides",
    "format_value",
    "load_properties_file",
    "parse_properties",
    "parse_value",
    "topic_config",
]
