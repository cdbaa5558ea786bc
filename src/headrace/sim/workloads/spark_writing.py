"""Exactly-once queries as Spark runs them: checkpoints, drivers and tasks are the simulator's, and the work of a batch
is the sink's own code (see `blocking`).

A driver plans micro-batches in the offsets log of a checkpoint, has tasks write their rows, commits, and notes that in
the commits log. Drivers and tasks die at their requests, freeze, and lose answers; tasks are retried, or run twice at a
time. A second driver may run beside another, on the same checkpoint or on a copy of it without its last batches; a run
may plan tasks differently, or write to different topics in another order. A refused driver ends, and an operator
continues with the checkpoint and the program that are not refused.
"""

from __future__ import annotations

import pickle
import time
from asyncio import FIRST_COMPLETED, sleep, wait
from asyncio import Task as Running
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark import TaskContext

from headrace.arrow import encode
from headrace.client.errors import ClientError
from headrace.sim.blocking import EndedError, Fate, Process
from headrace.sim.checkers.deliveries import Claim, Deliveries
from headrace.sim.workloads.expired_marks import ExpiredMarks
from headrace.sim.workloads.spark_queries import (
    CALM,
    WITH_MANY_RUNS,
    Chances,
    Checkpoint,
    Context,
    Program,
    Shape,
    rows_of,
)
from headrace.spark import checkpoint_offsets, process_state
from headrace.spark.delivery import encoding
from headrace.spark.delivery.commit_records import CommitRecord, read_last
from headrace.spark.delivery.markers import HistoryError, Mark
from headrace.spark.delivery.next_write import last_mark
from headrace.spark.delivery.spark_task import QueryBatch, current_task
from headrace.spark.delivery_options import PER_TASK, OfBatch
from headrace.spark.options import SinkOptions, sink_options
from headrace.spark.process_state import ProcessState
from headrace.spark.sink import BatchWriter, StreamWriter
from headrace.spark.updates import Count

if TYPE_CHECKING:
    import random

    from headrace.sim.cluster_client import ClusterClient
    from headrace.sim.world import World

ROWS_MAX: Final = 6
"""Of a batch: some have none."""
ATTEMPTS: Final = 4
"""Of a task, before its job fails."""
BATCHES_OF_RIVAL: Final = 3
RIVALS_MAX: Final = 3
COPIES_MAX: Final = 4
COPIED: Final = 0.7
"""How often a second driver has a copy of the checkpoint."""
BATCHES_AT_LAST: Final = 2
"""That each query commits once nothing is broken."""
TIMEOUTS: Final = {
    "kafka.default.api.timeout.ms": "25000",
    "kafka.request.timeout.ms": "4000",
    "kafka.delivery.timeout.ms": "15000",
    "kafka.transaction.timeout.ms": "8000",
}


class FailedError(Exception):
    """A job of Spark's has failed, or two drivers met in a checkpoint's files: the run ends."""


@dataclass(slots=True)
class Outcome:
    """How a run ended, and which of its checkpoint's batches it has committed."""

    refused: HistoryError | None = None
    batches: int = 0


class Query:
    """One query, and the operator who starts its runs."""

    def __init__(
        self,
        world: World,
        shape: Shape,
        brokers: str,
        new_client: Callable[[str], ClusterClient],
        pass_time: Callable[[int], None],
    ) -> None:
        """`pass_time` sets the clocks of all brokers forward by so many milliseconds."""
        self.world = world
        self.shape = shape
        self.brokers = brokers
        self.new_client = new_client
        self.rng = world.rng(shape.query_id)
        self.chances = WITH_MANY_RUNS if shape.expires else Chances()
        self.deliveries = Deliveries(shape.query_id, shape.wanted, len(shape.topics))
        self.committed = 0
        """Batches that runs have committed, all together."""
        self.checkpoints = [Checkpoint("first")]
        self.processes: list[Process] = []
        order = tuple(range(len(shape.topics)))
        self.programs = [Program(order, 2)]
        if shape.changes:
            # two writes to one topic must keep their order, as nothing tells one from the other
            changed = order[::-1] if len(set(shape.topics)) == len(order) else order
            self.programs.append(Program(changed, self.rng.choice((1, 2, 3))))
        self.operator = new_client("operator")
        self.marks = ExpiredMarks(world, shape, pass_time)
        self.last = self.checkpoints[0]
        """The one in which the last batch was committed."""
        self.is_calm = False
        self.is_done = False
        """Whether it has got on once all was calm, and has ended then."""
        self._runs = 0
        self._rivals = 0
        self._rivals_running = 0

    # --- the operator

    async def operate(self) -> None:
        """Starts a run whenever there is none; another one beside it now and then. Once it is calm, one run gets on
        alone, and ends when it has committed some batches."""
        checkpoint, program, trusted = 0, 0, False
        while not self.is_done:
            if program or self.rng.random() < self.chances.changes:
                program = self.rng.randrange(len(self.programs))
            chosen = self.checkpoints[checkpoint % len(self.checkpoints)]
            if self._may_copy and self.rng.random() < self.chances.restores:
                chosen = self._copy(chosen)
            if self.shape.rivals and self._rivals < RIVALS_MAX and self.rng.random() < self.chances.rivals:
                self._rivals += 1
                self._rivals_running += 1
                self.operator.owner.spawn(self._rival(chosen))
            if self.shape.expires and chosen.offsets and self.rng.random() < self.chances.expires:
                await self.marks.expire(self.operator, chosen)
            outcome = await self._run(chosen, self.programs[program], None, trusted=trusted)
            trusted = False
            if outcome.batches:
                self.marks.is_gone = False
            if outcome.refused is not None and self.shape.expires:
                self.marks.check_refusal(outcome.refused)
                await self.marks.repair(self.operator, chosen)
                trusted = True
            elif outcome.refused is not None:
                self._check_refusal(outcome.refused)
                if len(self.programs) > 1 and self.rng.random() < 0.5:
                    program = (program + 1) % len(self.programs)
                else:
                    checkpoint += 1
            await sleep(self.rng.uniform(0.0, 0.5))

    def calm_down(self) -> None:
        """Nothing more goes wrong with its processes."""
        self.chances, self.is_calm = CALM, True

    async def _rival(self, checkpoint: Checkpoint) -> None:
        """A second driver: of the same checkpoint, or of a copy that lacks its last batches."""
        await sleep(self.rng.uniform(0.0, 3.0))
        if self._may_copy and self.rng.random() < COPIED:
            checkpoint = self._copy(checkpoint)
        await self._run(checkpoint, self.programs[0], BATCHES_OF_RIVAL)
        self._rivals_running -= 1

    @property
    def _may_copy(self) -> bool:
        """Whether a run may plan a batch once more that another has planned."""
        return self.shape.rivals and len(self.checkpoints) <= COPIES_MAX

    def _copy(self, checkpoint: Checkpoint) -> Checkpoint:
        made = checkpoint.copy(f"copy {len(self.checkpoints)}", self.rng.choice((0, 1, 1, 2)))
        self.checkpoints.append(made)
        return made

    def _check_refusal(self, error: HistoryError) -> None:
        if not self._rivals and len(self.checkpoints) == len(self.programs) == 1:
            self.world.object(f"a run that differs from those before in nothing is refused: {error}")

    async def _run(
        self, checkpoint: Checkpoint, program: Program, batches: int | None, *, trusted: bool = False
    ) -> Outcome:
        self._runs += 1
        run = Run(self, checkpoint, program, f"run {self._runs}", trusted)
        note = self.world.trace.note
        note("run begins", self.shape.query_id, run.run_id, checkpoint.name, checkpoint.commits, program)
        outcome, alone = Outcome(), 0
        try:
            while batches is None or (outcome.batches < batches and not self.is_calm):
                began_alone = self.is_calm and not self._rivals_running
                await run.batch()
                outcome.batches += 1
                self.committed += 1
                self.last = checkpoint
                alone += began_alone
                if alone == BATCHES_AT_LAST:
                    self.is_done = True
                    break
                await sleep(self.rng.uniform(0.0, 0.3))
        except HistoryError as error:
            outcome.refused = error
            note("run is refused", run.run_id, error)
        except (ClientError, FailedError, EndedError) as error:
            note("run fails", run.run_id, repr(error))
        run.end()
        return outcome

    async def recall(self) -> None:
        """Asks what the cluster remembers of it."""
        deliveries, commit_topic = self.deliveries, self.shape.commit_topic
        options = self.options(self.shape.topics[0])

        def ask() -> tuple[Mark | None, CommitRecord | None]:
            assert options.exactly_once is not None
            with options.cluster.client(known=True) as client:
                mark = last_mark(client, options.exactly_once, self.shape.query_id)
                return mark, read_last(client, commit_topic, self.shape.query_id) if commit_topic else None

        mark, record = await self.process("recall").run(ask)
        if mark is not None:
            deliveries.marked = mark.batch_id, len(mark.writes)
        if record is not None and record.spans is not None:
            deliveries.spans = [((span.topic, span.partition), span.offset, span.count) for span in record.spans]
        if commit_topic and (record is None or record.mark != mark):
            self.world.object(f"{commit_topic} has {record}, and the mark is {mark}")

    # --- processes

    def process(self, kind: str, context: Context | None = None) -> Process:
        """A new one. Its `context` is that of a task."""
        client = self.new_client(kind)
        made = Process(
            client,
            {
                (process_state, "_STATE"): ProcessState(),
                (encoding, "time"): time,
                (encode, "random"): client.rng,
                (TaskContext, "_taskContext"): context,
            },
        )
        if not self.is_done:
            made.fate = partial(self._fate, client.rng)
        self.processes = [*(each for each in self.processes if each.is_alive), made]
        return made

    def _fate(self, rng: random.Random, _request: Any) -> Fate:
        drawn, chances = rng.random(), self.chances
        if drawn < chances.dies:
            return Fate.DIES_BEFORE if drawn < chances.dies / 2 else Fate.DIES_AFTER
        drawn -= chances.dies
        if drawn < chances.loses:
            return Fate.LOSES_THE_ANSWER
        return Fate.FREEZES if drawn - chances.loses < chances.freezes else Fate.LIVES

    def options(self, topic: str, *, trusted: bool = False) -> SinkOptions:
        """Those of a sink; `trusted`: it takes the checkpoint's word if there is no mark."""
        given = {"kafka.bootstrap.servers": self.brokers, "topic": topic, "delivery": self.shape.mode, **TIMEOUTS}
        if self.shape.commit_topic:
            given["commitTopic"] = self.shape.commit_topic
        if trusted:
            given["markerMissing"] = "trust"
        return sink_options(given)


@dataclass
class Run:
    """One start of a query, with its driver."""

    query: Query
    checkpoint: Checkpoint
    program: Program
    run_id: str
    trusted: bool
    driver: Process = field(init=False)
    count: Count = field(init=False)

    def __post_init__(self) -> None:
        self.driver = self.query.process("driver")
        self.count = Count(self.run_id)

    def end(self) -> None:
        """Spark's driver ends, and its processes with it. Tasks may go on for a while."""
        self.driver.kill()

    async def batch(self) -> None:
        """The next micro-batch, from its plan to the commits log."""
        checkpoint, rng = self.checkpoint, self.query.rng
        batch_id = checkpoint.commits
        first = checkpoint.end_of(batch_id - 1)
        if len(checkpoint.offsets) == batch_id:
            await sleep(rng.uniform(0.0, 0.05))
            if not checkpoint.plan(batch_id, first + rng.randint(0, ROWS_MAX)):
                raise FailedError("another driver has planned the batch")
        end = checkpoint.end_of(batch_id)
        if rng.random() < self.query.chances.child_ends:
            self.driver.kill()
            self.driver = self.query.process("driver")
        for write in self.program.order:
            await self._write(batch_id, write, range(first, end))
        unrecorded = self.query.chances.unrecorded
        if unrecorded and rng.random() < unrecorded:
            raise FailedError("the driver has died before it recorded the batch")
        if not checkpoint.commit(batch_id):
            raise FailedError("another driver has committed the batch")

    async def _write(self, batch_id: int, write: int, records: range) -> None:
        """As `write_updates` does it, or Spark."""
        shape = self.query.shape
        self.count.begin(batch_id, object())
        writer = self._writer(batch_id, write)
        numbers = [number for number in records if shape.wanted(write, number)]
        jobs = [
            self.query.operator.owner.spawn(
                self._task(writer, batch_id, task, rows_of(write, numbers, task, self.program))
            )
            for task in range(self.program.tasks)
        ]
        await wait(jobs)
        messages: list[Any] = [job.result() for job in jobs]
        wrong = next((each for each in messages if isinstance(each, Exception)), None)
        if wrong is not None:
            found = [None if isinstance(each, Exception) else each for each in messages]
            await self.driver.run(lambda: self._abort(writer, found))
            raise wrong
        try:
            await self.driver.run(lambda: _commit(writer, messages, batch_id))
        except EndedError:
            raise
        except Exception:
            await self.driver.run(lambda: self._abort(writer, messages))
            raise
        self.count.end()
        self.query.deliveries.claims.append(Claim(self.run_id, batch_id, write, records.start, records.stop))

    def _writer(self, batch_id: int, write: int) -> BatchWriter | StreamWriter:
        options = self.query.options(self.query.shape.topics[write], trusted=self.trusted)
        if self.query.shape.plain:
            return StreamWriter(options)
        assert options.exactly_once is not None
        digest = checkpoint_offsets.digest_by(self.checkpoint.read, batch_id)
        of = OfBatch(batch_id, self.count.writes, self.count.before, digest)
        return BatchWriter(replace(options, exactly_once=replace(options.exactly_once, of_batch=of)))

    def _abort(self, writer: BatchWriter | StreamWriter, messages: list[Any]) -> None:
        try:
            if isinstance(writer, StreamWriter):
                writer.abort(messages, self.checkpoint.commits)
            else:
                writer.abort(messages)
        except ClientError:
            pass  # Spark notes it, and the query has failed before

    # --- tasks

    async def _task(self, writer: BatchWriter | StreamWriter, batch_id: int, task: int, rows: pa.RecordBatch) -> Any:
        """The message of the first attempt that has one, or an error."""
        rng = self.query.rng
        running: list[Running[Any]] = []
        wrong: Any = FailedError("no attempt")
        for attempt in range(ATTEMPTS):
            work = self._attempt(writer, batch_id, (task, attempt), rows)
            running.append(self.query.operator.owner.spawn(work))
            speculates = rng.random() < self.query.chances.speculates
            done, _ = await wait(
                running, timeout=rng.uniform(0.0, 0.3) if speculates else None, return_when=FIRST_COMPLETED
            )
            for each in [task for task in running if task in done]:
                running.remove(each)
                if not isinstance(each.result(), Exception):
                    return each.result()
                wrong = each.result()
        return wrong

    async def _attempt(
        self, writer: BatchWriter | StreamWriter, batch_id: int, number: tuple[int, int], rows: pa.RecordBatch
    ) -> Any:
        shape = self.query.shape
        acts_itself = shape.grouped or shape.mode == PER_TASK
        process = self.query.process("task", Context(*number) if acts_itself else None)
        # Spark pickles what it sends
        sent = pickle.loads(pickle.dumps(writer))

        def write() -> bytes:
            of = QueryBatch(shape.query_id, self.run_id, batch_id)
            given = current_task(write_id=getattr(sent, "write_id", ""), batch=of)
            return pickle.dumps(sent.write_task(iter([rows]), given))

        try:
            return pickle.loads(await process.run(write))
        except (HistoryError, ClientError) as error:
            return error
        except EndedError:
            return FailedError(f"task {number} has died")
        finally:
            process.kill()


def _commit(writer: BatchWriter | StreamWriter, messages: list[Any], batch_id: int) -> None:
    if isinstance(writer, StreamWriter):
        writer.commit(messages, batch_id)
    else:
        writer.finish(messages)
