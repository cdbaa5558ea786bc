"""What a fresh cluster begins with: the feature levels of its first records, and the two files that formatting leaves.

`bootstrap.checkpoint` holds the first metadata records, which the first leader writes into the log. With a dynamic
quorum (KIP-853) the snapshot `00000000000000000000-0000000000.checkpoint` says who votes. Both are what Apache Kafka's
`kafka-storage format --standalone` writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from headrace.metadata import levels
from headrace.metadata.image import ResourceType
from headrace.wire.messages import metadata_records as mr

BOOTSTRAP_FILE_NAME: Final = "bootstrap.checkpoint"

FEATURE_DEFAULTS: Final[dict[str, tuple[tuple[int, int], ...]]] = {
    levels.ELR_VERSION: ((26, 1),),
    levels.GROUP_VERSION: ((22, 1),),
    levels.SHARE_VERSION: ((28, 1),),
    levels.STREAMS_VERSION: ((29, 1),),
    levels.TRANSACTION_VERSION: ((24, 2),),
}
"""For each feature: from which metadata.version level on it is finalized at which level when a cluster is formatted."""

SUPPORTED_FEATURES: Final[dict[str, tuple[int, int]]] = {
    levels.GROUP_VERSION: (0, 1),
    levels.KRAFT_VERSION: (0, 1),
    levels.METADATA_VERSION: (levels.MINIMUM_METADATA_VERSION, levels.LATEST_METADATA_VERSION),
    levels.SHARE_VERSION: (0, 1),
    levels.STREAMS_VERSION: (0, 1),
    levels.TRANSACTION_VERSION: (0, 2),
    levels.ELR_VERSION: (0, 1),
}
"""The levels that a node of Apache Kafka 4.3 registers with, and ours too: (lowest, highest).

The order is the one in which Kafka writes them.
"""


REQUIRED: Final[dict[tuple[str, int], int]] = {(levels.ELR_VERSION, 1): 23}
"""The metadata.version level that a feature's level needs."""


def first_levels(metadata_version: int, given: Mapping[str, int]) -> dict[str, int]:
    """The feature levels of a cluster that is formatted at a metadata.version level, with those that are `given`
    instead of the level's own; those at 0 left out. Raises ValueError where a feature has no such level, or needs a
    newer metadata.version."""
    for name, level in given.items():
        if name not in SUPPORTED_FEATURES:
            raise ValueError(f"{name} is no feature; features are {', '.join(sorted(SUPPORTED_FEATURES))}")
        low, high = SUPPORTED_FEATURES[name]
        if not low <= level <= high:
            raise ValueError(f"{name} has the levels {low} to {high}")
        if metadata_version < (needed := REQUIRED.get((name, level), 0)):
            raise ValueError(f"{name}={level} needs metadata.version {levels.metadata_version_name(needed)}")
    found = {**default_levels(metadata_version), **given}
    return {name: level for name, level in found.items() if level}


def default_levels(metadata_version: int) -> dict[str, int]:
    """The feature levels of a cluster formatted at a metadata.version level, those at 0 left out."""
    found = {levels.METADATA_VERSION: metadata_version}
    for name, steps in FEATURE_DEFAULTS.items():
        for since, level in steps:
            if metadata_version >= since:
                found[name] = level
    return found


def bootstrap_records(feature_levels: Mapping[str, int]) -> list[mr.FeatureLevelRecord]:
    """The records of bootstrap.checkpoint: metadata.version first, the others by name."""
    names = sorted(feature_levels, key=lambda name: (name != levels.METADATA_VERSION, name))
    return [mr.FeatureLevelRecord(name=name, feature_level=feature_levels[name]) for name in names]


def activation_records(bootstrap: Iterable[Any], default_min_insync_replicas: int) -> Sequence[Any]:
    """What the first leader of an empty log writes, as one metadata transaction where the level has them.

    With eligible leader replicas the cluster's min.insync.replicas becomes metadata (KIP-966), so that every broker
    counts by the same number.
    """
    records = list(bootstrap)
    found = {r.name: r.feature_level for r in records if type(r) is mr.FeatureLevelRecord}
    level = found.get(levels.METADATA_VERSION, 0)
    if found.get(levels.ELR_VERSION, 0) > 0:
        records.append(
            mr.ConfigRecord(
                resource_type=ResourceType.BROKER,
                resource_name="",
                name="min.insync.replicas",
                value=str(default_min_insync_replicas),
            )
        )
    if levels.supports_transactions(level):
        return [mr.BeginTransactionRecord(name="Bootstrap records"), *records, mr.EndTransactionRecord()]
    return records
