"""The blocking producer: writes records or ready-made batches to topics. See `producing` for what it does.

Bytes move inside `send`, `send_batch`, `poll` and `flush` alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self, Unpack

from headrace.client.cluster import Client
from headrace.client.deliveries import Delivery
from headrace.client.producer_options import ProducerOptions
from headrace.client.producing import ProducerMachine


class Producer(ProducerMachine):
    """Writes records or ready-made batches to topics. Belongs to one thread, as its client does."""

    def __init__(self, client: Client, **options: Unpack[ProducerOptions]) -> None:
        """See `ProducerMachine` for the options."""
        super().__init__(client.router, options)
        self.client = client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.flush()

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> None:
        """Queues one record. Waits while the buffer is full. Raises what made the producer stop."""
        steps = self.send_steps(topic, value, key=key, headers=headers, timestamp_ms=timestamp_ms, partition=partition)
        if steps is not None:
            self.client.run(steps)

    def choose(self, topic: str, key: bytes | None) -> int:
        """Chooses the partition of a record: by the key's hash, or at random until a batch is full (KIP-480)."""
        return self.client.run(self.choose_steps(topic, key))

    def send_batch(self, topic: str, partition: int, batch: bytes | bytearray | memoryview) -> Delivery:
        """Queues one ready-made batch (magic 2, compressed or not) as it is, but for its producer fields.

        Waits while the buffer is full. The batch belongs to the producer from here on. Records queued by `send` for
        the same partition go first. Raises what made the producer stop, `ValueError` for what is not one batch.
        """
        return self.client.run(self.send_batch_steps(topic, partition, batch))

    def poll(self, timeout_s: float = 0.0) -> None:
        """Sends due batches and takes in responses. Raises what made the producer stop."""
        self.client.run(self.poll_steps(timeout_s))

    def flush(self) -> None:
        """Waits until everything queued so far is acknowledged. Raises what made the producer stop."""
        self.client.run(self.flush_steps())
