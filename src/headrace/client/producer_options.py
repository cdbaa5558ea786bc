"""The options of a producer, and their defaults."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypedDict

from headrace.client.deliveries import Delivery
from headrace.wire.primitives import Buffer
from headrace.wire.records import Compression

BATCH_SIZE = 256 << 10
"""Uncompressed size at which a batch is closed."""

BUFFER_SIZE = 64 << 20
"""Bytes queued and in flight before `send` waits."""

LINGER_MS = 5
DELIVERY_TIMEOUT_S = 120.0
REQUEST_TIMEOUT_S = 30.0

Acknowledged = Callable[[Delivery, Buffer], None]
"""Takes what became of a batch, or of a part of a batch that was split, and its data."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """Whom a producer writes as, in the transactions of one epoch; see `transactions`.

    `produce_version_max` says by which of Kafka's protocols: from Produce v12 on a write adds its partition to the
    transaction, below that it must be there already.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    produce_version_max: int


class RecordOptions(TypedDict):
    """What goes with a record."""

    key: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    timestamp_ms: int | None
    partition: int | None


class BatchOptions(TypedDict, total=False):
    """The options of a producer that the user of a transactional one chooses too."""

    compression: Compression
    linger_ms: int
    batch_size: int
    buffer_size: int
    delivery_timeout_s: float
    acknowledged: Acknowledged | None


class ProducerOptions(BatchOptions, total=False):
    """The options of a producer."""

    acks: int
    idempotent: bool
    request_timeout_s: float
    transaction: Transaction | None
