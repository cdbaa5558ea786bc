"""Runs a transcript against a runtime of two shards that tally numbers; the syntax is that of the groups' transcripts.

Each shard has a log in memory. What is appended is committed at once, but for a shard that is held: `commit` moves its
high watermark then. A request names its shard and the client that asks.
"""

from __future__ import annotations

import shlex
from typing import Any

from machine.tally import Tally

from headrace.machine.runtime import LoadedRecord, LogPiece, Marker, Runtime, RuntimeSettings, ShardRuntime
from headrace.wire.batch import iter_headers
from headrace.wire.errors import ErrorCode
from headrace.wire.records import decode_batch


class Client:
    """Whoever asked."""

    def __init__(self, name: str) -> None:
        self.name = name

    def resolve(self, value: Any) -> None:
        raise AssertionError("the runtime gives answers out, it does not resolve them")


class Log:
    """A partition's log: decoded records and markers."""

    def __init__(self) -> None:
        self.entries: list[LoadedRecord | Marker] = []
        self.high_watermark = 0
        self.held = False
        self.refusal: ErrorCode | None = None
        self.refuses_after = 0

    @property
    def end_offset(self) -> int:
        return len(self.entries)


class Machine:
    """A runtime with logs in memory, and what a shell does for it."""

    def __init__(self) -> None:
        self.trace: list[str] = []
        self.now_ms = 0
        self.batch_bytes = 1 << 20
        self.settings = RuntimeSettings(commit_timeout_ms=1_000)
        self.logs: dict[int, Log] = {index: Log() for index in range(2)}
        self.runtime: Runtime[Tally] = Runtime(lambda _: Tally(), lambda: self.settings)
        self.old: list[ShardRuntime[Tally]] = []
        """Runtimes that have resigned: somebody may still have them in hand."""

    def do(self, line: str) -> list[str]:
        """Runs one command; returns its trace."""
        self.trace = []
        verb, *words = shlex.split(line)
        getattr(self, f"do_{verb.replace('-', '_')}")(*words)
        return self.trace

    def say(self, line: str) -> None:
        self.trace.append(line)

    # --- the shell's part

    def drive(self, shard: ShardRuntime[Tally]) -> None:
        log = self.logs[shard.index]
        while shard.settle(self.now_ms):
            self.give_out(shard)
            if log.refusal is not None and not log.refuses_after:
                shard.refused(log.refusal)
                continue
            log.refuses_after -= 1
            batches = shard.next_append(self.now_ms, self.batch_bytes)
            said = []
            for at, _ in iter_headers(batches):
                for record in decode_batch(batches, at):
                    number = shard.shard.decode(record.key or b"", record.value)
                    log.entries.append(LoadedRecord(number, log.end_offset, -1))
                    said.append(f"{number.name}={number.value}")
            self.say(f"log {shard.index}: {' '.join(said)}")
            if not log.held:
                log.high_watermark = log.end_offset
            shard.appended(log.end_offset, log.high_watermark)
        self.give_out(shard)

    def give_out(self, shard: ShardRuntime[Tally]) -> None:
        outputs, shard.outputs = shard.outputs, []
        for output in outputs:
            if isinstance(output, str):
                self.say(f"# {output}")
            else:
                client, reply = output
                assert isinstance(client, Client)
                self.say(f"{client.name}: {reply.name if isinstance(reply, ErrorCode) else reply}")

    def ask(self, index: str, name: str, decide: Any) -> None:
        """A request of a client."""
        client = Client(name)
        shard = self.runtime.serving(int(index))
        if isinstance(shard, ErrorCode):
            self.say(f"{name}: {shard.name}")
            return
        shard.decided(decide(shard.shard, client), self.now_ms, client, lambda error: error)
        self.drive(shard)

    # --- leadership and loads

    def do_lead(self, *epochs: str) -> None:
        """lead INDEX@EPOCH...: this broker leads exactly these."""
        change = self.runtime.lead({int(i): int(e) for i, e in (each.split("@") for each in epochs)}, self.now_ms)
        for shard in change.resigned:
            self.say(f"shard {shard.index}@{shard.leader_epoch} resigns")
            self.give_out(shard)
            self.old.append(shard)
        for shard in change.taken:
            log = self.logs[shard.index]
            self.say(f"shard {shard.index}@{shard.leader_epoch} loads")
            shard.begin(0, log.high_watermark)

    def do_load(self, index: str, count: str = "") -> None:
        """load INDEX [COUNT]: so many entries more; without a count all of them, and it is loaded."""
        shard = self.runtime.shards[int(index)]
        self.load(shard, int(count) if count else None)

    def do_late_load(self) -> None:
        """The load of a shard that has resigned meanwhile goes on."""
        self.load(self.old[-1], None)

    def load(self, shard: ShardRuntime[Tally], count: int | None) -> None:
        log = self.logs[shard.index]
        start = shard.written_offset
        end = log.end_offset if count is None else start + count
        piece = LogPiece(log.entries[start:end], end - start, end)
        if not shard.load(piece, log.high_watermark):
            self.say("nobody wants it")
            return
        if count is None:
            shard.loaded(self.now_ms)
            self.drive(shard)

    def do_load_fails(self, index: str) -> None:
        self.runtime.shards[int(index)].load_failed()

    # --- requests

    def do_add(self, index: str, client: str, name: str, by: str = "1") -> None:
        self.ask(index, client, lambda tally, _: tally.add(name, int(by)))

    def do_set_all(self, index: str, client: str, *values: str) -> None:
        numbers = {name: int(value) for name, value in (each.split("=") for each in values)}
        self.ask(index, client, lambda tally, _: tally.set_all(numbers))

    def do_add_twice(self, index: str, client: str, name: str) -> None:
        self.ask(index, client, lambda tally, _: tally.add_twice(name))

    def do_watch(self, index: str, client: str, name: str) -> None:
        self.ask(index, client, lambda tally, waiter: tally.watch(name, waiter))

    def do_ask(self, index: str, client: str, name: str) -> None:
        self.ask(index, client, lambda tally, _: tally.ask(name))

    def do_remove_all(self, index: str) -> None:
        self.ask(index, "nobody", lambda tally, _: tally.remove_all())

    def do_add_later(self, index: str, client: str, name: str, after_ms: str) -> None:
        self.ask(index, client, lambda tally, _: tally.add_later(name, self.now_ms + int(after_ms)))

    def do_read(self, index: str) -> None:
        """What others are told."""
        shard = self.runtime.serving(int(index))
        if isinstance(shard, ErrorCode):
            self.say(shard.name)
            return
        numbers = sorted(shard.shard.numbers.committed_items())
        pending = sorted(shard.shard.pending.committed_items())
        said = [f"{name}={value}" for name, value in numbers]
        said += [f"{name}={value} if {producer} commits" for (producer, name), value in pending]
        self.say(" ".join(said) or "nothing")

    # --- the log

    def do_hold(self, index: str) -> None:
        self.logs[int(index)].held = True

    def do_commit(self, index: str, offset: str = "") -> None:
        """commit INDEX [OFFSET]: the log is committed up to there; without an offset all of it, from here on too."""
        log = self.logs[int(index)]
        log.held = bool(offset)
        log.high_watermark = int(offset) if offset else log.end_offset
        for shard in (*self.old, self.runtime.shards.get(int(index))):
            if shard is not None and shard.index == int(index):
                shard.committed(log.high_watermark)
                self.drive(shard)

    def do_lose(self, index: str, error: str) -> None:
        """What is not committed is gone from the log."""
        log = self.logs[int(index)]
        log.held = False
        del log.entries[log.high_watermark :]
        shard = self.runtime.shards[int(index)]
        if shard.lost(ErrorCode[error], self.now_ms):
            self.say("to be loaded again")
        self.drive(shard)

    def do_refuse(self, index: str, error: str, after: str = "0") -> None:
        """refuse INDEX ERROR [AFTER]: appends, but for the next so many, are not taken; NONE: they are again."""
        log = self.logs[int(index)]
        log.refusal = None if error == "NONE" else ErrorCode[error]
        log.refuses_after = int(after)

    def do_transactional(self, index: str, producer: str, name: str, value: str) -> None:
        """A record of a transaction, found in the log."""
        log = self.logs[int(index)]
        log.entries.append(LoadedRecord(self.number(name, value), log.end_offset, int(producer)))

    def do_marker(self, index: str, producer: str, what: str) -> None:
        log = self.logs[int(index)]
        log.entries.append(Marker(log.end_offset, int(producer), what == "commit"))

    def number(self, name: str, value: str) -> Any:
        return Tally().decode(name.encode(), value.encode())

    def do_batches_of(self, byte_count: str) -> None:
        self.batch_bytes = int(byte_count)

    # --- time

    def do_time(self, by_ms: str) -> None:
        end_ms = self.now_ms + int(by_ms)
        while deadlines := [d for s in self.runtime.shards.values() if (d := s.deadline_ms()) is not None]:
            if min(deadlines) > end_ms:
                break
            self.now_ms = max(self.now_ms, min(deadlines))
            for shard in self.runtime.shards.values():
                while shard.tick(self.now_ms):
                    before = len(self.trace)
                    self.drive(shard)
                    if len(self.trace) > before:
                        self.trace.insert(before, f"at {self.now_ms}")
        self.now_ms = end_ms

    def do_clock(self, by_ms: str) -> None:
        """Somebody sets the wall clock."""
        self.now_ms += int(by_ms)
        self.runtime.clock_stepped(int(by_ms))
