"""Whatever happens to a shard: states follow as they may, every end is completed, no two producers share an epoch."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st
from peers.tried import tried
from transactions.scripted import Transactions

from headrace.transactions.records import decode
from headrace.transactions.states import FOLLOWS, TransactionState
from headrace.transactions.transaction import Transaction

IDS = ("a", "b")
PRODUCERS = ("1", "2")
LINES = [
    *("hold", "committed", "fail NOT_LEADER_OR_FOLLOWER", "refuse NOT_ENOUGH_REPLICAS", "accept", "reload"),
    *("time 40", "time 200", "time 12000", "version 1", "version 2", "marked ID"),
    *("init ID as=PRODUCER timeout=5000", "init ID as=PRODUCER timeout=5000 --again"),
    *("add ID t-0 as=PRODUCER", "add ID t-1 as=PRODUCER", "add ID t-1 as=PRODUCER --client"),
    *("end ID commit as=PRODUCER", "end ID abort as=PRODUCER"),
    *("end ID commit as=PRODUCER --client", "end ID abort as=PRODUCER --client"),
    *("end-group a commit b as=1 child=2", "end-group b abort a as=PRODUCER child=1"),
    *("prepare-group a commit b child=2", "prepare-group b abort a child=1"),
    # What seldom comes together by itself.
    "add a t-0 as=1;add b t-0 as=2;prepare-group a commit b child=2;add b t-1 as=2;end-group a commit b as=1 child=2",
    "init a as=1 timeout=5000;init b as=2 timeout=5000;add a t-0 as=1;add b t-0 as=2;end-group a commit b as=1 child=2",
    "add a t-0 as=1;add b t-0 as=2;hold;end-group a commit b as=1 child=2;fail NOT_LEADER_OR_FOLLOWER",
    "add a t-0 as=1;add b t-0 as=2;end-group a commit b as=1 child=2;reload",
    *("init ID as=PRODUCER timeout=5000;add ID t-0 as=PRODUCER", "add ID t-0 as=PRODUCER;end ID commit as=PRODUCER"),
    *("refuse NOT_ENOUGH_REPLICAS;marked ID;accept", "hold;marked ID;fail NOT_LEADER_OR_FOLLOWER"),
    *("hold;end ID abort as=PRODUCER;time 40", "hold;marked ID;add ID t-0 as=PRODUCER", "time 300;marked ID"),
]
COMMANDS = st.builds(
    lambda line, transactional_id, producer: line.replace("ID", transactional_id).replace("PRODUCER", producer),
    st.sampled_from(LINES),
    st.sampled_from(IDS),
    st.sampled_from(PRODUCERS),
)


class Checked(Transactions):
    """Identities are of an id and a producer, and what is written is looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.given: dict[tuple[int, int], str] = {}
        self.do_quietly("settings commit_timeout_ms=100")

    def do_quietly(self, lines: str) -> None:
        for line in lines.split(";"):
            self._do(line)

    def _do(self, line: str) -> None:
        if line.startswith("marked") and not any(each.transactional_id == line.split()[1] for each in self.markings):
            return
        if line == "reload" and self.holding:
            line = "committed"
        for said in self.do(line):
            words = said.split()
            if words[1:3] == ["is", "initialized:"] and "@" in words[-1]:
                self.is_given(words[0], words[-1])

    def is_given(self, producer: str, identity: str) -> None:
        producer_id, epoch = map(int, identity.split("@"))
        assert epoch < 32767
        owner = self.given.setdefault((producer_id, epoch), producer)
        assert owner == producer, f"{identity} of {owner} is given to {producer}"

    def states(self) -> dict[str, list[Transaction]]:
        """Every id's records, in the order of the log."""
        found: dict[str, list[Transaction]] = {}
        for key, value in self.log:
            record = decode(key, value)
            assert isinstance(record, Transaction)
            found.setdefault(record.transactional_id, []).append(record)
        return found


@settings(max_examples=tried(400), deadline=None)
@given(st.lists(COMMANDS, max_size=60))
def test_any_history(commands: list[str]) -> None:
    machine = Checked()
    for line in commands:
        machine.do_quietly(line)
    for line in ("accept", "committed", "time 200"):
        machine.do_quietly(line)
    for _ in range(6):
        for transactional_id in IDS:
            machine.do_quietly(f"marked {transactional_id}")
        machine.do_quietly("time 12000")
    for history in machine.states().values():
        for before, after in itertools.pairwise(history):
            assert before.state in FOLLOWS[after.state]
            assert (after.producer_id, after.producer_epoch) >= (before.producer_id, before.producer_epoch)
            if after.state in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT):
                assert after.start_ms == before.start_ms >= 0
        assert history[-1].state.is_at_rest
        shard = machine.shard
        assert shard.describe(history[-1].transactional_id).state == history[-1].state.label
    assert not machine.shard._endings and not machine.shard._ongoing
