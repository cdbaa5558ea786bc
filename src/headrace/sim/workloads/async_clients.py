"""Clients of `headrace.client` in the simulator: asyncio producers of records and of transactions, and fetchers, as
applications use them. The history records what they send, what is acknowledged to them and what they read."""

from __future__ import annotations

from asyncio import sleep
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from headrace.client.async_client import AsyncClient
from headrace.client.async_consumer import AsyncFetcher
from headrace.client.async_producer import AsyncProducer, AsyncTransactionalProducer
from headrace.client.errors import ClientError, FencedError
from headrace.client.reading import visible_batches
from headrace.sim.machine import PORT
from headrace.wire.records import Compression, decode_batch

if TYPE_CHECKING:
    from headrace.client.deliveries import Delivery
    from headrace.client.producer_options import BatchOptions
    from headrace.sim.checkers.history import History, Place
    from headrace.sim.cluster_client import ClusterClient
    from headrace.wire.primitives import Buffer

RECORDS_MAX: Final = 12
"""Records between two pauses of a producer."""
ROUNDS_MAX: Final = 20
"""Such pauses of a producer before another takes its place."""
RECORDS_OF_TRANSACTION_MAX: Final = 6
KEYS: Final = 8
LINGERS_MS: Final = (0, 5, 100)
BATCH_SIZES: Final = (200, 2_000, 1 << 18)
"""Bytes at which a batch is closed: after a record or two, a few, or never before it has lingered."""
DELIVERIES_S: Final = (4.0, 20.0, 120.0)
"""Delivery timeouts: shorter than some faults, longer than most, longer than all."""
FETCH_BYTES: Final = (300, 1 << 20)
POLL_S: Final = 0.5


def connected(client: ClusterClient, brokers: Sequence[str]) -> AsyncClient:
    """Returns the asyncio client on the machine of a simulated one."""
    return AsyncClient([f"{host}:{PORT}" for host in brokers], client_id=client.host, machine=client.node)


class _Records:
    """What both kinds of producers have: records of their own, in order for each partition, and acknowledgements."""

    def __init__(
        self, client: ClusterClient, brokers: Sequence[str], history: History, places: Sequence[Place]
    ) -> None:
        self.client = client
        self.acknowledged = 0
        """Batches or transactions."""
        self._brokers = brokers
        self._history = history
        self._places = list(places)
        self._lives = 0
        self._count = 0
        self._numbers: dict[Place, int] = {}

    @property
    def name(self) -> str:
        """The producer, as the history knows it. One that has failed is followed by another: what the first had in
        flight may come after what the second sends."""
        return f"{self.client.host}/{self._lives}"

    def begin_life(self) -> None:
        """Notes that another producer begins."""
        self._lives += 1
        self._numbers.clear()

    def make(self) -> tuple[Place, bytes, bytes]:
        """Returns a partition, a key and a value; the history expects the record there from now on."""
        rng = self.client.rng
        place = rng.choice(self._places)
        self._count += 1
        key = b"k%d" % rng.randrange(KEYS)
        value = b"%s:%d:%s" % (self.client.host.encode(), self._count, b"." * rng.randrange(200))
        number = self._numbers.get(place, 0)
        self._numbers[place] = number + 1
        self._history.sends(place, self.name, number, [(key, value)])
        return place, key, value

    def options(self) -> BatchOptions:
        """Draws the options of a producer."""
        rng = self.client.rng
        return {
            "compression": rng.choice((Compression.NONE, Compression.ZSTD)),
            "linger_ms": rng.choice(LINGERS_MS),
            "batch_size": rng.choice(BATCH_SIZES),
            "delivery_timeout_s": rng.choice(DELIVERIES_S),
        }


class RecordProducer(_Records):
    """An idempotent producer: it sends some records, flushes them or polls, and goes on."""

    async def run(self) -> None:
        """Runs until its node ends."""
        async with connected(self.client, self._brokers) as client:
            while True:
                self.begin_life()
                try:
                    await self._produce(client)
                except ClientError as error:
                    self.client.world.trace.note("producer failed", self.client.host, type(error).__name__)
                    await self.client.rest()

    async def _produce(self, client: AsyncClient) -> None:
        rng = self.client.rng
        options = self.options()
        options["acknowledged"] = self._confirmed
        producer = AsyncProducer(client, **options)
        for _ in range(rng.randint(1, ROUNDS_MAX)):
            for _ in range(rng.randint(1, RECORDS_MAX)):
                (topic, partition), key, value = self.make()
                await producer.send(topic, value, key=key, partition=partition)
            if rng.random() < 0.3:
                await producer.flush()
            else:
                await producer.poll(rng.uniform(0.0, 0.1))
            await sleep(rng.uniform(0.0, 0.2))
        await producer.flush()

    def _confirmed(self, delivery: Delivery, data: Buffer) -> None:
        self.acknowledged += 1
        place = delivery.topic, delivery.partition
        values = [record.value or b"" for record in decode_batch(bytes(data))]
        if delivery.base_offset >= 0:
            self._history.acknowledges(place, delivery.base_offset, values)
        else:
            self._history.confirms(place, values)


class TransactionProducer(_Records):
    """A transactional producer: what it sends is confirmed by the commit. It aborts nothing: a transaction that fails
    may be visible or not, and the next producer of the id ends it."""

    is_last = False
    """Whether it ends after its next commit, so that no transaction stays open."""
    has_ended = False

    async def run(self) -> None:
        """Runs until its node ends, or `is_last`."""
        async with connected(self.client, self._brokers) as client:
            while not self.has_ended:
                self.begin_life()
                try:
                    await self._transact(client)
                    self.has_ended = True
                except FencedError:
                    self.client.world.object(f"{self.client.host} is fenced, and nobody has its transactional id")
                except ClientError as error:
                    self.client.world.trace.note("transaction failed", self.client.host, type(error).__name__)
                    await self.client.rest()

    async def _transact(self, client: AsyncClient) -> None:
        rng = self.client.rng
        producer = AsyncTransactionalProducer(client, self.client.host, **self.options())
        await producer.initialize()  # ends what the producer before has left open
        while not self.is_last:
            written: dict[Place, list[bytes]] = {}
            await producer.begin()
            for _ in range(rng.randint(1, RECORDS_OF_TRANSACTION_MAX)):
                place, key, value = self.make()
                written.setdefault(place, []).append(value)
                await producer.send(place[0], value, key=key, partition=place[1])
            await producer.commit()
            self.acknowledged += 1
            for place, values in written.items():
                self._history.confirms(place, values)
            await sleep(rng.uniform(0.0, 0.2))


class RecordFetcher:
    """Reads all partitions from their starts, and tells the history what it finds."""

    def __init__(
        self, client: ClusterClient, brokers: Sequence[str], history: History, places: Sequence[Place]
    ) -> None:
        self.client = client
        self.positions = dict.fromkeys(places, 0)
        self._brokers = brokers
        self._history = history

    async def run(self) -> None:
        """Runs until its node ends."""
        async with connected(self.client, self._brokers) as client:
            while True:
                try:
                    await self._fetch(client)
                except ClientError as error:
                    self.client.world.trace.note("fetcher failed", self.client.host, type(error).__name__)
                    await self.client.rest()

    async def _fetch(self, client: AsyncClient) -> None:
        rng = self.client.rng
        fetcher = AsyncFetcher(
            client,
            self.positions,
            isolation="read_committed" if rng.random() < 0.5 else "read_uncommitted",
            partition_max_bytes=rng.choice(FETCH_BYTES),
            max_wait_ms=rng.randint(0, 500),
        )
        while True:
            for piece in await fetcher.poll(POLL_S):
                place = piece.topic, piece.partition
                for _, batch in visible_batches(piece, committed=fetcher.isolation == "read_committed"):
                    for record in decode_batch(batch):
                        if record.offset >= piece.position:
                            self._history.reads(place, record.offset, record.key, record.value or b"")
                self.positions[place] = piece.next_position
