"""What keeps this broker from taking over a data directory: each obstacle by name, so that a person can act on it."""

from __future__ import annotations

from headrace.metadata import levels
from headrace.metadata.image import ClusterImage

_TIERED = "remote.storage.enable"


def unenforced_acls(image: ClusterImage) -> str:
    """Which ACLs are stored that a node without authorizer would not enforce; "" without any."""
    if not image.kept.acls:
        return ""
    acl = next(iter(image.kept.acls.values()))
    return (
        f"{len(image.kept.acls)} ACLs are stored (the first is of {acl.principal} on {acl.resource_name}), "
        "and this node has no authorizer that enforces them (authorizer.class.name)"
    )


def obstacles(image: ClusterImage, *, enforces_acls: bool) -> list[str]:
    """What a node of this release cannot serve of an image; empty where it can serve all."""
    found: list[str] = []
    level = image.features.metadata_version
    if not levels.MINIMUM_METADATA_VERSION <= level <= levels.LATEST_METADATA_VERSION:
        low = levels.metadata_version_name(levels.MINIMUM_METADATA_VERSION)
        high = levels.metadata_version_name(levels.LATEST_METADATA_VERSION)
        name = levels.metadata_version_name(level)
        found.append(f"metadata.version is at level {name}; this broker serves {low} to {high}")
    if not enforces_acls and (acls := unenforced_acls(image)):
        found.append(acls)
    for topic in image.topics:
        if image.configs.topic_overrides(topic.name).get(_TIERED, "").strip().lower() == "true":
            found.append(f"{topic.name} keeps data in remote storage ({_TIERED}), and there is none yet")
            break
    return found


def foreign_replicas(image: ClusterImage, node_id: int) -> list[str]:
    """Why one node cannot serve this image without any other; empty where it can."""
    found: list[str] = []
    for topic in image.topics:
        for partition in topic.partitions:
            others = [r for r in partition.replicas if r != node_id]
            if others:
                found.append(f"{topic.name}-{partition.index} has replicas on other brokers: {sorted(others)}")
                break
        if len(found) > 10:
            break
    return found
