"""The states of a classic group, and which may follow which: the table that every transition is checked against.

Rule 1: every legal transition is in this file.  Rule 2: this file knows nothing of requests, members, records or time.

        +-------- every member left or failed ---------+
        v                                              |
      EMPTY --join--> PREPARING_REBALANCE --all joined, or timeout--> COMPLETING_REBALANCE
                         ^           ^                                    |         |
                         |           +---- join, leave, failure, timeout--+         | the leader's assignment
                         |                                                          | is committed
                         +----------- join, leave, failure ------ STABLE <----------+

    DEAD may follow every state: the group is deleted, or its coordinator moves away.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class GroupState(Enum):
    """A classic group's state; the value is the name that Kafka's tools show."""

    EMPTY = "Empty"
    """No members. Offsets may be there. Joins start an initial rebalance; heartbeat and sync: UNKNOWN_MEMBER_ID."""

    PREPARING_REBALANCE = "PreparingRebalance"
    """Members are (re)joining. Joins wait; heartbeat, sync: REBALANCE_IN_PROGRESS; commits of this generation pass."""

    COMPLETING_REBALANCE = "CompletingRebalance"
    """The generation is fixed, the leader's assignment is awaited. Syncs wait; commits: REBALANCE_IN_PROGRESS."""

    STABLE = "Stable"
    """Every member has its assignment: syncs are answered at once, heartbeats and commits of this generation pass."""

    DEAD = "Dead"
    """Gone from this coordinator. Everything is answered COORDINATOR_NOT_AVAILABLE or with nothing found."""


MAY_FOLLOW: Final[dict[GroupState, frozenset[GroupState]]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset(GroupState),
}
"""For each state, those that it may follow."""
