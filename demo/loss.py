"""Half-way through the replay the leader of the busiest partition is killed: what its clients see of that."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from demo.broker import DemoError

LOOK_EVERY_S: Final = 0.05
LOOK_PATIENCE_S: Final = 1.0
"""For so long a look waits for an answer. Where librdkafka has put its question to the broker that dies, it asks that
one again when it is back, some 5 s later; the next look asks another."""
IN_SYNC_PATIENCE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a partition is: its leader (-1 where it has none), its replicas, and those in sync."""

    leader: int
    replicas: frozenset[int]
    in_sync: frozenset[int]


def places(admin: AdminClient, topic: str) -> dict[int, Placed]:
    """Where the partitions of a topic are; empty where no broker answers."""
    try:
        found = admin.list_topics(topic, timeout=LOOK_PATIENCE_S).topics[topic].partitions
    except KafkaException:
        return {}
    return {
        number: Placed(each.leader, frozenset(each.replicas), frozenset(each.isrs)) for number, each in found.items()
    }


@dataclass(slots=True)
class LeaderLoss:
    """Kills a leader at `strike`, and measures from then on. `kills` is by node: SIGKILL to its process.

    `lines` may be read while it runs. `still_s` is the longest time without an acknowledgement of the partition since
    its leader was killed; `led_after_s` and `whole_after_s` are counted from then.
    """

    topic: str
    kills: Mapping[int, Callable[[], None]]
    find: Callable[[], dict[int, Placed]]
    clock: Callable[[], float] = time.monotonic
    node: int = 0
    partition: int = -1
    successor: int = 0
    struck_s: float = 0.0
    still_s: float = 0.0
    led_after_s: float = 0.0
    whole_after_s: float = 0.0
    failure: str = ""
    _acknowledged: Counter[int] = field(default_factory=Counter)
    _last_s: float = 0.0
    _watch: threading.Thread | None = None

    def acknowledged(self, partition: int) -> None:
        """A record of a partition was acknowledged."""
        self._acknowledged[partition] += 1
        if partition == self.partition:
            now = self.clock()
            self.still_s = max(self.still_s, now - self._last_s)
            self._last_s = now

    def strike(self) -> None:
        """Kills the leader of the partition with most records. Raises DemoError where there is none to kill."""
        partition, _ = self._acknowledged.most_common(1)[0]
        now = self.find().get(partition)
        if now is None or now.leader not in self.kills:
            raise DemoError(f"partition {self.topic}-{partition} has no leader that the demo could kill")
        self.node, self.partition = now.leader, partition
        self._last_s = self.struck_s = self.clock()
        self.kills[self.node]()
        self._watch = threading.Thread(target=self._follow, name="leader-loss", daemon=True)
        self._watch.start()

    def _follow(self) -> None:
        """Looks for the successor, and then until the node that was killed is in sync again."""
        while not self.whole_after_s:
            now = self.find().get(self.partition)  # which may wait for the next leader
            after_s = self.clock() - self.struck_s
            if now is not None and not self.successor and now.leader in self.kills and now.leader != self.node:
                self.successor, self.led_after_s = now.leader, after_s
            if now is not None and self.successor and now.in_sync == now.replicas:
                self.whole_after_s = after_s
            elif after_s > IN_SYNC_PATIENCE_S:
                self.failure = f"node {self.node} was not in sync again within {IN_SYNC_PATIENCE_S:.0f} s"
                return
            time.sleep(LOOK_EVERY_S)

    def wait(self) -> None:
        """Returns when all replicas are in sync again. Raises DemoError where they do not get there."""
        if self._watch is None:
            raise DemoError("the replay was over before a leader was killed")
        self._watch.join()
        if self.failure:
            raise DemoError(self.failure)

    @property
    def is_led_again(self) -> bool:
        """Whether the partition has another leader, and a write has been acknowledged since."""
        return bool(self.successor) and self._last_s > self.struck_s + self.led_after_s

    def lines(self) -> tuple[str, str]:
        """What happened, and what it cost; empty before it."""
        if not self.node:
            return "", ""
        what = f"node {self.node}, leader of {self.topic}-{self.partition}, was killed with SIGKILL"
        if not self.successor:
            return what, "no other leader yet"
        cost = f"node {self.successor} led after {self.led_after_s:.2f} s, writes stood still {self.still_s:.2f} s"
        return what, f"{cost}, in sync after {self.whole_after_s:.1f} s" if self.whole_after_s else cost


def loss_of(bootstrap: str, topic: str, processes: Mapping[int, int]) -> LeaderLoss:
    """A loss among running nodes; `processes` are those of the nodes, as files of processes (`os.pidfd_open`)."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "client.id": "demo-loss", "log_level": 0})

    def killing(process: int) -> Callable[[], None]:
        return lambda: signal.pidfd_send_signal(process, signal.SIGKILL)

    kills = {node: killing(process) for node, process in processes.items()}
    return LeaderLoss(topic, kills, lambda: places(admin, topic))
