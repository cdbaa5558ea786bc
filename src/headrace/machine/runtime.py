"""The runtime of the coordinators of groups and of transactions.

A coordinator is cut into shards, one per partition of its topic, and the leader of the partition runs the shard. For
each, a `ShardRuntime` handles events and decides what to append, which replies may leave, and when to wake it. It does
no I/O: the broker's shell appends, reads the log at a load, and keeps the time.

    decided -> settle -> next_append -> appended | refused -> committed | lost -> settle -> outputs

What holds after each of these events:
- Records are applied in the order of the log, and a decision is made upon all that was decided before it.
- A reply leaves when every record of its decision is committed, and every record that was decided before it.
- Lost records are taken back from the shard's tables before anybody is answered; everybody who waited for it hears an
  error, and what waited behind it does too.
- An append whose end is not known when leadership ends is answered NOT_COORDINATOR: nobody hears that it succeeded.
- After `resign` no event has any effect, whatever was under way: a load, an append, a timer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from headrace.machine.batches import BATCH_BYTES_MAX, Pair, build_coordinator_batch, build_coordinator_batches
from headrace.machine.outcome import Ending, Outcome, Refuse, Waiter
from headrace.machine.timed_steps import TimedSteps
from headrace.machine.timeline import Timeline
from headrace.wire.errors import ErrorCode
from headrace.wire.markers import build_marker
from headrace.wire.primitives import EncodeError
from headrace.wire.records import Compression

UNCOMMITTED_MAX: Final = 250_000
"""Changes of one shard that may wait for their commit; beyond it decisions are answered COORDINATOR_NOT_AVAILABLE."""

START_STEPS: Final = 500
"""Steps of `Shard.starting` in one turn of the event loop: some 3 to 10 us each."""

_ANSWERED_AS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""What a client hears when its records could not be appended for the reason on the left, as in Kafka since 4.0: of too
large a commit too, which older ones called INVALID_COMMIT_OFFSET_SIZE."""
_TOO_LARGE: Final = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
"""Errors that a client gets unchanged if its records must fit one batch: it can send fewer."""


class LoadedRecord(NamedTuple):
    """A record of the log; its transaction's producer id, or -1 outside one."""

    record: Any
    log_offset: int
    producer_id: int


class Marker(NamedTuple):
    """The end of a producer's transaction, as the log tells it."""

    log_offset: int
    producer_id: int
    committed: bool


class LogPiece(NamedTuple):
    """What a stretch of a log says, decoded."""

    entries: Sequence[LoadedRecord | Marker]
    record_count: int
    next_offset: int


class Shard(Protocol):
    """What the runtime asks of a shard: the machine of one partition.

    Requests are functions of its own, which decide into an `Outcome` upon its latest state; reads look at committed
    state alone. Whatever the log holds lies in tables on `timeline`.
    """

    timeline: Timeline

    def encode(self, record: Any) -> Pair:
        """The key and the value of a decided record. Raises EncodeError where the format cannot say it."""
        ...

    def decode(self, key: bytes, value: bytes | None) -> Any:
        """What a record of the log says; None where that is of no concern. Raises DecodeError. Any thread may ask."""
        ...

    def apply(self, record: Any, log_offset: int, producer_id: int = -1) -> None:
        """Takes in a record that is in the log: the only writer of what the log holds, live and at a load."""
        ...

    def apply_marker(self, producer_id: int, committed: bool) -> None:
        """Takes in the end of a transaction."""
        ...

    def starting(self, now_ms: int) -> TimedSteps[Outcome]:
        """All records of the log are applied: restores what lives in memory alone from them, in steps of about a group,
        a member or a transaction each. Returns the first decision of the new leadership."""
        ...

    def revert(self, now_ms: int) -> Outcome:
        """Takes the tables back to the committed state (`timeline.revert`) and brings what lives in memory alone in
        line; answers the requests that waited in what is gone. Its records are not looked at.
        """
        ...

    def unload(self, now_ms: int) -> Outcome:
        """The leadership ended, before, while or after the shard was loaded: gives back what it holds of the broker's
        budgets, and answers all waiters. Its records are not looked at."""
        ...

    def deadline_ms(self) -> int | None:
        """`due` is to be called no later than this."""
        ...

    def due(self, now_ms: int) -> Outcome | None:
        """What the first timer whose time has come decides; None when there is none left."""
        ...

    def clock_stepped(self, by_ms: int) -> None:
        """Somebody set the wall clock: no time passed."""
        ...


S = TypeVar("S", bound=Shard)


class ShardState(Enum):
    """The state of a shard; the value is the error code that requests to it get."""

    LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    ACTIVE = ErrorCode.NONE
    FAILED = ErrorCode.NOT_COORDINATOR
    """Its log could not be read: not served until it is loaded again, by another runtime."""
    CLOSED = -1
    """Resigned: its runtime is another one, or nobody's here."""


_ACTIVE: Final = ShardState.ACTIVE
_NONE: Final = ErrorCode.NONE
"""Looked up once: every request asks for them several times, and an enum is slow to say."""

Output: TypeAlias = Any
"""Somebody who waits and the reply, which may leave now; or a sentence for the log."""


@dataclass(frozen=True, slots=True)
class RuntimeSettings:
    """How decisions are written down."""

    commit_timeout_ms: int = 5_000
    """How long the commit of an append may take before those who wait for it are answered with an error."""
    codec: int = Compression.NONE
    """How batches are compressed."""


class _Write:
    """A decision from its append to its answer."""

    __slots__ = ("appending", "deadline_ms", "end_offset", "further", "outcome", "pairs", "refuse", "waiter")

    def __init__(self, outcome: Outcome, waiter: Waiter | None, refuse: Refuse | None, deadline_ms: int) -> None:
        self.outcome = outcome
        self.waiter = waiter
        self.refuse = refuse
        self.deadline_ms = deadline_ms
        self.end_offset = -1
        """Where the log ended after it: committed beyond, it has come true."""
        self.pairs: list[Pair] = []
        """Its records, encoded, until they are in batches."""
        self.appending: Sequence[Any] = outcome.records
        """The records that are to be appended next: all, unless it may take effect in parts."""
        self.further: deque[tuple[Sequence[Any], bytes]] | None = None
        """(records, their batches) of the appends after that one."""


class ShardRuntime(Generic[S]):
    """One shard under one leader epoch. `now_ms` is the wall clock's; see `clock_stepped`."""

    def __init__(self, index: int, leader_epoch: int, shard: S, settings: RuntimeSettings) -> None:
        self.index = index
        self.leader_epoch = leader_epoch
        self.shard = shard
        self.state = ShardState.LOADING
        self.outputs: list[Output] = []
        """Outputs that may leave now, in order; the driver of the runtime takes them."""
        self._settings = settings
        self._timeline = shard.timeline
        self._writing: _Write | None = None
        """Decided, and not in the log yet; nothing else is decided meanwhile."""
        self._in_flight: deque[_Write] = deque()
        """Decisions in the log or queued for it, and not committed, in the order of the log."""
        self._ended: deque[tuple[_Write, ErrorCode]] = deque()
        """Committed, or never to be, and not answered yet."""
        self._loaded_to = 0
        self._starting: TimedSteps[Outcome] | None = None
        """Restores what lives in memory alone, once all of the log is loaded."""

    @property
    def is_active(self) -> bool:
        """Whether it decides."""
        return self.state is _ACTIVE

    @property
    def is_writing(self) -> bool:
        """Whether an append of a decision is in flight: nothing else may be decided until its result is known."""
        return self._writing is not None

    @property
    def written_offset(self) -> int:
        """Where the log ends that the shard holds: while it leads, the log ends there too."""
        return self._timeline.written_offset

    # --- loading -----------------------------------------------------------------------------------------------------

    def begin(self, log_start_offset: int, high_watermark: int) -> None:
        """The load starts here."""
        assert self.state is ShardState.LOADING and log_start_offset >= 0
        self._timeline.commit(high_watermark)
        self._timeline.write(log_start_offset)

    def load(self, piece: LogPiece, high_watermark: int) -> bool:
        """The next piece of the log; False where nobody wants it any more."""
        if self.state is not ShardState.LOADING:
            return False
        timeline, shard = self._timeline, self.shard
        timeline.commit(high_watermark)
        for entry in piece.entries:
            if not timeline.is_level or entry.log_offset >= timeline.committed_offset:
                timeline.write(entry.log_offset + 1)
            if isinstance(entry, Marker):
                shard.apply_marker(entry.producer_id, entry.committed)
            else:
                shard.apply(entry.record, entry.log_offset, entry.producer_id)
        timeline.write(piece.next_offset)
        return True

    def start(self, now_ms: int) -> bool:
        """Restores a part of the shard after the last piece.

        Call it once a turn until it returns True: then the shard serves, unless this leadership has ended meanwhile.
        """
        if self.state is not ShardState.LOADING:
            return True
        steps, left = self._starting, START_STEPS
        try:
            if steps is None:
                steps = self._starting = self.shard.starting(now_ms)
                left -= next(steps)
            while left > 0:
                left -= steps.send(now_ms)
        except StopIteration as end:
            self._starting = None
            self.state = _ACTIVE
            self._loaded_to = self._timeline.written_offset
            self.decided(end.value, now_ms)
        return self.state is _ACTIVE

    def load_failed(self) -> None:
        """The log cannot be read to its end."""
        if self.state is ShardState.LOADING:
            self.state = ShardState.FAILED

    # --- deciding ----------------------------------------------------------------------------------------------------

    def decided(
        self, outcome: Outcome, now_ms: int, waiter: Waiter | None = None, refuse: Refuse | None = None
    ) -> None:
        """A decision of the shard, made upon its latest state. `refuse` makes the reply to `waiter` where its records
        could not be stored."""
        assert self.state is _ACTIVE and self._writing is None
        write = _Write(outcome, waiter, refuse, now_ms + self._settings.commit_timeout_ms)
        if outcome.records or outcome.ending is not None:
            self._write(write)
        elif outcome.reply is not None and not self._timeline.is_level:
            write.end_offset = self._timeline.written_offset
            self._in_flight.append(write)
        else:
            self._ended.append((write, _NONE))

    def _write(self, write: _Write) -> None:
        """A decision that goes into the log: it is to be appended next, unless that cannot be."""
        assert not write.outcome.records or write.outcome.ending is None, "an ending takes the place of records"
        if not self._timeline.is_level and len(self._timeline) > UNCOMMITTED_MAX:
            self._ended.append((write, ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        encode = self.shard.encode
        try:
            if encoded := write.outcome.encoded:
                records = write.outcome.records
                write.pairs = [pair or encode(record) for pair, record in zip(encoded, records, strict=True)]
            else:
                write.pairs = [encode(record) for record in write.outcome.records]
        except EncodeError:
            # A name that is longer than the log's format can say: Kafka answers the same.
            self._ended.append((write, ErrorCode.UNKNOWN_SERVER_ERROR))
            return
        self._writing = write

    def settle(self, now_ms: int) -> bool:
        """Answers what has ended, up to the first decision that has to be appended; says whether there is one.

        To be called after every event, until it says False; each time it says True, `next_append` tells what to append.
        """
        while self._writing is None and self._ended:
            write, error = self._ended.popleft()
            if error is not _NONE and not (write.outcome.is_whole and error in _TOO_LARGE):
                error = _ANSWERED_AS.get(error, error)
            self._answer(write, error)
            then = write.outcome.then
            if then is not None:
                self.decided(then(error, now_ms), now_ms)
        return self._writing is not None

    @property
    def ending(self) -> Ending | None:
        """What `next_append` says is the end of this transaction; None: it is records."""
        assert self._writing is not None
        return self._writing.outcome.ending

    def next_append(self, now_ms: int, max_batch_bytes: int) -> bytes:
        """The batches to append now, in one go; `appended` or `refused` says what became of them."""
        write = self._writing
        assert write is not None
        if write.further:
            write.appending, batch = write.further.popleft()
            return batch
        outcome = write.outcome
        if outcome.ending is not None:
            return build_marker(outcome.ending.marker, now_ms)
        records = outcome.records
        pairs, write.pairs = write.pairs, []
        codec = self._settings.codec
        if outcome.is_whole:
            return build_coordinator_batch(pairs, now_ms, codec, outcome.producer)
        max_bytes = min(BATCH_BYTES_MAX, max_batch_bytes)
        batches = build_coordinator_batches(pairs, now_ms, max_bytes, codec, outcome.producer)
        if len(batches) == 1:
            return batches[0][1]
        if outcome.is_atomic:
            return b"".join(batch for _, batch in batches)
        write.further = deque()
        at = 0
        for count, batch in batches:
            write.further.append((records[at : at + count], batch))
            at += count
        assert at == len(records), "each record is in one batch"
        write.appending, batch = write.further.popleft()
        return batch

    def appended(self, end_offset: int, high_watermark: int) -> int:
        """Notes that the log took the batches of `next_append` and ends at `end_offset`; returns the record count."""
        write = self._writing
        assert write is not None
        ending, producer = write.outcome.ending, write.outcome.producer
        records = write.appending
        count = len(records) if ending is None else 1
        timeline, apply = self._timeline, self.shard.apply
        offset = end_offset - count
        assert offset == timeline.written_offset, "only this runtime writes to the log"
        timeline.append(end_offset, high_watermark)
        producer_id = -1 if producer is None else producer[0]
        for record in records:
            apply(record, offset, producer_id)
            offset += 1
        if ending is not None:
            self.shard.apply_marker(ending.marker.producer_id, ending.marker.committed)
        if self._in_flight:
            self._release()
        if not write.further:
            self._writing = None
            if not timeline.is_level:
                write.end_offset = end_offset
                self._in_flight.append(write)
            elif self._ended or write.outcome.then is not None:
                self._ended.append((write, _NONE))
            else:
                self._answer(write, _NONE)
        return count

    def refused(self, error: ErrorCode) -> None:
        """Notes that the log refused the batches of `next_append`, and with them the rest of that decision."""
        write = self._writing
        assert write is not None and error is not _NONE
        self._writing = None
        self._ended.append((write, error))

    def committed(self, high_watermark: int) -> None:
        """The log is committed up to there."""
        if self.state is _ACTIVE:
            assert high_watermark <= self._timeline.written_offset, "the log holds what the shard holds"
            self._timeline.commit(high_watermark)
            self._release()

    def _release(self) -> None:
        in_flight, committed = self._in_flight, self._timeline.committed_offset
        while in_flight and in_flight[0].end_offset <= committed:
            self._ended.append((in_flight.popleft(), _NONE))

    def lost(self, error: ErrorCode, now_ms: int) -> bool:
        """Takes back all uncommitted decisions: they will not be committed, as far as this leader knows.

        Returns whether the shard must be loaded again, because a part of what it was loaded from is lost, or may be.
        """
        if self.state is not _ACTIVE:
            return self.state is ShardState.LOADING
        assert self._writing is None
        self._answer(_Write(self.shard.revert(now_ms), None, None, now_ms), _NONE)
        assert self._timeline.is_level, "the tables hold what is committed, and no more"
        self._ended.extend((write, error) for write in self._in_flight)
        self._in_flight.clear()
        return self._timeline.written_offset < self._loaded_to

    def _answer(self, write: _Write, error: ErrorCode) -> None:
        outcome = write.outcome
        if outcome.notes:
            self.outputs.extend(outcome.notes)
        if write.waiter is not None and outcome.reply is not None:
            reply = outcome.reply
            if error is not _NONE:
                assert write.refuse is not None
                reply = write.refuse(error)
            self.outputs.append((write.waiter, reply))
        if outcome.released:
            self.outputs.extend(outcome.released)
        if outcome.question is not None and error is _NONE:
            self.outputs.append(outcome.question)

    # --- time --------------------------------------------------------------------------------------------------------

    def deadline_ms(self) -> int | None:
        """`tick` is to be called no later than this."""
        if self.state is not _ACTIVE:
            return None
        deadline_ms = self.shard.deadline_ms()
        if self._in_flight:
            first_ms = self._in_flight[0].deadline_ms
            return first_ms if deadline_ms is None else min(first_ms, deadline_ms)
        return deadline_ms

    def tick(self, now_ms: int) -> bool:
        """Does the first thing whose time has come; False when there is none. To be settled before the next call."""
        if self.state is not _ACTIVE:
            return False
        if self._in_flight and self._in_flight[0].deadline_ms <= now_ms:
            # Its records may still be committed, and count then: the client has to retry to find out.
            self._ended.append((self._in_flight.popleft(), ErrorCode.REQUEST_TIMED_OUT))
            return True
        outcome = self.shard.due(now_ms)
        if outcome is None:
            return False
        self.decided(outcome, now_ms)
        return True

    def clock_stepped(self, by_ms: int) -> None:
        """Somebody set the wall clock: no time passed, so that nothing is late for it."""
        self.shard.clock_stepped(by_ms)
        for write in self._in_flight:
            write.deadline_ms += by_ms

    # --- the end -----------------------------------------------------------------------------------------------------

    def resign(self, now_ms: int) -> None:
        """Ends this leadership, or this epoch of it: waiting requests are sent to look up the coordinator again."""
        was_active = self.is_active
        self.state = ShardState.CLOSED
        outcome = self.shard.unload(now_ms)
        if was_active:
            self._answer(_Write(outcome, None, None, now_ms), _NONE)
        for write, error in self._ended:
            self._answer(write, _ANSWERED_AS.get(error, error))
        for write in self._in_flight:
            self._answer(write, ErrorCode.NOT_COORDINATOR)
        if self._writing is not None:
            self._answer(self._writing, ErrorCode.NOT_COORDINATOR)
            self._writing = None
        self._ended.clear()
        self._in_flight.clear()


class Leadership(NamedTuple, Generic[S]):
    """What a change of leaders means for the shards."""

    resigned: list[ShardRuntime[S]]
    """Over; their outputs are still to be given out."""
    taken: list[ShardRuntime[S]]
    """To be loaded."""


class Runtime(Generic[S]):
    """The shards of one coordinator that one broker runs, by partition."""

    def __init__(self, make_shard: Callable[[int], S], settings: Callable[[], RuntimeSettings]) -> None:
        """`settings` are asked for when a shard is taken up."""
        self._make_shard = make_shard
        self._settings = settings
        self.shards: dict[int, ShardRuntime[S]] = {}

    def lead(self, epochs: Mapping[int, int], now_ms: int) -> Leadership[S]:
        """This broker leads exactly these partitions, under these epochs; one that is not newer changes nothing."""
        resigned = []
        for index, runtime in list(self.shards.items()):
            if index not in epochs or epochs[index] > runtime.leader_epoch:
                resigned.append(self.resign(index, now_ms))
        taken = [self.take(index, epoch) for index, epoch in sorted(epochs.items()) if index not in self.shards]
        assert self.shards.keys() == epochs.keys(), "a shard for each partition that this broker leads"
        return Leadership(resigned, taken)

    def resign(self, index: int, now_ms: int) -> ShardRuntime[S]:
        """Ends a shard; returns it, for what it still has to say."""
        runtime = self.shards.pop(index)
        runtime.resign(now_ms)
        return runtime

    def take(self, index: int, leader_epoch: int) -> ShardRuntime[S]:
        """Begins a shard, which is to be loaded."""
        assert index not in self.shards
        runtime = self.shards[index] = ShardRuntime(index, leader_epoch, self._make_shard(index), self._settings())
        return runtime

    def serving(self, index: int) -> ShardRuntime[S] | ErrorCode:
        """The shard of a partition, or what those are answered who ask for it."""
        runtime = self.shards.get(index)
        if runtime is None:
            return ErrorCode.NOT_COORDINATOR
        return runtime if runtime.state is _ACTIVE else ErrorCode(runtime.state.value)

    def clock_stepped(self, by_ms: int) -> None:
        """Somebody set the wall clock."""
        for runtime in self.shards.values():
            runtime.clock_stepped(by_ms)
