"""Planted faults in groups by which two members own one partition for a while: at rest nothing is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from headrace.groups.classic import membership
from headrace.groups.classic.group import Group, Member

PATIENCE_MS: Final = 500


def _nothing(*_: object) -> None:
    """Done, it says."""


def _keep_metadata(real: Callable[..., None]) -> Callable[..., None]:
    """Keeps a member's first metadata for ever."""

    def update(self: Group, member: Member, protocols: dict[str, bytes], *given: Any) -> None:
        same_names = list(protocols) == list(member.protocols)
        real(self, member, member.protocols if same_names else protocols, *given)

    return update


def ownership_plants() -> dict[str, list[tuple[Any, str, Any]]]:
    """By name: whose attributes, which, and what takes their place."""
    return {
        "lets-no-beat-prolong-a-session": [(membership, "touch", _nothing)],
        "waits-for-nobody-in-a-rebalance": [(Group, "rebalance_timeout_ms", property(lambda _: PATIENCE_MS))],
        "remembers-the-first-metadata": [(Group, "update", _keep_metadata(Group.update))],
    }
