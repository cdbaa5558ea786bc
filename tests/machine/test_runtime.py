"""Any order of requests, commits, losses, refusals, elections and loads: what the runtime promises holds after each."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from machine.tally import Number, Tally
from peers.tried import tried

from headrace.machine import runtime as runtime_module
from headrace.machine.batches import build_coordinator_batches
from headrace.machine.outcome import Note, Outcome
from headrace.machine.runtime import START_STEPS, LoadedRecord, LogPiece, Runtime, RuntimeSettings, ShardRuntime
from headrace.wire.errors import ErrorCode
from headrace.wire.records import decode_batch

NAMES = st.sampled_from(["x", "y", "z"])
TIMEOUT_MS = 1_000


@dataclass(eq=False)
class Asker:
    """A request: what it decided, and what it was told."""

    numbers: list[Number] = field(default_factory=list)
    start: int = -1
    """Where the log ended when it was decided."""
    answers: list[Any] = field(default_factory=list)

    def complete(self, value: Any) -> None:
        raise AssertionError


def replayed(log: list[Number]) -> dict[str, int]:
    """What a log says."""
    state: dict[str, int] = {}
    for number in log:
        if number.value is None:
            state.pop(number.name, None)
        else:
            state[number.name] = number.value
    return state


class AnyOrder(RuleBasedStateMachine):
    """One shard, under one leader after the other; every number in the log is another one, so that it can be found."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.runtime: Runtime[Tally] = Runtime(lambda _: Tally(), lambda: RuntimeSettings(TIMEOUT_MS))
        self.log: list[Number] = []
        self.committed: list[Number] = []
        """The log as far as it was ever committed: none of it may change."""
        self.epoch = 0
        self.ends: list[int] = []
        """Where appends end that are not committed."""
        self.loading_at = 0
        self.refusing = False
        self.holding = False
        self.next_value = 0
        self.askers: list[Asker] = []
        self.last_answered = -1
        self.old: list[ShardRuntime[Tally]] = []

    @property
    def shard(self) -> ShardRuntime[Tally]:
        return self.runtime.shards[0]

    @property
    def high_watermark(self) -> int:
        return len(self.committed)

    def commit(self, offset: int) -> None:
        assert self.log[: self.high_watermark] == self.committed, "nothing that is committed changes"
        self.committed = self.log[:offset]
        self.ends = [end for end in self.ends if end > offset]

    # --- the shell's part

    def drive(self, shard: ShardRuntime[Tally]) -> None:
        while shard.settle(self.now_ms):
            if self.refusing:
                shard.refused(ErrorCode.NOT_ENOUGH_REPLICAS)
                continue
            for record in decode_batch(shard.next_append(self.now_ms, 1 << 20)):
                self.log.append(shard.shard.decode(record.key or b"", record.value))
            self.ends.append(len(self.log))
            if not self.holding:
                self.commit(len(self.log))
            shard.appended(len(self.log), self.high_watermark)
        outputs, shard.outputs = shard.outputs, []
        for output in outputs:
            if not isinstance(output, Note):
                asker, reply = output
                assert isinstance(asker, Asker)
                self.answered(asker, reply)

    def answered(self, asker: Asker, reply: Any) -> None:
        """Looks whether what it is told is so."""
        assert not asker.answers, "whoever asks is answered once"
        asker.answers.append(reply)
        if isinstance(reply, ErrorCode):
            assert reply in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        assert asker.start <= self.high_watermark, "all that was decided before is committed"
        assert asker.start >= self.last_answered, "answers leave in the order of the log"
        self.last_answered = asker.start
        for number in asker.numbers:
            assert number in self.committed, "what is answered is committed"

    def ask(self, decide: Any) -> None:
        shard = self.runtime.serving(0)
        if isinstance(shard, ErrorCode):
            return
        asker = Asker(start=len(self.log))
        self.askers.append(asker)
        outcome: Outcome = decide(shard.shard)
        asker.numbers = list(outcome.records)
        shard.decided(outcome, self.now_ms, asker, lambda error: error)
        self.drive(shard)

    def value(self) -> int:
        self.next_value += 1
        return self.next_value

    # --- requests

    @initialize()
    def first_leader(self) -> None:
        self.elected_again()
        self.load_the_rest()

    @rule(names=st.lists(NAMES, min_size=1, max_size=3, unique=True))
    def change(self, names: list[str]) -> None:
        values = {name: self.value() for name in names}
        self.ask(lambda tally: tally.set_all(values))

    @rule(name=NAMES)
    def look(self, name: str) -> None:
        self.ask(lambda tally: tally.ask(name))

    # --- the log

    @rule()
    def hold(self) -> None:
        self.holding = True

    @rule(data=st.data())
    def commit_some(self, data: st.DataObject) -> None:
        """As far as one of the appends under way."""
        if not self.ends:
            return
        self.commit(data.draw(st.sampled_from(self.ends)))
        self.told_of_the_commit()

    @rule()
    def commit_all(self) -> None:
        self.holding = False
        self.commit(len(self.log))
        self.told_of_the_commit()

    def told_of_the_commit(self) -> None:
        for shard in [*self.old, *self.runtime.shards.values()]:
            shard.committed(self.high_watermark)
            self.drive(shard)

    @rule()
    def refuse(self) -> None:
        self.refusing = True

    @rule()
    def take_again(self) -> None:
        self.refusing = False

    @rule()
    def lose(self) -> None:
        """The leader's disk fails, or so it seems: what is not committed is gone."""
        if 0 not in self.runtime.shards:
            return
        del self.log[self.high_watermark :]
        self.ends = []
        shard = self.shard
        if shard.lost(ErrorCode.KAFKA_STORAGE_ERROR, self.now_ms):
            self.elected_again()
        self.loading_at = min(self.loading_at, len(self.log))
        self.drive(shard)

    # --- leaders

    @rule(data=st.data())
    def deposed(self, data: st.DataObject) -> None:
        """Another broker leads, and cuts off what it does not have: anything but what is committed."""
        self.runtime_leads({})
        end = data.draw(st.sampled_from([self.high_watermark, *self.ends]))
        del self.log[end:]
        self.ends = [each for each in self.ends if each <= end]

    @rule()
    def elected_again(self) -> None:
        self.epoch += 1
        self.runtime_leads({0: self.epoch})
        self.shard.begin(0, self.high_watermark)
        self.loading_at = 0

    def runtime_leads(self, epochs: dict[int, int]) -> None:
        change = self.runtime.lead(epochs, self.now_ms)
        self.last_answered = -1
        for shard in change.resigned:
            self.drive(shard)
            self.old = [*self.old[-2:], shard]

    @rule(data=st.data())
    def load_a_piece(self, data: st.DataObject) -> None:
        if 0 in self.runtime.shards:
            end = data.draw(st.integers(self.loading_at, len(self.log)))
            if self.shard.load(self.piece(end), self.high_watermark):
                self.loading_at = end

    @rule()
    def load_the_rest(self) -> None:
        if 0 in self.runtime.shards and self.shard.load(self.piece(len(self.log)), self.high_watermark):
            assert self.shard.start(self.now_ms)
            self.drive(self.shard)

    @rule()
    def load_too_late(self) -> None:
        """Whoever read the log for a leader that is none any more has something in hand."""
        for shard in self.old:
            assert not shard.load(self.piece(len(self.log)), self.high_watermark)
            assert shard.start(self.now_ms)
            assert not shard.is_active

    def piece(self, end: int) -> LogPiece:
        said = [LoadedRecord(self.log[at], at, -1) for at in range(self.loading_at, end)]
        return LogPiece(said, len(said), end)

    # --- time

    @rule(by_ms=st.sampled_from([1, 500, 1_000, 5_000]))
    def pass_time(self, by_ms: int) -> None:
        self.now_ms += by_ms
        for shard in self.runtime.shards.values():
            while shard.tick(self.now_ms):
                self.drive(shard)

    # --- what holds

    @invariant()
    def reads_are_of_what_is_committed(self) -> None:
        shard = self.runtime.serving(0)
        if isinstance(shard, ErrorCode):
            return
        assert dict(shard.shard.numbers.committed_items()) == replayed(self.committed)
        assert shard.shard.numbers.latest == replayed(self.log)
        assert shard.written_offset == len(self.log)

    @invariant()
    def nobody_waits_for_ever(self) -> None:
        waiting = [asker for asker in self.askers if not asker.answers]
        shard = self.runtime.serving(0)
        if waiting:
            assert isinstance(shard, ShardRuntime) and shard.deadline_ms() is not None
            assert len(self.log) > self.high_watermark
        self.askers = waiting


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=tried(150), stateful_step_count=40, deadline=None)


def active() -> ShardRuntime[Tally]:
    """A shard of an empty log."""
    runtime: Runtime[Tally] = Runtime(lambda _: Tally(), RuntimeSettings)
    runtime.lead({0: 0}, 0)
    shard = runtime.shards[0]
    shard.begin(0, 0)
    assert shard.start(0)
    shard.settle(0)
    shard.outputs.clear()
    return shard


def test_what_waits_for_its_commit_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound others are turned away until something is committed: memory does not grow with a slow disk."""
    monkeypatch.setattr(runtime_module, "UNCOMMITTED_MAX", 2_500)
    shard = active()
    end = 0
    while end <= 2_500:
        shard.decided(Outcome(records=[Number(str(i), i) for i in range(500)]), 0)
        assert shard.settle(0)
        shard.next_append(0, 1 << 20)
        end += 500
        shard.appended(end, 0)
    asker = Asker()
    shard.decided(shard.shard.add("x", 1), 0, asker, lambda error: error)
    assert not shard.settle(0)
    assert shard.outputs == [(asker, ErrorCode.COORDINATOR_NOT_AVAILABLE)]
    shard.committed(end)
    shard.decided(shard.shard.add("x", 1), 0, asker, lambda error: error)
    assert shard.settle(0)


def test_a_decision_is_made_upon_what_was_decided_before() -> None:
    shard = active()
    shard.decided(shard.shard.add("x", 1), 0)
    with pytest.raises(AssertionError):
        shard.decided(shard.shard.add("x", 1), 0)


def test_a_log_that_somebody_else_wrote_to_is_a_defect() -> None:
    shard = active()
    shard.decided(shard.shard.add("x", 1), 0)
    shard.next_append(0, 1 << 20)
    with pytest.raises(AssertionError, match="only this runtime writes"):
        shard.appended(2, 2)


@pytest.mark.parametrize("seed", range(20))
def test_batches_are_as_large_as_they_may_be(seed: int) -> None:
    rng = random.Random(seed)
    pairs = [(rng.randbytes(rng.randint(1, 300)), rng.randbytes(rng.randint(0, 300))) for _ in range(200)]
    largest = rng.choice([100, 700, 5_000, 1 << 20])
    batches = build_coordinator_batches(pairs, 5, largest)
    assert sum(count for count, _ in batches) == len(pairs)
    read = [(record.key, record.value) for _, batch in batches for record in decode_batch(batch)]
    assert read == pairs
    assert all(len(batch) <= largest or count == 1 for count, batch in batches)


def test_a_shard_starts_a_bounded_part_at_a_time() -> None:
    runtime: Runtime[Tally] = Runtime(lambda _: Tally(), RuntimeSettings)
    runtime.lead({0: 0}, 0)
    shard = runtime.shards[0]
    shard.begin(0, 0)
    count = 2 * START_STEPS + 1
    shard.load(LogPiece([LoadedRecord(Number(f"n{at}", 1), at, -1) for at in range(count)], count, count), count)
    for part, now_ms in enumerate((10, 20), 1):
        assert not shard.start(now_ms)
        assert len(shard.shard.started_ms) == part * START_STEPS
        assert runtime.serving(0) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert shard.start(30)
    assert runtime.serving(0) is shard
    assert shard.shard.started_ms == [10] * START_STEPS + [20] * START_STEPS + [30], "each by the time of its turn"


def test_a_leadership_that_ends_while_a_shard_starts() -> None:
    runtime: Runtime[Tally] = Runtime(lambda _: Tally(), RuntimeSettings)
    runtime.lead({0: 0}, 0)
    shard = runtime.shards[0]
    shard.begin(0, 0)
    count = START_STEPS + 1
    shard.load(LogPiece([LoadedRecord(Number(f"n{at}", 1), at, -1) for at in range(count)], count, count), count)
    assert not shard.start(0)
    runtime.lead({}, 0)
    assert shard.start(0) and not shard.is_active
    assert len(shard.shard.started_ms) == START_STEPS
