"""Planted faults in what follows an unclean election: only clusters with topics that allow it can find them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.controller.partition_changes import PartitionChanges
from headrace.log.epochs import LeaderEpochs
from headrace.log.log import Log

Real = Callable[..., Any]


def _nothing(*_: object) -> None:
    """Done, it says."""


def _yes(*_: object) -> bool:
    """Whatever is asked for."""
    return True


def _agree(self: Log, epoch: int) -> tuple[int, int]:
    """Assumes that all replicas with records of an epoch have the same ones."""
    return epoch, self.end_offset


def _end_late(real: Real) -> Real:
    """An epoch ends where the log does, whatever epochs come behind it."""

    def end_offset_for(self: LeaderEpochs, epoch: int, log_end_offset: int) -> tuple[int, int]:
        found: tuple[int, int] = real(self, epoch, log_end_offset)
        return (found[0], log_end_offset) if found[0] >= 0 else found

    return end_offset_for


def unclean_plants() -> dict[str, list[tuple[Any, str, Any]]]:
    """By name: whose attributes, which, and what takes their place."""
    return {
        "keeps-the-epochs-of-what-it-cut": [(LeaderEpochs, "truncate_from_end", _nothing)],
        "agrees-with-every-history": [(Log, "end_offset_for_epoch", _agree)],
        "ends-each-epoch-with-the-log": [(LeaderEpochs, "end_offset_for", _end_late(LeaderEpochs.end_offset_for))],
        "elects-uncleanly-everywhere": [(PartitionChanges, "allows_unclean", _yes)],
    }
