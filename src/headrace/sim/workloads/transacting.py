"""Transactions of the simulator: producers that write to several partitions at once, of all versions of the protocol,
some of them two with one transactional id, some that let a transaction time out; and readers of what is committed.
"""

from __future__ import annotations

from asyncio import sleep
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headrace.client.errors import ClientError
from headrace.client.reading import Fetched, visible_batches, whole_batches
from headrace.sim.checkers.ledger import Fate, Ledger
from headrace.sim.workloads.producing import answer_of, request_for
from headrace.sim.workloads.reading import LATEST, edge, end_of, fetch_request
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k00_produce import ProduceResponse
from headrace.wire.messages.k01_fetch import FetchResponse, PartitionData
from headrace.wire.messages.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from headrace.wire.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headrace.wire.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from headrace.wire.messages.k26_end_txn import EndTxnRequest, EndTxnResponse
from headrace.wire.records import Record, build_batch, decode_batch

if TYPE_CHECKING:
    from headrace.sim.checkers.ledger import Place, Transaction
    from headrace.sim.client import SimClient
    from headrace.sim.cluster_client import ClusterClient
    from headrace.sim.world import World

TOPIC: Final = "ledger"
PARTITIONS: Final = 3
ABORTED_S: Final = 40.0
"""How long what nobody ends may stay open: the timeout, the coordinator's next look, and the way of the markers."""
REPEATED_S: Final = 5.0
"""A marker whose answer was lost is written again: by then the last one is on every replica."""
TIMEOUT_MS: Final = 8_000
"""Of a transaction: a producer that lets one be for longer is fenced."""
SEND_TRIES_MAX: Final = 30
"""Tries of one batch, before its producer gives the transaction up."""
OF_TRANSACTIONS: Final = 1
"""The key type of FindCoordinator."""

_RETRIED: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""What a coordinator says that is asked again."""
_SENT_AGAIN: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


class Protocol(NamedTuple):
    """How a client of a transaction.version speaks."""

    produce: int
    end: int
    adds_itself: bool
    """Whether the client adds partitions, or whoever leads them does."""
    raises_epoch: bool


OLD: Final = Protocol(produce=11, end=3, adds_itself=True, raises_epoch=False)
NEW: Final = Protocol(produce=12, end=5, adds_itself=False, raises_epoch=True)


class Transactor:
    """One producer with a transactional id. `committed` counts what it was told."""

    def __init__(
        self, client: ClusterClient, ledger: Ledger, places: Sequence[Place], transactional_id: str, protocol: Protocol
    ) -> None:
        self.client: SimClient = client
        self.ledger = ledger
        self.places = list(places)
        self.transactional_id = transactional_id
        self.protocol = protocol
        self.committed = 0
        self.is_shared = False
        """Whether another producer has the same id, and both fence each other."""
        self._identity: tuple[int, int] | None = None
        self._sequences: dict[Place, int] = {}
        self._count = 0

    async def run(self) -> None:
        """Until its node ends."""
        while True:
            if self._identity is None:
                await self._initialize()
            transaction = self.ledger.begins(f"{self.client.host}:{self.transactional_id}:{self._count}")
            is_whole = await self._write_all(transaction)
            if self.client.rng.random() < 0.05:
                await sleep(TIMEOUT_MS / 1000 * 1.5)
            if self._identity is not None:
                await self._end(transaction, is_whole and self.client.rng.random() < 0.8)
            if self.client.rng.random() < 0.1 or (self.is_shared and self.client.rng.random() < 0.3):
                self._identity = None  # its process ends, and begins anew
            await self.client.rest()

    # --- its identity

    async def _initialize(self) -> None:
        request = InitProducerIdRequest(self.transactional_id, TIMEOUT_MS)
        while True:
            made = await self._ask(request, InitProducerIdResponse, 4)
            if made is not None and made.error_code == ErrorCode.NONE:
                self._goes_on_as(made.producer_id, made.producer_epoch)
                return
            if made is not None and made.error_code not in _RETRIED:
                self.client.world.object(f"{self.client.host} is not initialized: error {made.error_code}")
            await self.client.rest()

    def _goes_on_as(self, producer_id: int, producer_epoch: int) -> None:
        self._identity = (producer_id, producer_epoch)
        self._sequences.clear()

    async def _ask(self, request: Any, response_class: Any, version: int) -> Any:
        """What the coordinator says; None where nobody answers."""
        try:
            find = FindCoordinatorRequest(key=self.transactional_id, key_type=OF_TRANSACTIONS)
            found = await self.client.ask(find, FindCoordinatorResponse, 3)
            if found.error_code != ErrorCode.NONE:
                return None
            return await self.client.ask(request, response_class, version)
        except ClientError:
            return None

    # --- what it writes

    async def _write_all(self, transaction: Transaction) -> bool:
        """Whether everything is written that it wanted to write."""
        rng = self.client.rng
        for place in rng.sample(self.places, rng.randint(1, len(self.places))):
            for _ in range(rng.randint(1, 2)):
                if not await self._write(transaction, place):
                    return False
        return True

    async def _write(self, transaction: Transaction, place: Place) -> bool:
        assert self._identity is not None
        if self.protocol.adds_itself and not await self._add(place):
            return False
        value = b"%s:%d" % (transaction.name.encode(), self._count)
        self._count += 1
        self.ledger.sends(transaction, value)
        sequence = self._sequences.get(place, 0)
        record = Record(0, self.client.node.clock.now_ms(), None, value)
        batch = build_batch(
            [record],
            producer_id=self._identity[0],
            producer_epoch=self._identity[1],
            base_sequence=sequence,
            transactional=True,
        )
        request = request_for(place, batch, -1)
        request.transactional_id = self.transactional_id
        for _ in range(SEND_TRIES_MAX):
            try:
                answer = answer_of(await self.client.ask(request, ProduceResponse, self.protocol.produce))
            except ClientError:
                await self.client.rest()
                continue
            if answer.error_code == ErrorCode.NONE:
                self._sequences[place] = sequence + 1
                self.ledger.acknowledges(transaction, value, place)
                return True
            if answer.error_code not in _SENT_AGAIN:
                return False
            self.client.moved(place)
            await self.client.rest()
        return False

    async def _add(self, place: Place) -> bool:
        assert self._identity is not None
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self._identity[0],
            v3_and_below_producer_epoch=self._identity[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(place[0], [place[1]])],
        )
        for _ in range(SEND_TRIES_MAX):
            said = await self._ask(request, AddPartitionsToTxnResponse, 3)
            if said is not None:
                error = said.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
                if error == ErrorCode.NONE:
                    return True
                if error not in _RETRIED:
                    return False
            await self.client.rest()
        return False

    # --- the end

    async def _end(self, transaction: Transaction, commits: bool) -> None:
        """Asks until an answer comes that tells; a producer of old whose answer is lost has to begin anew."""
        if not self.protocol.raises_epoch and not transaction.sent:
            self.ledger.ends_as(transaction, Fate.ABORTED)
            return
        assert self._identity is not None
        request = EndTxnRequest(self.transactional_id, *self._identity, commits)
        if commits:
            self.ledger.ends_as(transaction, Fate.UNKNOWN)
        while True:
            said = await self._ask(request, EndTxnResponse, self.protocol.end)
            if said is None or said.error_code in _RETRIED:
                await self.client.rest()
                continue
            if said.error_code != ErrorCode.NONE:
                self._identity = None
                return
            self.ledger.ends_as(transaction, Fate.COMMITTED if commits else Fate.ABORTED)
            self.committed += commits
            if self.protocol.raises_epoch:
                self._goes_on_as(said.producer_id, said.producer_epoch)
            elif not commits:
                self._identity = None  # what was sent last may not have arrived: its sequences are not known
            return


class CommittedReader:
    """Follows one partition for what is committed, and tells the ledger what it sees."""

    def __init__(self, client: SimClient, ledger: Ledger, place: Place) -> None:
        self.client = client
        self.ledger = ledger
        self.place = place
        self.offset = 0

    async def run(self) -> None:
        """Until its node ends."""
        while True:
            try:
                await self._read()
            except ClientError:
                await self.client.rest()

    async def _read(self) -> None:
        request = fetch_request(self.place, self.offset, max_wait_ms=200, max_bytes=1 << 20)
        request.isolation_level = 1
        # A consumer names the leader that it means. Without, a broker that follows by now, and may have been cut,
        # answers from its own log, as Apache Kafka's does (KIP-320, KIP-392).
        request.topics[0].partitions[0].current_leader_epoch = await self.client.epoch_of(self.place)
        data = (await self.client.ask(request, FetchResponse, 11)).responses[0].partitions[0]
        if data.error_code != ErrorCode.NONE:
            lost = data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            self.client.world.demand(not lost, f"{self.place} lost what it had at offset {self.offset}")
            await self.client.rest()
            return
        for offset, value in committed_in(data, self.place, self.offset):
            self.ledger.reads(self.place, offset, value)
        self.offset = end_of(data, self.offset)
        self.ledger.ends[self.place] = self.offset


def committed_in(data: PartitionData, place: Place, position: int) -> list[tuple[int, bytes]]:
    """(offset, value) of what a read_committed answer holds from `position` on, without what was aborted."""
    records: Any = data.records
    view, _ = whole_batches(memoryview(bytes(records or b"")))
    aborted = [(each.producer_id, each.first_offset) for each in data.aborted_transactions or ()]
    fetched = Fetched(*place, position, 0, None, view, data.high_watermark, data.last_stable_offset, 0, aborted)
    return [
        (record.offset, bytes(record.value or b""))
        for _, body in visible_batches(fetched, committed=True)
        for record in decode_batch(body, 0)
        if record.offset >= position
    ]


class Ledgers:
    """The transactors and readers of a run: they begin together, and must get on once nothing is broken."""

    def __init__(self, world: World, new_client: Callable[[str], ClusterClient]) -> None:
        self.ledger = Ledger(world)
        self.places: list[Place] = [(TOPIC, index) for index in range(PARTITIONS)]
        self._world = world
        self._new_client = new_client
        self._transactors: list[Transactor] = []

    def start(self, count: int) -> None:
        """So many transactors, the last two of three with one id; and a reader of each partition."""
        for number in range(count):
            client = self._new_client("transactor")
            transactor = Transactor(client, self.ledger, self.places, f"id-{min(number, 1)}", (NEW, OLD)[number % 2])
            transactor.is_shared = count > 2 and number > 0
            self._transactors.append(transactor)
            client.owner.spawn(transactor.run())
        for place in self.places:
            self._begin_to_read(place)

    def _begin_to_read(self, place: Place) -> CommittedReader:
        reader = CommittedReader(self._new_client("committed-reader"), self.ledger, place)
        reader.client.owner.spawn(reader.run())
        return reader

    def expectation(self) -> Callable[[], list[str]]:
        """From now on each gets a transaction through: what is returned says of which that is not so yet."""
        wanted = [(each, each.committed) for each in self._transactors if not each.is_shared]

        def late() -> list[str]:
            return [f"{each.client.host} commits nothing" for each, before in wanted if each.committed <= before]

        return late

    async def read_all(self) -> None:
        """Once no transactor lives: what they left open is aborted, and then everything is seen that ever will be."""
        if not self._transactors:
            return
        readers = [self._begin_to_read(place) for place in self.places]
        asking = self._new_client("judge")
        until = self._world.loop.time() + ABORTED_S
        for reader in readers:
            while (end := await edge(asking, reader.place, LATEST)) < 0 or reader.offset < end:
                if self._world.loop.time() > until:
                    text = f"{reader.place} is committed up to {reader.offset} and ends at {end}: a transaction hangs"
                    self._world.object(text)
                    return
                await asking.rest()
        self.ledger.is_whole()
        for reader in readers:
            reader.client.die()
        await sleep(REPEATED_S)
