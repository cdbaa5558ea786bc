"""One partition of `__transaction_state`: every decision about the transactional ids that hash to it.

A `machine.runtime.Shard`. Decisions are made upon the latest state, whether it is committed or not: the runtime holds
answers back until what they speak of is committed. `deciding` says what a request makes of an id; here it becomes
records and answers, and here the ends of transactions are driven to their completion.

    end decided (PREPARE) -> committed -> `markings` -> `marked` -> COMPLETE -> committed

Whatever of that is not known to have come true, because an append failed or its commit took too long, is looked at
again after `RETRY_MS`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from headrace.machine.batches import Pair
from headrace.machine.outcome import Outcome
from headrace.machine.timed_steps import TimedSteps
from headrace.machine.timeline import Timeline, TimelineTable
from headrace.machine.timers import TimerKey, Timers
from headrace.transactions import deciding, group_ends, records
from headrace.transactions.asks import (
    Described,
    End,
    Filters,
    FreshId,
    GroupEnd,
    GroupIdentity,
    GroupMember,
    Identity,
    InitProducer,
    Listed,
    Marking,
    Partitions,
    TransactionSettings,
    Verdicts,
)
from headrace.transactions.deciding import Step
from headrace.transactions.states import TransactionState
from headrace.transactions.transaction import NO_TIMEOUT_MS, Removed, Transaction, TransactionRecord
from headrace.wire.errors import ErrorCode

RETRY_MS: Final = 100
"""The delay before the end of a transaction is tried again whose record could not be appended, in ms."""

SENT_AT_ONCE: Final = 100
"""Transactions of a group whose markers leave in one turn of the loop."""

PreparedChildren: TypeAlias = list[group_ends.Prepared]

_TIMEOUTS: Final[TimerKey] = ("timeouts",)
_EXPIRY: Final[TimerKey] = ("expiry",)


def _again(transactional_id: str) -> TimerKey:
    return ("again", transactional_id)


@dataclass(slots=True, eq=False)
class _Ending:
    """The end of a transaction, from the commit of its decision to that of its completion: in memory alone."""

    prepared: Transaction
    marking: Marking
    is_marked: bool = False
    """Whether every partition holds the marker."""


class TransactionShard:
    """The transactions of one partition."""

    def __init__(
        self, settings: TransactionSettings, transaction_version: Callable[[], int], fresh_id: FreshId
    ) -> None:
        """`transaction_version` is the finalized feature's level."""
        self._settings = settings
        self._version = transaction_version
        self._fresh_id = fresh_id
        self.timeline = Timeline()
        self.markings: deque[Marking] = deque()
        """Ended transactions whose markers have to be sent: the marker sender takes them after every step.

        Bounded by the number of transactional ids: none has two.
        """
        self._transactions: TimelineTable[str, Transaction] = TimelineTable(self.timeline)
        self.to_send: deque[Transaction] = deque()
        """Those of groups that are to be among them: `send_some` takes a few. Bounded in the same way."""
        self.ended: deque[str] = deque()
        """Ids whose transactions are over, so that the next one may begin: taken after every step, as `markings` are,
        and bounded in the same way."""
        self._endings: dict[str, _Ending] = {}
        self._ongoing: dict[str, int] = {}
        """Of ids whose latest state is ONGOING: when the transaction times out, by the wall clock as it is set now."""
        self._overdue: deque[str] = deque()
        """Ids whose transactions have timed out, as of the last look; bounded by `_ongoing`."""
        self._timers = Timers()

    @property
    def transaction_count(self) -> int:
        """Transactional ids of this partition."""
        return len(self._transactions.latest)

    # --- requests ----------------------------------------------------------------------------------------------------

    def init_producer(self, ask: InitProducer, now_ms: int) -> Outcome:
        """Gives a transactional id's producer its id and epoch; replies an `Identity`."""
        error = deciding.refusal_of(ask, self._settings)
        if error:
            return Outcome(Identity(error))
        current = self._transactions.latest.get(ask.transactional_id)
        step = deciding.initialize(current, ask, self._version(), self._fresh_id, now_ms)
        return self._decided(step, current, step.error)

    def add_partitions(self, ask: Partitions, now_ms: int) -> Outcome:
        """Takes partitions into the transaction, which opens it; replies an ErrorCode."""
        if not ask.transactional_id:
            return Outcome(ErrorCode.INVALID_REQUEST)
        step = deciding.join(self._transactions.latest.get(ask.transactional_id), ask, now_ms)
        return Outcome(step.error, [] if step.record is None else [step.record])

    def verify_partitions(self, ask: Partitions) -> Outcome:
        """Whether partitions are in the open transaction; replies `Verdicts`."""
        if not ask.transactional_id:
            return Outcome(Verdicts(ErrorCode.INVALID_REQUEST, {}))
        return Outcome(deciding.verify(self._transactions.latest.get(ask.transactional_id), ask))

    def end(self, ask: End, now_ms: int) -> Outcome:
        """Decides a commit or an abort; replies an `Identity`."""
        if not ask.transactional_id:
            return Outcome(Identity(ErrorCode.INVALID_REQUEST))
        current = self._transactions.latest.get(ask.transactional_id)
        step = deciding.end(current, ask, self._fresh_id, now_ms)
        return self._decided(step, current, step.error)

    def prepare_group(self, children: Sequence[GroupMember], committed: bool, now_ms: int) -> PreparedChildren:
        """Finds out what an end makes of some children of a group, as they are now: of many a few at a time. Nothing
        is decided."""
        prepared: PreparedChildren = []
        for child in children:
            current = self._transactions.latest.get(child.transactional_id)
            made = group_ends.prepare(current, child, committed, self._fresh_id, now_ms)
            prepared.append(made if made.record is None else made._replace(pair=self.encode(made.record)))
        return prepared

    def end_group(self, ask: GroupEnd, now_ms: int, prepared: PreparedChildren | None = None) -> Outcome:
        """Decides the end of several transactions as one; replies a `GroupIdentity`. `prepared`: what this shard's
        `prepare_group` has found, of all children in order."""
        error = group_ends.refusal_of(ask, self._version())
        if error:
            return Outcome(GroupIdentity(error))
        step = group_ends.end_group(self._transactions.latest.get, ask, self._fresh_id, now_ms, prepared or ())
        reply = GroupIdentity(*_identity(step.error, step.main), step.children)
        if not step.records:
            return Outcome(reply)
        then = partial(self._all_prepared, step.records)
        return Outcome(reply, list(step.records), then=then, is_whole=True, encoded=step.pairs)

    def _decided(self, step: Step, current: Transaction | None, error: ErrorCode) -> Outcome:
        """An answer, with the state that it speaks of."""
        reply = _identity(error, step.record or current)
        if step.record is None:
            return Outcome(reply)
        then = partial(self._prepared, step.record) if step.record.state.is_prepared else None
        return Outcome(reply, [step.record], then=then)

    # --- the end of a transaction ------------------------------------------------------------------------------------

    def _prepared(self, record: Transaction, error: ErrorCode, now_ms: int) -> Outcome:
        """The decision to end a transaction is committed; or it is not known whether it ever will be."""
        assert record.state.is_prepared
        if not error:
            return self._send(record, now_ms)
        if self._transactions.latest.get(record.transactional_id) is record:
            self._look_again(record.transactional_id, now_ms)
        return Outcome()

    def _all_prepared(self, prepared: Sequence[Transaction], error: ErrorCode, now_ms: int) -> Outcome:
        """The same of a group, whose records are all committed, or none. Their markers leave a few at a time."""
        if not error:
            self.to_send.extend(prepared)
            return Outcome()
        for record in prepared:
            self._prepared(record, error, now_ms)
        return Outcome()

    def send_some(self, now_ms: int) -> bool:
        """Lets markers of some transactions leave whose end as a group is decided; says whether there are more."""
        for _ in range(min(len(self.to_send), SENT_AT_ONCE)):
            out = self._send(self.to_send.popleft(), now_ms)
            assert not out.records, "a transaction that is open has partitions"
        return bool(self.to_send)

    def _send(self, record: Transaction, now_ms: int) -> Outcome:
        """Markers leave from here; without partitions there is none to wait for."""
        assert record.state.is_prepared, "markers follow a decision"
        marking = Marking(
            record.transactional_id,
            record.producer_id,
            record.producer_epoch,
            record.state is TransactionState.PREPARE_COMMIT,
            record.version,
            set(record.partitions),
        )
        self._endings[record.transactional_id] = _Ending(record, marking)
        if not marking.left:
            return self.marked(marking, now_ms)
        self.markings.append(marking)
        return Outcome()

    def marked(self, marking: Marking, now_ms: int) -> Outcome:
        """Every partition of `marking` holds its marker: the transaction is over. Without a reply. Written again by
        the shard itself where it could not be appended."""
        ending = self._endings.get(marking.transactional_id)
        if ending is None or ending.marking is not marking:
            return Outcome()  # taken back, with the decision to end it
        ending.is_marked = True
        return self._complete(ending, now_ms)

    def _complete(self, ending: _Ending, now_ms: int) -> Outcome:
        assert ending.is_marked, "a transaction is over once every partition has its marker"
        completed = ending.prepared.completed(now_ms)
        self.ended.append(completed.transactional_id)
        return Outcome(records=[completed], then=partial(self._completed, ending))

    def _completed(self, ending: _Ending, error: ErrorCode, now_ms: int) -> Outcome:
        transactional_id = ending.prepared.transactional_id
        if self._endings.get(transactional_id) is ending:
            if error:
                self._look_again(transactional_id, now_ms)
            else:
                del self._endings[transactional_id]
        return Outcome()

    def _look_again(self, transactional_id: str, now_ms: int, after_ms: int = RETRY_MS) -> None:
        self._timers.schedule(_again(transactional_id), now_ms + after_ms)

    def _looked_again(self, transactional_id: str, now_ms: int) -> Outcome:
        """What became of an end that could not be written down, or was not committed in time."""
        latest = self._transactions.latest.get(transactional_id)
        committed = self._transactions.committed(transactional_id)
        ending = self._endings.get(transactional_id)
        if latest is not None and latest.state.is_prepared:
            if ending is not None and ending.prepared is latest:
                return self._complete(ending, now_ms) if ending.is_marked else Outcome()
            if committed is latest:
                return self._send(latest, now_ms)
            self._look_again(transactional_id, now_ms)
        elif ending is not None:
            if committed is ending.prepared:
                self._look_again(transactional_id, now_ms)
            else:
                del self._endings[transactional_id]
        return Outcome()

    # --- reads -------------------------------------------------------------------------------------------------------

    def describe(self, transactional_id: str) -> Described:
        """A transactional id as it is committed; while its markers are on their way, with the partitions left."""
        if not transactional_id:
            return Described(ErrorCode.INVALID_REQUEST)
        transaction = self._transactions.committed(transactional_id)
        if transaction is None:
            return Described(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        ending = self._endings.get(transactional_id)
        left = ending.marking.left if ending is not None and ending.prepared is transaction else transaction.partitions
        return Described(
            ErrorCode.NONE, transaction.state.label, transaction.timeout_ms, transaction.start_ms,
            transaction.producer_id, transaction.producer_epoch, tuple(sorted(left)),
        )  # fmt: skip

    def list_transactions(self, filters: Filters, now_ms: int) -> list[Listed]:
        """Transactional ids as they are committed."""
        return [
            Listed(transaction.transactional_id, transaction.producer_id, transaction.state.label)
            for _, transaction in sorted(self._transactions.committed_items())
            if _passes(transaction, filters, now_ms)
        ]

    # --- time --------------------------------------------------------------------------------------------------------

    def deadline_ms(self) -> int | None:
        """See Shard.deadline_ms."""
        return 0 if self._overdue else self._timers.deadline_ms()

    def due(self, now_ms: int) -> Outcome | None:
        """See Shard.due."""
        if self._overdue:
            return self._time_out(self._overdue.popleft(), now_ms)
        key = self._timers.due(now_ms)
        if key is None:
            return None
        if key == _TIMEOUTS:
            self._timers.schedule(_TIMEOUTS, now_ms + self._settings.timeout_check_interval_ms)
            self._overdue.extend(sorted(each for each, deadline_ms in self._ongoing.items() if deadline_ms < now_ms))
            return Outcome()
        if key == _EXPIRY:
            self._timers.schedule(_EXPIRY, now_ms + self._settings.expiry_check_interval_ms)
            return self._expire(now_ms)
        return self._looked_again(key[1], now_ms)

    def _time_out(self, transactional_id: str, now_ms: int) -> Outcome:
        if self._ongoing.get(transactional_id, now_ms) >= now_ms:
            return Outcome()  # it ended, or another one began, since
        current = self._transactions.latest[transactional_id]
        step = deciding.abort_alone(current, self._version(), self._fresh_id, now_ms)
        if step.record is None:
            return Outcome()  # no producer id at hand: at the next look
        out = Outcome(records=[step.record], then=partial(self._prepared, step.record))
        out.note(
            "transaction is open for too long, and is aborted",
            transactional_id=transactional_id,
            timeout_ms=current.timeout_ms,
        )
        return out

    def _expire(self, now_ms: int) -> Outcome:
        """Forgets ids without a transaction that nobody has used for long."""
        before_ms = now_ms - self._settings.id_expiration_ms
        gone = [
            Removed(each.transactional_id)
            for each in self._transactions.latest.values()
            if each.state.is_at_rest and each.updated_ms < before_ms
        ]
        return Outcome(records=list(gone), is_atomic=False)

    def clock_stepped(self, by_ms: int) -> None:
        """Moves the deadlines after the wall clock was set.

        The log keeps the original start; no timeout gets longer by it.
        """
        self._timers.shift(by_ms)
        for transactional_id in self._ongoing:
            self._ongoing[transactional_id] += by_ms

    # --- the log -----------------------------------------------------------------------------------------------------

    def encode(self, record: TransactionRecord) -> Pair:
        """See Shard.encode."""
        return records.encode(record, min(self._version(), 1))

    decode = staticmethod(records.decode)

    def apply(self, record: TransactionRecord, log_offset: int, producer_id: int = -1) -> None:
        """See Shard.apply."""
        if isinstance(record, Removed):
            self._transactions.remove(record.transactional_id)
        else:
            self._transactions.put(record.transactional_id, record)
        self._follow(record.transactional_id)

    def apply_marker(self, producer_id: int, committed: bool) -> None:
        """Nobody writes to this topic in a transaction: a marker here is without effect."""

    def _follow(self, transactional_id: str) -> None:
        """Keeps the deadlines: one is set when a transaction opens, and stays until it ends."""
        latest = self._transactions.latest.get(transactional_id)
        if latest is None or latest.state is not TransactionState.ONGOING:
            self._ongoing.pop(transactional_id, None)
        elif transactional_id not in self._ongoing and latest.timeout_ms != NO_TIMEOUT_MS:
            self._ongoing[transactional_id] = latest.start_ms + latest.timeout_ms

    # --- loading and unloading ---------------------------------------------------------------------------------------

    def starting(self, now_ms: int) -> TimedSteps[Outcome]:
        """Drives transactions on whose end is decided: see Shard.starting. One that began later than it is now was
        opened while a clock was wrong: it begins now."""
        for transactional_id, latest in list(self._transactions.latest.items()):
            now_ms = yield 1
            if transactional_id in self._ongoing:
                deadline_ms = self._ongoing[transactional_id]
                self._ongoing[transactional_id] = min(deadline_ms, now_ms + latest.timeout_ms)
            if latest.state.is_prepared:
                self._look_again(transactional_id, now_ms, 0)
        self._timers.schedule(_TIMEOUTS, now_ms + self._settings.timeout_check_interval_ms)
        self._timers.schedule(_EXPIRY, now_ms + self._settings.expiry_check_interval_ms)
        return Outcome()

    def revert(self, now_ms: int) -> Outcome:
        """See Shard.revert. An end or a completion that is lost is looked at again: its `then` hears of the loss."""
        touched = self._transactions.uncommitted()
        self.timeline.revert()
        for transactional_id in touched:
            self._follow(transactional_id)
        return Outcome()

    def unload(self, now_ms: int) -> Outcome:
        """See Shard.unload. Nobody waits here."""
        self.markings.clear()
        self.to_send.clear()
        self.ended.clear()
        return Outcome()


def _identity(error: ErrorCode, transaction: Transaction | None) -> Identity:
    """Returns the producer's id and epoch from now on: the next id if a prepared transaction moves to it."""
    if error or transaction is None:
        return Identity(error)
    if transaction.state.is_prepared and transaction.next_producer_id >= 0:
        return Identity(error, transaction.next_producer_id, 0)
    return Identity(error, transaction.producer_id, transaction.producer_epoch)


def _passes(transaction: Transaction, filters: Filters, now_ms: int) -> bool:
    return (
        (not filters.states or transaction.state.label in filters.states)
        and (not filters.producer_ids or transaction.producer_id in filters.producer_ids)
        and (filters.longer_than_ms < 0 or now_ms - transaction.start_ms > filters.longer_than_ms)
        and (filters.matches is None or filters.matches(transaction.transactional_id))
    )
