"""A follower's fetcher that scripts drive, against logs that are nothing but the epoch of each offset.

Partitions are single letters. `leader a 0 0 1 epoch=2` is the leader's log of `a`, and the epoch that it leads under;
`log a 0 0` is the follower's.
"""

from __future__ import annotations

from bisect import bisect_right

from scripts.transcript import Scripted, Words

from headrace.replicas.fetcher import (
    Fetcher,
    FetchState,
    Followed,
    Key,
    NextRequest,
    PartitionAnswer,
    Step,
    bounds_of,
    cut_at,
)
from headrace.wire.errors import ErrorCode

BACKOFF_MS = 1000
PIECE = 100


class ModelLog:
    """The epochs of a log's offsets, and its epoch cache, which may know of an epoch that has no record."""

    def __init__(self, epochs: list[int], start: int = 0) -> None:
        self.start = start
        self.epochs = epochs
        self.cache: list[tuple[int, int]] = []
        for at, epoch in enumerate(epochs):
            self.note(epoch, start + at)

    @property
    def end(self) -> int:
        return self.start + len(self.epochs)

    @property
    def last_epoch(self) -> int:
        return self.cache[-1][0] if self.cache else -1

    def note(self, epoch: int, offset: int) -> None:
        if not self.cache or epoch > self.cache[-1][0]:
            self.cache = [pair for pair in self.cache if pair[1] < offset]
            self.cache.append((epoch, offset))

    def end_of(self, epoch: int) -> tuple[int, int]:
        if not self.cache or epoch > self.last_epoch or epoch < 0:
            return -1, -1
        if epoch == self.last_epoch:
            return epoch, self.end
        above = bisect_right([known for known, _ in self.cache], epoch)
        return (self.cache[above - 1][0] if above else epoch), self.cache[above][1]

    def cut(self, offset: int) -> None:
        del self.epochs[max(0, offset - self.start) :]
        self.cache = [pair for pair in self.cache if pair[1] < offset]

    def append(self, epochs: list[int]) -> None:
        for epoch in epochs:
            self.note(epoch, self.end)
            self.epochs.append(epoch)


def answer_of(leader: ModelLog, offset: int, last_epoch: int) -> tuple[PartitionAnswer, list[int]]:
    """What a leader answers, and the epochs of the records that it sends."""
    if offset < leader.start:
        return PartitionAnswer(ErrorCode.OFFSET_OUT_OF_RANGE), []
    if last_epoch >= 0:
        epoch, end = leader.end_of(last_epoch)
        if epoch < 0:
            return PartitionAnswer(ErrorCode.OFFSET_OUT_OF_RANGE), []
        if epoch < last_epoch or end < offset:
            return PartitionAnswer(ErrorCode.NONE, (epoch, end)), []
    if offset > leader.end:
        return PartitionAnswer(ErrorCode.OFFSET_OUT_OF_RANGE), []
    return PartitionAnswer(ErrorCode.NONE), leader.epochs[offset - leader.start :][:PIECE]


class Fetching(Scripted):
    """One fetcher, its logs and its leader's."""

    def __init__(self) -> None:
        super().__init__()
        self.fetcher = Fetcher(BACKOFF_MS)
        self.now_ms = 1_000_000
        self.logs: dict[str, ModelLog] = {}
        self.leaders: dict[str, ModelLog] = {}
        self.asked: NextRequest | None = None

    def say_state(self, name: str) -> None:
        followed = self.fetcher.partitions.get(key_of(name))
        if followed is None:
            self.say(f"= {name} is not followed")
            return
        wait = f" for {followed.until_ms - self.now_ms}" if followed.state is FetchState.WAITING else ""
        log = self.logs[name]
        assert followed.state is not FetchState.FETCHING or followed.offset == log.end, "it knows where its log ends"
        self.say(f"= {name} {followed.state.value}{wait} at {followed.offset} epoch={followed.last_epoch}")

    # --- commands

    def do_time(self, words: Words) -> None:
        self.now_ms += int(words.plain[0])

    def do_leader(self, words: Words) -> None:
        name, *epochs = words.plain
        log = self.leaders[name] = ModelLog([int(each) for each in epochs], int(words.named.get("start", 0)))
        if "epoch" in words.named:
            log.note(int(words.named["epoch"]), log.end)

    def do_log(self, words: Words) -> None:
        name, *epochs = words.plain
        self.logs[name] = ModelLog([int(each) for each in epochs])

    def do_led(self, words: Words) -> None:
        """The follower was leader under this epoch, and wrote nothing."""
        log = self.logs[words.plain[0]]
        log.note(int(words.plain[1]), log.end)

    def do_follow(self, words: Words) -> None:
        for name in words.plain:
            log = self.logs.setdefault(name, ModelLog([]))
            self.fetcher.follow(key_of(name), int(words.named["epoch"]), log.end, log.last_epoch, log.start)

    def do_forget(self, words: Words) -> None:
        for name in words.plain:
            self.fetcher.forget(key_of(name))

    def do_ask(self, words: Words) -> None:
        """The next request."""
        asked = self.asked = self.fetcher.next_request(self.now_ms)
        if asked is None:
            wake = self.fetcher.wake_at_ms()
            self.say("nothing to fetch" + ("" if wake is None else f" before {wake - self.now_ms}"))
            return
        named = [f"{name_of(key)}@{each.offset}/{each.last_epoch}" for key, each in asked.named.items()]
        named += [f"-{name_of(key)}" for key in asked.forgotten]
        self.say(f"fetch {asked.session_id}.{asked.session_epoch} {' '.join(named)}".rstrip())

    def do_fail(self, words: Words) -> None:
        """The connection ends."""
        self.fetcher.failed(self.now_ms)

    def do_refuse(self, words: Words) -> None:
        """The answer is an error as a whole."""
        self.fetcher.answered(ErrorCode[words.plain[0]], 0, (), self.now_ms)

    def do_answer(self, words: Words) -> None:
        """The leader's answer: of these partitions alone, or of all that it was asked for; `a=ERROR` is an error."""
        names = words.plain + list(words.named)
        errors = {name: ErrorCode[text] for name, text in words.named.items() if name != "session"}
        names = [name for name in names if name != "session"] or [name_of(key) for key in self.fetcher._requested]
        names = [] if "nothing" in words.switches else names
        session = int(words.named.get("session", 7))
        if not self.fetcher.answered(ErrorCode.NONE, session, {key_of(name) for name in names}, self.now_ms):
            self.say("the answer is not used")
            return
        for name in names:
            self.hear(name, errors.get(name))
            self.say_state(name)

    def hear(self, name: str, error: ErrorCode | None) -> None:
        followed, offset = self.fetcher._requested[key_of(name)]
        leader = self.leaders[name]
        answer, records = answer_of(leader, offset, followed.last_epoch)
        if error is not None:
            answer, records = PartitionAnswer(error), []
        step, found = self.fetcher.heard(key_of(name), answer, self.now_ms)
        if found is not None:
            self.take(name, step, found, answer, records)
        elif step is Step.NOTHING:
            self.say(f"{name}: an answer of old is not used")

    def take(self, name: str, step: Step, followed: Followed, answer: PartitionAnswer, records: list[int]) -> None:
        log, leader = self.logs[name], self.leaders[name]
        if step is Step.APPEND:
            kept = [epoch for epoch in records if epoch <= followed.leader_epoch]
            log.append(kept)
            self.fetcher.appended(followed, log.end, kept[-1] if kept else -1, log.start)
        elif step is Step.CUT:
            assert answer.diverging is not None
            at = cut_at(answer.diverging, log.end_of(answer.diverging[0]), log.end)
            self.say(f"{name}: the leader parts at {answer.diverging}, cut at {at}")
            log.cut(at)
            self.fetcher.cut(followed, log.end, log.last_epoch, log.start, self.now_ms)
        elif step is Step.LOOK_UP:
            bounds = bounds_of(leader.start, leader.end, log.end)
            if bounds.is_restart:
                self.logs[name] = log = ModelLog([], bounds.offset)
            else:
                log.cut(bounds.offset)
            self.say(f"{name}: the leader has {leader.start}..{leader.end}, goes on at {bounds.offset}")
            self.fetcher.cut(followed, log.end, log.last_epoch, log.start, self.now_ms)

    def do_state(self, words: Words) -> None:
        for name in words.plain:
            self.say_state(name)
            self.say(f"{name} has {self.logs[name].epochs} from {self.logs[name].start}")


def key_of(name: str) -> Key:
    return name.encode() * 16, 0


def name_of(key: Key) -> str:
    return key[0][:1].decode()
