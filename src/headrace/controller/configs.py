"""Alters configurations, incrementally (KIP-339) or as a whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from operator import attrgetter
from typing import Any, Final

from headrace.controller.access import Access
from headrace.controller.context import (
    MIN_INSYNC_REPLICAS,
    ApiError,
    ConfigRules,
    ControllerContext,
)
from headrace.controller.names import illegal_name
from headrace.controller.pieces import Alterations
from headrace.machine import Decision
from headrace.metadata import levels
from headrace.metadata.image import ClusterImage, ResourceType
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.metadata_records import ClearElrRecord, ConfigRecord

SETTINGS_MAX: Final = 1_000
"""The limit of settings of one resource, and of one alteration of it: all are checked together, some 10 us each. A
broker may have unknown settings."""
TOO_MANY_SETTINGS = ApiError(
    ErrorCode.POLICY_VIOLATION, f"A resource may not have more than {SETTINGS_MAX} settings of its own."
)
_TWICE = ApiError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")


class AlterOperation(IntEnum):
    """The operation of an incremental alteration."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class Alteration:
    """The alterations of one resource: (name, operation, value) in the request's order.

    With `replaces` they are the whole configuration of the resource: settings that are not named are removed.
    """

    resource_type: int
    name: str
    changes: Sequence[tuple[str, int, str | None]]
    replaces: bool = False


@dataclass(frozen=True, slots=True)
class AlterConfigs:
    """Alterations of stored configurations, each with its own result."""

    alterations: Sequence[Alteration]
    validate_only: bool = False

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[list[ApiError]]:
        """Decides the request upon `image`."""
        return decide_alter_configs(
            image, self.alterations, context, may_alter=access.may_alter_configs, validate_only=self.validate_only
        )


def decide_alter_configs(
    image: ClusterImage,
    alterations: Sequence[Alteration],
    context: ControllerContext,
    *,
    may_alter: Callable[[int, str], ErrorCode] = lambda _type, _name: ErrorCode.NONE,
    validate_only: bool = False,
) -> Decision[list[ApiError]]:
    """Alters each resource as a whole or not at all, in pieces; returns results in the request's order."""

    def alter(at: ClusterImage, alteration: Alteration) -> list[Any] | ApiError:
        denied = may_alter(alteration.resource_type, alteration.name)
        return ApiError(denied) if denied else _alter(at, alteration, context)

    altered = Alterations(alterations, alter, attrgetter("resource_type", "name"), _TWICE, validate_only=validate_only)
    return altered.decide(image)


def _alter(image: ClusterImage, alteration: Alteration, context: ControllerContext) -> list[Any] | ApiError:
    problem = check_form(alteration) or _check_resource(image, alteration, context)
    if problem is not None:
        return problem
    current = image.configs.of(alteration.resource_type, alteration.name)
    changed = _changes(alteration, current, context.rules)
    if isinstance(changed, ApiError):
        return changed
    after = _after(current, changed)
    if len(after) > max(SETTINGS_MAX, len(current)):
        return TOO_MANY_SETTINGS
    problem = _check_values(image, alteration, after, changed, context)
    if problem is not None:
        return problem
    # A broker's settings are written even if unchanged: that is how an operator makes it read files again.
    always = alteration.resource_type == ResourceType.BROKER
    records: list[Any] = [
        ConfigRecord(resource_type=alteration.resource_type, resource_name=alteration.name, name=name, value=value)
        for name, value in changed.items()
        if always or current.get(name) != value
    ]
    if MIN_INSYNC_REPLICAS in changed and current.get(MIN_INSYNC_REPLICAS) != changed[MIN_INSYNC_REPLICAS]:
        # The eligible leader replicas were computed with the old setting (KIP-966).
        if image.features.level(levels.ELR_VERSION) > 0:
            is_topic = alteration.resource_type == ResourceType.TOPIC
            records.append(ClearElrRecord(topic_name=alteration.name if is_topic else ""))
    return records


def check_at_broker(
    image: ClusterImage,
    alteration: Alteration,
    node_id: int,
    rules: ConfigRules,
    check_own: Callable[[Mapping[str, str], bool], str | None],
) -> ApiError | None:
    """Returns why the broker that received an alteration refuses it, or None: then the controller decides.

    Settings of a broker are altered at that broker, which alone knows its file; the default of all brokers is checked
    by the receiving broker. `check_own` returns why the broker cannot have such dynamic settings (True: its own).
    """
    if alteration.resource_type != ResourceType.BROKER:
        return None
    problem = check_form(alteration) or (check_broker_name(alteration.name, node_id) if alteration.name else None)
    if problem is not None:
        return problem
    current = image.configs.of(alteration.resource_type, alteration.name)
    changed = _changes(alteration, current, rules)
    if isinstance(changed, ApiError):
        return changed
    after = _after(current, changed)
    if len(after) > max(SETTINGS_MAX, len(current)):
        return TOO_MANY_SETTINGS
    why = check_own(after, bool(alteration.name))
    # Kafka answers INVALID_REQUEST here (KAFKA-13609), and tools expect it.
    return None if why is None else ApiError(ErrorCode.INVALID_REQUEST, why)


def _after(current: Mapping[str, str], changed: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in {**current, **changed}.items() if value is not None}


def check_form(alteration: Alteration) -> ApiError | None:
    """Returns why an alteration is malformed, or None."""
    if len(alteration.changes) > SETTINGS_MAX:
        return TOO_MANY_SETTINGS
    names = [name for name, _, _ in alteration.changes]
    if len(set(names)) < len(names):
        return ApiError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    nulls = [name for name, op, value in alteration.changes if value is None and op != AlterOperation.DELETE]
    if nulls:
        return ApiError(ErrorCode.INVALID_REQUEST, "Null value not supported for : " + ", ".join(nulls))
    for _, operation, _ in alteration.changes:
        if not AlterOperation.SET <= operation <= AlterOperation.SUBTRACT:
            return ApiError(ErrorCode.INVALID_REQUEST, f"Unknown operations type {operation}")
    return None


def _check_resource(image: ClusterImage, alteration: Alteration, context: ControllerContext) -> ApiError | None:
    name = alteration.name
    bad = ErrorCode.INVALID_REQUEST
    if alteration.resource_type == ResourceType.TOPIC:
        if not name:
            return ApiError(bad, "Default topic resources are not allowed.")
        if (why := illegal_name(name)) is not None:
            return ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, why)
        if image.topics.by_name(name) is None:
            return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    elif alteration.resource_type == ResourceType.BROKER:
        return _check_node(image, name, context) if name else None
    elif alteration.resource_type == ResourceType.GROUP:
        if not name:
            return ApiError(bad, "Default group resources are not allowed.")
    elif alteration.resource_type == ResourceType.CLIENT_METRICS:
        if not name:
            return ApiError(bad, "Subscription name can't be empty")
    else:
        return ApiError(bad, f"Unknown resource type {alteration.resource_type}")
    return None


def _check_node(image: ClusterImage, name: str, context: ControllerContext) -> ApiError | None:
    """Returns why a resource of type BROKER is no node of the cluster, or None. A single node is the whole cluster."""
    node_id = _node_id(name)
    if context.sessions is None or node_id is None:
        return check_broker_name(name, context.node_id)
    if node_id in image.brokers or node_id in image.controllers:
        return None
    return ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No node with id {node_id} found.")


def check_broker_name(name: str, node_id: int) -> ApiError | None:
    """Returns why a resource of type BROKER is not this node, or None."""
    named = _node_id(name)
    if named is None:
        return ApiError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
    if named != node_id:
        return ApiError(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {node_id}, but received {name}")
    return None


def _node_id(name: str) -> int | None:
    digits = name[1:] if name[:1] in ("-", "+") else name
    return int(name) if digits.isascii() and digits.isdigit() else None


def _changes(
    alteration: Alteration, current: Mapping[str, str], rules: ConfigRules
) -> dict[str, str | None] | ApiError:
    """Returns the new value of every setting that the request changes; None for those that it removes."""
    changed: dict[str, str | None] = {}
    for name, operation, value in alteration.changes:
        if operation == AlterOperation.SET:
            changed[name] = value
        elif operation == AlterOperation.DELETE:
            changed[name] = None
        elif not rules.is_list(alteration.resource_type, name):
            return ApiError(
                ErrorCode.INVALID_CONFIG,
                f"Can't {AlterOperation(operation).name} to key {name} because its type is not LIST.",
            )
        else:
            old = current.get(name)
            if old is None:
                old = rules.default_text(alteration.resource_type, name) or ""
            parts = [part for part in old.split(",") if part]
            given = (value or "").split(",")
            add_or_drop = _with if operation == AlterOperation.APPEND else _without
            changed[name] = ",".join(add_or_drop(parts, given))
    if alteration.replaces:
        changed |= {name: None for name in current if name not in changed}
    return changed


def _with(parts: Sequence[str], given: Sequence[str]) -> list[str]:
    """Returns a list with the given parts appended that it lacks, each once."""
    there = set(parts)
    return [*parts, *(part for part in dict.fromkeys(given) if part not in there)]


def _without(parts: Sequence[str], given: Sequence[str]) -> list[str]:
    """Returns a list without the given parts: each removes its first occurrence."""
    drop = Counter(given)
    left: list[str] = []
    for part in parts:
        if drop[part] > 0:
            drop[part] -= 1
        else:
            left.append(part)
    return left


def _check_values(
    image: ClusterImage,
    alteration: Alteration,
    after: Mapping[str, str],
    changed: Mapping[str, str | None],
    context: ControllerContext,
) -> ApiError | None:
    rules = context.rules
    why: str | None
    if alteration.resource_type == ResourceType.TOPIC:
        why = rules.check_topic(after)
    elif alteration.resource_type == ResourceType.GROUP:
        why = rules.check_group(after)
    elif alteration.resource_type == ResourceType.CLIENT_METRICS:
        why = rules.check_client_metrics(after)
    else:
        # The broker has compared its own settings with its file, see `check_at_broker`.
        why = rules.check_broker(after, bool(alteration.name))
        if why is not None:
            return ApiError(ErrorCode.INVALID_REQUEST, why)
        if image.features.level(levels.ELR_VERSION) > 0 and MIN_INSYNC_REPLICAS in changed:
            if alteration.name:
                return ApiError(
                    ErrorCode.INVALID_CONFIG, "Broker-level min.insync.replicas cannot be altered while ELR is enabled."
                )
            if changed[MIN_INSYNC_REPLICAS] is None:
                return ApiError(
                    ErrorCode.INVALID_CONFIG,
                    "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
                )
    return None if why is None else ApiError(ErrorCode.INVALID_CONFIG, why)
