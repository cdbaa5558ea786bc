"""The mark that a query's last batch leaves in Kafka: an offset of the query's own group, in the batch's transaction.

Group and transactional id are `headrace-<query id>`. The mark is the group's offset in partition 0 of the marker topic:
the offset is the number of the batch, the leader epoch is -1, and the metadata is JSON, `{"v": 1, "run": ..., "tasks":
..., "rows": ..., "offsets": ...}`. A mark and its batch are committed together, so a mark says that its batch is there.

`"offsets"` is a digest of where the batch ends in its sources, by the query's checkpoint. Spark plans a batch that it
repeats from the checkpoint, so a repeated batch has the digest of the mark. A batch that has another one was planned a
second time: the checkpoint was restored to a state before it, or it is a copy.

Where each task commits itself, each has a group and a mark of its own, `headrace-<query id>-task-<number>`, with the
sum of its rows' hashes; the mark of the query follows when all have theirs. Both say so in `"mode"`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

from headrace.client.cluster import Client
from headrace.client.errors import ProtocolMismatchError
from headrace.client.groups import Committed, fetch_offsets
from headrace.spark.delivery import EXACTLY_ONCE
from headrace.wire.apis import ApiKey

VERSION: Final = 1
PARTITION: Final = 0
_REQUIRES_STABLE: Final = 7
"""The version of OffsetFetch from which on it waits for open transactions (KIP-447)."""


class Step(Enum):
    """What is to be done with a batch."""

    WRITE = auto()
    SKIP = auto()


class HistoryError(Exception):
    """The marker and the checkpoint do not fit: which batches are in the topic is not what the checkpoint says."""


def group_of(query_id: str) -> str:
    """The group that keeps the query's mark, and its transactional id."""
    return f"headrace-{query_id}"


def task_group_of(query_id: str, task: int) -> str:
    """The group that keeps the mark of one task, and that task's transactional id."""
    return f"{group_of(query_id)}-task-{task}"


@dataclass(frozen=True, slots=True)
class Mark:
    """What is committed with a batch, or with a task's part of it.

    `tasks` and `rows` are how many it had, 0 tasks where that is not known; `row_hash` is the sum of the hashes of its
    rows, where each task commits itself. `offsets` is the digest of where the batch ends in its sources; it is empty
    where nobody could read that, and in marks of older versions.
    """

    batch_id: int
    run_id: str = ""
    tasks: int = 0
    rows: int = 0
    mode: str = EXACTLY_ONCE
    row_hash: int | None = None
    offsets: str = ""

    def fields(self) -> dict[str, Any]:
        """As JSON has it, without the number of the batch."""
        said: dict[str, Any] = {"v": VERSION, "run": self.run_id, "tasks": self.tasks, "rows": self.rows}
        if self.offsets:
            said["offsets"] = self.offsets
        if self.mode != EXACTLY_ONCE:
            said["mode"] = self.mode
        if self.row_hash is not None:
            said["hash"] = f"{self.row_hash:016x}"
        return said

    def committed(self) -> Committed:
        """As the group's offset."""
        return Committed(self.batch_id, -1, json.dumps(self.fields(), separators=(",", ":")))


def mark_of(batch_id: int, said: Any) -> Mark | None:
    """The mark of a batch, from what `Mark.fields` has made; None for what is none of this version."""
    try:
        if said["v"] != VERSION:
            return None
        row_hash = int(said["hash"], 16) if "hash" in said else None
        mode, offsets = said.get("mode", EXACTLY_ONCE), said.get("offsets", "")
        return Mark(batch_id, said["run"], said["tasks"], said["rows"], mode, row_hash, offsets)
    except (ValueError, TypeError, KeyError):
        return None


def parsed(found: Committed) -> Mark | None:
    """The mark that a group's offset is; None where it is none."""
    try:
        return mark_of(found.offset, json.loads(found.metadata or ""))
    except ValueError:
        return None


def read_mark(client: Client, group: str, topic: str, *, stable: bool) -> Mark | None:
    """The mark of the last batch; None where there is none.

    Where it is to be `stable` this waits for the group's open transaction, if there is one: to its timeout, where the
    driver that has it is gone. Else what is found may be too low, as that transaction may be decided already.

    Raises `BrokerError`, and `HistoryError` for an offset that is no mark of ours.
    """
    if not client.supports(ApiKey.OFFSET_FETCH, _REQUIRES_STABLE):
        raise ProtocolMismatchError("delivery exactly once needs a broker of Apache Kafka 2.5 or later")
    found = fetch_offsets(client, group, [(topic, PARTITION)], require_stable=stable).get((topic, PARTITION))
    if found is None:
        return None
    mark = parsed(found)
    if mark is None:
        raise HistoryError(
            f"Group {group} has an offset in topic {topic} that is no mark of this version of headrace's sink: "
            f"{found.metadata!r}."
        )
    return mark


@dataclass(frozen=True, slots=True)
class Turn:
    """A batch that a run of a query is about to write; `offsets` as in `Mark`."""

    query_id: str
    run_id: str
    batch_id: int
    offsets: str = ""


def decide(mark: Mark | None, turn: Turn, *, trusted: bool) -> Step:
    """Whether a batch is still to be written. Raises `HistoryError` where that cannot be known.

    `trusted` takes the checkpoint's word where the mark of the batch before is not there.
    """
    batch = f"Batch {turn.batch_id} of query {turn.query_id}"
    marked = -1 if mark is None else mark.batch_id
    if mark is not None and marked == turn.batch_id:
        _check_offsets(mark, turn)
        return Step.SKIP
    if marked > turn.batch_id:
        raise HistoryError(
            f"{batch} comes after batch {marked}, which is in the topic already: another driver has gone on with this "
            "checkpoint, or the checkpoint is an older copy; nothing was written."
        )
    if trusted or turn.batch_id == marked + 1:
        return Step.WRITE
    last = "no batch" if mark is None else f"batch {marked}"
    raise HistoryError(
        f"{batch} is to be written, and the cluster remembers {last} as the last one: the mark has expired "
        "(offsets.retention.minutes), or the query wrote batches at least once. If all batches before are in the "
        "topic, set the option markerMissing to trust for one run."
    )


def _check_offsets(mark: Mark, turn: Turn) -> None:
    """What is in the topic must be what the run has planned."""
    if not mark.offsets or not turn.offsets or mark.offsets == turn.offsets:
        return
    raise HistoryError(
        f"Batch {turn.batch_id} of query {turn.query_id} is in the topic with other records of its sources: run "
        f"{mark.run_id} wrote it up to other offsets than this run, {turn.run_id}, has planned. The checkpoint was "
        "restored to a state before that batch, or it is a copy and two queries write with one id; nothing was "
        "written. Go on with the checkpoint of the run that wrote the batch, or start a query with a new "
        "checkpointLocation at the offsets where the batch in the topic ends."
    )
