"""A simulated query of Spark: its checkpoint, its program, the rows of its tasks, and its faults."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from headrace.spark.delivery_options import EXACTLY_ONCE, PER_TASK

if TYPE_CHECKING:
    import random

PARTITIONS: Final = 2
"""Of a topic."""
EXPIRES: Final = 0.3
"""How many queries have marks that expire."""
WRITE_STEP: Final = 1_000_000
"""A record's value is its number, and so much for each write before its own."""


@dataclass(slots=True)
class Chances:
    """How often what may go wrong does: of a request of a driver or a task, of a task, of a start."""

    dies: float = 0.01
    loses: float = 0.01
    freezes: float = 0.003
    speculates: float = 0.15
    child_ends: float = 0.1
    """That the process beside the driver is another one for the next batch."""
    rivals: float = 0.3
    """That a second driver starts while one is at work."""
    restores: float = 0.3
    """That a run starts on a copy of the checkpoint that lacks the last batches."""
    changes: float = 0.4
    """That a run has another program, or plans in another way."""
    expires: float = 0.7
    """That the query's marks expire before a run."""
    unrecorded: float = 0
    """That a driver dies when a batch is written, and Spark has not recorded that."""


WITH_MANY_RUNS: Final = Chances(dies=0.03, unrecorded=0.3)
"""Of a query whose marks expire between two runs."""
CALM: Final = Chances(0, 0, 0, 0, 0, 0, 0, 0, 0)


class Checkpoint:
    """The directory of a query's checkpoint: files, and which batches are committed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.offsets: list[bytes] = []
        self.commits = 0
        """Batches before this one are."""

    def read(self, path: PurePosixPath) -> bytes | None:
        """A file of it, where it is there."""
        folder, number = path.parts
        found = self.offsets[int(number) : int(number) + 1] if folder == "offsets" else []
        return found[0] if found else None

    def end_of(self, batch_id: int) -> int:
        """Where a batch ends in the source."""
        if batch_id < 0:
            return 0
        end: int = json.loads(self.offsets[batch_id].splitlines()[2])["end"]
        return end

    def plan(self, batch_id: int, end: int) -> bool:
        """Writes the file of a batch; whether nobody has it already."""
        if len(self.offsets) != batch_id:
            return False
        self.offsets.append(b'v1\n{}\n{"end":%d}' % end)
        return True

    def commit(self, batch_id: int) -> bool:
        """The same of the file that says that a batch is done."""
        if self.commits != batch_id:
            return False
        self.commits += 1
        return True

    def copy(self, name: str, without: int) -> Checkpoint:
        """As it was before the last so many batches were planned."""
        found = Checkpoint(name)
        found.offsets = self.offsets[: max(len(self.offsets) - without, 0)]
        found.commits = min(self.commits, len(found.offsets))
        return found


class Context:
    """What Spark tells a task of itself."""

    def __init__(self, task: int, attempt: int) -> None:
        self._task = task
        self._attempt = attempt

    def getLocalProperty(self, _name: str) -> None:  # noqa: N802
        """Does nothing: the sink gets it in another place."""

    def partitionId(self) -> int:  # noqa: N802
        """Which task it is."""
        return self._task

    def attemptNumber(self) -> int:  # noqa: N802
        """Which attempt at it."""
        return self._attempt


@dataclass(frozen=True, slots=True)
class Program:
    """What is run: which writes go in which order, and in how many tasks a batch is planned."""

    order: tuple[int, ...]
    tasks: int


@dataclass(frozen=True, slots=True)
class Shape:
    """A query as it is drawn. `grouped`: its tasks write, and are committed as a group, where they do not commit
    themselves. `topics` are those of its writes. `plain`: it writes once, without `write_updates`, and its checkpoint
    is where the sink cannot read it. `expires`: its marks expire now and then."""

    query_id: str
    mode: str
    grouped: bool
    topics: tuple[str, ...]
    commit_topic: str
    rivals: bool
    changes: bool
    plain: bool = False
    expires: bool = False

    @property
    def commits_in_parts(self) -> bool:
        """Whether a batch takes several transactions."""
        return self.mode == PER_TASK or len(self.topics) > 1

    @classmethod
    def draw(cls, query_id: str, rng: random.Random) -> Shape:
        """Any."""
        mode = rng.choice((EXACTLY_ONCE, EXACTLY_ONCE, PER_TASK))
        plain = rng.random() < 0.25
        one, other = f"{query_id}-out", rng.choice((f"{query_id}-out", f"{query_id}-more"))
        drawn = cls(
            query_id,
            mode,
            rng.random() < 0.5,
            (one,) if plain else rng.choice(((one,), (one, other), (one, other))),
            f"{query_id}-commits" if rng.random() < 0.4 else "",
            rng.random() < 0.6,
            rng.random() < 0.5,
            plain,
        )
        # an operator who trusts the checkpoint has one query, and one program
        return replace(drawn, rivals=False, changes=False, expires=True) if rng.random() < EXPIRES else drawn

    def wanted(self, write: int, number: int) -> bool:
        """Whether a write takes a record."""
        return write == 0 or number % 3 == 0


def rows_of(write: int, numbers: list[int], task: int, program: Program) -> pa.RecordBatch:
    """The part of a write that one of its tasks has."""
    own = numbers[task :: program.tasks]
    return pa.record_batch(
        {
            "value": pa.array([b"%d" % (write * WRITE_STEP + number) for number in own], pa.binary()),
            "partition": pa.array([number % PARTITIONS for number in own], pa.int32()),
        }
    )


def places_of(shape: Shape) -> Iterator[tuple[str, int]]:
    """The partitions that a query writes rows to."""
    for topic in sorted(set(shape.topics)):
        for index in range(PARTITIONS):
            yield topic, index
