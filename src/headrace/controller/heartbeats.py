"""Decides heartbeats: they unfence a broker, shut it down in order, and report failed log directories.

A fenced broker that has read the metadata up to its own registration is unfenced on request. A broker that wants to
shut down gives up its leaderships; it may stop once it leads nothing and every active broker has read so in the
metadata, because until then clients are still sent to it.

Source: KIP-631, KIP-841, KIP-858, KIP-1066.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from headrace.controller.access import Access
from headrace.controller.context import ControllerContext
from headrace.controller.departure import Departure, leave
from headrace.controller.leaders import returned
from headrace.controller.membership import UNFENCE, fence
from headrace.controller.partition_changes import PartitionChanges
from headrace.controller.pieces import Sweep
from headrace.controller.sessions import BrokerSessions
from headrace.machine import Decision
from headrace.metadata import image as im
from headrace.metadata import levels
from headrace.metadata.image import ClusterImage
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.metadata_records import BrokerRegistrationChangeRecord

_IN_CONTROLLED_SHUTDOWN = 1


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The heartbeat of a broker, with the state that it asks for.

    `metadata_offset` is how far it has read the metadata. `failed_directories` are its log directories that no longer
    work. `cordoned_directories` None: it does not report directories closed to new replicas.
    """

    broker_id: int
    broker_epoch: int
    metadata_offset: int
    want_fence: bool = False
    want_shut_down: bool = False
    failed_directories: tuple[bytes, ...] = ()
    cordoned_directories: tuple[bytes, ...] | None = None

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[HeartbeatReply]:
        """Decides the request upon `image`."""
        assert context.sessions is not None
        return decide_heartbeat(image, context, context.sessions, self)


class HeartbeatReply(NamedTuple):
    """The reply to a heartbeat; with an error the other fields are void."""

    error: ErrorCode
    is_caught_up: bool = False
    is_fenced: bool = True
    should_shut_down: bool = False


def decide_heartbeat(
    image: ClusterImage,
    context: ControllerContext,
    sessions: BrokerSessions,
    beat: Heartbeat,
    departure: Departure | None = None,
    failure: Departure | None = None,
    return_: Sweep | None = None,
) -> Decision[HeartbeatReply]:
    """Prolongs a broker's session, and moves the broker towards the state that it asks for.

    `departure`, `failure` and `return_` hold what earlier pieces of this decision have begun: a departure, the loss of
    directories, and the elections after an unfencing.
    """
    broker = image.brokers.get(beat.broker_id)
    if broker is None or broker.epoch != beat.broker_epoch:
        return Decision(HeartbeatReply(ErrorCode.STALE_BROKER_EPOCH))
    is_first_piece = departure is None
    if is_first_piece and not sessions.heard(broker.id, broker.epoch, beat.metadata_offset, context.now_ms):
        # Its session had ended, but it is alive.
        sessions.registered(broker.id, broker.epoch, broker.epoch, context.now_ms)
        sessions.heard(broker.id, broker.epoch, beat.metadata_offset, context.now_ms)
    registered_at = sessions.registered_at(broker.id)
    assert registered_at is not None or not is_first_piece
    is_caught_up = registered_at is not None and beat.metadata_offset >= registered_at
    changes = PartitionChanges(image, context)
    departure = departure or Departure(broker.id)
    failed = frozenset(broker.directories) & set(beat.failed_directories)
    if failure is None or failure.failed != failed:
        failure = Departure(broker.id, failed=failed)
    # A broker that was fenced between two pieces is not unfenced by its earlier heartbeat.
    moved = _move(changes, sessions, broker, beat, is_caught_up and is_first_piece, departure)
    if moved is not None and broker.fenced and not moved[0] and not broker.in_controlled_shutdown:
        # After a controlled shutdown a broker leads nothing before it registers again.
        changes.comes_up(broker.id)
        return_ = returned(broker.id)
    if moved is None or not _note_failed(changes, sessions, broker, failure):
        rest = partial(
            decide_heartbeat,
            context=context,
            sessions=sessions,
            beat=beat,
            departure=departure,
            failure=failure,
            return_=return_,
        )
        return Decision(HeartbeatReply(ErrorCode.NONE, is_caught_up, is_fenced=False), changes.records, rest)
    is_fenced, should_shut_down = moved
    _note_cordoned(changes, broker, beat)
    if should_shut_down:
        # The next incarnation may register at once.
        sessions.forget(broker.id, broker.epoch)
    reply = HeartbeatReply(ErrorCode.NONE, is_caught_up, is_fenced, should_shut_down)
    if return_ is None or is_fenced:
        return Decision(reply, changes.records)
    return _elect(changes, context, broker, return_, reply)


def _elect(
    changes: PartitionChanges, context: ControllerContext, broker: im.Broker, return_: Sweep, reply: HeartbeatReply
) -> Decision[HeartbeatReply]:
    """Decides the next piece of the elections after a broker was unfenced: it may lead partitions without a leader."""
    if return_.go_on(changes):
        return Decision(reply, changes.records)

    def rest(image: ClusterImage) -> Decision[HeartbeatReply]:
        now = image.brokers.get(broker.id)
        if now is None or now.epoch != broker.epoch or now.fenced or now.in_controlled_shutdown:
            return Decision(reply)
        return _elect(PartitionChanges(image, context), context, now, return_, reply)

    return Decision(reply, changes.records, rest)


def _move(
    changes: PartitionChanges,
    sessions: BrokerSessions,
    broker: im.Broker,
    beat: Heartbeat,
    may_unfence: bool,
    departure: Departure,
) -> tuple[bool, bool] | None:
    """Returns whether the broker is fenced from now on, and whether it may stop; None if more pieces come first."""
    if broker.fenced:
        if beat.want_shut_down:
            return True, True
        if beat.want_fence or not may_unfence:
            return True, False
        _change(changes, broker, fenced=UNFENCE)
        return False, False
    if beat.want_fence:
        return (True, beat.want_shut_down) if fence(changes, sessions, departure, broker) else None
    if not broker.in_controlled_shutdown:
        if not beat.want_shut_down:
            return False, False
        if not departure.records and changes.leads_any(broker.id):
            _change(changes, broker, in_controlled_shutdown=_IN_CONTROLLED_SHUTDOWN)
            return (False, False) if _give_up(changes, sessions, departure) else None
    else:
        # A controller elected meanwhile finishes what its predecessor has begun.
        if not _give_up(changes, sessions, departure):
            return None
        if not sessions.may_go(changes.image, broker.id):
            return False, False
    return (True, True) if fence(changes, sessions, departure, broker) else None


def _give_up(changes: PartitionChanges, sessions: BrokerSessions, departure: Departure) -> bool:
    """Removes a broker that shuts down from its partitions; returns True once none is left."""
    if not departure.go_on(changes):
        return False
    end = changes.image.offset + len(changes.records)
    sessions.begin_shutdown(departure.broker_id, end, gave_up=departure.records > 0)
    return True


def _change(changes: PartitionChanges, broker: im.Broker, *, fenced: int = 0, in_controlled_shutdown: int = 0) -> None:
    assert fenced or in_controlled_shutdown, "a record says what changes"
    changes.records.append(
        BrokerRegistrationChangeRecord(
            broker_id=broker.id,
            broker_epoch=broker.epoch,
            fenced=fenced,
            in_controlled_shutdown=in_controlled_shutdown,
        )
    )


def _note_failed(changes: PartitionChanges, sessions: BrokerSessions, broker: im.Broker, failure: Departure) -> bool:
    """Removes the replicas in failed directories, then these directories from the broker; returns True when all is
    decided."""
    failed = failure.failed
    if not failed or not levels.supports_directories(changes.image.features.metadata_version):
        return True
    if not leave(changes, sessions, failure, broker):
        return False
    working = [directory for directory in broker.directories if directory not in failed]
    # An empty list would mean "unknown". A broker without directories stops, and its heartbeat says that too.
    if working:
        changes.records.append(
            BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, log_dirs=working)
        )
    return True


def _note_cordoned(changes: PartitionChanges, broker: im.Broker, beat: Heartbeat) -> None:
    level = changes.image.features.metadata_version
    cordoned = beat.cordoned_directories
    if cordoned is None or not levels.supports_cordoned_directories(level):
        return
    if broker.cordoned_directories is None or set(cordoned) != set(broker.cordoned_directories):
        changes.records.append(
            BrokerRegistrationChangeRecord(
                broker_id=broker.id, broker_epoch=broker.epoch, cordoned_log_dirs=sorted(cordoned)
            )
        )
