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
"""The limit of uncommitted changes of one shard; beyond it decisions are answered COORDINATOR_NOT_AVAILABLE."""

START_STEPS: Final = 500
"""The number of steps of `Shard.starting` in one turn of the event loop: some 3 to 10 us each."""

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
"""Maps append errors to the errors sent to clients, as in Kafka since 4.0; before, a too large commit got
INVALID_COMMIT_OFFSET_SIZE."""
_TOO_LARGE: Final = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
"""Errors that a client gets unchanged if its records must fit one batch: it can send fewer."""


class LoadedRecord(NamedTuple):
    """A record of the log, with its transaction's producer id, or -1 outside of transactions."""

    record: Any
    log_offset: int
    producer_id: int


class Marker(NamedTuple):
    """The end of a producer's transaction in the log."""

    log_offset: int
    producer_id: int
    committed: bool


class LogPiece(NamedTuple):
    """A decoded part of a log."""

    entries: Sequence[LoadedRecord | Marker]
    record_count: int
    next_offset: int


class Shard(Protocol):
    """The machine of one partition, as the runtime sees it.

    Each shard has its own methods for requests, which decide into an `Outcome` upon its latest state; reads use
    committed state only. The log's state is in tables on `timeline`.
    """

    timeline: Timeline

    def encode(self, record: Any) -> Pair:
        """Encodes the key and value of a decided record. Raises EncodeError if the format cannot hold it."""
        ...

    def decode(self, key: bytes, value: bytes | None) -> Any:
        """Decodes a record of the log; None for one to ignore. Raises DecodeError. Thread-safe."""
        ...

    def apply(self, record: Any, log_offset: int, producer_id: int = -1) -> None:
        """Applies a record that is in the log: the only writer of the log's state, live and at a load."""
        ...

    def apply_marker(self, producer_id: int, committed: bool) -> None:
        """Applies the end of a transaction."""
        ...

    def starting(self, now_ms: int) -> TimedSteps[Outcome]:
        """Restores the in-memory state after all records of the log are applied, in steps of about a group, a member or
        a transaction each. Returns the first decision of the new leadership."""
        ...

    def revert(self, now_ms: int) -> Outcome:
        """Reverts the tables to the committed state (`timeline.revert`) and adjusts the in-memory state; answers the
        requests that waited for lost records. The records of its outcome are ignored."""
        ...

    def unload(self, now_ms: int) -> Outcome:
        """Ends the shard after the leadership ended, whether it was loaded or not: releases its parts of the broker's
        limits, and answers all waiters. The records of its outcome are ignored."""
        ...

    def deadline_ms(self) -> int | None:
        """Returns the time by which `due` must be called."""
        ...

    def due(self, now_ms: int) -> Outcome | None:
        """Decides what follows from the first expired timer; returns None if there is none."""
        ...

    def clock_stepped(self, by_ms: int) -> None:
        """Shifts deadlines after the wall clock was set."""
        ...


S = TypeVar("S", bound=Shard)


class ShardState(Enum):
    """The state of a shard; the value is the error code that requests to it get."""

    LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    ACTIVE = ErrorCode.NONE
    FAILED = ErrorCode.NOT_COORDINATOR
    """The log could not be read: not served until another runtime has loaded it."""
    CLOSED = -1
    """Resigned: another runtime, or none here, has the shard."""


_ACTIVE: Final = ShardState.ACTIVE
_NONE: Final = ErrorCode.NONE
"""Looked up once: every request needs it several times, and enum access is slow."""

Output: TypeAlias = Any
"""A waiter with its reply to send now, or a log line."""


@dataclass(frozen=True, slots=True)
class RuntimeSettings:
    """The settings of appends."""

    commit_timeout_ms: int = 5_000
    """How long the commit of an append may take before its waiters are answered with an error."""
    codec: int = Compression.NONE
    """The compression of batches."""


class _Write:
    """A decision between its append and its answer."""

    __slots__ = ("appending", "deadline_ms", "end_offset", "further", "outcome", "pairs", "refuse", "waiter")

    def __init__(self, outcome: Outcome, waiter: Waiter | None, refuse: Refuse | None, deadline_ms: int) -> None:
        self.outcome = outcome
        self.waiter = waiter
        self.refuse = refuse
        self.deadline_ms = deadline_ms
        self.end_offset = -1
        """The log end after the append: the decision is committed when the high watermark reaches it."""
        self.pairs: list[Pair] = []
        """The encoded records, until they are in batches."""
        self.appending: Sequence[Any] = outcome.records
        """The records of the next append: all, unless the decision may be appended in parts."""
        self.further: deque[tuple[Sequence[Any], bytes]] | None = None
        """(records, their batches) of the appends after the next one."""


class ShardRuntime(Generic[S]):
    """One shard under one leader epoch. `now_ms` is the wall clock's; see `clock_stepped`."""

    def __init__(self, index: int, leader_epoch: int, shard: S, settings: RuntimeSettings) -> None:
        self.index = index
        self.leader_epoch = leader_epoch
        self.shard = shard
        self.state = ShardState.LOADING
        self.outputs: list[Output] = []
        """Outputs to send now, in order; the driver of the runtime takes them."""
        self._settings = settings
        self._timeline = shard.timeline
        self._writing: _Write | None = None
        """A decision that is not in the log yet; no other is made meanwhile."""
        self._in_flight: deque[_Write] = deque()
        """Uncommitted decisions in the log or queued for it, in the order of the log."""
        self._ended: deque[tuple[_Write, ErrorCode]] = deque()
        """Decisions that are committed or failed, and not answered yet."""
        self._loaded_to = 0
        self._starting: TimedSteps[Outcome] | None = None
        """The restoration of the in-memory state after the load."""

    @property
    def is_active(self) -> bool:
        """Whether the shard makes decisions."""
        return self.state is _ACTIVE

    @property
    def is_writing(self) -> bool:
        """Whether an append of a decision is in flight: nothing else may be decided until its result is known."""
        return self._writing is not None

    @property
    def written_offset(self) -> int:
        """The log end as the shard knows it: while it leads, the end of the log."""
        return self._timeline.written_offset

    # --- loading -----------------------------------------------------------------------------------------------------

    def begin(self, log_start_offset: int, high_watermark: int) -> None:
        """Starts the load."""
        assert self.state is ShardState.LOADING and log_start_offset >= 0
        self._timeline.commit(high_watermark)
        self._timeline.write(log_start_offset)

    def load(self, piece: LogPiece, high_watermark: int) -> bool:
        """Applies the next piece of the log; returns False if this runtime no longer loads."""
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
        """Notes that the log cannot be read to its end."""
        if self.state is ShardState.LOADING:
            self.state = ShardState.FAILED

    # --- deciding ----------------------------------------------------------------------------------------------------

    def decided(
        self, outcome: Outcome, now_ms: int, waiter: Waiter | None = None, refuse: Refuse | None = None
    ) -> None:
        """Takes a decision of the shard, made upon its latest state. `refuse` builds the reply to `waiter` if its
        records cannot be stored."""
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
        """Prepares a decision with records for the next append, unless it cannot be encoded."""
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
            # A name is too long for the log's format: Kafka answers the same error.
            self._ended.append((write, ErrorCode.UNKNOWN_SERVER_ERROR))
            return
        self._writing = write

    def settle(self, now_ms: int) -> bool:
        """Answers ended decisions, up to the first one that has to be appended; returns whether there is one.

        To be called after every event, until it returns False; each time it returns True, `next_append` has the
        batches.
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
        """The transaction end to append next; None if `next_append` returns records."""
        assert self._writing is not None
        return self._writing.outcome.ending

    def next_append(self, now_ms: int, max_batch_bytes: int) -> bytes:
        """Returns the batches to append now, at once; report the result with `appended` or `refused`."""
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
        """Notes the log's new high watermark."""
        if self.state is _ACTIVE:
            assert high_watermark <= self._timeline.written_offset, "the log holds what the shard holds"
            self._timeline.commit(high_watermark)
            self._release()

    def _release(self) -> None:
        in_flight, committed = self._in_flight, self._timeline.committed_offset
        while in_flight and in_flight[0].end_offset <= committed:
            self._ended.append((in_flight.popleft(), _NONE))

    def lost(self, error: ErrorCode, now_ms: int) -> bool:
        """Reverts all uncommitted decisions: as far as this leader knows, they will not be committed.

        Returns whether the shard must be loaded again, because a part of its loaded records is lost, or may be.
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
        """Returns the time by which `tick` must be called."""
        if self.state is not _ACTIVE:
            return None
        deadline_ms = self.shard.deadline_ms()
        if self._in_flight:
            first_ms = self._in_flight[0].deadline_ms
            return first_ms if deadline_ms is None else min(first_ms, deadline_ms)
        return deadline_ms

    def tick(self, now_ms: int) -> bool:
        """Does the first thing that is due; returns False if there is none. Call `settle` before the next call."""
        if self.state is not _ACTIVE:
            return False
        if self._in_flight and self._in_flight[0].deadline_ms <= now_ms:
            # Its records may still be committed: the client has to retry to find out.
            self._ended.append((self._in_flight.popleft(), ErrorCode.REQUEST_TIMED_OUT))
            return True
        outcome = self.shard.due(now_ms)
        if outcome is None:
            return False
        self.decided(outcome, now_ms)
        return True

    def clock_stepped(self, by_ms: int) -> None:
        """Shifts deadlines after the wall clock was set, so that nothing expires because of it."""
        self.shard.clock_stepped(by_ms)
        for write in self._in_flight:
            write.deadline_ms += by_ms

    # --- the end -----------------------------------------------------------------------------------------------------

    def resign(self, now_ms: int) -> None:
        """Ends this leadership, or this epoch of it: waiting clients are answered to look up the coordinator again."""
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
    """The shards affected by a change of leaders."""

    resigned: list[ShardRuntime[S]]
    """Resigned shards, with outputs to send."""
    taken: list[ShardRuntime[S]]
    """New shards to load."""


class Runtime(Generic[S]):
    """The shards of one coordinator that one broker runs, by partition."""

    def __init__(self, make_shard: Callable[[int], S], settings: Callable[[], RuntimeSettings]) -> None:
        """Creates an empty runtime. `settings` is called when a shard is created."""
        self._make_shard = make_shard
        self._settings = settings
        self.shards: dict[int, ShardRuntime[S]] = {}

    def lead(self, epochs: Mapping[int, int], now_ms: int) -> Leadership[S]:
        """Sets the led partitions with their epochs; an epoch that is not newer changes nothing."""
        resigned = []
        for index, runtime in list(self.shards.items()):
            if index not in epochs or epochs[index] > runtime.leader_epoch:
                resigned.append(self.resign(index, now_ms))
        taken = [self.take(index, epoch) for index, epoch in sorted(epochs.items()) if index not in self.shards]
        assert self.shards.keys() == epochs.keys(), "a shard for each partition that this broker leads"
        return Leadership(resigned, taken)

    def resign(self, index: int, now_ms: int) -> ShardRuntime[S]:
        """Ends a shard; returns it with its last outputs."""
        runtime = self.shards.pop(index)
        runtime.resign(now_ms)
        return runtime

    def take(self, index: int, leader_epoch: int) -> ShardRuntime[S]:
        """Creates a shard, which is to be loaded."""
        assert index not in self.shards
        runtime = self.shards[index] = ShardRuntime(index, leader_epoch, self._make_shard(index), self._settings())
        return runtime

    def serving(self, index: int) -> ShardRuntime[S] | ErrorCode:
        """Returns the shard of a partition, or the error for requests to it."""
        runtime = self.shards.get(index)
        if runtime is None:
            return ErrorCode.NOT_COORDINATOR
        return runtime if runtime.state is _ACTIVE else ErrorCode(runtime.state.value)

    def clock_stepped(self, by_ms: int) -> None:
        """Shifts the deadlines of all shards after the wall clock was set."""
        for runtime in self.shards.values():
            runtime.clock_stepped(by_ms)
