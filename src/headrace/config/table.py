"""The one table of settings, put together from its parts and indexed by scope and name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from .cluster_table import CLUSTER_ROWS
from .group_scope_table import GROUP_SCOPE_ROWS
from .group_table import GROUP_ROWS
from .headrace_table import HEADRACE_ROWS
from .log_table import LOG_ROWS
from .protocol_table import PROTOCOL_ROWS
from .server_table import SERVER_ROWS
from .setting import Setting
from .topic_table import TOPIC_ROWS

SETTINGS: Final[tuple[Setting, ...]] = (
    *SERVER_ROWS,
    *LOG_ROWS,
    *GROUP_ROWS,
    *CLUSTER_ROWS,
    *PROTOCOL_ROWS,
    *HEADRACE_ROWS,
    *TOPIC_ROWS,
    *GROUP_SCOPE_ROWS,
)


def _by_name(scope: str) -> Mapping[str, Setting]:
    return MappingProxyType({setting.name: setting for setting in SETTINGS if setting.scope == scope})


BROKER_SETTINGS: Final = _by_name("broker")
TOPIC_SETTINGS: Final = _by_name("topic")
GROUP_SETTINGS: Final = _by_name("group")
