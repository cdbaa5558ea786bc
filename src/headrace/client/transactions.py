"""The blocking transactional producer: records of many partitions and groups' offsets, seen together or never.

    with TransactionalProducer(client, "billing") as producer:
        producer.begin()
        producer.send("paid", b"...")
        producer.send_offsets("billing-group", {("orders", 0): 17})
        producer.commit()

See `transacting` for what may go wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Self, Unpack

from headrace.client.cluster import Client
from headrace.client.deliveries import Delivery
from headrace.client.errors import ClientError
from headrace.client.groups import Committed
from headrace.client.metadata import TopicPartition
from headrace.client.transacting import OpenTransaction, TransactionalMachine, TransactionalOptions


class TransactionalProducer(TransactionalMachine):
    """One transactional id's writer. Belongs to one thread, as its client does."""

    def __init__(self, client: Client, transactional_id: str, **options: Unpack[TransactionalOptions]) -> None:
        """Nothing is asked before `begin`."""
        super().__init__(client.router, transactional_id, options)
        self.client = client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Aborts an open transaction, as far as that is possible: its timeout does the same later."""
        if self.is_open:
            try:
                self.abort()
            except ClientError:
                if kind is None:
                    raise

    def initialize(self) -> None:
        """Takes the id over: earlier producers are fenced, and what they had open is over when this returns.

        Raises `BrokerError` if the cluster has no transactions, or not for us, and `ProtocolMismatchError`.
        """
        self.client.run(self.initialize_steps())

    def begin(self) -> None:
        """Begins a transaction; the cluster hears of it with the first write. Takes the id over if need be."""
        self.client.run(self.begin_steps())

    def take_on(self, opened: OpenTransaction) -> None:
        """Goes on where the producer stopped that has handed this transaction over, to end it."""
        self.client.run(self.take_on_steps(opened))

    def commit(self, others: Sequence[OpenTransaction] = ()) -> None:
        """Commits the transaction, and `others` with it, which other producers have handed over: all or none.

        Raises `InDoubtError` if that is not known, `FencedError`, or what made a write fail: then it is not committed.
        """
        self.client.run(self.commit_steps(others))

    def abort(self) -> None:
        """Aborts: nothing of it is ever visible to `read_committed` readers. Raises `FencedError`."""
        self.client.run(self.abort_steps())

    def hand_over(self) -> OpenTransaction | None:
        """Waits until what was written is acknowledged, and leaves it for another producer to end; None if nothing
        was. This producer is at its end."""
        return self.client.run(self.hand_over_steps())

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
        """Queues one record, as `Producer.send`. Raises what ends the transaction or the producer."""
        steps = self.send_steps(topic, value, key=key, headers=headers, timestamp_ms=timestamp_ms, partition=partition)
        if steps is not None:
            self.client.run(steps)

    def send_batch(self, topic: str, partition: int, batch: bytes | bytearray | memoryview) -> Delivery:
        """Queues one ready-made batch, as `Producer.send_batch`."""
        return self.client.run(self.send_batch_steps(topic, partition, batch))

    def join(self, partitions: Iterable[TopicPartition]) -> None:
        """Adds the partitions that will be written to: one request for all, instead of one before the first write to
        each."""
        self.client.run(self.join_steps(partitions))

    def send_offsets(self, group: str, offsets: Mapping[TopicPartition, int | Committed]) -> None:
        """Commits a group's offsets with the transaction, from outside the group, whatever members it has."""
        self.client.run(self.send_offsets_steps(group, offsets))

    def flush(self) -> None:
        """Waits until all that was sent is acknowledged, without a decision."""
        self.client.run(self.flush_steps())
