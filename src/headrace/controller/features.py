"""Raises and lowers finalized feature levels, including kraft.version, which the quorum itself keeps.

Source: KIP-584, KIP-778, KIP-853, KIP-1022.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from headrace.controller.access import Access
from headrace.controller.context import DONE, MIN_INSYNC_REPLICAS, ApiError, ControllerContext
from headrace.machine import Decision
from headrace.metadata import bootstrap, levels
from headrace.metadata.image import Broker, ClusterImage, Controller, ResourceType
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.metadata_records import ConfigRecord, FeatureLevelRecord

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


class FeatureUpdate(NamedTuple):
    """A requested level, and the kind of step that it may be."""

    name: str
    level: int
    upgrade_type: int


@dataclass(frozen=True, slots=True)
class UpdateFeatures:
    """New feature levels, all of them or none."""

    updates: Sequence[FeatureUpdate]
    validate_only: bool = False

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[ApiError]:
        """Decides the request upon `image`."""
        return decide_update_features(image, self.updates, context, validate_only=self.validate_only)


def decide_update_features(
    image: ClusterImage, updates: Sequence[FeatureUpdate], context: ControllerContext, *, validate_only: bool = False
) -> Decision[ApiError]:
    """Applies all updates or none; the reply is the first error, by feature."""
    wanted = dict(image.features.levels)
    records: list[Any] = []
    for update in updates:
        error = _check(image, update, context)
        if error is not None:
            return Decision(error)
        if update.name != levels.KRAFT_VERSION and image.features.level(update.name) != update.level:
            records.append(FeatureLevelRecord(name=update.name, feature_level=update.level))
            wanted[update.name] = update.level
    error = _check_dependencies(wanted)
    if error is not None:
        return Decision(error)
    # metadata.version goes first: it determines how the records after it are read.
    records.sort(key=lambda record: record.name != levels.METADATA_VERSION)
    if wanted.get(levels.ELR_VERSION, 0) > image.features.level(levels.ELR_VERSION):
        records += _settle_min_insync_replicas(image, context)
    if validate_only:
        return Decision(DONE)
    level = next((each.level for each in updates if each.name == levels.KRAFT_VERSION), context.kraft_version)
    return Decision(DONE, records, kraft_version=level if level > context.kraft_version else None)


def _settle_min_insync_replicas(image: ClusterImage, context: ControllerContext) -> list[ConfigRecord]:
    """Returns records that give all topics the same min.insync.replicas, by which eligible leader replicas are computed
    (KIP-966)."""
    kind, name = ResourceType.BROKER, MIN_INSYNC_REPLICAS
    records: list[ConfigRecord] = []
    if name not in image.configs.cluster_overrides():
        value = context.rules.default_text(ResourceType.TOPIC, name)
        records.append(ConfigRecord(resource_type=kind, resource_name="", name=name, value=value))
    for resource_type, broker in sorted(image.configs.overrides):
        if resource_type == kind and broker and name in image.configs.of(kind, broker):
            records.append(ConfigRecord(resource_type=kind, resource_name=broker, name=name, value=None))
    return records


def _invalid(update: FeatureUpdate, why: str) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_UPDATE_VERSION, f"Invalid update version {update.level} for feature {update.name}. {why}"
    )


def _check(image: ClusterImage, update: FeatureUpdate, context: ControllerContext) -> ApiError | None:
    node_id = context.node_id
    span = bootstrap.SUPPORTED_FEATURES.get(update.name)
    if not UPGRADE <= update.upgrade_type <= UNSAFE_DOWNGRADE:
        return _invalid(update, "The controller does not support the given upgrade type.")
    if update.level < 0:
        return _invalid(update, "A feature version cannot be less than 0.")
    if span is None:
        return _invalid(update, f"Local controller {node_id} does not support this feature.")
    low, high = span
    if update.level != 0 and not low <= update.level <= high:
        return _invalid(update, f"Local controller {node_id} only supports versions {low}-{high}")
    why = _unsupported(image, update, context)
    if why is not None:
        return _invalid(update, why)
    is_kraft = update.name == levels.KRAFT_VERSION
    current = context.kraft_version if is_kraft else image.features.level(update.name)
    if update.level < current:
        if update.upgrade_type == UPGRADE:
            return _invalid(
                update,
                "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
                "downgrade.",
            )
        if is_kraft:
            return _invalid(update, "Can't downgrade the version of this feature.")
        if update.name == levels.METADATA_VERSION:
            return ApiError(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"Invalid metadata.version {update.level}. Refusing to perform the requested downgrade because it "
                "might delete metadata information.",
            )
    elif update.level > current and update.upgrade_type != UPGRADE:
        return _invalid(update, "Can't downgrade to a newer version.")
    elif update.level > current and is_kraft and (why := context.kraft_refusal(update.level)) is not None:
        return ApiError(ErrorCode.INVALID_UPDATE_VERSION, why)
    return None


def _unsupported(image: ClusterImage, update: FeatureUpdate, context: ControllerContext) -> str | None:
    """Returns which node cannot run at a feature's level, or None. A node that names no levels runs at 0; of an
    unregistered voter nothing is known."""
    nodes: list[tuple[str, Broker | Controller]] = [(f"Broker {i}", image.brokers[i]) for i in sorted(image.brokers)]
    nodes += [(f"Controller {i}", image.controllers[i]) for i in sorted(image.controllers)]
    for name, node in nodes:
        low, high = next(((f.min_level, f.max_level) for f in node.features if f.name == update.name), (0, 0))
        if update.level != 0 and not low <= update.level <= high:
            if high == 0:
                return f"{name} does not support this feature."
            return f"{name} only supports versions {low}-{high}"
    if levels.supports_controller_registration(image.features.metadata_version):
        for voter in sorted(context.voters):
            if voter != context.node_id and voter not in image.controllers:
                return f"controller {voter} has not registered, and may not support this feature"
    return None


def _check_dependencies(wanted: dict[str, int]) -> ApiError | None:
    metadata_version = wanted.get(levels.METADATA_VERSION, 0)
    for name, level in sorted(wanted.items()):
        needed = bootstrap.REQUIRED.get((name, level), 0)
        if metadata_version < needed:
            return ApiError(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"{name} could not be set to {level} because it depends on metadata.version level {needed}",
            )
    return None
