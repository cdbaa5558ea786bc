"""The membership of a cluster: brokers and controllers register, sessions expire, brokers are unregistered.

A registration is checked in Kafka's order. The same incarnation amends its registration, and keeps its broker epoch. A
new incarnation is fenced, and its replicas first leave the ISR: it may have lost acknowledged records.

Source: KIP-631, KIP-841, KIP-858, KIP-919, KIP-966.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from headrace.controller.access import Access
from headrace.controller.brokers import Registered, Registration, decide_register
from headrace.controller.context import DONE, ApiError, ControllerContext
from headrace.controller.departure import Departure, leave
from headrace.controller.partition_changes import PartitionChanges
from headrace.controller.sessions import BrokerSessions
from headrace.machine import Decision
from headrace.metadata import image as im
from headrace.metadata import levels
from headrace.metadata.image import ClusterImage
from headrace.metadata.image import Controller as ControllerNode
from headrace.metadata.snapshot import broker_record, controller_record
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.metadata_records import BrokerRegistrationChangeRecord, UnregisterBrokerRecord

FENCE, UNFENCE = 1, -1
"""Values of BrokerRegistrationChangeRecord.Fenced."""


@dataclass(frozen=True, slots=True)
class RegisterBroker:
    """The registration of a broker at its start. It is fenced until it asks to be unfenced; a single node also
    registers as controller."""

    registration: Registration

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[Registered]:
        """Decides the request upon `image`."""
        if context.sessions is None:
            return decide_register(image, self.registration)
        return decide_register_in_cluster(image, context, context.sessions, self.registration)


def decide_register_in_cluster(
    image: ClusterImage,
    context: ControllerContext,
    sessions: BrokerSessions,
    registration: Registration,
    departure: Departure | None = None,
) -> Decision[Registered]:
    """Registers a broker of a cluster and starts its session. `departure` holds what earlier pieces have begun."""
    problem = _problem(image, context, sessions, registration)
    if problem is not None:
        return Decision(Registered(problem.code, problem.message))
    level = image.features.metadata_version
    changes = PartitionChanges(image, context)
    old = image.brokers.get(registration.node_id)
    broker = im.Broker(
        id=registration.node_id,
        epoch=image.offset + 1,
        incarnation_id=registration.incarnation_id,
        endpoints=registration.endpoints,
        features=registration.features,
        rack=registration.rack,
        fenced=True,
        in_controlled_shutdown=False,
        directories=tuple(sorted(registration.directories)) if levels.supports_directories(level) else (),
        cordoned_directories=registration.cordoned_directories,
    )
    if old is not None and old.incarnation_id == registration.incarnation_id:
        broker = replace(broker, epoch=old.epoch, fenced=old.fenced, in_controlled_shutdown=old.in_controlled_shutdown)
    else:
        stored = None if old is None else old.epoch
        was_clean = not changes.has_elr or registration.previous_broker_epoch == stored
        departure = departure or Departure(broker.id, was_clean=was_clean)
        if not leave(changes, sessions, departure, broker if old is None else old):
            rest = partial(
                decide_register_in_cluster,
                context=context,
                sessions=sessions,
                registration=registration,
                departure=departure,
            )
            return Decision(Registered(ErrorCode.NONE, None), changes.records, rest)
    assert old is None or broker.epoch >= old.epoch, "broker epochs never fall"
    changes.records.append(broker_record(broker, level))
    sessions.registered(broker.id, broker.epoch, image.offset + len(changes.records), context.now_ms)
    return Decision(Registered(ErrorCode.NONE, None, broker.epoch), changes.records)


def _problem(
    image: ClusterImage, context: ControllerContext, sessions: BrokerSessions, registration: Registration
) -> ApiError | None:
    if registration.cluster_id != image.cluster_id:
        return ApiError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"Expected cluster ID {image.cluster_id}, but got cluster ID {registration.cluster_id}",
        )
    old = image.brokers.get(registration.node_id)
    if (
        old is not None
        and old.incarnation_id != registration.incarnation_id
        and sessions.is_live(old.id, context.now_ms)
    ):
        return ApiError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"Another broker is registered with id {old.id}, and its session has not run out yet.",
        )
    if levels.supports_directories(image.features.metadata_version):
        why = _bad_directories(image, registration)
        if why is not None:
            return ApiError(ErrorCode.INVALID_REGISTRATION, why)
    return _bad_features(image, context, registration)


def _bad_directories(image: ClusterImage, registration: Registration) -> str | None:
    directories = set(registration.directories)
    if not directories:
        return "No directories specified in request"
    if directories & im.DIRECTORIES_RESERVED:
        return "Reserved directory ID in request"
    if len(directories) < len(registration.directories):
        return "Duplicate directory ID in request"
    for broker in image.brokers.values():
        if broker.id != registration.node_id and directories & set(broker.directories):
            return f"Broker {broker.id} is already registered with one of these directories"
    return None


def _bad_features(image: ClusterImage, context: ControllerContext, registration: Registration) -> ApiError | None:
    """Returns why a broker cannot run at the finalized feature levels, or None. A feature that it does not name counts
    as 0."""
    spans = {feature.name: (feature.min_level, feature.max_level) for feature in registration.features}
    if levels.METADATA_VERSION not in spans:
        return ApiError(ErrorCode.INVALID_REGISTRATION, "Request features do not contain 'metadata.version'")
    finalized = {**image.features.levels, levels.KRAFT_VERSION: context.kraft_version}
    for name, level in sorted(finalized.items()):
        low, high = spans.get(name, (0, 0))
        if not low <= level <= high:
            return ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Unable to register because the broker does not support finalized version {level} of {name}. The "
                f"broker wants a version between {low} and {high}, inclusive.",
            )
    return None


@dataclass(frozen=True, slots=True)
class RegisterController:
    """The registration of a controller: its endpoints and feature levels."""

    controller: ControllerNode

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[ApiError]:
        """Decides the request upon `image`."""
        return decide_register_controller(image, self.controller)


def decide_register_controller(image: ClusterImage, controller: im.Controller) -> Decision[ApiError]:
    """Stores a controller's endpoints and feature levels."""
    if not levels.supports_controller_registration(image.features.metadata_version):
        why = "The current MetadataVersion is too old to support controller registrations."
        return Decision(ApiError(ErrorCode.UNSUPPORTED_VERSION, why))
    return Decision(DONE, [controller_record(controller)])


@dataclass(frozen=True, slots=True)
class FenceBrokers:
    """Fences brokers, as (id, broker epoch), that are silent or known to be dead, unless they have registered again."""

    expired: Sequence[tuple[int, int]]

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[None]:
        """Decides the request upon `image`."""
        return decide_fence_brokers(image, context, self.expired)


def decide_fence_brokers(
    image: ClusterImage,
    context: ControllerContext,
    expired: Sequence[tuple[int, int]],
    departure: Departure | None = None,
) -> Decision[None]:
    """Fences brokers, given as (id, broker epoch), one after the other: each election knows who went before.

    `departure` is what an earlier piece has begun, of the first one.
    """
    changes = PartitionChanges(image, context)
    waiting = list(dict.fromkeys(expired))
    while waiting:
        broker = image.brokers.get(waiting[0][0])
        if broker is not None and broker.epoch == waiting[0][1] and not broker.fenced:
            if departure is None or departure.broker_id != broker.id:
                departure = Departure(broker.id)
            if not fence(changes, context.sessions, departure, broker):
                rest = partial(decide_fence_brokers, context=context, expired=waiting, departure=departure)
                return Decision(None, changes.records, rest)
        del waiting[0]
    return Decision(None, changes.records)


def fence(changes: PartitionChanges, sessions: BrokerSessions | None, departure: Departure, broker: im.Broker) -> bool:
    """Removes the broker from its partitions, then fences it; returns True when all is decided."""
    assert not broker.fenced, "a broker is fenced once"
    is_over = leave(changes, sessions, departure, broker)
    if is_over:
        changes.records.append(
            BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, fenced=FENCE)
        )
    return is_over


@dataclass(frozen=True, slots=True)
class UnregisterBroker:
    """The removal of a broker that will not come back."""

    broker_id: int

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[ApiError]:
        """Decides the request upon `image`."""
        return decide_unregister(image, context, self.broker_id)


def decide_unregister(
    image: ClusterImage, context: ControllerContext, broker_id: int, departure: Departure | None = None
) -> Decision[ApiError]:
    """Unregisters a broker. It stays a replica of its partitions until these are reassigned.

    `departure` holds what earlier pieces have begun.
    """
    broker = image.brokers.get(broker_id)
    if broker is None:
        why = f"Broker ID {broker_id} is not currently registered"
        return Decision(ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, why))
    changes = PartitionChanges(image, context)
    departure = departure or Departure(broker_id, was_clean=False)
    if not leave(changes, context.sessions, departure, broker):
        rest = partial(decide_unregister, context=context, broker_id=broker_id, departure=departure)
        return Decision(DONE, changes.records, rest)
    changes.records.append(UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.epoch))
    if context.sessions is not None:
        context.sessions.forget(broker_id, broker.epoch)
    return Decision(DONE, changes.records)
