"""The one table of settings, put together from its parts and indexed by scope and name: what each is, and whether a
value is refused."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from .cluster_table import CLUSTER_FAMILIES, CLUSTER_ROWS
from .group_scope_table import GROUP_SCOPE_ROWS
from .group_table import GROUP_ROWS
from .headrace_table import HEADRACE_ROWS
from .listener import PREFIX
from .log_table import LOG_ROWS
from .oauth_table import OAUTH_FAMILIES, OAUTH_ROWS
from .protocol_table import PROTOCOL_ROWS
from .security_table import SECURITY_FAMILIES, SECURITY_ROWS
from .server_table import SERVER_ROWS
from .setting import ConfigError, Family, Setting, asks_for_nothing
from .tier_table import TIER_FAMILIES, TIER_ROWS
from .tls_table import TLS_ROWS
from .topic_table import TOPIC_ROWS

SETTINGS: Final[tuple[Setting, ...]] = (
    *SERVER_ROWS,
    *SECURITY_ROWS,
    *OAUTH_ROWS,
    *TLS_ROWS,
    *LOG_ROWS,
    *TIER_ROWS,
    *GROUP_ROWS,
    *CLUSTER_ROWS,
    *PROTOCOL_ROWS,
    *HEADRACE_ROWS,
    *TOPIC_ROWS,
    *GROUP_SCOPE_ROWS,
)
FAMILIES: Final[tuple[Family, ...]] = (*SECURITY_FAMILIES, *OAUTH_FAMILIES, *TIER_FAMILIES, *CLUSTER_FAMILIES)


def _by_name(scope: str) -> Mapping[str, Setting]:
    return MappingProxyType({setting.name: setting for setting in SETTINGS if setting.scope == scope})


BROKER_SETTINGS: Final = _by_name("broker")
TOPIC_SETTINGS: Final = _by_name("topic")
GROUP_SETTINGS: Final = _by_name("group")


def broker_setting(name: str) -> Setting | None:
    """Returns the row of a broker setting, whose name may have the prefix of a listener, and of a mechanism of it."""
    row = BROKER_SETTINGS.get(name)
    if row is not None or not name.startswith(PREFIX):
        return row
    listener, _, rest = name.removeprefix(PREFIX).partition(".")
    row = BROKER_SETTINGS.get(rest)
    if row is not None:
        return row if row.by and listener else None
    mechanism, _, last = rest.partition(".")
    row = BROKER_SETTINGS.get(last)
    return row if row is not None and row.by == "mechanism" and listener and mechanism else None


def refusal(name: str) -> str:
    """Why the broker setting of this name must not be asked for; empty where it may, or is unknown."""
    row = broker_setting(name) or next((each for each in FAMILIES if each.holds(name)), None)
    return row.refused if row is not None else ""


def check_refused(name: str, text: str) -> None:
    """Raises ConfigError, one line without secrets, where `text` asks for a broker setting that is refused."""
    why = refusal(name)
    if why and not asks_for_nothing(text):
        is_secret = any(word in name for word in ("password", "passphrase", "jaas", "secret", "master.key"))
        raise ConfigError(name, "(hidden)" if is_secret else text, why)
