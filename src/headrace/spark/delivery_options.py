"""The sink's options about delivery: at least once, exactly once by batch, or exactly once by task.

Every complaint is a `ValueError` of one sentence.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

AT_LEAST_ONCE: Final = "at-least-once"
EXACTLY_ONCE: Final = "exactly-once"
PER_TASK: Final = "exactly-once-per-task"
DELIVERIES: Final = (AT_LEAST_ONCE, EXACTLY_ONCE, PER_TASK)
MAX_BYTES: Final = 256 << 20
"""Of one batch's records, encoded and compressed: they pass through the driver, and lie in its memory twice or so."""
MARKER_MISSING: Final = ("fail", "trust")
OF_BATCH: Final = "headracebatch"
"""Not for programs: of which batch of a stream a batch write is, and which write of it (`OfBatch`)."""


@dataclass(frozen=True, slots=True)
class OfBatch:
    """What `write_updates` says of a batch write: of which batch of a stream it is, and which write of that, from 0.

    `before` is the last batch that this run of the query wrote in before this one, and how often; `offsets` a digest of
    where the batch ends in its sources, where the writer cannot read that. `query` has the ids of the query and of its
    run, where Spark does not tell its tasks (over Connect).
    """

    batch_id: int
    write: int = 0
    before: tuple[int, int] | None = None
    offsets: str = ""
    query: tuple[str, str] | None = None

    def text(self) -> str:
        """As the value of the option."""
        return json.dumps([self.batch_id, self.write, self.before, self.offsets, self.query])


def _of_batch(text: str) -> OfBatch:
    batch_id, write, before, offsets, query = json.loads(text)
    return OfBatch(
        batch_id, write, None if before is None else tuple(before), offsets, None if query is None else tuple(query)
    )


@dataclass(frozen=True, slots=True)
class ExactlyOnce:
    """How a batch is written in transactions, as the `mode` says: in one, or in one for each task.

    `marker_topic` is the topic in whose name a query's group keeps the number of its last batch; `trusted` is whether a
    query goes on where that number is gone. `commit_topic`, where there is one, is the compacted topic that has it too.
    `checkpoint` is the query's own directory, as Spark was given it.
    """

    max_bytes: int = MAX_BYTES
    marker_topic: str = ""
    trusted: bool = False
    checkpoint: str = ""
    of_batch: OfBatch | None = None
    """Where a batch write is one of a stream's batch."""
    mode: str = EXACTLY_ONCE
    commit_topic: str = ""


def delivery(known: Mapping[str, str], given: Mapping[str, str]) -> ExactlyOnce | None:
    """What the sink's options say of delivery; None is at least once.

    `known` has them by their names, `given` as Spark hands them over, with its own.
    """
    chosen = known.get("delivery", AT_LEAST_ONCE).lower()
    if chosen not in DELIVERIES:
        *others, last = DELIVERIES
        allowed = f"{', '.join(others)} or {last}"
        raise ValueError(f"The option 'delivery' must be {allowed}, not {known['delivery']!r}.")
    most = known.get("exactlyOnceMaxBytes", str(MAX_BYTES))
    if not most.isascii() or not most.isdigit() or int(most) == 0:
        raise ValueError(f"The option 'exactlyOnceMaxBytes' must be a positive whole number, not {most!r}.")
    missing = known.get("markerMissing", MARKER_MISSING[0]).lower()
    if missing not in MARKER_MISSING:
        raise ValueError(f"The option 'markerMissing' must be fail or trust, not {known['markerMissing']!r}.")
    if chosen == AT_LEAST_ONCE:
        return None
    if known.get("kafka.acks", "all").lower() not in ("all", "-1"):
        raise ValueError(f"Delivery exactly once needs the option 'kafka.acks' to be all, not {known['kafka.acks']!r}.")
    commit_topic = known.get("commitTopic", "")
    topic = known.get("markerTopic", known.get("topic", commit_topic))
    if not topic:
        raise ValueError(
            "Delivery exactly once keeps a mark of its last batch beside a topic: give the option 'markerTopic', as "
            "there is no option 'topic'."
        )
    if commit_topic and commit_topic == known.get("topic"):
        raise ValueError("The option 'commitTopic' must be another topic than the option 'topic'.")
    beside = {key.lower(): text for key, text in given.items()}
    if beside.get("kafka.enable.idempotence", "true").lower() == "false":
        raise ValueError("Delivery exactly once needs 'kafka.enable.idempotence', which is set to false.")
    of_batch = beside.get(OF_BATCH)
    checkpoint = beside.get("checkpointlocation", "")
    written = None if of_batch is None else _of_batch(of_batch)
    return ExactlyOnce(int(most), topic, missing == "trust", checkpoint, written, chosen, commit_topic)
