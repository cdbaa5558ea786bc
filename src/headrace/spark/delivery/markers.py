"""The mark that a query's last batch leaves in Kafka: an offset of the query's own group, in the batch's transaction.

Group and transactional id are `headrace-<query id>`. The mark is the group's offset in partition 0 of the marker topic:
the offset is the number of the batch, the leader epoch is -1, and the metadata is JSON, `{"v": 1, "run": ..., "tasks":
..., "rows": ..., "offsets": ...}`. A mark and its batch are committed together, so a mark says that its batch is there.

`"offsets"` is a digest of where the batch ends in its sources, by the query's checkpoint. Spark plans a batch that it
repeats from the checkpoint, so a repeated batch has the digest of the mark. A batch that has another one was planned a
second time: the checkpoint was restored to a state before it, or it is a copy. Where neither the driver nor
`write_updates` can read the checkpoint, tasks hash their rows, and `"hash"` is the sum: a repeated batch has the same.

A query may write several times in a batch, each time in a transaction of its own, and each adds itself to the mark:
`"writes"` are its number in the batch, the beginning of its topic's name, and a digest of topic and options. A batch
that is repeated must write the same again, and its writes that are there are passed over. While it has come to some of
them only, `"repeated"` says how many. Where tasks hash their rows, each write of several has a fingerprint of its own
rows, instead of the one `"hash"`. The newest mark of the group counts, in whichever topic's name it is kept.

Where each task commits itself, each has a group and a mark of its own, `headrace-<query id>-task-<number>`, with the
sum of its rows' hashes; the mark of the query follows when all have theirs. Both say so in `"mode"`. Before the first
task of a run commits, the mark of the query says in `"plan"` that this run writes what comes next: see `plans`. If
there is no batch yet, the mark has a plan alone, and the offset is 0.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any, Final

from headrace.client.cluster import Client
from headrace.client.errors import ProtocolMismatchError
from headrace.client.groups import Committed, fetch_offsets
from headrace.spark.delivery_options import EXACTLY_ONCE
from headrace.wire.apis import ApiKey

VERSION: Final = 1
PARTITION: Final = 0
_REQUIRES_STABLE: Final = 7
"""The version of OffsetFetch from which on it waits for open transactions (KIP-447)."""


TOPIC_SHOWN: Final = 40
"""Characters of a topic's name in a mark, for messages: a name may have 249, and a mark 4,096."""
WRITES_MAX: Final = 48
"""Of one batch: so many fit into a mark."""
FINGERPRINT_SIZE: Final = 8
"""In characters, of what a mark says of the rows of one write of several."""


NO_BATCH: Final = -1
"""The number of the batch in a mark that has a plan alone."""
RUNS_KEPT: Final = 4
"""Runs that a plan names as replaced: a mark has room for so many beside its writes."""
ROW_HASH_MASK: Final = (1 << 64) - 1
"""Hashes of rows are summed up to 64 bits."""


class Step(Enum):
    """The decision on a batch."""

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


def write_group_of(write_id: str) -> str:
    """The transactional id of a batch write; those of its tasks begin with it."""
    return f"headrace-write-{write_id}"


@dataclass(frozen=True, slots=True)
class Write:
    """One of a batch's writes, by its number from 0. `digest` is of its topic and of the options that say what is
    written there, `rows` of its rows, if tasks have hashed them and the batch has other writes."""

    number: int = 0
    topic: str = ""
    digest: str = ""
    rows: str = ""

    def fields(self) -> list[Any]:
        """As JSON has it."""
        fields: list[Any] = [self.number, self.topic[:TOPIC_SHOWN], self.digest]
        return [*fields, self.rows] if self.rows else fields


@dataclass(frozen=True, slots=True)
class Plan:
    """Which run writes what comes next, if each task commits itself.

    `number` counts the plans of a query. Tasks of the run have numbers below `tasks`; one with a higher number raises
    that first. When the run took over, the next write was `place`, and of its tasks those below `kept` had committed,
    or some of them, for runs before. `replaced` are the last runs that others took over from.
    """

    number: int
    run_id: str
    tasks: int
    place: tuple[int, int]
    kept: int = 0
    replaced: tuple[str, ...] = ()

    def fields(self) -> list[Any]:
        """As JSON has it."""
        return [self.number, self.run_id, self.tasks, self.place, self.kept, self.replaced]


def _plan_of(fields: list[Any]) -> Plan:
    number, run_id, tasks, (batch_id, write), kept, replaced = fields
    return Plan(number, run_id, tasks, (batch_id, write), kept, tuple(replaced))


@dataclass(frozen=True, slots=True)
class Mark:
    """The mark that is committed with a batch, or with a task's part of it.

    `tasks` and `rows` are how many it had, 0 tasks where that is not known; `row_hash` is the sum of the hashes of its
    rows, where tasks have sent it. `offsets` is the digest of the batch's end in its sources; it is empty if that could
    not be read, and in marks of older versions, which have no `writes` either. `repeated` says how many of its writes a
    repetition of the batch has come to; it is None where that has come to all, or there was none. `topic` is the one in
    whose name the mark was found. `is_recalled` says that the group has no mark any longer, and this one is from the
    commit topic. A mark of `NO_BATCH` has nothing but a `plan`.
    """

    batch_id: int
    run_id: str = ""
    tasks: int = 0
    rows: int = 0
    mode: str = EXACTLY_ONCE
    row_hash: int | None = None
    offsets: str = ""
    writes: tuple[Write, ...] = ()
    repeated: int | None = None
    plan: Plan | None = field(default=None, compare=False)
    topic: str = field(default="", compare=False)
    is_recalled: bool = field(default=False, compare=False)

    @property
    def last(self) -> int:
        """The number of the last write."""
        return self.writes[-1].number if self.writes else 0

    @property
    def place(self) -> tuple[int, int]:
        """Batch and last write: a newer mark has a higher one."""
        return self.batch_id, self.last

    def fields(self) -> dict[str, Any]:
        """As JSON has it, without the number of the batch."""
        fields: dict[str, Any] = {"v": VERSION}
        if self.plan is not None:
            fields["plan"] = self.plan.fields()
        if self.batch_id == NO_BATCH:
            return fields
        fields |= {"run": self.run_id, "tasks": self.tasks, "rows": self.rows}
        if self.offsets:
            fields["offsets"] = self.offsets
        if self.writes:
            fields["writes"] = [write.fields() for write in self.writes]
        if self.repeated is not None:
            fields["repeated"] = self.repeated
        if self.mode != EXACTLY_ONCE:
            fields["mode"] = self.mode
        if self.row_hash is not None:
            fields["hash"] = f"{self.row_hash:016x}"
        return fields

    def committed(self) -> Committed:
        """As the group's offset."""
        return Committed(max(self.batch_id, 0), -1, json.dumps(self.fields(), separators=(",", ":")))


def mark_of(batch_id: int, fields: Any) -> Mark | None:
    """The mark of a batch, from what `Mark.fields` has made; None if it is not of this version."""
    try:
        if fields["v"] != VERSION:
            return None
        plan = _plan_of(fields["plan"]) if "plan" in fields else None
        if plan is not None and "run" not in fields:
            return Mark(NO_BATCH, plan=plan)
        row_hash = int(fields["hash"], 16) if "hash" in fields else None
        mode, offsets, repeated = fields.get("mode", EXACTLY_ONCE), fields.get("offsets", ""), fields.get("repeated")
        writes = tuple(Write(*each) for each in fields.get("writes", ()))
        counts = fields["tasks"], fields["rows"]
        return Mark(batch_id, fields["run"], *counts, mode, row_hash, offsets, writes, repeated, plan)
    except (ValueError, TypeError, KeyError):
        return None


def parsed(found: Committed, topic: str = "") -> Mark | None:
    """The mark that a group's offset is, in the name of a topic; None where it is none."""
    try:
        mark = mark_of(found.offset, json.loads(found.metadata or ""))
    except ValueError:
        return None
    return None if mark is None else replace(mark, topic=topic)


def read_mark(client: Client, group: str, topic: str, *, stable: bool, is_alone: bool = False) -> Mark | None:
    """The mark of the last batch, of those of equal age that of this `topic`; None where there is none.

    Where it is to be `stable` this waits for the group's open transaction, if there is one: to its timeout, where the
    driver that has it is gone. Else what is found may be too low, as that transaction may be decided already. Apache
    Kafka does not report the first offset of a group so unless it is asked for: `is_alone` looks in `topic` alone.

    Raises `BrokerError`, and `HistoryError` for an offset that is no mark of ours.
    """
    if not client.supports(ApiKey.OFFSET_FETCH, _REQUIRES_STABLE):
        raise ProtocolMismatchError("delivery exactly once needs a broker of Apache Kafka 2.5 or later")
    newest = None
    wanted = [(topic, PARTITION)] if is_alone else None
    for (name, _), found in fetch_offsets(client, group, wanted, require_stable=stable).items():
        mark = parsed(found, name)
        if mark is None:
            raise HistoryError(
                f"Group {group} has an offset in topic {name} that is no mark of this version of headrace's sink: "
                f"{found.metadata!r}."
            )
        if newest is None or _age(mark, topic) > _age(newest, topic):
            newest = mark
    return newest


def _age(mark: Mark, topic: str) -> tuple[tuple[int, int], int, bool]:
    """The order of marks: a newer one is higher."""
    return mark.place, 0 if mark.plan is None else mark.plan.number, mark.topic == topic


@dataclass(frozen=True, slots=True)
class NextWrite:
    """A write that a run of a query is about to do; `offsets` are those of its batch, as in `Mark`.

    `marker_topic` is the one in whose name its mark is to be kept. `before` is the batch in which the run wrote last
    before this one, and how often; None where that is not known.
    """

    query_id: str
    run_id: str
    batch_id: int
    offsets: str = ""
    write: Write = Write()
    marker_topic: str = ""
    before: tuple[int, int] | None = None

    @property
    def place(self) -> tuple[int, int]:
        """As that of a mark."""
        return self.batch_id, self.write.number

    def follows(self, mark: Mark) -> bool:
        """Whether nothing can have been written between the mark and this, as far as the run knows."""
        if mark.batch_id == self.batch_id:
            return self.write.number <= mark.last + 1
        is_next = mark.batch_id + 1 == self.batch_id and self.write.number == 0
        return is_next and self.before in (None, (mark.batch_id, mark.last + 1))

    def marked(self, mark: Mark | None, *, tasks: int, rows: int, mode: str, row_hash: int | None = None) -> Mark:
        """The mark that this write leaves, where the one before is `mark`."""
        writes: tuple[Write, ...] = (self.write,)
        if mark is not None and mark.batch_id == self.batch_id:
            own = replace(self.write, rows=fingerprint(rows, row_hash))
            before = mark.writes or (Write(),)
            if len(before) == 1:
                before = (replace(before[0], rows=fingerprint(mark.rows, mark.row_hash)),)
            writes = (*before, own)
            tasks, rows, row_hash = tasks + mark.tasks, rows + mark.rows, None
        plan = None if mark is None else mark.plan
        return Mark(self.batch_id, self.run_id, tasks, rows, mode, row_hash, self.offsets, writes, plan=plan)


def fingerprint(rows: int, row_hash: int | None) -> str:
    """What a mark of several writes says of the rows of one: of their number and the sum of their hashes; "" where that
    is not known."""
    if row_hash is None:
        return ""
    return hashlib.sha256(f"{rows} {row_hash:x}".encode()).hexdigest()[:FINGERPRINT_SIZE]


def decide(mark: Mark | None, upcoming: NextWrite, *, trusted: bool) -> Step:
    """Whether a write is still to be done. Raises `HistoryError` where that cannot be known.

    `trusted` takes the checkpoint's word where the mark of the batch before is not there, or says that the batch was
    not repeated as it was.
    """
    batch = f"Batch {upcoming.batch_id} of query {upcoming.query_id}"
    if upcoming.write.number >= WRITES_MAX:
        raise HistoryError(f"{batch} has more than {WRITES_MAX} writes, and its mark cannot hold more.")
    marked = -1 if mark is None else mark.batch_id
    if mark is not None and marked == upcoming.batch_id:
        return _repeated(mark, upcoming)
    if marked > upcoming.batch_id:
        raise HistoryError(
            f"{batch} comes after batch {marked}, which is in the topic already: another driver has gone on with this "
            "checkpoint, or the checkpoint is an older copy; nothing was written."
        )
    if mark is not None and not trusted:
        _check_complete(mark, upcoming)
    if trusted or upcoming.batch_id == marked + 1:
        return Step.WRITE
    last = "no batch" if marked < 0 else f"batch {marked}"
    raise HistoryError(
        f"{batch} is to be written, and the cluster remembers {last} as the last one: the mark has expired "
        "(offsets.retention.minutes), or the query wrote batches at least once, or without any write. If all batches "
        "before are in the topic, set the option markerMissing to trust for one run."
    )


def compare_rows(mark: Mark, upcoming: NextWrite, rows: int, row_hash: int | None, *, trusted: bool) -> str:
    """Compares the rows of a write that is passed over with those in the topic, where no digests of offsets could be:
    returns a warning, or "". `row_hash` is the sum of the rows' hashes, as far as that is known.

    Raises `HistoryError` where they are others, unless it is `trusted` that the batch is repeated and only its rows are
    made in a way that is not deterministic. Where hashes are not known, their number alone raises nothing.
    """
    if mark.offsets and upcoming.offsets:
        return ""
    if len(mark.writes) > 1:
        found = next((each.rows for each in mark.writes if each.number == upcoming.write.number), "")
        is_known = bool(found) and row_hash is not None
        if not is_known or found == fingerprint(rows, row_hash):
            return ""
        number = upcoming.write.number + 1
        there = f"run {mark.run_id} has done write {number} of it, and this run, {upcoming.run_id}, has others"
    else:
        is_known = mark.row_hash is not None and row_hash is not None
        if rows == mark.rows and (not is_known or row_hash == mark.row_hash):
            return ""
        there = (
            f"run {mark.run_id} has written it, with {mark.rows} rows, and this run, {upcoming.run_id}, has {rows}"
            f"{' others' if rows == mark.rows else ''}"
        )
    restored = (
        "its checkpoint was restored to a state before that batch, or it is a copy and two queries write with one id"
    )
    batch = f"atch {upcoming.batch_id} of query {upcoming.query_id}"
    if is_known and not trusted:
        raise HistoryError(
            f"B{batch} is in the topic with other rows: {there}. If the query has the same rows whenever it repeats a "
            f"batch, {restored}; nothing was written. Go on with the checkpoint of the run that wrote the batch, or "
            "start a query with a new checkpointLocation at the offsets where the batch in the topic ends. If the "
            "query is not deterministic, and its checkpoint is the one that it had, set the option markerMissing to "
            "trust for one run."
        )
    return f"B{batch} is not written: {there}. If {restored}, rows are missing in the topic now."


def _repeated(mark: Mark, upcoming: NextWrite) -> Step:
    """Whether the mark of the same batch has this write.

    The records there must be those that the run is about to write.
    """
    batch = f"atch {upcoming.batch_id} of query {upcoming.query_id}"
    if mark.offsets and upcoming.offsets and mark.offsets != upcoming.offsets:
        raise HistoryError(
            f"B{batch} is in the topic with other records of its sources: run {mark.run_id} wrote it up to other "
            f"offsets than this run, {upcoming.run_id}, has planned. The checkpoint was restored to a state before "
            "that batch, or it is a copy and two queries write with one id; nothing was written. Go on with the "
            "checkpoint of the run that wrote the batch, or start a query with a new checkpointLocation at the offsets "
            "where the batch in the topic ends."
        )
    number = upcoming.write.number
    if not mark.writes:
        return _repeated_of_old(mark, upcoming)
    if number > mark.last:
        return Step.WRITE
    found = next((each for each in mark.writes if each.number == number), None)
    if found is not None and found.digest == upcoming.write.digest:
        return Step.SKIP
    goes, went = (None if each is None else each.topic or "that its rows name" for each in (upcoming.write, found))
    raise HistoryError(
        f"Write {number + 1} of b{batch} goes to topic {goes}, and when run {mark.run_id} wrote the batch it went "
        + ("to another cluster" if went is None else f"to topic {went}, or with other options")
        + ": a batch that is repeated must write the same, in the same order. Nothing was written; run the program "
        "that began the batch until it is done, and change it then."
    )


def _repeated_of_old(mark: Mark, upcoming: NextWrite) -> Step:
    """The same of the mark of a version that knew of one write for each batch and marker topic."""
    is_own = mark.topic in ("", upcoming.marker_topic)
    if is_own and upcoming.write.number == 0:
        return Step.SKIP
    if not is_own and upcoming.write.number > 0:
        return Step.WRITE
    raise HistoryError(
        f"Batch {upcoming.batch_id} of query {upcoming.query_id} was begun by an older version of headrace, which "
        f"kept no count of its writes, and write {upcoming.write.number + 1} may be there or not: let that version end "
        "the batch."
    )


def _check_complete(mark: Mark, upcoming: NextWrite) -> None:
    """The batch before must have been repeated with all the writes that its mark names."""
    count = mark.last + 1
    done = count if mark.repeated is None else mark.repeated
    if upcoming.before is not None and upcoming.before[0] == mark.batch_id:
        done = upcoming.before[1]
    if done < count:
        raise HistoryError(
            f"Batch {mark.batch_id} of query {upcoming.query_id} was repeated with {done} of the {count} writes that "
            f"it had when run {mark.run_id} wrote it, so the topics have more than the program writes now; nothing of "
            f"batch {upcoming.batch_id} was written. If it may go on so, set the option markerMissing to trust for one "
            "run."
        )
