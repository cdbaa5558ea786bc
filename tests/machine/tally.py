"""A shard that has nothing to do with groups: numbers by name, which requests add to."""

from __future__ import annotations

from typing import Any, NamedTuple

from headrace.machine.outcome import Note, Outcome
from headrace.machine.timed_steps import TimedSteps
from headrace.machine.timeline import Timeline, TimelineTable
from headrace.machine.timers import Timers
from headrace.wire.errors import ErrorCode


class Number(NamedTuple):
    """A name's number, or with None its end."""

    name: str
    value: int | None


class Tally:
    """Numbers by name; those of an open transaction wait for its end."""

    def __init__(self) -> None:
        self.timeline = Timeline()
        self.numbers: TimelineTable[str, int] = TimelineTable(self.timeline)
        self.pending: TimelineTable[tuple[int, str], int] = TimelineTable(self.timeline)
        self.timers = Timers()
        self.started_ms: list[int] = []
        """When each number was started, at a load."""
        self.watchers: dict[str, list[Any]] = {}
        """Who waits for a name's number to be changed: in memory alone."""

    # --- requests

    def add(self, name: str, by: int) -> Outcome:
        """Adds; whoever watches the name hears of it once it is committed."""
        value = self.numbers.latest.get(name, 0) + by
        released = [(waiter, f"{name} is {value}") for waiter in self.watchers.pop(name, ())]
        return Outcome(f"{name}={value}", [Number(name, value)], released=released)

    def add_in(self, producer: tuple[int, int], name: str) -> Outcome:
        """Adds one once the producer's transaction commits."""
        value = self.numbers.latest.get(name, 0) + 1
        return Outcome(f"{name} may be {value}", [Number(name, value)], producer=producer)

    def set_all(self, values: dict[str, int]) -> Outcome:
        """All of them or none."""
        return Outcome("all", [Number(name, value) for name, value in values.items()])

    def add_twice(self, name: str) -> Outcome:
        """Adds one, and when that is committed another one."""
        out = self.add(name, 1)

        def then(error: ErrorCode, now_ms: int) -> Outcome:
            again = self.add(name, 1) if error is ErrorCode.NONE else Outcome()
            again.note("after", name=name, error=error.name, at=now_ms)
            return again

        out.then = then
        return out

    def watch(self, name: str, waiter: Any) -> Outcome:
        """Answered by a later change."""
        self.watchers.setdefault(name, []).append(waiter)
        return Outcome()

    def ask(self, name: str) -> Outcome:
        """A decision without a record, upon the latest number."""
        return Outcome(f"{name}={self.numbers.latest.get(name)}")

    def remove_all(self) -> Outcome:
        """Tidying up, in as many appends as it takes."""
        return Outcome(records=[Number(name, None) for name in sorted(self.numbers.latest)], is_atomic=False)

    def add_later(self, name: str, at_ms: int) -> Outcome:
        """A scheduled write."""
        self.timers.schedule(("add", name), at_ms)
        return Outcome("later")

    # --- what the runtime asks

    def encode(self, record: Number) -> tuple[bytes, bytes | None]:
        return record.name.encode(), None if record.value is None else str(record.value).encode()

    def decode(self, key: bytes, value: bytes | None) -> Number:
        return Number(key.decode(), None if value is None else int(value))

    def apply(self, record: Number, log_offset: int, producer_id: int = -1) -> None:
        if producer_id >= 0 and record.value is not None:
            self.pending.put((producer_id, record.name), record.value)
        elif record.value is None:
            self.numbers.remove(record.name)
        else:
            self.numbers.put(record.name, record.value)

    def apply_marker(self, producer_id: int, committed: bool) -> None:
        for key, value in [(key, value) for key, value in self.pending.latest.items() if key[0] == producer_id]:
            self.pending.remove(key)
            if committed:
                self.numbers.put(key[1], value)

    def starting(self, now_ms: int) -> TimedSteps[Outcome]:

        for _ in self.numbers.latest:
            self.started_ms.append(now_ms)
            now_ms = yield 1
        return Outcome(notes=[Note("numbers are loaded", {"count": len(self.numbers.latest)})])

    def revert(self, now_ms: int) -> Outcome:
        self.timeline.revert()
        return Outcome(notes=[Note("numbers went back", {})])

    def unload(self, now_ms: int) -> Outcome:
        waiters = [(waiter, "gone") for name in sorted(self.watchers) for waiter in self.watchers[name]]
        return Outcome(released=waiters)

    def deadline_ms(self) -> int | None:
        return self.timers.deadline_ms()

    def due(self, now_ms: int) -> Outcome | None:
        key = self.timers.due(now_ms)
        return None if key is None else self.add(key[1], 1)

    def clock_stepped(self, by_ms: int) -> None:
        self.timers.shift(by_ms)
