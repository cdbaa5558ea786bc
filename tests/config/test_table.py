"""The table of settings keeps its word: what it does not call without effect is read somewhere, or refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import headrace
from headrace.config import FAMILIES, SETTINGS, ConfigError, Setting, Type
from headrace.config.setting import asks_for_nothing
from headrace.config.table import check_refused, refusal

SOURCE = Path(headrace.__file__).parent


def source_without_tables() -> str:
    tables = {*(SOURCE / "config").glob("*_table.py"), SOURCE / "config" / "broker_fields.py"}
    generated = SOURCE / "wire" / "messages"
    paths = (path for path in SOURCE.rglob("*.py") if path not in tables and generated not in path.parents)
    return "\n".join(path.read_text("utf-8") for path in paths)


def allowed(setting: Setting) -> list[str]:
    """The texts that it may have, where a check leaves some of its choices out."""
    check = setting.check
    if check is None or setting.type is not Type.STRING:
        return []
    return [choice for choice in setting.choices if not check(choice)]


def test_a_setting_that_nobody_reads_says_that_it_has_no_effect() -> None:
    source = source_without_tables()
    attributes = set(re.findall(r"\.(\w+)", source))

    def is_read(setting: Setting) -> bool:
        if f'"{setting.name}"' in source:
            return True
        return setting.scope != "group" and setting.name.replace(".", "_") in attributes

    def has_effect(setting: Setting) -> bool:
        """Read under its own name, or for want of a setting that has effect; or it may have its default alone."""
        return (
            is_read(setting)
            or allowed(setting) == [setting.default]
            or any(
                has_effect(each)
                for each in SETTINGS
                if setting.name in each.synonyms and (each.scope, each.name) != (setting.scope, setting.name)
            )
        )

    said = [setting for setting in SETTINGS if not setting.unserved and not setting.refused]
    assert [f"{setting.scope} {setting.name}" for setting in said if not has_effect(setting)] == []
    assert len(said) > 100


def test_a_row_says_one_thing_of_what_is_not_served() -> None:
    """And what is refused stands in one row: of its own, or of its family."""
    assert [setting.name for setting in SETTINGS if setting.unserved and setting.refused] == []
    names = {setting.name for setting in SETTINGS if setting.scope == "broker"}
    assert [name for name in names for family in FAMILIES if family.holds(name)] == []
    assert all(sum(other.holds(family.prefix + "x") for other in FAMILIES) == 1 for family in FAMILIES)


@pytest.mark.parametrize("setting", [each for each in SETTINGS if each.refused], ids=lambda each: each.name)
def test_what_is_refused_is_off_by_default(setting: Setting) -> None:
    if setting.name == "principal.builder.class":
        return  # Kafka's default names the class of what has no authentication
    assert asks_for_nothing("" if setting.default in (None, ()) else str(setting.default))


@pytest.mark.parametrize("name", ["sasl.client.x", "listener.name.a.sasl.login.callback.x", "security.providers"])
def test_a_value_of_what_is_refused_is_an_error(name: str) -> None:
    for nothing in ("", " ", "0", "False"):
        check_refused(name, nothing)
    with pytest.raises(ConfigError) as refused:
        check_refused(name, "true")
    assert refused.value.why == refusal(name) != ""


@pytest.mark.parametrize(
    "name", ["num.partitions", "made.up", "listener.name.sasl.login.x", "xsasl.login.x", "a.sasl.x"]
)
def test_what_is_of_no_refused_family_is_left_alone(name: str) -> None:
    assert refusal(name) == ""
    check_refused(name, "true")
