"""Planted faults in a cluster's DeleteRecords: only runs that delete can find them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from headrace.broker.coordinators.marker_sender import MarkerSender
from headrace.broker.partitions.record_deletions import RecordDeletions
from headrace.broker.partitions.replica import Replica
from headrace.env.completion import Completion
from headrace.log.offset_checkpoints import OffsetCheckpoints
from headrace.wire.errors import ErrorCode

Real = Callable[..., Any]


def _ignore_the_start(real: Real) -> Real:
    """A follower begins where it began."""

    def followed(self: Replica, high_watermark: int, _: int) -> None:
        real(self, high_watermark, 0)

    return followed


def _begin_before_it_is_committed(self: Replica) -> None:
    """A log that begins elsewhere begins with something of which nobody knows whether it is committed."""
    log = self.log
    self.state.begins_at(log.log_start_offset)
    self.cuts += 1
    self.state.truncated(log.end_offset, log.producers.unstable)
    self.touch()


def _delete_one_more(real: Real) -> Real:
    """What was asked for is the last record that goes."""

    def delete_before(self: Replica, offset: int) -> None:
        real(self, min(offset + 1, self.high_watermark))

    return delete_before


def _wait_for_nobody(deletions: RecordDeletions, replica: Replica, *_: object) -> Completion[ErrorCode]:
    """What the leader has deleted is gone."""
    completion: Completion[ErrorCode] = Completion(vars(deletions)["_completions"])
    completion.complete(replica.error)
    return completion


def _wait_for_what_is_gone(real: Real) -> Real:
    """A transaction is not over before all of its partitions hold its marker, whether they are there or not."""

    def queue(self: MarkerSender, delivery: Any, partitions: Iterable[tuple[str, int]]) -> Any:
        topics = vars(self)["_metadata"].image.topics
        there = [each for each in partitions if topics.partition(*each) is not None]
        if gone := {each for each in partitions if each not in there}:
            self._again(delivery, gone)
        return real(self, delivery, there)

    return queue


def _nothing(*_: object) -> None:
    """Done, it says."""


def deleting_plants() -> dict[str, list[tuple[Any, str, Any]]]:
    """By name: whose attributes, which, and what takes their place."""
    return {
        "begins-where-it-began": [(Replica, "followed", _ignore_the_start(Replica.followed))],
        "deletes-one-more": [(Replica, "delete_before", _delete_one_more(Replica.delete_before))],
        "begins-before-it-is-committed": [(Replica, "was_cut", _begin_before_it_is_committed)],
        "forgets-where-it-begins-in-a-stop": [(OffsetCheckpoints, "write_log_starts", _nothing)],
        "waits-for-partitions-that-are-gone": [
            (MarkerSender, "_queue", _wait_for_what_is_gone(vars(MarkerSender)["_queue"]))
        ],
        "deletes-on-the-leader-alone": [(RecordDeletions, "when_deleted", _wait_for_nobody)],
    }
