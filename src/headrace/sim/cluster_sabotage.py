"""Planted faults in the replication, the elections and the membership of a cluster.

Some are left out because no client can notice them: a high watermark that is not checkpointed (logs are compared by
their epochs, and the next leader finds it again from its followers' fetches), and stale metadata that are replayed
(within one process they come in order). A leader that only ignores the epochs of its followers does no harm either: a
follower also names the epoch of its last record, and its log is a prefix of that leader's or is truncated.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from headrace.broker.partitions.fetch_loop import FetchLoop
from headrace.broker.partitions.opening import Opener
from headrace.broker.partitions.replica import Replica
from headrace.broker.quorum.images import Images
from headrace.broker.quorum.membership.controller_tasks import ControllerTasks
from headrace.controller import in_sync, partition_changes
from headrace.controller.sessions import BrokerSessions
from headrace.env.completion import Completion
from headrace.log.epochs import LeaderEpochs
from headrace.log.log import Log
from headrace.log.manager import LogManager
from headrace.log.reader import LogReader
from headrace.replicas.fetcher import Fetcher, FetchState, PartitionAnswer, Step
from headrace.replicas.partition import PartitionState, Role
from headrace.wire.errors import ErrorCode

Real = Callable[..., Any]


def _nothing(*_: object) -> None:
    """Done, it says."""


def _acknowledge_at_once(
    self: Replica, _offset: int, _needs_all: bool, completion: Completion[ErrorCode], _deadline: float
) -> bool:
    completion.complete(self.error)
    return False


def _move_alone(self: PartitionState, *_: int) -> bool:
    """Counts the leader's log alone, whichever replicas have it."""
    if self.log_end <= self.high_watermark:
        return False
    self._commit(self.log_end)
    return True


def _committed_end(replica: Replica) -> int:
    """Where Kafka cut a follower's log before KIP-101."""
    return min(replica.high_watermark, replica.log.end_offset)


def _never_diverges(real: Real) -> Real:
    def heard(self: Fetcher, key: Any, answer: PartitionAnswer, now_ms: int) -> tuple[Step, Any]:
        found: tuple[Step, Any] = real(self, key, answer._replace(diverging=None), now_ms)
        return found

    return heard


def _read_all(real: Real) -> Real:
    def read(self: LogReader, offset: int, **given: Any) -> Any:
        return real(self, offset, **given | {"max_offset": sys.maxsize})

    return read


def _assign_some(real: Real) -> Real:
    """Of every second epoch the start is lost."""

    def assign(self: LeaderEpochs, epoch: int, first_offset: int) -> None:
        if epoch % 2 == 0:
            real(self, epoch, first_offset)

    return assign


def _elect_anyone(self: Any) -> tuple[int, bool]:
    for replica in (self.old.leader, *self.replicas):
        if replica in self.replicas and self._may_lead(replica):
            if replica not in self.isr:
                self.isr = [replica]
            return replica, False
    return -1, False


def _forget_producers(real: Real) -> Real:
    """Who followed knows nothing of producers when it comes to lead."""

    def become_leader(self: Replica, partition: Any) -> bool:
        if self.state.role is not Role.LEADER:
            self.log.producers.clear()
        found: bool = real(self, partition)
        return found

    return become_leader


async def _sync_nothing(_: FetchLoop) -> None:
    """It is on disk, it says."""


def _nobody(*_: object) -> list[Any]:
    return []


def _append_whatever_comes(self: Fetcher, key: Any, answer: PartitionAnswer, now_ms: int) -> tuple[Step, Any]:
    """Whatever was asked for, and of whom."""
    followed = self.partitions.get(key)
    if followed is None or followed.state is not FetchState.FETCHING:
        return Step.NOTHING, None
    if answer.error or answer.diverging is not None:
        self.wait(followed, now_ms)
        return Step.NOTHING, None
    return Step.APPEND, followed


def _acknowledge_the_rest(real: Real) -> Real:
    """Answers the waiting requests of a deposed leader with success."""

    def refuse_waiting(self: Replica, error: ErrorCode) -> None:
        real(self, ErrorCode.NONE if error is ErrorCode.NOT_LEADER_OR_FOLLOWER else error)

    return refuse_waiting


def _apply_all(real: Real) -> Real:
    """What the log has is as good as committed."""

    def more(self: Images) -> Any:
        if self.deciding_epoch is None:
            self.committed = self._log.end_offset
        return real(self)

    return more


def _any_life(real: Real) -> Real:
    """A folder of that name is as good as another."""

    def get_or_create(self: LogManager, topic: str, partition: int, _topic_id: bytes, *given: Any, **named: Any) -> Log:
        found: Log = real(self, topic, partition, bytes(16), *given, **named)
        return found

    return get_or_create


def cluster_plants() -> dict[str, list[tuple[Any, str, Any]]]:
    """By name: whose attributes, which, and what takes their place."""
    return {
        "acknowledges-before-others-have-it": [(Replica, "wait", _acknowledge_at_once)],
        "counts-the-leader-alone": [(PartitionState, "_move", _move_alone)],
        "lets-laggards-join": [
            (PartitionState, "_may_join", lambda self, node_id, follower: self._is_eligible(node_id, follower))
        ],
        "takes-fenced-brokers-in": [
            (PartitionState, "_is_eligible", lambda *_: True),
            (in_sync, "_is_eligible", lambda *_: True),
        ],
        "never-shrinks": [(PartitionState, "shrink", _nothing)],
        "cuts-to-the-high-watermark": [(FetchLoop, "_kept_end", staticmethod(_committed_end))],
        "never-cuts": [(Fetcher, "heard", _never_diverges(Fetcher.heard))],
        "loses-starts-of-epochs": [(LeaderEpochs, "assign", _assign_some(LeaderEpochs.assign))],
        "appends-late-answers": [(Fetcher, "heard", _append_whatever_comes)],
        "serves-what-is-not-committed": [(LogReader, "read", _read_all(LogReader.read))],
        "acknowledges-when-deposed": [(Replica, "refuse_waiting", _acknowledge_the_rest(Replica.refuse_waiting))],
        "forgets-producers-of-others": [(Replica, "become_leader", _forget_producers(Replica.become_leader))],
        "reports-before-its-sync": [(FetchLoop, "_sync", _sync_nothing)],
        "elects-whoever-is-there": [(vars(partition_changes)["_Draft"], "_elect", _elect_anyone)],
        "never-fences": [(BrokerSessions, "expired", _nobody), (ControllerTasks, "suspect", _nothing)],
        "forgets-who-is-being-added": [(PartitionState, "maximal_isr", property(lambda self: self.isr))],
        "commits-with-too-few-in-sync": [
            (PartitionState, "is_under_min_isr", lambda *_: False),
            (Replica, "_enough", lambda _: ErrorCode.NONE),
        ],
        "ignores-leader-epochs": [(PartitionState, "check_epoch", lambda *_: ErrorCode.NONE)],
        "applies-what-is-not-committed": [(Images, "more", _apply_all(Images.more))],
        "takes-a-reborn-topic-for-the-old": [
            (LogManager, "get_or_create", _any_life(LogManager.get_or_create)),
            (Opener, "delete", _nothing),
        ],
    }
