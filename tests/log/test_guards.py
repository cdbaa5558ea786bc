"""What a transactional batch presents when it is appended: an open transaction, or the guard that it has claimed."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from peers.tried import tried

from headrace.config.topic import TopicConfig
from headrace.env.posix import PosixFile
from headrace.log.append_results import AppendResult
from headrace.log.guards import Guard, Guards
from headrace.log.log import Log
from headrace.log.producers import Origin, Producers, Refusal
from headrace.log.validate import Accepted, check_client_batch
from headrace.wire.errors import ErrorCode
from headrace.wire.markers import EndMarker, build_marker

NOW_MS = 1_700_000_000_000
NONE, LATE = ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH
NOT_VERIFIED, OUT_OF_ORDER = ErrorCode.INVALID_TXN_STATE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
PRODUCER = 1
OWN, OTHER = "own", "other"
"""Transactional ids: the producer's, and one whose coordinator will say that the producer is another's."""
Open = Callable[..., Log]


def claim(log: Log, epoch: int, sequence: int = 0, *, raises: bool = True, transactional_id: str = OWN) -> Guard:
    claimed = log.producers.claim(
        PRODUCER, epoch, sequence, log.end_offset, transactional_id=transactional_id, raises=raises, now_ms=NOW_MS
    )
    assert isinstance(claimed, Guard)
    return claimed


@pytest.fixture
def send(make_batch: Callable[..., bytes], defaults: TopicConfig) -> Callable[..., AppendResult]:
    """Appends a transactional batch that presents a guard."""

    def send_it(log: Log, epoch: int, sequence: int, guard: Guard | None) -> AppendResult:
        fields: dict[str, Any] = {"producer_id": PRODUCER, "producer_epoch": epoch, "base_sequence": sequence}
        checked = check_client_batch(make_batch(b"t", transactional=True, **fields), defaults, log.name, NOW_MS)
        assert isinstance(checked, Accepted)
        checked.guard = guard
        return log.writer.append(checked, leader_epoch=0, now_ms=NOW_MS)

    return send_it


Send = Callable[..., AppendResult]


def end(log: Log, epoch: int, *, raises: bool = True) -> None:
    batch = build_marker(EndMarker(PRODUCER, epoch, 0, False), NOW_MS)
    origin: Origin = "raising marker" if raises else "marker"
    assert not log.writer.append(batch, leader_epoch=0, now_ms=NOW_MS, origin=origin).error


def test_the_first_batch_presents_its_guard_and_the_next_ones_the_open_transaction(open_at: Open, send: Send) -> None:
    log = open_at()
    guard = claim(log, 0)
    assert guard.first_offset < 0 and claim(log, 0, 1) is guard
    assert send(log, 0, 0, guard).error is NONE
    opened = claim(log, 0, 1)
    assert opened.first_offset == 0
    assert send(log, 0, 1, opened).error is NONE
    assert send(log, 0, 2, guard).error is NONE, "whoever waited for the same answer finds it open"


def test_an_abort_between_the_answer_and_the_append_is_noticed(open_at: Open, send: Send) -> None:
    """And so is a transaction that begins after it: what was answered is about another one."""
    log = open_at()
    stale = claim(log, 0, raises=False)
    end(log, 0, raises=False)
    assert send(log, 0, 0, stale).error is NOT_VERIFIED
    fresh = claim(log, 0, raises=False)
    assert fresh is not stale
    assert send(log, 0, 0, stale).error is NOT_VERIFIED
    assert send(log, 0, 0, fresh).error is NONE
    assert send(log, 0, 1, stale).error is NOT_VERIFIED, "though one is open"


def test_it_is_noticed_where_ends_raise_the_epoch(open_at: Open, send: Send) -> None:
    log = open_at()
    stale = claim(log, 0)
    end(log, 1)
    assert send(log, 0, 0, stale).error is NOT_VERIFIED
    assert send(log, 1, 0, stale).error is NOT_VERIFIED
    assert send(log, 1, 0, claim(log, 1)).error is NONE


def test_the_end_of_the_transaction_before_leaves_the_guard_of_the_next_one(open_at: Open, send: Send) -> None:
    """KIP-890: the marker carries the epoch that the next transaction begins with."""
    log = open_at()
    assert send(log, 0, 0, claim(log, 0)).error is NONE
    guard = claim(log, 1)
    end(log, 1)
    assert send(log, 1, 0, guard).error is NONE


def test_a_transaction_that_ends_while_a_batch_is_opened_takes_it_no_more(open_at: Open, send: Send) -> None:
    log = open_at()
    send(log, 0, 0, claim(log, 0, raises=False))
    opened = claim(log, 0, 1, raises=False)
    end(log, 0, raises=False)
    assert send(log, 0, 1, opened).error is NOT_VERIFIED
    assert send(log, 0, 1, claim(log, 0, 1, raises=False)).error is NONE
    assert send(log, 0, 2, opened).error is NOT_VERIFIED, "another one is open"


def test_a_producer_that_another_has_replaced_claims_nothing(open_at: Open, send: Send) -> None:
    log = open_at()
    send(log, 3, 0, claim(log, 3))
    assert claim(log, 4).first_offset < 0, "an open transaction of another epoch is not its own"
    refused = log.producers.claim(PRODUCER, 2, 0, 1, transactional_id=OWN, raises=True, now_ms=NOW_MS)
    assert isinstance(refused, Refusal) and refused.error is LATE
    log.producers.claim(2, 5, 0, 1, transactional_id=OWN, raises=True, now_ms=NOW_MS)
    refused = log.producers.claim(2, 4, 0, 1, transactional_id=OWN, raises=True, now_ms=NOW_MS)
    assert isinstance(refused, Refusal) and refused.error is LATE, "a newer one waits"


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("epoch", [3, 32_767])
def test_a_claim_by_another_transactional_id_stands_in_nobodys_way(
    open_at: Open, send: Send, epoch: int, is_first: bool
) -> None:
    log = open_at()
    if is_first:
        forged = claim(log, epoch, transactional_id=OTHER)
    guard = claim(log, 3, 7, raises=False)
    if not is_first:
        forged = claim(log, epoch, transactional_id=OTHER)
    assert forged is not guard and not guard.raises
    assert send(log, 3, 7, guard).error is NONE
    assert len(log.producers.guards or ()) == 0, "nothing is left of the other one either"


def test_nothing_behind_the_first_batch_that_waits_begins_the_transaction(open_at: Open, send: Send) -> None:
    log = open_at()
    end(log, 0, raises=False)
    log.producers.clear()
    guard = claim(log, 0, 4, raises=False)
    claim(log, 0, 2, raises=False)
    assert send(log, 0, 4, guard).error is OUT_OF_ORDER
    assert send(log, 0, 2, guard).error is NONE, "an unknown producer may begin anywhere"


def test_where_ends_raise_the_epoch_an_unknown_producer_begins_with_zero(open_at: Open, send: Send) -> None:
    log = open_at()
    guard = claim(log, 0, 2)
    assert send(log, 0, 2, guard).error is OUT_OF_ORDER
    assert claim(log, 0, 0) is guard
    assert send(log, 0, 0, guard).error is NONE


def test_what_is_there_already_has_its_old_offset_whatever_it_presents(open_at: Open, send: Send) -> None:
    """Any of the five that are remembered, inside the transaction: without a question."""
    log = open_at()
    guard = claim(log, 0)
    for sequence in range(6):
        assert send(log, 0, sequence, guard).base_offset == sequence
    for sequence in range(1, 6):
        opened = claim(log, 0, sequence)
        assert opened.first_offset == 0
        again = send(log, 0, sequence, opened)
        assert (again.error, again.base_offset, again.duplicate) == (NONE, sequence, True)
    end(log, 0, raises=False)
    again = send(log, 0, 5, guard)
    assert (again.error, again.base_offset, again.duplicate) == (NONE, 5, True), "it was appended when it might be"


def test_without_a_claim_nothing_is_verified(open_at: Open, send: Send) -> None:
    log = open_at()
    assert send(log, 0, 0, None).error is NONE


def test_a_batch_that_could_not_be_written_may_come_again(
    open_at: Open, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_at()
    guard = claim(log, 0)

    def no_room(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patched:
        patched.setattr(PosixFile, "append", no_room)
        assert send(log, 0, 0, guard).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert claim(log, 0) is guard
    assert send(log, 0, 0, guard).error is NONE


def test_a_log_that_is_cut_knows_of_no_guard(open_at: Open, send: Send) -> None:
    log = open_at()
    guard = claim(log, 0)
    log.truncate_fully_and_start_at(0, now_ms=NOW_MS)
    assert send(log, 0, 0, guard).error is NOT_VERIFIED


def test_guards_expire_and_a_bound_holds() -> None:
    producers = Producers(expiration_ms=100, producers_max=2)
    for producer_id in range(3):
        producers.claim(producer_id, 0, 0, 0, transactional_id=OWN, raises=True, now_ms=NOW_MS + producer_id)
    guards = producers.guards
    assert guards is not None and len(guards) == 2 and guards.get(0, OWN) is None
    producers.remove_expired(NOW_MS + 101)
    assert guards.get(1, OWN) is None and guards.get(2, OWN) is not None


class Coordinated(RuleBasedStateMachine):
    """A producer, the coordinator of its transactions, and the guards of one partition. What the coordinator says of a
    transaction may come late; nothing of a transaction is ever written after its end."""

    def __init__(self) -> None:
        super().__init__()
        self.producers = Producers()
        self.raises = True
        self.transaction = 0
        self.epoch = 0
        self.offset = 0
        self.waiting: list[tuple[Guard, int, int]] = []
        """(what was claimed, the epoch, the transaction that the coordinator has verified it for)."""
        self.markers: list[int] = []
        """The epoch of the marker that is on its way."""
        self.ended = 0
        """Transactions whose marker is written."""

    @rule(raises=st.booleans())
    @precondition(lambda self: self.transaction == 0 and not self.waiting)
    def version(self, raises: bool) -> None:
        self.raises = raises

    @rule()
    def claim(self) -> None:
        if self.markers and not self.raises:
            return  # such a producer is told of the end when the markers are written
        claimed = self.producers.claim(
            1, self.epoch, 0, self.offset, transactional_id=OWN, raises=self.raises, now_ms=NOW_MS
        )
        if isinstance(claimed, Refusal):
            return
        self.waiting.append((claimed, self.epoch, self.transaction))

    @rule(at=st.integers(0, 5))
    @precondition(lambda self: self.waiting)
    def append(self, at: int) -> None:
        guard, epoch, transaction = self.waiting.pop(at % len(self.waiting))
        if self.markers and transaction == self.transaction:
            return  # the coordinator says CONCURRENT_TRANSACTIONS until they are written
        if self.producers.check_epoch(1, epoch, self.offset) is not None:
            return
        if self.producers.check_guard(1, epoch, 0, self.offset, guard) is not None:
            return
        assert transaction == self.ended, "a batch of a transaction that is over was taken"
        self.producers.stage(1, epoch, 0, self.offset, self.offset, NOW_MS, True)
        self.producers.commit()
        self.offset += 1

    @rule()
    def decide_the_end(self) -> None:
        """The coordinator ends the transaction: the marker comes later."""
        if self.markers:
            return
        self.transaction += 1
        self.epoch += self.raises
        self.markers.append(self.epoch)

    @rule()
    @precondition(lambda self: self.markers)
    def write_the_marker(self) -> None:
        epoch = self.markers.pop()
        self.ended += 1
        assert self.producers.check_marker(1, epoch, 0, self.offset, raises=self.raises) is None
        self.producers.stage_marker(1, epoch, 0, self.offset, NOW_MS, abort=True)
        self.producers.commit()
        self.offset += 1

    @invariant()
    def one_guard(self) -> None:
        guards: Guards | None = self.producers.guards
        assert guards is None or len(guards) <= 1


TestCoordinated = Coordinated.TestCase
TestCoordinated.settings = settings(max_examples=tried(300), stateful_step_count=30, deadline=None)
