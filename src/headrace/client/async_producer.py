"""The asyncio producers: writes records, batches and transactions. See `producing` and `transacting` for what they do.

Several tasks may use one producer: what waits is done for one of them at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Self, TypeVar, Unpack

from headrace.client.async_client import AsyncClient
from headrace.client.conversation import Steps
from headrace.client.deliveries import Delivery
from headrace.client.errors import ClientError
from headrace.client.groups import Committed
from headrace.client.metadata import TopicPartition
from headrace.client.producer_options import ProducerOptions
from headrace.client.producing import ProducerMachine
from headrace.client.transacting import OpenTransaction, TransactionalMachine, TransactionalOptions

T = TypeVar("T")


class _Turns:
    """Runs what the tasks of a producer wait for, one after the other: its machine is at one place at a time."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._lock = asyncio.Lock()

    async def run(self, steps: Steps[T]) -> T:
        """Returns the result of the steps. Raises what they raise."""
        async with self._lock:
            return await self._client.run(steps)


class AsyncProducer(ProducerMachine):
    """Writes records or ready-made batches to topics. Bytes leave while one of its methods is awaited."""

    def __init__(self, client: AsyncClient, **options: Unpack[ProducerOptions]) -> None:
        """See `ProducerMachine` for the options."""
        super().__init__(client.router, options)
        self.client = client
        self._turns = _Turns(client)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        if kind is None:
            await self.flush()

    async def send(
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
            await self._turns.run(steps)

    async def send_batch(self, topic: str, partition: int, batch: bytes | bytearray | memoryview) -> Delivery:
        """Queues one ready-made batch (magic 2, compressed or not) as it is, but for its producer fields.

        Waits while the buffer is full. The batch belongs to the producer from here on. Records queued by `send` for
        the same partition go first. Raises what made the producer stop, `ValueError` for what is not one batch.
        """
        return await self._turns.run(self.send_batch_steps(topic, partition, batch))

    async def poll(self, timeout_s: float = 0.0) -> None:
        """Sends due batches and takes in responses. Raises what made the producer stop."""
        await self._turns.run(self.poll_steps(timeout_s))

    async def flush(self) -> None:
        """Waits until everything queued so far is acknowledged. Raises what made the producer stop."""
        await self._turns.run(self.flush_steps())


class AsyncTransactionalProducer(TransactionalMachine):
    """One transactional id's writer: records of many partitions and groups' offsets, seen together or never."""

    def __init__(self, client: AsyncClient, transactional_id: str, **options: Unpack[TransactionalOptions]) -> None:
        """Nothing is asked before `begin`."""
        super().__init__(client.router, transactional_id, options)
        self.client = client
        self._turns = _Turns(client)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        """Aborts an open transaction, as far as that is possible: its timeout does the same later."""
        if self.is_open:
            try:
                await self.abort()
            except ClientError:
                if kind is None:
                    raise

    async def initialize(self) -> None:
        """Takes the id over: earlier producers are fenced, and what they had open is over when this returns.

        Raises `BrokerError` if the cluster has no transactions, or not for us, and `ProtocolMismatchError`.
        """
        await self._turns.run(self.initialize_steps())

    async def begin(self) -> None:
        """Begins a transaction; the cluster hears of it with the first write. Takes the id over if need be."""
        await self._turns.run(self.begin_steps())

    async def take_on(self, opened: OpenTransaction) -> None:
        """Goes on where the producer stopped that has handed this transaction over, to end it."""
        await self._turns.run(self.take_on_steps(opened))

    async def commit(self, others: Sequence[OpenTransaction] = ()) -> None:
        """Commits the transaction, and `others` with it, which other producers have handed over: all or none.

        Raises `InDoubtError` if that is not known, `FencedError`, or what made a write fail: then it is not committed.
        """
        await self._turns.run(self.commit_steps(others))

    async def abort(self) -> None:
        """Aborts: nothing of it is ever visible to `read_committed` readers. Raises `FencedError`."""
        await self._turns.run(self.abort_steps())

    async def hand_over(self) -> OpenTransaction | None:
        """Waits until what was written is acknowledged, and leaves it for another producer to end; None if nothing
        was. This producer is at its end."""
        return await self._turns.run(self.hand_over_steps())

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> None:
        """Queues one record, as `AsyncProducer.send`. Raises what ends the transaction or the producer."""
        steps = self.send_steps(topic, value, key=key, headers=headers, timestamp_ms=timestamp_ms, partition=partition)
        if steps is not None:
            await self._turns.run(steps)

    async def send_batch(self, topic: str, partition: int, batch: bytes | bytearray | memoryview) -> Delivery:
        """Queues one ready-made batch, as `AsyncProducer.send_batch`."""
        return await self._turns.run(self.send_batch_steps(topic, partition, batch))

    async def join(self, partitions: Iterable[TopicPartition]) -> None:
        """Adds the partitions that will be written to: one request for all, instead of one before the first write to
        each."""
        await self._turns.run(self.join_steps(partitions))

    async def send_offsets(self, group: str, offsets: Mapping[TopicPartition, int | Committed]) -> None:
        """Commits a group's offsets with the transaction, from outside the group, whatever members it has."""
        await self._turns.run(self.send_offsets_steps(group, offsets))

    async def flush(self) -> None:
        """Waits until all that was sent is acknowledged, without a decision."""
        await self._turns.run(self.flush_steps())
