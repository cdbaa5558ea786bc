"""A group of many members of the consumer protocol (KIP-848), each on a connection of its own, all in one process.

A member does what a client does: it joins, sends a heartbeat at the interval that the broker tells, and one at once
when what it owns has changed, which says what it owns now. It gives up what is taken from it before it says so. A
thousand members cost this load 0.7 s of CPU from the start of the process until the last has left.

    python -m bench.group_load '{"port": 9092, "topic": "t", "members": 1000, ...}'    prints one line of JSON
"""

from __future__ import annotations

import heapq
import json
import select
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from bench.link import Link, topic_id_of
from bench.transaction_load import Channel
from headrace.wire.frame import RequestHeader, decode_response_header, encode_request
from headrace.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from headrace.wire.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tests.peers.kafka import cpu_s

HEARTBEAT, HEARTBEAT_VERSION = 68, 1
OF_GROUPS = 0
"""The kind of key by which FindCoordinator looks for a coordinator of groups."""
NOT_YET = (14, 15, 16)
"""Error codes of a coordinator that is not ready: it loads, there is none, it has moved."""
RETRY_S = 0.1
PATIENCE_S = 180.0
REBALANCE_TIMEOUT_MS = 60_000
LEAVES = -1
"""The epoch with which a member leaves."""


@dataclass
class Group:
    """What to do. `pids`: the processes whose CPU is counted. A group of which none leaves is a warm-up."""

    port: int
    topic: str
    partitions: int = 1000
    members: int = 1000
    pids: list[int] = field(default_factory=list)
    leaves: bool = True


@dataclass
class Outcome:
    """What came of it: seconds from the first heartbeat until all own exactly their share, and what it took.

    `left_s`: seconds from one member's leaving until all is owned again; `moved`: partitions that were given up
    then, by the one that left or by others.
    """

    seconds: float = 0.0
    cpu_s: float = 0.0
    heartbeats: int = 0
    left_s: float = 0.0
    moved: int = 0
    load_cpu_s: float = 0.0


class Member:
    """One member, from its join until it leaves."""

    def __init__(self, load: Load, number: int, port: int) -> None:
        self.load = load
        self.number = number
        self.name = f"member-{number}-{time.monotonic_ns()}"
        self.channel = Channel(port)
        self.epoch = 0
        self.owned: frozenset[int] = frozenset()
        self.changed = False
        self.gone = False

    def heartbeat(self) -> None:
        """Joins with all that there is to say; later says what has changed."""
        load = self.load
        body = ConsumerGroupHeartbeatRequest(group_id=load.group, member_id=self.name, member_epoch=self.epoch)
        if self.epoch == 0:
            body.subscribed_topic_names = [load.asked.topic]
            body.rebalance_timeout_ms = REBALANCE_TIMEOUT_MS
            body.topic_partitions = []
        elif self.changed:
            body.topic_partitions = [TopicPartitions(load.topic_id, sorted(self.owned))] if self.owned else []
        self.changed = False
        self.ask(body, self.answered)

    def ask(self, body: ConsumerGroupHeartbeatRequest, answered: Callable[[bytes], None]) -> None:
        self.load.heartbeats += 1
        self.channel.ask(encode_request(RequestHeader(HEARTBEAT, HEARTBEAT_VERSION, 7, self.name), body), answered)

    def answered(self, frame: bytes) -> None:
        answer = read_answer(frame)
        if answer.error_code in NOT_YET:
            self.load.at(time.perf_counter() + RETRY_S, self)
            return
        assert answer.error_code == 0, f"{self.name}: error {answer.error_code} {answer.error_message}"
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            told = answer.assignment.topic_partitions
            self.take(frozenset(index for each in told for index in each.partitions))
        if self.gone:
            return
        if self.changed:
            self.heartbeat()
        else:
            self.load.at(time.perf_counter() + answer.heartbeat_interval_ms / 1000, self)

    def take(self, assigned: frozenset[int]) -> None:
        """Gives up what is assigned no more, and takes what is."""
        if assigned != self.owned:
            self.load.changes(self, self.owned - assigned, assigned - self.owned)
            self.owned = assigned
            self.changed = True

    def leave(self) -> None:
        """Gives all up and goes; no heartbeat of it is on its way."""
        self.gone = True
        self.load.changes(self, self.owned, frozenset())
        self.owned = frozenset()
        asked = ConsumerGroupHeartbeatRequest(group_id=self.load.group, member_id=self.name, member_epoch=LEAVES)
        self.ask(asked, self.left)

    def left(self, frame: bytes) -> None:
        code = read_answer(frame).error_code
        assert code == 0, f"{self.name}: error {code} to its leaving"
        self.load.leaving -= 1


class Load:
    """All members on one poll, and who owns what."""

    def __init__(self, asked: Group) -> None:
        self.asked = asked
        self.group = f"group-{time.monotonic_ns()}"
        self.topic_id = topic_id_of(asked.port, asked.topic)
        port = coordinator_port(asked.port, self.group)
        self.members = [Member(self, number, port) for number in range(asked.members)]
        self.owner: dict[int, int] = {}
        self.counts = [0] * asked.members
        self.staying = asked.members
        self.short = asked.members
        """Members that own fewer or more than their share."""
        self.given_up: set[int] = set()
        self.heartbeats = 0
        self.leaving = 0
        self.due: list[tuple[float, int]] = []
        self.poller = select.epoll()
        self.by_number = {member.channel.link.fileno(): member for member in self.members}
        for number in self.by_number:
            self.poller.register(number, select.EPOLLIN)

    def share(self) -> range:
        """How many partitions a member may own when all own their share."""
        least, more = divmod(self.asked.partitions, self.staying)
        return range(least, least + (2 if more else 1))

    def at(self, when: float, member: Member) -> None:
        heapq.heappush(self.due, (when, member.number))

    def changes(self, member: Member, less: frozenset[int], more: frozenset[int]) -> None:
        """A member gives up and takes. No two may own a partition at once."""
        for index in less:
            del self.owner[index]
        for index in more:
            assert index not in self.owner, f"partition {index} has two owners"
            self.owner[index] = member.number
        self.given_up |= less
        share = self.share()
        was = self.counts[member.number] in share
        self.counts[member.number] += len(more) - len(less)
        self.short += was - (self.counts[member.number] in share)

    def all_own(self) -> bool:
        return not self.short and len(self.owner) == self.asked.partitions

    def run_until(self, over: Callable[[], bool]) -> None:
        """Answers and heartbeats as they come due. Raises AssertionError where it takes too long."""
        deadline = time.perf_counter() + PATIENCE_S
        while not over():
            now = time.perf_counter()
            assert now < deadline, f"{len(self.owner)} partitions have owners, {self.short} members lack their share"
            while self.due and self.due[0][0] <= now:
                member = self.members[heapq.heappop(self.due)[1]]
                if not member.gone:
                    member.heartbeat()
            pause = min(RETRY_S, max(0.0, self.due[0][0] - now)) if self.due else RETRY_S
            for number, _ in self.poller.poll(pause):
                self.by_number[number].channel.readable()
                if over():
                    return

    def cpu_s(self) -> float:
        return sum(map(cpu_s, self.asked.pids))

    def join(self) -> Outcome:
        """All members join at once."""
        used, before = self.cpu_s(), time.perf_counter()
        for member in self.members:
            member.heartbeat()
        self.run_until(self.all_own)
        spent = time.perf_counter() - before
        return Outcome(spent, self.cpu_s() - used, self.heartbeats)

    def one_leaves(self, outcome: Outcome) -> None:
        """The last member leaves; the others go on until all is owned again, and for a heartbeat of each more: what
        moves later counts as well."""
        leaver = self.members[-1]
        self.run_until(lambda: leaver.channel.answered is None)
        self.given_up.clear()
        before = time.perf_counter()
        self.staying -= 1
        self.leave(leaver)
        share = self.share()
        self.short = sum(count not in share for count in self.counts[:-1])
        self.run_until(lambda: not self.leaving and self.all_own())
        outcome.left_s = time.perf_counter() - before
        heard = self.heartbeats + self.staying
        self.run_until(lambda: self.heartbeats >= heard)
        self.run_until(self.all_own)
        outcome.moved = len(self.given_up)

    def leave(self, member: Member) -> None:
        self.leaving += 1
        member.leave()

    def end(self) -> None:
        """All leave: a group that is left behind would cost the broker until its sessions end."""
        self.due.clear()
        self.run_until(lambda: all(member.channel.answered is None for member in self.members))
        for member in self.members:
            if not member.gone:
                self.leave(member)
        self.run_until(lambda: not self.leaving)


def read_answer(frame: bytes) -> ConsumerGroupHeartbeatResponse:
    _, at = decode_response_header(frame, HEARTBEAT, HEARTBEAT_VERSION)
    return ConsumerGroupHeartbeatResponse.decode(frame, HEARTBEAT_VERSION, at)


def coordinator_port(port: int, group: str) -> int:
    """Where the coordinator of a group is, when there is one."""
    deadline = time.monotonic() + PATIENCE_S
    with Link(port) as link:
        while True:
            found = link.ask(FindCoordinatorRequest(key_type=OF_GROUPS, coordinator_keys=[group])).coordinators[0]
            if found.error_code == 0:
                return int(found.port)
            code = found.error_code
            assert code in NOT_YET and time.monotonic() < deadline, f"{group}: error {code}"
            time.sleep(RETRY_S)


def main(argument: str) -> int:
    asked: dict[str, Any] = json.loads(argument)
    load = Load(Group(**asked))
    outcome = load.join()
    if load.asked.leaves:
        load.one_leaves(outcome)
    load.end()
    outcome.load_cpu_s = time.process_time()
    print(json.dumps(asdict(outcome)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
