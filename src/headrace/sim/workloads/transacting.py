"""Transactional producers of the simulator, which append unique numbers to several partitions at once, of all versions
of the protocol.

Some share a transactional id and fence each other, some let a transaction time out, some give up a request whose answer
is late, and abort while it is in flight; some end before they learn the result of their commit.
"""

from __future__ import annotations

from asyncio import sleep, wait
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headrace.client.errors import ClientError
from headrace.client.reading import Fetched, visible_batches, whole_batches
from headrace.sim.checkers.isolation import Append, Appends, Fate, Read, Transaction
from headrace.sim.client import OF_TRANSACTIONS
from headrace.sim.workloads.producing import TIMEOUTS_MS, answer_of, request_for
from headrace.sim.workloads.reading import end_of, fetch_request
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k00_produce import ProduceResponse
from headrace.wire.messages.k01_fetch import FetchResponse, PartitionData
from headrace.wire.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headrace.wire.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from headrace.wire.messages.k26_end_txn import EndTxnRequest, EndTxnResponse
from headrace.wire.records import Record, build_batch, decode_batch

if TYPE_CHECKING:
    from headrace.sim.checkers.isolation import Key
    from headrace.sim.cluster_client import ClusterClient

TIMEOUT_MS: Final = 8_000
"""Of a transaction: a producer that lets one be for longer is fenced."""
SEND_TRIES_MAX: Final = 30
"""Tries of one batch, before its producer gives the transaction up."""
KEYS_MAX: Final = 4
"""Partitions of one transaction."""
DELIVERY_S: Final = (0.1, 0.6)
"""How long who gives up waits: longer than most answers take, and shorter than an election."""
AT_ONCE_S: Final = 0.05
MARKED_S: Final = 0.05
"""About what an end takes from its decision to its last marker."""
POLL_PAUSES: Final = 2
"""How much longer a poller pauses."""

RETRIED: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""What a coordinator says that is asked again."""
_MOVED: Final = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})
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
    commit_offsets: int
    adds_itself: bool
    """Whether the client adds partitions, or their leaders do."""
    raises_epoch: bool


OLD: Final = Protocol(produce=11, end=3, commit_offsets=3, adds_itself=True, raises_epoch=False)
NEW: Final = Protocol(produce=12, end=5, commit_offsets=5, adds_itself=False, raises_epoch=True)


@dataclass(slots=True)
class Traits:
    """How often a transactor does what well-behaved ones do seldom."""

    aborts: float = 0.15
    times_out: float = 0.01
    is_impatient: float = 0.1
    """Gives up what is not answered at once, and aborts."""
    gives_up: float = 0.5
    """Gives up what takes much longer than it should, and aborts: its delivery timeout is short."""
    dies_ending: float = 0.15
    """Its process ends while its commit is on its way; the next one fences it."""
    restarts: float = 0.03


@dataclass(slots=True)
class Pauses:
    """The pauses of the clients of a run."""

    pause_s: float = 0.05
    """At most between two transactions of a producer."""


@dataclass(slots=True, eq=False)
class Attempt:
    """One transaction at work, as the producer that it belongs to was then."""

    transaction: Transaction
    producer_id: int
    producer_epoch: int
    is_over: bool = False
    """Whether nobody waits for its appends any more."""
    is_left: bool = False
    """Whether nobody waits for its end any more."""


class Transactor:
    """One producer with a transactional id. `committed` counts its acknowledged commits."""

    def __init__(
        self,
        client: ClusterClient,
        history: Appends,
        keys: Sequence[Key],
        transactional_id: str,
        protocol: Protocol,
        numbers: Any,
    ) -> None:
        """`numbers` gives the next value of the run: `itertools.count`."""
        self.client = client
        self.history = history
        self.keys = list(keys)
        self.transactional_id = transactional_id
        self.protocol = protocol
        self.traits = Traits()
        self.pauses = Pauses()
        self.committed = 0
        self.is_shared = False
        """Whether another producer has the same id, and both fence each other."""
        self._numbers = numbers
        self._timeout_ms = client.rng.choice(TIMEOUTS_MS)
        self._identity: tuple[int, int] | None = None
        self._sequences: dict[Key, int] = {}
        self._count = 0

    async def run(self) -> None:
        """Until its node ends."""
        rng = self.client.rng
        while True:
            if self._identity is None:
                await self.initialize()
            assert self._identity is not None
            self._count += 1
            transaction = Transaction(f"{self.client.host}:{self._count}", self._now())
            self.history.transactions.append(transaction)
            attempt = Attempt(transaction, *self._identity)
            is_whole = await self.work(attempt)
            attempt.is_over = True
            if rng.random() < self.traits.times_out:
                await sleep(TIMEOUT_MS / 1000 * 1.5)
            await self._end(attempt, is_whole and rng.random() >= self.traits.aborts)
            if rng.random() < self.traits.restarts or (self.is_shared and rng.random() < 0.3):
                self._identity = None  # its process ends, and restarts
            await sleep(rng.uniform(0.0, self.pauses.pause_s))

    def _now(self) -> float:
        return self.client.world.loop.time()

    # --- its identity

    async def initialize(self) -> None:
        """As a process that begins: what the last one left open is aborted."""
        request = InitProducerIdRequest(self.transactional_id, TIMEOUT_MS)
        while True:
            made = await self.coordinator_says(request, InitProducerIdResponse, 4)
            if made is not None and made.error_code == ErrorCode.NONE:
                self._goes_on_as(made.producer_id, made.producer_epoch)
                return
            if made is not None and made.error_code not in RETRIED:
                self.client.world.object(f"{self.client.host} is not initialized: error {made.error_code}")
            await self.client.rest()

    def _goes_on_as(self, producer_id: int, producer_epoch: int) -> None:
        self._identity = (producer_id, producer_epoch)
        self._sequences = {}

    async def coordinator_says(self, request: Any, response_class: Any, version: int) -> Any:
        """Returns the coordinator's response; None without one."""
        try:
            if not await self.client.find(OF_TRANSACTIONS, self.transactional_id):
                return None
            response = await self.client.ask(request, response_class, version)
        except ClientError:
            return None
        if getattr(response, "error_code", ErrorCode.NONE) in _MOVED:
            self.client.moved(None)
        return response

    def is_acknowledged(self, attempt: Attempt) -> None:
        """Its transaction is committed, it hears."""
        self.committed += 1

    # --- what it writes

    async def work(self, attempt: Attempt) -> bool:
        """Whether everything is written that it wanted to write."""
        rng = self.client.rng
        if rng.random() < 0.2:
            await self._look_at(rng.choice(self.keys), attempt)
        return await self.write_all(attempt, rng.sample(self.keys, rng.randint(1, min(KEYS_MAX, len(self.keys)))))

    async def _look_at(self, key: Key, attempt: Attempt) -> None:
        """Reads the end of a key, as part of what it does."""
        try:
            read = await poll(self.client, key, self._last_of(key), max_wait_ms=0)
        except ClientError:
            return
        if read is not None:
            self.history.reads.append(read)
            attempt.transaction.reads.append(read)

    def _last_of(self, key: Key) -> int:
        """Where somebody read this key lately."""
        return next((read.after for read in reversed(self.history.reads[-200:]) if read.key == key), 0)

    async def write_all(self, attempt: Attempt, keys: Sequence[Key]) -> bool:
        """Appends a number or two to each key at once; whether all of them are acknowledged."""
        if self.protocol.adds_itself and not await self._add(attempt, keys):
            return False
        patience_s = self._patience_s()
        writes = [self.client.owner.spawn(self._write(attempt, key)) for key in keys]
        done, waiting = await wait(writes, timeout=patience_s)
        attempt.is_over = bool(waiting)
        return not waiting and all(write.result() for write in done)

    def _patience_s(self) -> float | None:
        """How long it waits for what it has written; None: until it is answered."""
        rng, traits = self.client.rng, self.traits
        drawn = rng.random()
        if drawn < traits.is_impatient:
            return rng.uniform(0.0, AT_ONCE_S)
        return rng.uniform(*DELIVERY_S) if drawn < traits.is_impatient + traits.gives_up else None

    async def _write(self, attempt: Attempt, key: Key) -> bool:
        rng = self.client.rng
        sequence = self._sequences.get(key, 0)
        sent_at = self._now()
        appends = [Append(key, next(self._numbers), sent_at) for _ in range(rng.choice((1, 1, 2)))]
        attempt.transaction.appends += appends
        now_ms = self.client.node.clock.now_ms()
        batch = build_batch(
            [Record(i, now_ms, None, b"%d" % append.value) for i, append in enumerate(appends)],
            producer_id=attempt.producer_id,
            producer_epoch=attempt.producer_epoch,
            base_sequence=sequence,
            transactional=True,
        )
        request = request_for(key, batch, -1, self._timeout_ms)
        request.transactional_id = self.transactional_id
        for _ in range(SEND_TRIES_MAX):
            try:
                answer = answer_of(await self.client.ask(request, ProduceResponse, self.protocol.produce))
            except ClientError:
                answer = None
            if answer is not None and answer.error_code == ErrorCode.NONE:
                for append in appends:
                    append.acknowledged_at = self._now()
                if not attempt.is_over:
                    self._sequences[key] = sequence + len(appends)
                return True
            if attempt.is_over or (answer is not None and answer.error_code not in _SENT_AGAIN):
                return False
            self.client.moved(key)
            await self.client.rest()
            if attempt.is_over:
                return False
        return False

    async def _add(self, attempt: Attempt, keys: Sequence[Key]) -> bool:
        topics: dict[str, list[int]] = {}
        for topic, index in keys:
            topics.setdefault(topic, []).append(index)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=attempt.producer_id,
            v3_and_below_producer_epoch=attempt.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(*each) for each in topics.items()],
        )
        for _ in range(SEND_TRIES_MAX):
            response = await self.coordinator_says(request, AddPartitionsToTxnResponse, 3)
            if response is not None:
                error = response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
                if error not in RETRIED:
                    return self.is_taken(error)
                if error in _MOVED:
                    self.client.moved(None)
            await self.client.rest()
        return False

    def is_taken(self, error: int) -> bool:
        """Whether partitions or offsets belong to its transaction; a producer that is refused restarts."""
        if error != ErrorCode.NONE:
            self._identity = None
        return error == ErrorCode.NONE

    # --- the end

    async def _end(self, attempt: Attempt, commits: bool) -> None:
        """Asks until an answer comes that tells; or its process ends, and it does not hear it."""
        transaction = attempt.transaction
        if not self.protocol.raises_epoch and not transaction.appends:
            transaction.fate = Fate.ABORTED
            return
        if commits:
            transaction.fate = Fate.UNKNOWN
        ending = self.client.owner.spawn(self._ask_for_end(attempt, commits))
        rng = self.client.rng
        await wait([ending], timeout=rng.uniform(0.0, MARKED_S) if rng.random() < self.traits.dies_ending else None)
        if not ending.done():
            attempt.is_left = True
            self._identity = None

    def _end_request(self, attempt: Attempt, commits: bool) -> tuple[Any, type, int]:
        """What asks for an end, the class of its answer, and the version."""
        request = EndTxnRequest(self.transactional_id, attempt.producer_id, attempt.producer_epoch, commits)
        return request, EndTxnResponse, self.protocol.end

    async def _ask_for_end(self, attempt: Attempt, commits: bool) -> None:
        transaction = attempt.transaction
        request, response_class, version = self._end_request(attempt, commits)
        is_late = False
        while True:
            response = await self.coordinator_says(request, response_class, version)
            if response is not None and response.error_code not in RETRIED:
                break
            is_late = is_late or response is None
            await self.client.rest()
            if attempt.is_left:
                return
        if attempt.is_left:
            return
        if response.error_code != ErrorCode.NONE:
            if response.error_code == ErrorCode.OPERATION_NOT_ATTEMPTED:
                transaction.fate = Fate.ABORTED  # it was open still, so no request before this one has ended it
            self._identity = None
            return
        transaction.fate = Fate.COMMITTED if commits else Fate.ABORTED
        transaction.ended_at = self._now()
        if commits:
            self.is_acknowledged(attempt)
        if self.protocol.raises_epoch:
            self._goes_on_as(response.producer_id, response.producer_epoch)
        elif not commits or is_late:
            # What was sent last may not have arrived: under the same epoch it would be of the next transaction.
            self._identity = None


class Poller:
    """Follows keys for what is committed, and tells the history what it sees."""

    def __init__(self, client: ClusterClient, history: Appends, keys: Sequence[Key]) -> None:
        self.client = client
        self.history = history
        self.positions = dict.fromkeys(keys, 0)
        self.pauses = Pauses()

    async def run(self) -> None:
        """Until its node ends."""
        rng = self.client.rng
        while True:
            await self.poll(rng.choice(list(self.positions)))
            await sleep(rng.uniform(0.0, POLL_PAUSES * self.pauses.pause_s))

    async def poll(self, key: Key) -> None:
        """Once, from where it was."""
        try:
            read = await poll(self.client, key, self.positions[key], max_wait_ms=self.client.rng.choice((0, 20)))
        except ClientError:
            await self.client.rest()
            return
        if read is None:
            await self.client.rest()
            return
        self.history.reads.append(read)
        self.positions[key] = read.after


async def poll(client: ClusterClient, key: Key, position: int, *, max_wait_ms: int) -> Read | None:
    """What is committed of a key from `position` on, as one answer has it; None where the broker cannot say. Raises
    ClientError."""
    request = fetch_request(key, position, max_wait_ms=max_wait_ms, max_bytes=1 << 20)
    request.isolation_level = 1
    # A consumer names the leader that it means. Without, a broker that follows by now, and may have been cut,
    # answers from its own log, as Apache Kafka's does (KIP-320, KIP-392).
    request.topics[0].partitions[0].current_leader_epoch = await client.epoch_of(key)
    data = (await client.ask(request, FetchResponse, 11)).responses[0].partitions[0]
    if data.error_code != ErrorCode.NONE:
        # Out of range, too: a leader of before, which does not know that yet, has less than others have read.
        return None
    return Read(key, position, end_of(data, position), committed_in(data, key, position))


def committed_in(data: PartitionData, key: Key, position: int) -> list[tuple[int, int]]:
    """(offset, value) of what a read_committed answer holds from `position` on, without what was aborted."""
    records: Any = data.records
    view, _ = whole_batches(memoryview(bytes(records or b"")))
    aborted = [(each.producer_id, each.first_offset) for each in data.aborted_transactions or ()]
    fetched = Fetched(*key, position, 0, None, view, data.high_watermark, data.last_stable_offset, 0, aborted)
    return [
        (record.offset, int(record.value or b"-1"))
        for _, body in visible_batches(fetched, committed=True)
        for record in decode_batch(body, 0)
        if record.offset >= position
    ]
