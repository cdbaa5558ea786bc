"""Planted faults in transactions: in coordinators, markers, leaders and readers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from headrace.broker.coordinators.marker_sender import MarkerSender
from headrace.broker.coordinators.verifier import PartitionErrors, Verifier
from headrace.groups import offsets
from headrace.log.producers import Producers
from headrace.log.reader import LogReader
from headrace.machine.outcome import Outcome
from headrace.machine.timed_steps import TimedSteps
from headrace.transactions import deciding, group_ends
from headrace.transactions.asks import Marking, Partitions
from headrace.transactions.deciding import Step
from headrace.transactions.shard import TransactionShard
from headrace.transactions.transaction import Transaction
from headrace.wire.errors import ErrorCode

Real = Callable[..., Any]


def _answer_before_it_is_committed(real: Real) -> Real:
    """A producer hears of the end before it is sure to come."""

    def decided(self: TransactionShard, step: Step, *given: Any) -> Outcome:
        out: Outcome = real(self, step, *given)
        if step.record is None or not step.record.state.is_prepared or step.error:
            return out
        return Outcome(out.reply, then=lambda *_: Outcome(records=out.records, then=out.then))

    return decided


def _send_before_it_is_committed(real: Real) -> Real:
    """Markers leave as soon as an end is decided."""

    def decided(self: TransactionShard, step: Step, current: Transaction | None, error: ErrorCode) -> Outcome:
        out: Outcome = real(self, step, current, error)
        if step.record is None or not step.record.state.is_prepared:
            return out
        vars(TransactionShard)["_send"](self, step.record, step.record.updated_ms)
        return Outcome(out.reply, out.records)

    return decided


def _takes(*_: object, **__: object) -> None:
    """Nothing is wrong with it."""


def _counts_at_once(real: Real) -> Real:
    """An offset of a transaction counts before its marker."""

    def hold(shard: Any, producer_id: int, record: Any) -> None:
        real(shard, producer_id, record)
        offsets.end_transaction(shard, producer_id, True)

    return hold


def _forget_what_was_decided(self: TransactionShard, now_ms: int) -> TimedSteps[Outcome]:
    """A new coordinator begins with what comes."""
    now_ms = yield 1
    self._timers.schedule(("timeouts",), now_ms + self._settings.timeout_check_interval_ms)
    return Outcome()


def _time_out_without_a_raise(current: Transaction, _version: int, _fresh: Any, now_ms: int) -> Step:
    """The producer of a transaction that timed out may go on."""
    prepared = current.prepared(False, 0, -1, now_ms)
    return Step(ErrorCode.NONE, prepared)


def _keep_the_last_partitions(real: Real) -> Real:
    def joined(self: Transaction, partitions: Any, *given: Any) -> Transaction:
        found: Transaction = real(self, partitions, *given)
        return found._replace(partitions=partitions)

    return joined


def _send_once(self: MarkerSender, delivery: Any, partitions: set[Any]) -> None:
    """A partition that did not take its marker is not asked again."""
    delivery.marking.left.difference_update(partitions)
    self._look(delivery)


def _commit_all(real: Real) -> Real:
    """Every third end is the other one."""
    count = 0

    def send(self: MarkerSender, origin: Any, marking: Marking, *given: Any) -> None:
        nonlocal count
        count += 1
        if count % 3 == 0:
            marking.committed = not marking.committed
        real(self, origin, marking, *given)

    return send


def _believe_all(_self: Verifier, ask: Partitions, **_: bool) -> PartitionErrors:
    """Takes every writer for one with an open transaction."""
    return dict.fromkeys(ask.partitions, ErrorCode.NONE)


def _no_aborted(*_: object, **__: object) -> Iterable[Any]:
    return []


def _let_two_live(real: Real) -> Real:
    """Leaves the epoch as it is when a producer restarts."""

    def initialize(current: Transaction | None, *given: Any) -> Step:
        if current is not None and current.state.is_at_rest:
            return Step(ErrorCode.NONE, current._replace())
        step: Step = real(current, *given)
        return step

    return initialize


def _end_what_is_left(real: Real) -> Real:
    """Of a group those are ended that can be."""

    def prepare(*given: Any) -> group_ends.Prepared:
        prepared: group_ends.Prepared = real(*given)
        return prepared._replace(error=ErrorCode.NONE)

    return prepare


def _end_one_by_one(real: Real) -> Real:
    """A group is decided in two appends: the main id's first, and the answer leaves with that."""

    def end_group(self: TransactionShard, *given: Any) -> Outcome:
        out: Outcome = real(self, *given)
        if not out.records:
            return out
        main, *rest = out.records
        return Outcome(out.reply, [main], then=lambda *_: Outcome(records=rest, then=out.then))

    return end_group


def group_plants() -> dict[str, list[tuple[Any, str, Any]]]:
    """The same as `transaction_plants`, of what only groups of transactions meet."""
    return {
        "ends-whoever-is-left-of-a-group": [(group_ends, "prepare", _end_what_is_left(group_ends.prepare))],
        "ends-a-group-one-by-one": [(TransactionShard, "end_group", _end_one_by_one(TransactionShard.end_group))],
    }


def transaction_plants() -> dict[str, list[tuple[Any, str, Any]]]:
    """By name: whose attributes, which, and what takes their place."""
    decided = vars(TransactionShard)["_decided"]
    return {
        "answers-what-is-not-committed": [(TransactionShard, "_decided", _answer_before_it_is_committed(decided))],
        "sends-markers-too-early": [(TransactionShard, "_decided", _send_before_it_is_committed(decided))],
        "takes-any-marker": [(Producers, "check_marker", _takes)],
        "takes-a-batch-after-its-marker": [(Producers, "check_guard", _takes)],
        "counts-offsets-at-once": [(offsets, "hold", _counts_at_once(offsets.hold))],
        "forgets-ends-when-it-loads": [(TransactionShard, "starting", _forget_what_was_decided)],
        "times-out-without-a-raise": [(deciding, "abort_alone", _time_out_without_a_raise)],
        "keeps-the-last-partitions": [(Transaction, "joined", _keep_the_last_partitions(Transaction.joined))],
        "sends-a-marker-once": [(MarkerSender, "_again", _send_once)],
        "ends-some-the-other-way": [(MarkerSender, "send", _commit_all(MarkerSender.send))],
        "believes-whoever-writes": [(Verifier, "join", _believe_all)],
        "names-no-aborted": [(LogReader, "aborted_transactions", _no_aborted)],
        "lets-two-live": [(deciding, "initialize", _let_two_live(deciding.initialize))],
    }
