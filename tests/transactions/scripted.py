"""One shard of transactions that scripts drive.

A producer is a name, by default that of its transactional id; it remembers the id and epoch that it was last given.
Time stands still but for `time`. The log is a list; `hold` keeps appends uncommitted until `committed` or `fail`.
Markers are sent by nobody: `marked` says that every partition holds them.
"""

from __future__ import annotations

import itertools
from typing import Any

from scripts.transcript import Scripted, Words

from headrace.machine.outcome import Note, Outcome
from headrace.machine.runtime import LoadedRecord, LogPiece, RuntimeSettings, ShardRuntime
from headrace.transactions.asks import (
    End,
    Filters,
    GroupEnd,
    GroupIdentity,
    GroupMember,
    Identity,
    InitProducer,
    Marking,
    Partitions,
    TransactionSettings,
    Verdicts,
)
from headrace.transactions.records import decode
from headrace.transactions.shard import PreparedChildren, TransactionShard
from headrace.transactions.transaction import Removed, Transaction, TransactionRecord
from headrace.wire.batch import iter_headers
from headrace.wire.errors import ErrorCode
from headrace.wire.records import decode_batch

NEVER_MS = 1 << 40


class Waiter:
    """Stands for a request that may be answered later."""

    def __init__(self, producer: str, what: str) -> None:
        self.producer = producer
        self.what = what

    def complete(self, value: Any) -> None:
        raise AssertionError("the runtime gives answers out, it does not resolve them")


class Transactions(Scripted):
    """A shard with a log in memory, which does what the shard's outcomes say."""

    def __init__(self) -> None:
        super().__init__()
        self.settings = TransactionSettings(
            timeout_check_interval_ms=10_000, expiry_check_interval_ms=3_600_000, id_expiration_ms=604_800_000
        )
        self.version = 2
        self.now_ms = 0
        self.log: list[tuple[bytes, bytes | None]] = []
        self.holding = False
        self.refusal: ErrorCode | None = None
        self.has_ids = True
        self.batch_bytes = 1 << 20
        self._ids = itertools.count(1)
        self.identities: dict[str, tuple[int, int]] = {}
        self.high_watermark = 0
        self.runtime_settings = RuntimeSettings(commit_timeout_ms=NEVER_MS)
        self.markings: list[Marking] = []
        self.prepared: dict[tuple[tuple[GroupMember, ...], bool], PreparedChildren] = {}
        self.reload()

    @property
    def shard(self) -> TransactionShard:
        return self.runtime.shard

    # --- the shell's part --------------------------------------------------------------------------------------------

    def run(self, out: Outcome, waiter: Waiter | None = None) -> None:
        """Does what a decision says."""
        self.runtime.decided(out, self.now_ms, waiter, lambda error: error)
        self.drive()

    def drive(self) -> None:
        """Appends what the runtime wants appended, and gives out what it releases."""
        while self.runtime.settle(self.now_ms):
            self.give_out()
            if self.refusal is not None:
                self.runtime.refused(self.refusal)
                continue
            batches = self.runtime.next_append(self.now_ms, self.batch_bytes)
            if len(batches) > self.batch_bytes:
                self.runtime.refused(ErrorCode.MESSAGE_TOO_LARGE)
                continue
            for at, header in iter_headers(batches):
                if header.record_count > 1:
                    self.say(f"log: one batch of {header.record_count}")
                for record in decode_batch(batches, at):
                    key, value = record.key or b"", record.value
                    decoded = decode(key, value)
                    assert decoded is not None
                    self.say(said_record(decoded))
                    self.log.append((key, value))
            if not self.holding:
                self.high_watermark = len(self.log)
            self.runtime.appended(len(self.log), self.high_watermark)
        self.give_out()

    def give_out(self) -> None:
        outputs, self.runtime.outputs = self.runtime.outputs, []
        for output in outputs:
            if isinstance(output, Note):
                self.say(f"# {' '.join([output.event, *(f'{key}={value}' for key, value in output.fields.items())])}")
            else:
                waiter, response = output
                assert isinstance(waiter, Waiter)
                self.answer(waiter, response)
        while self.shard.send_some(self.now_ms):
            pass
        while self.shard.markings:
            marking = self.shard.markings.popleft()
            self.markings.append(marking)
            committed = self.shard.describe(marking.transactional_id).state
            assert committed.startswith("Prepare"), "a marker leaves before the decision is committed"
            how = "commits" if marking.committed else "aborts"
            self.say(f"markers: {marking.transactional_id} {how} {marking.producer_id}@{marking.producer_epoch}"
                     f"{' raised' if marking.transaction_version >= 2 else ''} on {named(marking.left)}")  # fmt: skip

    def answer(self, waiter: Waiter, response: Any) -> None:
        """Notes an answer, and lets the producer remember what it was given."""
        if isinstance(response, Identity):
            self.say(f"{waiter.producer} {waiter.what}: {said_identity(response)}")
            if not response.error:
                self.identities[waiter.producer] = (response.producer_id, response.producer_epoch)
        elif isinstance(response, GroupIdentity):
            said = response.error.name if response.error else f"{response.producer_id}@{response.producer_epoch}"
            of_children = "".join(f" {error.name}" for error in response.children if any(response.children))
            self.say(f"{waiter.producer} {waiter.what}: {said}{of_children}")
            if not response.error:
                self.identities[waiter.producer] = (response.producer_id, response.producer_epoch)
        elif isinstance(response, Verdicts):
            each = " ".join(
                f"{topic}-{index} {error.name}" for (topic, index), error in sorted(response.partitions.items())
            )
            self.say(f"{waiter.producer} {waiter.what}: {each or response.error.name}")
        else:
            self.say(f"{waiter.producer} {waiter.what}: {response.name}")

    def reload(self) -> None:
        """Another coordinator takes over with nothing but the log."""
        shard = TransactionShard(self.settings, lambda: self.version, lambda: next(self._ids) if self.has_ids else None)
        self.high_watermark = len(self.log)
        self.runtime = ShardRuntime(0, 0, shard, self.runtime_settings)
        self.markings = []
        loaded = []
        for offset, (key, value) in enumerate(self.log):
            record = decode(key, value)
            assert record is not None
            loaded.append(LoadedRecord(record, offset, -1))
        self.runtime.begin(0, self.high_watermark)
        self.runtime.load(LogPiece(loaded, len(loaded), len(self.log)), self.high_watermark)
        assert self.runtime.start(self.now_ms)
        self.advance(0)

    def advance(self, by_ms: int) -> None:
        """Lets time pass, firing timers when they are due and not later."""
        end_ms = self.now_ms + by_ms
        while (deadline_ms := self.runtime.deadline_ms()) is not None and deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            while self.runtime.tick(self.now_ms):
                with self.at(self.now_ms):
                    self.drive()
        self.now_ms = end_ms

    def release(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Everything that was held is committed, or lost."""
        self.holding = False
        if error is ErrorCode.NONE:
            self.high_watermark = len(self.log)
            self.runtime.committed(self.high_watermark)
        else:
            del self.log[self.high_watermark :]
            self.runtime.lost(error, self.now_ms)
        self.drive()

    def identity(self, words: Words, producer: str) -> tuple[int, int]:
        if "of" in words.named:
            producer_id, epoch = words.named["of"].split("@")
            return int(producer_id), int(epoch)
        return self.identities.get(producer, (-1, -1))

    # --- commands ----------------------------------------------------------------------------------------------------

    def do_settings(self, words: Words) -> None:
        self.runtime_settings = RuntimeSettings(commit_timeout_ms=int(words.named.pop("commit_timeout_ms", NEVER_MS)))
        told: dict[str, Any] = {key: int(value) for key, value in words.named.items()}
        self.settings = TransactionSettings(**told)
        self.reload()

    def do_version(self, words: Words) -> None:
        self.version = int(words.plain[0])

    def do_ids(self, words: Words) -> None:
        """ids none | ids FIRST: the producer ids at hand."""
        self.has_ids = words.plain[0] != "none"
        if self.has_ids:
            self._ids = itertools.count(int(words.plain[0]))

    def do_batch_bytes(self, words: Words) -> None:
        """batch-bytes SIZE: the topic's max.message.bytes"""
        self.batch_bytes = int(words.plain[0])

    def do_init(self, words: Words) -> None:
        """init ID [as=PRODUCER] [of=PRODUCER-ID@EPOCH] [timeout=MS] [--two-phase]"""
        transactional_id = words.plain[0]
        producer = words.named.get("as", transactional_id)
        given = self.identity(words, producer) if "of" in words.named or "again" in words.switches else (-1, -1)
        ask = InitProducer(
            transactional_id, int(words.named.get("timeout", 60_000)), *given, enable_2pc="two-phase" in words.switches
        )
        self.run(self.shard.init_producer(ask, self.now_ms), Waiter(producer, "is initialized"))

    def do_add(self, words: Words) -> None:
        """add ID TOPIC-0... [as=PRODUCER] [of=...] [--client]: a broker asks, or an old client"""
        ask, producer = self.partitions(words)
        self.run(self.shard.add_partitions(ask, self.now_ms), Waiter(producer, "adds"))

    def do_verify(self, words: Words) -> None:
        """verify ID TOPIC-0... [as=PRODUCER] [of=...]"""
        ask, producer = self.partitions(words)
        self.run(self.shard.verify_partitions(ask), Waiter(producer, "is verified"))

    def partitions(self, words: Words) -> tuple[Partitions, str]:
        transactional_id, *where = words.plain
        producer = words.named.get("as", transactional_id)
        partitions = frozenset((each.rsplit("-", 1)[0], int(each.rsplit("-", 1)[1])) for each in where)
        version = 0 if "client" in words.switches else 2
        return Partitions(transactional_id, *self.identity(words, producer), partitions, version), producer

    def do_end(self, words: Words) -> None:
        """end ID commit|abort [as=PRODUCER] [of=...] [--client]: EndTxn v5, or v4"""
        transactional_id, how = words.plain
        producer = words.named.get("as", transactional_id)
        version = 0 if "client" in words.switches else 2
        ask = End(transactional_id, *self.identity(words, producer), how == "commit", version)
        self.run(self.shard.end(ask, self.now_ms), Waiter(producer, f"{how}s"))

    def do_end_group(self, words: Words) -> None:
        """end-group ID commit|abort CHILD... [as=PRODUCER] [child=PRODUCER] [of=...]: HeadraceGroupEndTxn"""
        transactional_id, how, *names = words.plain
        producer = words.named.get("as", transactional_id)
        main = GroupMember(transactional_id, *self.identity(words, producer))
        whose = words.named.get("child")
        children = tuple(GroupMember(name, *self.identities.get(whose or name, (-1, -1))) for name in names)
        ask = GroupEnd(main, children, how == "commit")
        prepared = self.prepared.pop((children, ask.committed), None)
        self.run(self.shard.end_group(ask, self.now_ms, prepared), Waiter(producer, f"{how}s the group"))

    def do_prepare_group(self, words: Words) -> None:
        """prepare-group ID commit|abort CHILD... [child=PRODUCER]: what comes before the end of many children"""
        _, how, *names = words.plain
        whose = words.named.get("child")
        children = tuple(GroupMember(name, *self.identities.get(whose or name, (-1, -1))) for name in names)
        committed = how == "commit"
        self.prepared[children, committed] = self.shard.prepare_group(children, committed, self.now_ms)

    def do_marked(self, words: Words) -> None:
        """marked ID: the first marking of ID that is known is done"""
        marking = next(each for each in self.markings if each.transactional_id == words.plain[0])
        self.markings.remove(marking)
        self.run(self.shard.marked(marking, self.now_ms))

    def do_holds_its_marker(self, words: Words) -> None:
        """holds-its-marker ID TOPIC-0: one of its partitions"""
        topic, index = words.plain[1].rsplit("-", 1)
        next(each for each in self.markings if each.transactional_id == words.plain[0]).left.discard(
            (topic, int(index))
        )

    def do_describe(self, words: Words) -> None:
        told = self.shard.describe(words.plain[0])
        if told.error:
            self.say(told.error.name)
        else:
            where = named(told.partitions)
            self.say(f"{told.state} {told.producer_id}@{told.producer_epoch} timeout={told.timeout_ms} "
                     f"start={told.start_ms} on {where}")  # fmt: skip

    def do_list(self, words: Words) -> None:
        filters = Filters(
            frozenset(words.named["states"].split(",")) if "states" in words.named else frozenset(),
            frozenset(map(int, words.named["of"].split(","))) if "of" in words.named else frozenset(),
            int(words.named.get("longer", -1)),
        )
        for each in self.shard.list_transactions(filters, self.now_ms):
            self.say(f"{each.transactional_id} {each.producer_id} {each.state}")

    def do_wind(self, words: Words) -> None:
        """wind ID EPOCH: as if its producer had ended so many transactions"""
        transactional_id, epoch = words.plain[0], int(words.plain[1])
        told = self.shard.describe(transactional_id)
        latest = decode(*next(pair for pair in reversed(self.log) if self._is_of(pair[0], transactional_id)))
        assert isinstance(latest, Transaction) and told.state in ("Empty", "CompleteCommit", "CompleteAbort")
        self.identities[transactional_id] = (latest.producer_id, epoch)
        self.run(Outcome(records=[latest._replace(producer_epoch=epoch)]))

    def _is_of(self, key: bytes, transactional_id: str) -> bool:
        return key[4:] == transactional_id.encode()

    def do_hold(self, _: Words) -> None:
        self.holding = True

    def do_committed(self, _: Words) -> None:
        self.release()

    def do_fail(self, words: Words) -> None:
        self.release(ErrorCode[words.plain[0]])

    def do_refuse(self, words: Words) -> None:
        self.refusal = ErrorCode[words.plain[0]]

    def do_accept(self, _: Words) -> None:
        self.refusal = None

    def do_reload(self, _: Words) -> None:
        self.reload()

    def do_time(self, words: Words) -> None:
        self.advance(int(words.plain[0]))

    def do_clock(self, words: Words) -> None:
        """clock BY: somebody sets the wall clock"""
        self.now_ms += int(words.plain[0])
        self.runtime.clock_stepped(int(words.plain[0]))


def named(partitions: Any) -> str:
    return " ".join(f"{topic}-{index}" for topic, index in sorted(partitions)) or "nothing"


def said_identity(identity: Identity) -> str:
    return identity.error.name if identity.error else f"{identity.producer_id}@{identity.producer_epoch}"


def said_record(record: TransactionRecord) -> str:
    if isinstance(record, Removed):
        return f"log: {record.transactional_id} removed"
    more = f" on {named(record.partitions)}" if record.partitions else ""
    if record.next_producer_id >= 0:
        more += f" next={record.next_producer_id}"
    return f"log: {record.transactional_id} {record.state.label} {record.producer_id}@{record.producer_epoch}{more}"
