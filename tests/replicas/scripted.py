"""One partition's machine that scripts drive.

Broker 1 is ours. Every command says what the machine wants done; where the machine's state changed, a line that begins
with `=` shows it. Time stands still but for `time`.
"""

from __future__ import annotations

from scripts.transcript import Scripted, Words

from headrace.log.producers import UNDECIDED
from headrace.metadata.image import NO_LEADER, Partition
from headrace.replicas.partition import AlterIsr, PartitionState, Unstable
from headrace.wire.errors import ErrorCode

NODE = 1
START_MS = 1_000_000
"""A machine that has run for a while: times near 0 hide mistakes."""


class Replica(Scripted):
    """One partition, and the metadata and the log around it."""

    def __init__(self) -> None:
        super().__init__()
        self.state = PartitionState(NODE)
        self.now_ms = START_MS
        self.min_insync = 1
        self.asked: list[AlterIsr] = []
        self.shown = ""

    def after_each(self) -> None:
        """Shows the state, where it changed."""
        state = self.state
        parts = [state.role.value, f"epoch={state.leader_epoch}.{state.partition_epoch}", f"hw={state.high_watermark}"]
        parts += [f"stable={state.last_stable_offset}"] if state.last_stable_offset < state.high_watermark else []
        parts += [f"end={state.log_end}", f"isr={list(state.isr)}"]
        if state.maximal_isr != state.isr:
            parts.append(f"maximal={list(state.maximal_isr)}")
        elif state.pending is not None:
            parts.append(f"pending={[each for each, _ in state.pending.members]}")
        for each, follower in state.followers.items():
            parts.append(f"{each}:{'?' if follower.log_end < 0 else follower.log_end}")
        shown = " ".join(parts)
        if shown != self.shown:
            self.say(f"= {shown}")
        self.shown = shown

    def partition(self, named: dict[str, str], leader: int) -> Partition:
        replicas = numbers(named.get("replicas", ",".join(map(str, self.state.replicas)) or "1,2,3"))
        isr = numbers(named["isr"]) if "isr" in named else self.state.isr or replicas
        epoch, _, partition_epoch = named.get("epoch", "0").partition(".")
        return Partition(
            0, replicas, (bytes(16),) * len(replicas), isr, leader, int(epoch), int(partition_epoch or epoch)
        )

    def said_alter(self, alter: AlterIsr | None) -> None:
        if alter is not None:
            self.asked.append(alter)
            members = " ".join(f"{each}:{epoch}" for each, epoch in alter.members)
            self.say(f"asks for {members} at {alter.leader_epoch}.{alter.partition_epoch}")

    # --- commands

    def do_checkpoint(self, words: Words) -> None:
        """A start: the high watermark that the checkpoint holds, and the transactions of the log."""
        self.state = PartitionState(NODE, int(words.plain[0]), unstable=spans(words.plain[1:]))

    def do_transactions(self, words: Words) -> None:
        """What the log knows: `4..` is open since offset 4, `4..7` has its marker at 7."""
        self.state.transactions_are(spans(words.plain))

    def do_min(self, words: Words) -> None:
        self.min_insync = int(words.plain[0])

    def do_brokers(self, words: Words) -> None:
        """Brokers that may be in sync, as id:epoch."""
        self.state.brokers_are({int(node): int(epoch) for node, epoch in (word.split(":") for word in words.plain)})

    def do_time(self, words: Words) -> None:
        self.now_ms += int(words.plain[0])

    def do_lead(self, words: Words) -> None:
        end = int(words.named.get("end", self.state.log_end))
        counts_to = int(words.named.get("synced", end))
        start = self.state.become_leader(self.partition(words.named, NODE), end, self.now_ms, counts_to)
        if start is not None:
            self.say(f"writes down: epoch {start.epoch} begins at {start.offset}")
        self.state.advance(self.state.log_end, self.now_ms, self.min_insync)

    def do_follow(self, words: Words) -> None:
        changed = self.state.become_follower(self.partition(words.named, int(words.named.get("leader", NO_LEADER))))
        self.say("role or leader changed" if changed else "nothing changed")

    def do_offline(self, words: Words) -> None:
        self.state.become_offline()

    def do_append(self, words: Words) -> None:
        self.state.advance(int(words.plain[0]), self.now_ms, self.min_insync)

    def do_fetch(self, words: Words) -> None:
        node, offset = map(int, words.plain)
        got = self.state.fetched(node, int(words.named.get("be", 10 * node)), offset, self.now_ms, self.min_insync)
        if got.error:
            self.say(got.error.name)
        self.said_alter(got.alter)

    def do_shrink(self, words: Words) -> None:
        self.said_alter(self.state.shrink(self.now_ms))

    def do_answer(self, words: Words) -> None:
        """The controller's answer to the newest request, or to the one of that number (`to=1` is the first)."""
        asked = self.asked[int(words.named.get("to", 0)) - 1]
        error = ErrorCode[words.plain[0]]
        partition = None if error else self.partition(words.named, NODE)
        outcome = self.state.altered(asked, error, partition, self.now_ms, self.min_insync)
        if outcome.retry is not None:
            self.say("asks again")

    def do_epoch(self, words: Words) -> None:
        self.trace += [f"{known}: {self.state.check_epoch(int(known)).name}" for known in words.plain]

    def do_followed(self, words: Words) -> None:
        self.state.followed(int(words.named["end"]), int(words.named["hw"]))

    def do_truncated(self, words: Words) -> None:
        self.state.truncated(int(words.plain[0]), spans(words.plain[1:]))


def spans(words: list[str]) -> Unstable:
    pairs = (word.split("..") for word in words)
    return tuple((int(first), int(marker) if marker else UNDECIDED) for first, marker in pairs)


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(",") if word)
