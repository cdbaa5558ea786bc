"""Feature levels: the metadata.version table, and what each level allows.

Source: KIP-584 and KIP-778; the numbers are those that Apache Kafka's `kafka-storage version-mapping` prints.
"""

from __future__ import annotations

from typing import Final

METADATA_VERSION: Final = "metadata.version"
KRAFT_VERSION: Final = "kraft.version"
GROUP_VERSION: Final = "group.version"
TRANSACTION_VERSION: Final = "transaction.version"
ELR_VERSION: Final = "eligible.leader.replicas.version"
SHARE_VERSION: Final = "share.version"
STREAMS_VERSION: Final = "streams.version"

NOT_SERVED: Final = (SHARE_VERSION, STREAMS_VERSION)
"""Features that a node of ours registers as known, and whose records it preserves, but that it cannot serve yet."""

METADATA_VERSION_NAMES: Final[dict[int, str]] = {
    7: "3.3-IV3",
    8: "3.4-IV0",
    9: "3.5-IV0",
    10: "3.5-IV1",
    11: "3.5-IV2",
    12: "3.6-IV0",
    13: "3.6-IV1",
    14: "3.6-IV2",
    15: "3.7-IV0",
    16: "3.7-IV1",
    17: "3.7-IV2",
    18: "3.7-IV3",
    19: "3.7-IV4",
    20: "3.8-IV0",
    21: "3.9-IV0",
    22: "4.0-IV0",
    23: "4.0-IV1",
    24: "4.0-IV2",
    25: "4.0-IV3",
    26: "4.1-IV0",
    27: "4.1-IV1",
    28: "4.2-IV0",
    29: "4.2-IV1",
    30: "4.3-IV0",
}
"""Every metadata.version level that this broker can run at."""

MINIMUM_METADATA_VERSION: Final = min(METADATA_VERSION_NAMES)
LATEST_METADATA_VERSION: Final = max(METADATA_VERSION_NAMES)

# Levels at which an ability appears.
_MIGRATION = 8
_SCRAM = 11
_SHRINKING_KEEPS_EPOCH = 12
_METADATA_TRANSACTIONS = 13
_DELEGATION_TOKENS = 14
_CONTROLLER_REGISTRATION = 15
_DIRECTORY_ASSIGNMENT = 17
_ELIGIBLE_LEADERS = 23
_CORDONED_DIRECTORIES = 30


def metadata_version_name(level: int) -> str:
    """The name of a metadata.version level ("4.3-IV0"), or the number where this broker does not know it."""
    return METADATA_VERSION_NAMES.get(level, str(level))


def parse_metadata_version(text: str) -> int:
    """The level that a release or a level is called by: "4.2" (the last level of it), "4.2-IV1". Raises ValueError."""
    named = [level for level, name in METADATA_VERSION_NAMES.items() if text in (name, name.partition("-")[0])]
    if not named:
        low, high = (metadata_version_name(each) for each in (MINIMUM_METADATA_VERSION, LATEST_METADATA_VERSION))
        raise ValueError(f"there is no metadata.version {text}; {low} to {high} can be formatted")
    return max(named)


def supports_migration(level: int) -> bool:
    """Whether the metadata records say how far a move away from ZooKeeper has come."""
    return level >= _MIGRATION


def supports_scram(level: int) -> bool:
    """Whether users' SCRAM credentials are metadata (KIP-900)."""
    return level >= _SCRAM


def shrinking_keeps_leader_epoch(level: int) -> bool:
    """Whether a partition's in-sync replicas may shrink under one leader epoch; older brokers need a new one."""
    return level >= _SHRINKING_KEEPS_EPOCH


def supports_transactions(level: int) -> bool:
    """Whether metadata records may be written in metadata transactions (KIP-868)."""
    return level >= _METADATA_TRANSACTIONS


def supports_delegation_tokens(level: int) -> bool:
    """Whether delegation tokens are metadata (KIP-900)."""
    return level >= _DELEGATION_TOKENS


def supports_controller_registration(level: int) -> bool:
    """Whether controllers register themselves (KIP-919)."""
    return level >= _CONTROLLER_REGISTRATION


def supports_directories(level: int) -> bool:
    """Whether a replica's log directory is part of the metadata (KIP-858)."""
    return level >= _DIRECTORY_ASSIGNMENT


def supports_eligible_leaders(level: int) -> bool:
    """Whether partitions may carry eligible leader replicas (KIP-966)."""
    return level >= _ELIGIBLE_LEADERS


def supports_cordoned_directories(level: int) -> bool:
    """Whether a broker may exclude log directories from new replicas (KIP-1066)."""
    return level >= _CORDONED_DIRECTORIES
