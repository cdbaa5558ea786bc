"""A runtime of two shards that tally numbers, which scripts drive.

Each shard has a log in memory. What is appended is committed at once, but for a shard that is held: `commit` moves its
high watermark then. A request names its shard and the client that asks.
"""

from __future__ import annotations

from typing import Any

from machine.tally import Tally
from scripts.transcript import Scripted, Words

from headrace.machine.outcome import Ending, Note, Outcome
from headrace.machine.runtime import LoadedRecord, LogPiece, Marker, Runtime, RuntimeSettings, ShardRuntime
from headrace.wire.batch import iter_headers
from headrace.wire.errors import ErrorCode
from headrace.wire.markers import COMMIT, EndMarker, read_marker
from headrace.wire.records import decode_batch


def producer_of(text: str) -> tuple[int, int]:
    """Id and epoch."""
    producer_id, epoch = text.split("@")
    return int(producer_id), int(epoch)


class Client:
    """Whoever asked."""

    def __init__(self, name: str) -> None:
        self.name = name

    def complete(self, value: Any) -> None:
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


class Runtimes(Scripted):
    """A runtime with logs in memory, and what a shell does for it."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.batch_bytes = 1 << 20
        self.settings = RuntimeSettings(commit_timeout_ms=1_000)
        self.logs: dict[int, Log] = {index: Log() for index in range(2)}
        self.runtime: Runtime[Tally] = Runtime(lambda _: Tally(), lambda: self.settings)
        self.old: list[ShardRuntime[Tally]] = []
        """Runtimes that have resigned: somebody may still have them in hand."""

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
            for at, header in iter_headers(batches):
                if header.is_control:
                    marker = read_marker(decode_batch(batches, at)[0])
                    assert marker is not None and shard.ending is not None
                    log.entries.append(Marker(log.end_offset, header.producer_id, marker[0] == COMMIT))
                    raised = " with a raised epoch" if shard.ending.raises_epoch else ""
                    end = "commits" if marker[0] == COMMIT else "aborts"
                    said.append(f"producer {header.producer_id}@{header.producer_epoch} {end}{raised}")
                    continue
                producer_id = header.producer_id if header.is_transactional else -1
                if producer_id >= 0:
                    assert header.base_sequence == 0
                    said.append(f"producer {producer_id}@{header.producer_epoch}:")
                for record in decode_batch(batches, at):
                    number = shard.shard.decode(record.key or b"", record.value)
                    log.entries.append(LoadedRecord(number, log.end_offset, producer_id))
                    said.append(f"{number.name}={number.value}")
            self.say(f"log {shard.index}: {' '.join(said)}")
            if not log.held:
                log.high_watermark = log.end_offset
            shard.appended(log.end_offset, log.high_watermark)
        self.give_out(shard)

    def give_out(self, shard: ShardRuntime[Tally]) -> None:
        outputs, shard.outputs = shard.outputs, []
        for output in outputs:
            if isinstance(output, Note):
                self.say(f"# {' '.join([output.event, *(f'{key}={value}' for key, value in output.fields.items())])}")
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

    def do_lead(self, words: Words) -> None:
        """lead INDEX@EPOCH...: this broker leads exactly these."""
        epochs = {int(i): int(e) for i, e in (each.split("@") for each in words.plain)}
        change = self.runtime.lead(epochs, self.now_ms)
        for shard in change.resigned:
            self.say(f"shard {shard.index}@{shard.leader_epoch} resigns")
            self.give_out(shard)
            self.old.append(shard)
        for shard in change.taken:
            log = self.logs[shard.index]
            self.say(f"shard {shard.index}@{shard.leader_epoch} loads")
            shard.begin(0, log.high_watermark)

    def do_load(self, words: Words) -> None:
        """load INDEX [COUNT]: so many entries more; without a count all of them, and it is loaded."""
        index, *count = words.plain
        shard = self.runtime.shards[int(index)]
        self.load(shard, int(count[0]) if count else None)

    def do_late_load(self, words: Words) -> None:
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
            assert shard.start(self.now_ms)
            self.drive(shard)

    def do_load_fails(self, words: Words) -> None:
        (index,) = words.plain
        self.runtime.shards[int(index)].load_failed()

    # --- requests

    def do_add(self, words: Words) -> None:
        index, client, name, *by = words.plain
        self.ask(index, client, lambda tally, _: tally.add(name, int(by[0]) if by else 1))

    def do_add_in(self, words: Words) -> None:
        """add-in INDEX CLIENT PRODUCER@EPOCH NAME: in an open transaction."""
        index, client, producer, name = words.plain
        self.ask(index, client, lambda tally, _: tally.add_in(producer_of(producer), name))

    def do_end(self, words: Words) -> None:
        """end INDEX CLIENT PRODUCER@EPOCH committed|aborted [raised=yes]"""
        index, client, producer, end = words.plain
        marker = EndMarker(*producer_of(producer), 0, end == "committed")
        out = Outcome("ended", ending=Ending(marker, "raised" in words.named))
        self.ask(index, client, lambda *_: out)

    def do_set_all(self, words: Words) -> None:
        index, client = words.plain
        numbers = {name: int(value) for name, value in words.named.items()}
        self.ask(index, client, lambda tally, _: tally.set_all(numbers))

    def do_add_twice(self, words: Words) -> None:
        index, client, name = words.plain
        self.ask(index, client, lambda tally, _: tally.add_twice(name))

    def do_watch(self, words: Words) -> None:
        index, client, name = words.plain
        self.ask(index, client, lambda tally, waiter: tally.watch(name, waiter))

    def do_ask(self, words: Words) -> None:
        index, client, name = words.plain
        self.ask(index, client, lambda tally, _: tally.ask(name))

    def do_remove_all(self, words: Words) -> None:
        (index,) = words.plain
        self.ask(index, "nobody", lambda tally, _: tally.remove_all())

    def do_add_later(self, words: Words) -> None:
        index, client, name, after_ms = words.plain
        self.ask(index, client, lambda tally, _: tally.add_later(name, self.now_ms + int(after_ms)))

    def do_read(self, words: Words) -> None:
        """What others are told."""
        (index,) = words.plain
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

    def do_hold(self, words: Words) -> None:
        (index,) = words.plain
        self.logs[int(index)].held = True

    def do_commit(self, words: Words) -> None:
        """commit INDEX [OFFSET]: the log is committed up to there; without an offset all of it, from here on too."""
        index, *offset = words.plain
        log = self.logs[int(index)]
        log.held = bool(offset)
        log.high_watermark = int(offset[0]) if offset else log.end_offset
        for shard in (*self.old, self.runtime.shards.get(int(index))):
            if shard is not None and shard.index == int(index):
                shard.committed(log.high_watermark)
                self.drive(shard)

    def do_lose(self, words: Words) -> None:
        """What is not committed is gone from the log."""
        index, error = words.plain
        log = self.logs[int(index)]
        log.held = False
        del log.entries[log.high_watermark :]
        shard = self.runtime.shards[int(index)]
        if shard.lost(ErrorCode[error], self.now_ms):
            self.say("to be loaded again")
        self.drive(shard)

    def do_refuse(self, words: Words) -> None:
        """refuse INDEX ERROR [AFTER]: appends, but for the next so many, are not taken; NONE: they are again."""
        index, error, *after = words.plain
        log = self.logs[int(index)]
        log.refusal = None if error == "NONE" else ErrorCode[error]
        log.refuses_after = int(after[0]) if after else 0

    def do_transactional(self, words: Words) -> None:
        """A record of a transaction, found in the log."""
        index, producer, name, value = words.plain
        log = self.logs[int(index)]
        log.entries.append(LoadedRecord(self.number(name, value), log.end_offset, int(producer)))

    def do_marker(self, words: Words) -> None:
        index, producer, what = words.plain
        log = self.logs[int(index)]
        log.entries.append(Marker(log.end_offset, int(producer), what == "commit"))

    def number(self, name: str, value: str) -> Any:
        return Tally().decode(name.encode(), value.encode())

    def do_batches_of(self, words: Words) -> None:
        (byte_count,) = words.plain
        self.batch_bytes = int(byte_count)

    # --- time

    def do_time(self, words: Words) -> None:
        (by_ms,) = words.plain
        end_ms = self.now_ms + int(by_ms)
        while deadlines := [d for s in self.runtime.shards.values() if (d := s.deadline_ms()) is not None]:
            if min(deadlines) > end_ms:
                break
            self.now_ms = max(self.now_ms, min(deadlines))
            for shard in self.runtime.shards.values():
                while shard.tick(self.now_ms):
                    with self.at(self.now_ms):
                        self.drive(shard)
        self.now_ms = end_ms

    def do_clock(self, words: Words) -> None:
        """Somebody sets the wall clock."""
        (by_ms,) = words.plain
        self.now_ms += int(by_ms)
        self.runtime.clock_stepped(int(by_ms))
