"""The typed fields of a broker's configuration: they are what the table says, and each is read."""

from __future__ import annotations

import re
from dataclasses import FrozenInstanceError, fields

import pytest
from config.test_table import source_without_tables

from headrace.config import BROKER_SETTINGS, BrokerConfig, Setting, Type
from headrace.config.broker_fields import BrokerFields

PYTHON_TYPES = {
    Type.BOOLEAN: "bool",
    Type.STRING: "str",
    Type.INT: "int",
    Type.SHORT: "int",
    Type.LONG: "int",
    Type.DOUBLE: "float",
    Type.LIST: "tuple[str, ...]",
    Type.PASSWORD: "str",
}
SETTING_OF = {field.name: field.name.replace("_", ".") for field in fields(BrokerFields)}


def type_of(setting: Setting) -> str:
    may_be_unset = setting.default is None and not setting.synonyms
    return PYTHON_TYPES[setting.type] + (" | None" if may_be_unset else "")


def test_each_field_has_the_type_of_its_row() -> None:
    assert {field.name: field.type for field in fields(BrokerFields)} == {
        field: type_of(BROKER_SETTINGS[name]) for field, name in SETTING_OF.items()
    }


def test_a_password_is_not_shown() -> None:
    assert "hunter2" not in repr(BrokerConfig({"metrics.token": "hunter2", "ssl.key.password": "hunter2"}))


def test_each_field_is_read() -> None:
    source = source_without_tables()
    read = set(re.findall(r"\.([a-z_]+)\b", source))
    assert [field for field in SETTING_OF if field not in read] == []


def test_a_field_holds_what_is_in_force() -> None:
    config = BrokerConfig({"log.dir": "a,b", "fetch.max.bytes": "2000"})
    assert (config.log_dirs, config.fetch_max_bytes, config.broker_rack) == (("a", "b"), 2000, None)
    assert all(getattr(config, field) == config[name] for field, name in SETTING_OF.items())
    over = config.with_overrides({"max.connections": "7"}, {"max.connections": "8", "producer.id.expiration.ms": "9"})
    assert (over.max_connections, over.producer_id_expiration_ms, over.fetch_max_bytes) == (7, 9, 2000)
    assert config.max_connections == 2**31 - 1


def test_a_field_is_not_set() -> None:
    with pytest.raises(FrozenInstanceError):
        BrokerConfig({}).fetch_max_bytes = 1  # type: ignore[misc]
