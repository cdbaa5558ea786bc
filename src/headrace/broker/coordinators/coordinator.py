"""The I/O shell of the coordinators' runtime: appends, loads, timers, and answers.

Each change of a shard is an event: the shard's runtime handles it, its outputs are carried out, and then the next event
is handled. So the consequences of a step (an append whose disk fails ends the appends of other shards) come after that
step.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

from headrace.broker.coordinators.load_retries import LoadRetries
from headrace.broker.coordinators.loading import read_piece
from headrace.broker.telemetry.pace import PacedLines
from headrace.env.completion import Completion, settled
from headrace.machine.outcome import Note, Outcome
from headrace.machine.runtime import LogPiece, Runtime, Shard, ShardRuntime, ShardState
from headrace.wire.batch import CorruptBatch
from headrace.wire.errors import ErrorCode
from headrace.wire.primitives import DecodeError
from headrace.wire.sharding import partition_of

if TYPE_CHECKING:
    from headrace.broker.coordinators.door import LedPartition, LedPartitions, Metadata
    from headrace.broker.telemetry.metrics import Registry
    from headrace.env.node import Node
    from headrace.env.owner import Timer
    from headrace.machine.outcome import Ending, Refuse, Waiter
    from headrace.metadata.delta import ImageDelta
    from headrace.metadata.image import ClusterImage

_CLOCK_STEP_MS: Final = 1_000
"""Difference from the monotonic clock by which the wall clock counts as set: timers move with it, and no session
ends."""

DUE_AT_ONCE: Final = 100
"""Bound on the sessions and transactions that time out in one turn of the loop: each costs some 50 to 100 us."""

_ALL: Final = -1
"""Key of a retry for all partitions, used in place of a partition index."""

Event: TypeAlias = Callable[[int], object]
"""Has a shard's runtime handle something that happened; called with the time in milliseconds."""

S = TypeVar("S", bound=Shard)


class Coordinator(Generic[S]):
    """The shards of one internal topic that this broker leads. Started after the partitions, stopped before them."""

    def __init__(
        self,
        topic: str,
        name: str,
        runtime: Runtime[S],
        *,
        partition_count: Callable[[], int],
        partitions: LedPartitions,
        node: Node,
        node_id: int,
        metrics: Registry,
    ) -> None:
        """`name` is used by counters and log lines; `partition_count` returns the number of partitions with which the
        topic would be created."""
        self.runtime = runtime
        self._topic = topic
        self._name = name
        self._default_count = partition_count
        self._partitions = partitions
        self._node = node
        self._node_id = node_id
        self._clock = node.clock
        self._owner = node.owner("coordinators")
        self._log = node.logger(name)
        self.lines = PacedLines(self._log, node.clock.monotonic)
        """Log for lines that clients cause."""
        self._metadata: Metadata | None = None
        self._topic_id = b""
        self._partition_count = 0
        self._events: deque[tuple[ShardRuntime[S], Event]] = deque()
        """Events that arrived while another one was handled."""
        self._is_dispatching = False
        self._timer: Timer | None = None
        self._wake_ms = 0
        """Wall clock time for which the timer is set."""
        self._clock_base_ms = self._clock.now_ms() - int(self._clock.monotonic() * 1000)
        """Difference between the wall clock and the monotonic clock."""
        self._stopped = True
        self._loads: dict[ShardRuntime[S], asyncio.Task[None]] = {}
        self._loaded_records: dict[int, int] = {}
        """Number of records read by each shard that was loaded since the last log line about loads."""
        self._retries = LoadRetries(self._owner, self._clock, self._log, self._try_again)
        partitions.on_led(topic, self._retries.log_is_here)
        self._records = metrics.counter(f"{name}.records_appended")
        self._refused = metrics.counter(f"{name}.appends_refused")

    # --- life --------------------------------------------------------------------------------------------------------

    def start(self, metadata: Metadata) -> None:
        """Takes over the partitions that this broker leads, and follows the cluster image."""
        self._metadata = metadata
        self._stopped = False
        self._take_up(metadata.image)
        metadata.on_image(self._image_changed)

    async def stop(self) -> None:
        """Answers all waiting requests with NOT_COORDINATOR, and stops all timers and loads."""
        self._stopped = True
        self._retries.forget(_ALL)
        for index in list(self.runtime.shards):
            self._retries.forget(index)
            self._give_out(self.runtime.resign(index, self.now_ms()))
        await self._owner.closed()

    async def loaded(self) -> None:
        """Returns once no partition is loading."""
        while self._loads:
            await asyncio.wait(list(self._loads.values()))

    def now_ms(self) -> int:
        """Returns the wall clock in milliseconds; if it was set, moves all deadlines along."""
        wall_ms = self._clock.now_ms()
        step_ms = wall_ms - int(self._clock.monotonic() * 1000) - self._clock_base_ms
        if abs(step_ms) > _CLOCK_STEP_MS:
            self._clock_base_ms += step_ms
            self._wake_ms += step_ms
            self.runtime.clock_stepped(step_ms)
        return wall_ms

    # --- requests ----------------------------------------------------------------------------------------------------

    def partition_for(self, key: str) -> int:
        """Returns the partition that a key, such as a group id, belongs to."""
        return partition_of(key, self._partition_count or self._default_count())

    def read(self, key: str) -> S | ErrorCode:
        """Returns the shard of a key, whose reads show committed state, or the error why it is not served here now."""
        runtime = self.runtime.serving(self.partition_for(key))
        return runtime if isinstance(runtime, ErrorCode) else runtime.shard

    def read_all(self) -> list[S] | ErrorCode:
        """Returns every served shard, or COORDINATOR_LOAD_IN_PROGRESS if one is loading, because the list would be
        incomplete."""
        runtimes = [self.runtime.shards[index] for index in sorted(self.runtime.shards)]
        if any(runtime.state is ShardState.LOADING for runtime in runtimes):
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return [runtime.shard for runtime in runtimes if runtime.is_active]

    def write(
        self, key: str, decide: Callable[[S, int], Outcome], refuse: Refuse, completion: Completion[Any] | None = None
    ) -> Completion[Any]:
        """Has the shard of a key decide (shard, now_ms), and carries out the decision.

        Returns the completion of the reply: it completes once the decision is committed, or with `refuse` of the error
        by which it could not be made or stored. It is done already if the reply is known at once. `completion` is used
        instead of a new one, if `decide` keeps it for a later decision.
        """
        if completion is None:
            completion = Completion(self._node.completions)
        runtime = self.runtime.serving(self.partition_for(key))
        if isinstance(runtime, ErrorCode):
            completion.complete(refuse(runtime))
        else:
            self._dispatch(runtime, partial(self._decide, runtime, decide, completion, refuse))
        return completion

    def decide_alone(self, runtime: ShardRuntime[S], decide: Callable[[S, int], Outcome]) -> None:
        """Has a shard make a decision that no request waits for."""
        self._dispatch(runtime, partial(self._decide, runtime, decide, None, None))

    def end_transaction(
        self, index: int, ending: Ending, refuse: Callable[[ErrorCode], ErrorCode]
    ) -> Completion[ErrorCode]:
        """Writes the end of a transaction into a partition, in order with the shard's decisions. Completes with NONE
        once it is committed and applied (KAFKA-17507), or with `refuse` of an error."""
        completion: Completion[ErrorCode] = Completion(self._node.completions)
        runtime = self.runtime.serving(index)
        if isinstance(runtime, ErrorCode):
            completion.complete(refuse(runtime))
        else:
            out = Outcome(ErrorCode.NONE, ending=ending)
            self._dispatch(runtime, partial(self._decide, runtime, lambda _, __: out, completion, refuse))
        return completion

    def _decide(
        self,
        runtime: ShardRuntime[S],
        decide: Callable[[S, int], Outcome],
        waiter: Waiter | None,
        refuse: Refuse | None,
        now_ms: int,
    ) -> None:
        if runtime.is_active:
            runtime.decided(decide(runtime.shard, now_ms), now_ms, waiter, refuse)
        elif waiter is not None and refuse is not None:
            waiter.complete(refuse(ErrorCode.NOT_COORDINATOR))

    # --- events ------------------------------------------------------------------------------------------------------

    def _dispatch(self, runtime: ShardRuntime[S], event: Event) -> None:
        """Has a shard handle an event, and carries out its outputs; queues the event while another one is handled."""
        if self._is_dispatching:
            self._events.append((runtime, event))
            return
        self._is_dispatching = True
        try:
            now_ms = self.now_ms()
            event(now_ms)
            self._drive(runtime, now_ms)
            while self._events:
                runtime, event = self._events.popleft()
                event(now_ms)
                self._drive(runtime, now_ms)
        except BaseException:
            if runtime.is_writing:
                # The state after a failed step is unknown, so the shard is loaded again from its log.
                self._load_again(runtime, self.now_ms())
            raise
        finally:
            self._is_dispatching = False
            if self._events:
                self._owner.soon(self._dispatch_rest)

    def _dispatch_rest(self) -> None:
        """Handles the events that a failed step left in the queue."""
        if self._events:
            self._dispatch(*self._events.popleft())

    def _drive(self, runtime: ShardRuntime[S], now_ms: int) -> None:
        """Carries out all outputs of a shard."""
        while runtime.settle(now_ms):
            self._append(runtime, now_ms)
        if runtime.outputs:
            self._give_out(runtime)
        deadline_ms = runtime.deadline_ms()
        if deadline_ms is not None and (self._timer is None or deadline_ms < self._wake_ms):
            self._arm(deadline_ms, now_ms)

    def _append(self, runtime: ShardRuntime[S], now_ms: int) -> None:
        led = self._partitions.find(self._topic, runtime.index)
        if isinstance(led, ErrorCode):
            self._refuse(runtime, led)
            return
        if led.leader_epoch != runtime.leader_epoch or led.log.end_offset != runtime.written_offset:
            self._refuse_stale_append(runtime, led)
            return
        if not led.takes_appends:
            # The log was moved, and its epoch is not yet written in the new directory.
            self._refuse(runtime, ErrorCode.KAFKA_STORAGE_ERROR)
            self._dispatch(runtime, partial(self._load_again, runtime))
            return
        batches = runtime.next_append(now_ms, led.log.config.max_message_bytes)
        origin = "coordinator" if runtime.ending is None else runtime.ending.origin
        (commit,) = self._partitions.append_internal(self._topic, runtime.index, (batches,), origin)
        end_offset = led.log.end_offset
        if isinstance(commit, Completion):
            self._records.value += runtime.appended(end_offset, led.high_watermark)
            commit.deliver_to(partial(self._log_moved, runtime, end_offset))
        elif commit is ErrorCode.NONE:
            self._records.value += runtime.appended(end_offset, end_offset)
        else:
            self._refuse(runtime, commit)

    def _refuse(self, runtime: ShardRuntime[S], error: ErrorCode) -> None:
        self._refused.value += 1
        runtime.refused(error)

    def _refuse_stale_append(self, runtime: ShardRuntime[S], led: LedPartition) -> None:
        """Refuses an append of a shard that no longer leads under its epoch, or whose state differs from the log."""
        self._refuse(runtime, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if led.leader_epoch == runtime.leader_epoch:
            self._log.error("a log does not end where its coordinator left it", **self._fields(runtime))
            self._dispatch(runtime, partial(self._load_again, runtime))

    def _log_moved(self, runtime: ShardRuntime[S], end_offset: int, error: ErrorCode) -> None:
        """Handles the result of a commit: the log is committed up to `end_offset`, or its commit is unknown."""
        if error is ErrorCode.NONE:
            self._dispatch(runtime, lambda _: runtime.committed(end_offset))
        else:
            self._dispatch(runtime, partial(self._lose, runtime, error))

    def _lose(self, runtime: ShardRuntime[S], error: ErrorCode, now_ms: int) -> None:
        if runtime.lost(error, now_ms):
            self._load_again(runtime, now_ms)

    def _give_out(self, runtime: ShardRuntime[S]) -> None:
        outputs, runtime.outputs = runtime.outputs, []
        for output in outputs:
            if isinstance(output, Note):
                fields = output.fields
                about = fields.get("group", fields.get("transactional_id"))
                self.lines.info(about, output.event, **fields)
            elif isinstance(output, tuple):
                waiter, reply = output
                waiter.complete(reply)
            else:
                self._answer(runtime, output)

    def _answer(self, runtime: ShardRuntime[S], question: Any) -> None:
        """Has a shard's question (`Outcome.question`) answered elsewhere. The shards of this class have none."""
        raise AssertionError(f"nobody answers {question}")

    # --- timers ------------------------------------------------------------------------------------------------------

    def _arm(self, deadline_ms: int, now_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._wake_ms = deadline_ms
        self._timer = self._owner.later(max(0, deadline_ms - now_ms) / 1000, self._wake)

    def _wake(self) -> None:
        self._timer = None
        for runtime in list(self.runtime.shards.values()):
            self._dispatch(runtime, partial(self._tick, runtime))

    def _tick(self, runtime: ShardRuntime[S], now_ms: int) -> None:
        for _ in range(DUE_AT_ONCE):
            if not runtime.tick(now_ms):
                return
            self._drive(runtime, now_ms)
        # The rest is due in the next turn: the timer is set when this event has been handled.

    # --- taking up and giving up partitions --------------------------------------------------------------------------

    def _image_changed(self, old: ClusterImage, new: ClusterImage, delta: ImageDelta) -> None:
        if not self._stopped and new.topics.by_name(self._topic) is not old.topics.by_name(self._topic):
            self._take_up(new)

    def _take_up(self, image: ClusterImage) -> None:
        """Serves exactly the partitions that the image says this broker leads."""
        topic = image.topics.by_name(self._topic)
        count = len(topic.partitions) if topic is not None else 0
        topic_id = topic.id if topic is not None else b""
        if topic_id != self._topic_id:
            # The topic was created again: its epochs have no relation to the previous topic's.
            self._topic_id = topic_id
            self._lead({})
        self._partition_count = count
        partitions = topic.partitions if topic is not None else ()
        self._lead({each.index: each.leader_epoch for each in partitions if each.leader == self._node_id})

    def _lead(self, epochs: Mapping[int, int]) -> None:
        self._retries.forget(_ALL)
        if epochs:
            try:
                self._prepare()
            except OSError as error:
                event = "a coordinator cannot be loaded into memory, so it serves no client; it tries again"
                self._retries.failed(_ALL, event, error, 0.0, topic=self._topic)
                epochs = {}
        change = self.runtime.lead(epochs, self.now_ms())
        for runtime in change.resigned:
            self._retries.forget(runtime.index)
            self._resigned(runtime)
        for runtime in change.taken:
            self._begin(runtime)

    def _resigned(self, runtime: ShardRuntime[S]) -> None:
        load = self._loads.pop(runtime, None)
        if load is not None:
            load.cancel()
        self._give_out(runtime)

    def _load_again(self, runtime: ShardRuntime[S], now_ms: int) -> None:
        """Replaces a shard whose state may differ from its log by a new one, and loads it."""
        if self.runtime.shards.get(runtime.index) is runtime:
            self._log.warning("a coordinator loads its log again", **self._fields(runtime))
            self._replace(runtime, now_ms)

    def _replace(self, runtime: ShardRuntime[S], now_ms: int) -> None:
        self._resigned(self.runtime.resign(runtime.index, now_ms))
        self._begin(self.runtime.take(runtime.index, runtime.leader_epoch))

    def _prepare(self) -> None:
        """Imports the modules of shards, which a broker without shards does not need. Raises OSError if no descriptor
        is free."""

    def _try_again(self, index: int) -> None:
        """Retries the failed load of a partition with a new shard."""
        if index == _ALL:
            assert self._metadata is not None
            self._take_up(self._metadata.image)
            return
        runtime = self.runtime.shards.get(index)
        assert runtime is not None and not runtime.is_active, "who leads it no longer has forgotten the failure"
        self._replace(runtime, self.now_ms())

    def _begin(self, runtime: ShardRuntime[S]) -> None:
        key = (self._topic, runtime.index)
        self._partitions.when_ready(key, partial(self._log_is_open, runtime), for_appends=True)

    def _log_is_open(self, runtime: ShardRuntime[S]) -> None:
        if self.runtime.shards.get(runtime.index) is not runtime:
            return  # no longer led, or led under another epoch
        led = self._partitions.find(self._topic, runtime.index)
        if isinstance(led, ErrorCode):
            if led is not ErrorCode.NOT_LEADER_OR_FOLLOWER:
                runtime.load_failed()  # else a worker still changes the log, as a follower's
            event = "a coordinator's log is not here, so it serves no client until it is"
            self._retries.no_log(runtime.index, event, led.name, **self._fields(runtime))
            return
        if not led.takes_appends:
            self._load_failed(runtime, "the start of the leader epoch cannot be written", 0.0)
            return
        runtime.begin(led.log.log_start_offset, led.high_watermark)
        if led.log.end_offset == led.log.log_start_offset:
            self._dispatch(runtime, partial(self._start_some, runtime))  # an empty log needs no load
        else:
            self._loads[runtime] = self._owner.spawn(self._load(runtime, led))

    def _load_failed(self, runtime: ShardRuntime[S], why: object, took_s: float) -> None:
        runtime.load_failed()
        event = "a coordinator cannot load its log, so it serves no client; it tries again"
        self._retries.failed(runtime.index, event, why, took_s, **self._fields(runtime))

    async def _load(self, runtime: ShardRuntime[S], led: LedPartition) -> None:
        began = self._clock.monotonic()
        try:
            records = await self._read(runtime, led)
            await self._all_committed(runtime, led)
        except (OSError, MemoryError, CorruptBatch, DecodeError) as error:
            if runtime.state is ShardState.LOADING:
                self._load_failed(runtime, error, self._clock.monotonic() - began)
        except Exception as error:
            # Whatever the error, the shard must not stay in "loading" for ever.
            self._node.defects.report(error, "the load of a coordinator", **self._fields(runtime))
            runtime.load_failed()
        else:
            if runtime.state is ShardState.LOADING:
                self._loaded_records[runtime.index] = records
                await self._start(runtime)
        finally:
            self._loads.pop(runtime, None)
            if not self._loads:
                self._report_loads()

    def _report_loads(self) -> None:
        """Logs one line about all shards that were loaded together."""
        loaded, self._loaded_records = self._loaded_records, {}
        if loaded:
            counts = {"partitions": len(loaded), "records": sum(loaded.values())}
            self._log.info("coordinators are loaded", topic=self._topic, **counts)

    async def _read(self, runtime: ShardRuntime[S], led: LedPartition) -> int:
        """Feeds the log to the shard, a piece at a time: a worker reads and decodes, the loop applies. Returns the
        number of records."""
        count = 0
        offset = led.log.log_start_offset
        while offset < led.log.end_offset:
            piece = await self._node.workers.run(partial(read_piece, led.log, offset, runtime.shard.decode))
            if not runtime.load(piece, led.high_watermark):
                break
            count += piece.record_count
            offset = piece.next_offset
        return count

    async def _all_committed(self, runtime: ShardRuntime[S], led: LedPartition) -> None:
        """Waits until this leader knows everything loaded to be committed: its predecessor may have known earlier, and
        its answers to clients must stay true (KAFKA-2334). Raises OSError if the commit fails."""
        end_offset = runtime.written_offset
        if end_offset > led.high_watermark:
            error = await settled(self._partitions.when_committed(led, end_offset))
            if error is not ErrorCode.NONE:
                raise OSError(f"what lies below offset {end_offset} is not committed: {error.name}")
        runtime.load(LogPiece([], 0, end_offset), end_offset)

    async def _start(self, runtime: ShardRuntime[S]) -> None:
        """Restores a loaded shard, a part per turn; until it is complete, requests get COORDINATOR_LOAD_IN_PROGRESS."""
        self._dispatch(runtime, partial(self._start_some, runtime))
        while runtime.state is ShardState.LOADING:
            await asyncio.sleep(0)
            self._dispatch(runtime, partial(self._start_some, runtime))

    def _start_some(self, runtime: ShardRuntime[S], now_ms: int) -> None:
        if runtime.start(now_ms) and runtime.is_active:
            self._retries.forget(runtime.index)
            self._drive(runtime, now_ms)
            self._tidy(runtime)

    def _tidy(self, runtime: ShardRuntime[S]) -> None:
        """Makes the first decisions of a shard that was just loaded."""

    def _fields(self, runtime: ShardRuntime[S]) -> dict[str, object]:
        return {"topic": self._topic, "partition": runtime.index, "leader_epoch": runtime.leader_epoch}
