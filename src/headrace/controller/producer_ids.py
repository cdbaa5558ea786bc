"""Allocates blocks of producer ids, so that no two producers share one. Source: KIP-730."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from headrace.controller.access import Access
from headrace.controller.context import ControllerContext
from headrace.machine import Decision
from headrace.metadata.image import ClusterImage
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.metadata_records import ProducerIdsRecord

BLOCK_SIZE = 1000


class ProducerIdBlock(NamedTuple):
    """The producer ids from `first` (inclusive) to `end` (exclusive); empty with an error."""

    first: int
    end: int
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class AllocateProducerIds:
    """A block of producer ids for a broker. `broker_epoch` None: the request is of this node, and no epoch is
    checked."""

    broker_id: int
    broker_epoch: int | None = None

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[ProducerIdBlock]:
        """Decides the request upon `image`."""
        return decide_allocate_producer_ids(image, self.broker_id, self.broker_epoch)


def decide_allocate_producer_ids(
    image: ClusterImage, broker_id: int, broker_epoch: int | None = None
) -> Decision[ProducerIdBlock]:
    """Allocates the next block to a broker. `broker_epoch` None: the broker is this node, and no epoch is checked."""
    broker = image.brokers.get(broker_id)
    if broker_epoch is not None and (broker is None or broker.epoch != broker_epoch):
        return Decision(ProducerIdBlock(0, 0, ErrorCode.STALE_BROKER_EPOCH))
    first = max(0, image.next_producer_id)
    record = ProducerIdsRecord(
        broker_id=broker_id, broker_epoch=-1 if broker is None else broker.epoch, next_producer_id=first + BLOCK_SIZE
    )
    return Decision(ProducerIdBlock(first, first + BLOCK_SIZE), [record])
