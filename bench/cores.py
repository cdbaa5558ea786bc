"""`make bench CORES=1`: what `headrace serve --brokers N` makes of more cores, over one broker under the same load.

python -m bench --cores [--brokers N]... [--rounds N] [--seconds S]

The same load generators run each time, one for each core of the machine, and are spread over the brokers: topics have
one replica, so that what is shared is the work. The load takes cores as well: where there are few, it is what is
measured.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from statistics import median
from typing import Any

from bench.__main__ import keep, number, result_file
from bench.cluster.nodes import wait_until
from bench.coordinator_rows import many_producers
from bench.link import Link
from bench.readers import Readers
from bench.rigs import DATA, Ours, run_python
from bench.wire_load import Load, batch_of
from bench.wire_rows import KB, MB, run_load
from headrace.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic

CONNECTIONS = 4
READERS = 6
PARTITIONS = 6


ONE_REPLICA = (
    "default.replication.factor=1",
    "min.insync.replicas=1",
    "offsets.topic.replication.factor=1",
    "transaction.state.log.replication.factor=1",
    "transaction.state.log.min.isr=1",
)


class Brokers(Ours):
    """So many brokers of one machine, as a user starts them; `ports` are theirs once they run."""

    def __init__(self, count: int) -> None:
        super().__init__(*ONE_REPLICA)
        self.count = count
        if count > 1:
            self.options = ("--brokers", str(count))
        self.ports: list[int] = []

    def start(self) -> float:
        """See `Ours`. Returns when the first of them knows of all."""
        spent = super().start()
        wait_until(self._know_all, "not every broker is there")
        return spent

    def _know_all(self) -> bool:
        with Link(self.port) as link:
            self.ports = sorted(each.port for each in link.ask(MetadataRequest(topics=[])).brokers)
        return len(self.ports) == self.count

    def topics(self, kind: str) -> list[tuple[int, str]]:
        """A topic of one partition on each broker, and the broker's port."""
        found: dict[int, str] = {}
        with Link(self.port) as link:
            for at in range(100):
                name = f"{kind}-{at}"
                link.create_topic(name)
                answer = link.ask(MetadataRequest(topics=[MetadataRequestTopic(name=name)]))
                ports = {each.node_id: each.port for each in answer.brokers}
                found.setdefault(ports[answer.topics[0].partitions[0].leader_id], name)
                if len(found) == self.count:
                    return sorted(found.items())
        raise RuntimeError(f"not every broker leads one of 100 topics: {found}")


def together(loads: int, load: Callable[[int], float]) -> float:
    """What so many loads come to that are put on at once; each is told its number."""
    with ThreadPoolExecutor(loads) as pool:
        return sum(pool.map(load, range(loads)))


def small_requests(brokers: Brokers, loads: int, seconds: float) -> float:
    """Thousands of requests of one record a second."""
    topics = brokers.topics("small")

    def load(at: int) -> float:
        port, name = topics[at % len(topics)]
        outcome = run_load(Load("produce", port, name, 0, 50, CONNECTIONS, seconds))
        return float(outcome["requests"] / outcome["seconds"] / 1000)

    return together(loads, load)


def fetches(brokers: Brokers, loads: int, seconds: float) -> float:
    """Megabytes a second of readers of 64 KB, six for each load."""
    topics = brokers.topics("fetched")
    ends = {}
    for port, name in topics:
        run_load(Load("produce", port, name, 64 * KB, 5, 1, seconds))
        with Link(port) as link:
            ends[port] = link.end_offset(name)
    _, records = batch_of(64 * KB)

    def load(at: int) -> float:
        port, name = topics[at % len(topics)]
        asked = Readers(port, name, 64 * KB, [ends[port]], READERS, 17, True, records, seconds)
        outcome: dict[str, Any] = json.loads(run_python("bench.readers", json.dumps(asdict(asked))))
        return float(outcome["bytes"] / outcome["seconds"] / MB)

    return together(loads, load)


def transactions(brokers: Brokers, loads: int, seconds: float) -> float:
    """Transactions a second of fifty producers for each load."""
    name = f"transactions-{time.monotonic_ns()}"
    with Link(brokers.port) as link:
        link.create_topic(name, PARTITIONS)

    def load(at: int) -> float:
        outcome = many_producers(brokers.ports[at % len(brokers.ports)], name, seconds / 2, seconds)
        return float(outcome["transactions"] / outcome["seconds"])

    return together(loads, load)


ROWS = (
    ("small", "produce, a record a request", "k req/s", small_requests),
    ("fetch-64k", "fetch of 64 KB in sessions", "MB/s", fetches),
    ("transactions", "transactions", "txn/s", transactions),
)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench --cores", description=__doc__.splitlines()[0] if __doc__ else "")
    cores = os.cpu_count() or 1
    parser.add_argument("--brokers", type=int, action="append", default=[], help="as many as there are cores")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    asked = parser.parse_args(argv)
    counts = [1, *(asked.brokers or [max(2, cores)])]
    values: dict[str, dict[int, list[float]]] = {key: {count: [] for count in counts} for key, *_ in ROWS}
    try:
        for _ in range(asked.rounds):
            for count in counts:
                brokers = Brokers(count)
                try:
                    brokers.start()
                    for key, _, _, measure in ROWS:
                        values[key][count].append(measure(brokers, cores, asked.seconds))
                finally:
                    brokers.stop()
                    brokers.clean()
    finally:
        shutil.rmtree(DATA, ignore_errors=True)
    path = result_file("cores-")
    lines = []
    for key, title, unit, _ in ROWS:
        medians = {count: median(found) for count, found in values[key].items()}
        lines.append({"row": key, "title": title, "unit": unit, "brokers": values[key]})
        told = "  ".join(f"{count}: {number(value)} ({value / medians[1]:.2f}x)" for count, value in medians.items())
        print(f"{title:32} {unit:8} {told}", flush=True)
    keep(path, {"loads": cores, "seconds": asked.seconds}, lines)
    print(f"kept in {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
