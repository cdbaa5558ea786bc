"""Handing out blocks of producer ids, so that no two producers ever share one. Source: KIP-730."""

from __future__ import annotations

from typing import NamedTuple

from headrace.machine import Decision
from headrace.metadata.image import ClusterImage
from headrace.wire.messages.metadata_records import ProducerIdsRecord

BLOCK_SIZE = 1000


class ProducerIdBlock(NamedTuple):
    """The ids from `first` up to, without, `end`."""

    first: int
    end: int


def decide_allocate_producer_ids(image: ClusterImage, broker_id: int) -> Decision[ProducerIdBlock]:
    """The next block for a broker."""
    first = max(0, image.next_producer_id)
    broker = image.brokers.get(broker_id)
    record = ProducerIdsRecord(
        broker_id=broker_id, broker_epoch=-1 if broker is None else broker.epoch, next_producer_id=first + BLOCK_SIZE
    )
    return Decision(ProducerIdBlock(first, first + BLOCK_SIZE), [record])
