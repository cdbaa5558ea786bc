"""Settings of a server from environment variables: HEADRACE_SERVER_LOG_DIRS is `log.dirs`.

The names are spelled as in the image of Apache Kafka: `_` for a dot, `__` for an underscore, `___` for a hyphen.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

PREFIX: Final = "HEADRACE_SERVER_"
_MEANING: Final = {"_": ".", "__": "_", "___": "-"}


def setting_name(text: str) -> str:
    """Returns the setting that the rest of a variable's name spells."""
    return re.sub("_{1,3}", lambda found: _MEANING[found[0]], text).lower()


def settings_of(environment: Mapping[str, str], prefix: str = PREFIX) -> dict[str, str]:
    """Returns the settings of all variables with this prefix, by name."""
    found = {name.removeprefix(prefix): value for name, value in environment.items() if name.startswith(prefix)}
    return {setting_name(name): value for name, value in sorted(found.items()) if name}


def without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment for a node whose file has all settings already."""
    return {name: value for name, value in environment.items() if not name.startswith(PREFIX)}
