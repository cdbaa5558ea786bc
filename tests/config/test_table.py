"""The table of settings keeps its word: what it does not call without effect is read somewhere."""

from __future__ import annotations

from pathlib import Path

import headrace
from headrace.config import SETTINGS, Setting

SOURCE = Path(headrace.__file__).parent


def source_without_tables() -> str:
    tables = set((SOURCE / "config").glob("*_table.py"))
    generated = SOURCE / "wire" / "messages"
    paths = (path for path in SOURCE.rglob("*.py") if path not in tables and generated not in path.parents)
    return "\n".join(path.read_text("utf-8") for path in paths)


def test_a_setting_that_nobody_reads_says_that_it_has_no_effect() -> None:
    source = source_without_tables()

    def is_read(setting: Setting) -> bool:
        if f'"{setting.name}"' in source:
            return True
        return setting.scope == "topic" and f".{setting.name.replace('.', '_')}" in source

    def has_effect(setting: Setting) -> bool:
        """Read under its own name, or for want of a setting that has effect."""
        return is_read(setting) or any(
            has_effect(each)
            for each in SETTINGS
            if setting.name in each.synonyms and (each.scope, each.name) != (setting.scope, setting.name)
        )

    silent = [
        f"{setting.scope} {setting.name}" for setting in SETTINGS if not setting.unserved and not has_effect(setting)
    ]
    assert silent == []
    assert len([setting for setting in SETTINGS if not setting.unserved]) > 100
