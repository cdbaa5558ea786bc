"""The producers of the simulator: a plain one, which sends once and accepts an unknown result, and an idempotent one,
which retries until the result is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.client.errors import ClientError
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k00_produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headrace.wire.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headrace.wire.records import Compression, Record, build_batch

if TYPE_CHECKING:
    from headrace.sim.checkers.history import History, Place
    from headrace.sim.client import SimClient

VERSIONS: Final = (3, 5, 7, 8, 9, 11, 12)
KEYS: Final = 8
IN_FLIGHT: Final = 5
TRIES_MAX: Final = 400
"""Tries of one batch in calm times and others; a producer that needs more is stuck."""
TIMEOUT_MS: Final = 20_000
TIMEOUTS_MS: Final = (700, 2_000, TIMEOUT_MS)
"""How long a leader may wait for other replicas: less than an election takes, twice, or far longer. Who hears
early that it waited in vain looks for the next leader while the one of before may believe that it leads."""

WHOSE_LEADER_CHANGES: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""Error codes of a batch that may be in the log all the same."""

Pairs = list[tuple[bytes | None, bytes]]


def request_for(place: Place, batch: bytes, acks: int, timeout_ms: int = TIMEOUT_MS) -> ProduceRequest:
    """One batch for one partition."""
    data = TopicProduceData(name=place[0], partition_data=[PartitionProduceData(index=place[1], records=batch)])
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[data])


def answer_of(response: ProduceResponse) -> PartitionProduceResponse:
    """The response for the one partition."""
    return response.responses[0].partition_responses[0]


class Producer:
    """What both have: records of their own, numbered a partition."""

    def __init__(self, client: SimClient, history: History, places: Sequence[Place]) -> None:
        self.client = client
        self.history = history
        self.places = list(places)
        self.timeout_ms = TIMEOUT_MS
        self.acknowledged = 0
        """Batches, of all partitions."""
        self._count = 0
        self._last_error = 0
        self._numbers: dict[Place, int] = {}

    def make(self, place: Place) -> tuple[Pairs, list[Record]]:
        """A few new records, which the history knows of from now on."""
        rng = self.client.rng
        now_ms = self.client.node.clock.now_ms()
        pairs: Pairs = []
        for _ in range(rng.randint(1, 4)):
            self._count += 1
            key = b"k%d" % rng.randrange(KEYS)
            pairs.append((key, b"%s:%d:%s" % (self.client.host.encode(), self._count, b"." * rng.randrange(200))))
        first = self._numbers.get(place, 0)
        self._numbers[place] = first + len(pairs)
        self.history.sends(place, self.client.host, first, pairs)
        return pairs, [Record(i, now_ms, key, value) for i, (key, value) in enumerate(pairs)]

    def codec(self) -> int:
        """How the next batch is compressed."""
        return self.client.rng.choice((Compression.NONE, Compression.NONE, Compression.ZSTD, Compression.LZ4))


class PlainProducer(Producer):
    """Sends each batch once, one at a time; with one of `acks`, which must be what no fault of the run can undo."""

    acks: tuple[int, ...] = (-1, 1)

    async def run(self) -> None:
        """Until its node ends."""
        rng = self.client.rng
        while True:
            place = rng.choice(self.places)
            pairs, records = self.make(place)
            batch = build_batch(records, compression=self.codec())
            request = request_for(place, batch, rng.choice(self.acks), self.timeout_ms)
            try:
                answer = answer_of(await self.client.ask(request, ProduceResponse, rng.choice(VERSIONS[2:])))
            except ClientError:
                await self.client.rest()
                continue
            if answer.error_code == ErrorCode.NONE:
                self.acknowledged += 1
                self.history.acknowledges(place, answer.base_offset, [value for _, value in pairs])
            await self.client.rest()


@dataclass(slots=True)
class _Batch:
    """A batch on its way."""

    sequence: int
    values: list[bytes]
    data: bytes


class IdempotentProducer(Producer):
    """Sends up to five batches of a partition at once, and again, in order, until each is settled."""

    async def run(self) -> None:
        """Until its node ends."""
        rng = self.client.rng
        made = await self._identity()
        sequences: dict[Place, int] = {}
        while True:
            place = rng.choice(self.places)
            batches: list[_Batch] = []
            for _ in range(rng.randint(1, IN_FLIGHT)):
                pairs, records = self.make(place)
                sequence = sequences.get(place, 0)
                sequences[place] = sequence + len(pairs)
                data = build_batch(
                    records,
                    compression=self.codec(),
                    producer_id=made.producer_id,
                    producer_epoch=made.producer_epoch,
                    base_sequence=sequence,
                )
                batches.append(_Batch(sequence, [value for _, value in pairs], data))
            if not await self._settle(place, batches):
                made = await self._identity()
                sequences.clear()
            await self.client.rest()

    async def _identity(self) -> InitProducerIdResponse:
        request = InitProducerIdRequest(None, 60_000, -1, -1)
        while True:
            made = await self.client.insist(request, InitProducerIdResponse)
            if made.error_code == ErrorCode.NONE:
                return made
            await self.client.rest()

    async def _settle(self, place: Place, batches: list[_Batch]) -> bool:
        """Whether every batch has an answer. A broker that was restarted knows the last batch of a producer alone: what
        was there before that it takes for out of order, as Kafka's do, and a client goes on under another id."""
        tries = 0
        while batches:
            tries += 1
            if tries > TRIES_MAX:
                where = f"sequence {batches[0].sequence} of {place}"
                text = f"{self.client.host} gets nowhere with {where}: error {self._last_error}"
                self.client.world.object(text)
                return True
            self._last_error = ErrorCode.NONE
            settled = await self._send(place, batches)
            del batches[:settled]
            if self._last_error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and tries > 1 and not settled:
                return False
            if batches:
                await self.client.rest()
        return True

    async def _send(self, place: Place, batches: list[_Batch]) -> int:
        """How many of the batches, from the first on, are settled."""
        version = self.client.rng.choice(VERSIONS[2:])
        try:
            connection = await self.client.connection(place)
            requests = [request_for(place, each.data, -1, self.timeout_ms) for each in batches]
            calls = [connection.ask(each, ProduceResponse, timeout_s=30.0, version=version) for each in requests]
        except ClientError:
            self.client.moved(place)
            return 0
        answers: list[PartitionProduceResponse | None] = []
        for call in calls:
            try:
                answers.append(answer_of(await call))
            except ClientError:
                answers.append(None)
        self._look_at_order(place, answers)
        if any(answer is None or answer.error_code != ErrorCode.NONE for answer in answers):
            self.client.moved(place)
        settled = 0
        for batch, answer in zip(batches, answers, strict=True):
            if answer is None:
                break
            if answer.error_code == ErrorCode.NONE:
                self.acknowledged += 1
                self.history.acknowledges(place, answer.base_offset, batch.values)
            elif answer.error_code != ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                self._last_error = answer.error_code
                break
            settled += 1
        return settled

    def _look_at_order(self, place: Place, answers: Sequence[PartitionProduceResponse | None]) -> None:
        """Of batches that were sent together none is taken after one was refused that the log lacks, but for the last
        that a restarted broker knows: those before it are out of order there, and it is a duplicate."""
        refused = ErrorCode.NONE
        for answer in answers:
            if answer is None or answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                continue
            if answer.error_code in WHOSE_LEADER_CHANGES:
                continue
            if answer.error_code != ErrorCode.NONE:
                refused = ErrorCode(answer.error_code)
            elif refused:
                text = f"{place}: a batch of {self.client.host} was refused, and the one after it taken"
                self.client.world.object(f"{text}: {refused.name}")
