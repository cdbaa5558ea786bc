"""The mark that a query's last batch leaves in Kafka: an offset of the query's own group, in the batch's transaction.

Group and transactional id are `headrace-<query id>`. The mark is the group's offset in partition 0 of the marker topic:
the offset is the number of the batch, the leader epoch is -1, and the metadata is JSON, `{"v": 1, "run": ..., "tasks":
..., "rows": ...}`. A mark and its batch are committed together, so whoever reads the mark knows of the batch.
"""

from __future__ import annotations

import json
from enum import Enum, auto
from typing import Final

from headrace.client.cluster import Client
from headrace.client.errors import ProtocolMismatchError
from headrace.client.groups import Committed, fetch_offsets
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


def marker(batch_id: int, run_id: str, tasks: int, rows: int) -> Committed:
    """The mark of a batch."""
    text = json.dumps({"v": VERSION, "run": run_id, "tasks": tasks, "rows": rows}, separators=(",", ":"))
    return Committed(batch_id, -1, text)


def read_marker(client: Client, group: str, topic: str, *, stable: bool) -> int | None:
    """The number of the last batch; None where there is no mark.

    Where it is to be `stable` this waits for the query's open transaction, if there is one: to its timeout, where the
    driver that has it is gone. Else what is found may be too low, as that transaction may be decided already.

    Raises `BrokerError`, and `HistoryError` for an offset that is no mark of ours.
    """
    if not client.supports(ApiKey.OFFSET_FETCH, _REQUIRES_STABLE):
        raise ProtocolMismatchError("delivery exactly once needs a broker of Apache Kafka 2.5 or later")
    found = fetch_offsets(client, group, [(topic, PARTITION)], require_stable=stable).get((topic, PARTITION))
    if found is None:
        return None
    try:
        version = json.loads(found.metadata or "")["v"]
    except (ValueError, TypeError, KeyError):
        version = None
    if version != VERSION:
        raise HistoryError(
            f"Group {group} has an offset in topic {topic} that is no mark of this version of headrace's sink: "
            f"{found.metadata!r}."
        )
    return found.offset


def decide(marked: int | None, batch_id: int, *, query_id: str, trusted: bool) -> Step:
    """Whether a batch is still to be written. Raises `HistoryError` where that cannot be known.

    `trusted` takes the checkpoint's word where the mark of the batch before is not there.
    """
    if marked == batch_id:
        return Step.SKIP
    if marked is not None and marked > batch_id:
        raise HistoryError(
            f"Batch {batch_id} of query {query_id} comes after batch {marked}, which is in the topic already: another "
            "driver has gone on with this checkpoint, or the checkpoint is an older copy; nothing was written."
        )
    if trusted or batch_id == (0 if marked is None else marked + 1):
        return Step.WRITE
    last = "no batch" if marked is None else f"batch {marked}"
    raise HistoryError(
        f"Batch {batch_id} of query {query_id} is to be written, and the cluster remembers {last} as the last one: the "
        "mark has expired (offsets.retention.minutes), or the query wrote batches at least once. If all batches before "
        "are in the topic, set the option markerMissing to trust for one run."
    )
