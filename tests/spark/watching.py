"""What the promise of exactly once is held against: a consumer that follows a query's sink all the time.

The consumer is librdkafka's, with `isolation.level=read_committed`, and takes no notice of what goes wrong elsewhere.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple, Self

import confluent_kafka
from peers.transactions import settled_ends, visible

from headrace.client.cluster import Client
from headrace.client.groups import fetch_offsets, list_groups
from headrace.client.reading import latest_offsets
from headrace.spark.checkpoint_offsets import parsed

from .test_kill_matrix import SINK, SOURCE, Matrix

PATIENCE_S = 120.0
PARTITIONS = 2


class Seen(NamedTuple):
    """A record as the consumer got it: its batch, its place in the source (partition, offset), and its value."""

    batch: int
    place: tuple[int, int]
    value: int


def seen(message: confluent_kafka.Message) -> Seen:
    """What a record of the gated sink says."""
    key, value, headers = message.key(), message.value(), message.headers()
    assert key is not None and value is not None and isinstance(headers, list)
    (batch,) = (int(text or b"") for name, text in headers if name == "headrace.batch_id")
    partition, offset = map(int, key.split(b":"))
    return Seen(batch, (partition, offset), int(value))


class Watch:
    """The consumer, in a thread of its own."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.seen: list[Seen] = []
        self.failed: BaseException | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(PATIENCE_S)

    def _follow(self) -> None:
        consumer = confluent_kafka.Consumer({
            "bootstrap.servers": self.bootstrap, "group.id": "watch", "enable.auto.commit": False,
            "isolation.level": "read_committed", "auto.offset.reset": "error", "fetch.wait.max.ms": 50,
            "reconnect.backoff.max.ms": 500,
        })  # fmt: skip
        try:
            consumer.assign([confluent_kafka.TopicPartition(SINK, index, 0) for index in range(PARTITIONS)])
            while not self._over.is_set():
                for message in consumer.consume(1000, 0.1):
                    if (error := message.error()) is not None:
                        if not error.retriable():
                            raise confluent_kafka.KafkaException(error)
                        continue
                    self.seen.append(seen(message))
        except BaseException as error:
            self.failed = error
            raise
        finally:
            consumer.close()

    def wait_for(self, count: int) -> None:
        """Until so many records have come."""
        until = time.monotonic() + PATIENCE_S
        while len(self.seen) < count:
            assert self.failed is None, self.failed
            assert time.monotonic() < until, f"{len(self.seen)} of {count} records are seen"
            time.sleep(0.02)

    def check_once(self) -> None:
        """So far no record of the source came twice."""
        assert self.failed is None, self.failed
        places = [each.place for each in self.seen]
        assert len(places) == len(set(places)), "a record came twice"

    def check_whole(self, planned: dict[int, set[tuple[int, int]]]) -> None:
        """Of every batch that is seen all is seen; `planned` is what each has, by the checkpoint."""
        by_batch = defaultdict(set)
        for each in self.seen:
            by_batch[each.batch].add(each.place)
        for batch, places in by_batch.items():
            assert places == planned[batch], f"{len(places)} of {len(planned[batch])} records of batch {batch} are seen"


def planned(checkpoint: Path) -> dict[int, set[tuple[int, int]]]:
    """By batch, the places of the source's records that it has, for a query that began with the source's first."""
    logged = sorted(int(path.name) for path in (checkpoint / "offsets").glob("*") if path.name.isdigit())
    found: dict[int, set[tuple[int, int]]] = {}
    before: dict[int, int] = {}
    for batch in logged:
        (end,) = parsed((checkpoint / "offsets" / str(batch)).read_text().splitlines())
        ends = {index: offset for (_, index), offset in end.positions.items()}
        found[batch] = {(index, at) for index, end in ends.items() for at in range(before.get(index, 0), end)}
        before = ends
    return found


def marked(client: Client) -> int | None:
    """The last batch by its mark."""
    groups = [found.group_id for found in list_groups(client) if found.group_id.startswith("headrace-")]
    found = [place.offset for group in groups for place in fetch_offsets(client, group, [(SINK, 0)]).values()]
    return max(found, default=None)


def check(client: Client, matrix: Matrix, watch: Watch | None = None) -> None:
    """Every record of the source is in the sink once; nothing is open; the mark is right and the group has no lag.

    `watch` has seen all of it once, batches whole, and nothing besides: nothing that was aborted.
    """
    assert sorted(map(int, visible(client, SINK))) == list(range(matrix.written))
    assert settled_ends(client, SINK) == latest_offsets(client, SINK)
    assert matrix.finished() == latest_offsets(client, SOURCE)
    offsets, commits = matrix.logged()
    assert offsets == commits
    assert (mark := marked(client)) == max(commits), f"the mark is {mark} after batches {commits}"
    if watch is not None:
        watch.wait_for(matrix.written)
        watch.check_once()
        watch.check_whole(planned(matrix.checkpoint))
        assert sorted(each.value for each in watch.seen) == list(range(matrix.written))
