"""Checks transactional requests at a partition leader: the producer in their batches, and the coordinator's answer."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace.security.authorizer import Operation, ResourceType
from headrace.wire.batch import BATCH_OVERHEAD
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k00_produce import ProduceRequest

if TYPE_CHECKING:
    from headrace.broker.net.context import RequestContext
    from headrace.wire.primitives import Buffer

ADDS_FROM: Final = 12
"""First version of Produce in which the leader adds partitions to the transaction, and its end raises the epoch."""
_ABORTABLE_FROM: Final = 11
_OFFSETS_ABORTABLE_FROM: Final = 4
OFFSETS_ADDED_FROM: Final = 5
"""First version of TxnOffsetCommit in which the leader adds the group's partition to the transaction."""
TRANSACTIONAL: Final = 0x10
_ATTRIBUTES_AT: Final = 22
_NOT_NOW: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""Errors of a coordinator that is not available at the moment."""
_unpack_producer = Struct(">qhi").unpack_from
_PRODUCER_AT: Final = 43


class Sequenced(NamedTuple):
    """The producer of a batch, and the batch's position in its sequence."""

    producer_id: int
    producer_epoch: int
    first_sequence: int


def transactional(records: object) -> Sequenced | None:
    """Returns the producer of a transactional batch, from its header; None for other batches, and for too short
    ones."""
    if not isinstance(records, (bytes, bytearray, memoryview)) or len(records) < BATCH_OVERHEAD:
        return None
    return sequenced(records) if records[_ATTRIBUTES_AT] & TRANSACTIONAL else None


def sequenced(records: Buffer) -> Sequenced:
    """Returns the producer in the header of a batch."""
    return Sequenced(*_unpack_producer(records, _PRODUCER_AT))


def producers_of(request: ProduceRequest) -> set[tuple[int, int]]:
    """Returns (id, epoch) of the producers whose transactions a Produce request writes to."""
    return {
        batch[:2]
        for topic in request.topic_data
        for partition in topic.partition_data
        if (batch := transactional(partition.records)) is not None
    }


def check_producers(found: set[tuple[int, int]], request: ProduceRequest, context: RequestContext) -> ErrorCode:
    """Returns the error that refuses a whole Produce request, or NONE: its transactional id is missing or not allowed,
    or its transactions have several producers."""
    name = request.transactional_id
    if name is None or not context.authorize(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if len(found) > 1 or min(found)[0] < 0:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return ErrorCode.NONE


def fenced_error(error: ErrorCode, api_version: int, fenced_from: int) -> ErrorCode:
    """Returns the error of a transaction's coordinator for a version of an API that knows PRODUCER_FENCED from
    `fenced_from` on. Earlier clients get INVALID_PRODUCER_EPOCH (KIP-588)."""
    if error is ErrorCode.PRODUCER_FENCED and api_version < fenced_from:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


def produce_error(error: ErrorCode, api_version: int) -> ErrorCode:
    """Returns the error for a producer whose coordinator answered `error`. A temporary one must not make it look for
    another leader, or fail an old client."""
    if error in _NOT_NOW or (error is ErrorCode.CONCURRENT_TRANSACTIONS and api_version < ADDS_FROM):
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if error is ErrorCode.TRANSACTION_ABORTABLE and api_version < _ABORTABLE_FROM:
        return ErrorCode.INVALID_TXN_STATE
    return error


def offsets_error(error: ErrorCode, api_version: int) -> ErrorCode:
    """Returns the error for a TxnOffsetCommit whose coordinator answered `error`; old clients do not know
    NETWORK_EXCEPTION."""
    if error is ErrorCode.NETWORK_EXCEPTION:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if error is ErrorCode.TRANSACTION_ABORTABLE and api_version < _OFFSETS_ABORTABLE_FROM:
        return ErrorCode.INVALID_TXN_STATE
    return error
