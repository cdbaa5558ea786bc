"""Small changes of a file, and the ledger of what came of them."""

from __future__ import annotations

import textwrap
from pathlib import Path

from headrace.sim.mutate.command import every_mutation
from headrace.sim.mutate.ledger import SURVIVED, Ledger
from headrace.sim.mutate.mutations import mutations_of
from headrace.sim.mutate.trial import KINDS

SOURCE = textwrap.dedent(
    '''
    """Words, which are no decision."""
    from typing import TYPE_CHECKING

    if TYPE_CHECKING:
        import datetime


    class Log:
        def cut(self, end: int, epoch: int | None) -> bool:
            """Cuts (end < 1)."""
            assert end >= 0, f"{end + 1}"
            if epoch is not None and end < self.end + 1 or self.open:
                self.end = min(end, 7)
                self.changed(end)
                return True
            return any(each for each in self.waiting if each.ready)

        def __repr__(self) -> str:
            return "open" if self.open else "closed"
    '''
)


def test_what_is_changed_and_how() -> None:
    found = [(each.kind, each.before, each.after) for each in mutations_of("log.py", SOURCE.encode())]
    condition = "epoch is not None and end < self.end + 1 or self.open"
    assert sorted(found) == sorted(
        [
            ("dropped condition 2", condition, "((epoch is not None and end < self.end + 1))"),
            ("dropped condition 1", condition, "((self.open))"),
            ("swapped branch", condition, f"not ({condition})"),
            ("swapped comparison", "epoch is not None", "(epoch is None)"),
            ("dropped condition 2", "epoch is not None and end < self.end + 1", "((epoch is not None))"),
            ("dropped condition 1", "epoch is not None and end < self.end + 1", "((end < self.end + 1))"),
            ("off by one", "end < self.end + 1", "(end <= (self.end + 1))"),
            ("off by one", "self.end + 1", "(self.end)"),
            ("lost statement", "self.end = min(end, 7)", "pass"),
            ("other end", "min", "max"),
            ("lost statement", "self.changed(end)", "pass"),
            ("other answer", "True", "False"),
            ("dropped condition", "each.ready", "True"),
        ]
    )


def test_every_change_of_the_pure_packages_is_python_and_has_a_key_of_its_own() -> None:
    mutations = every_mutation(list(KINDS))
    assert len({each.key for each in mutations}) == len(mutations) > 1000


def test_a_later_run_goes_on_with_the_ledger(tmp_path: Path) -> None:
    first, second, *_ = mutations_of("raft/log.py", SOURCE.encode())
    ledger = Ledger(tmp_path / "ledger")
    ledger.add(first, "tests", 1.25)
    ledger.add(second, SURVIVED, 60)
    again = Ledger(tmp_path / "ledger")
    assert first.key in again and second.key in again
    assert not again.has_survivor(first.key) and again.has_survivor(second.key)
    lines = list(again.report({first.key, second.key, "raft/other"}))
    assert lines[:2] == ["raft: 1 of 2 noticed (0.50)", "all: 1 of 2 noticed (0.50)"]
    survivor = f"raft/log.py:{second.line}: {second.kind}: {second.before} -> {second.after}"
    assert lines[2:] == [survivor]
    again.add(second, "tests", 2)
    assert not Ledger(tmp_path / "ledger").has_survivor(second.key)
    elsewhere = mutations_of("raft/log.py", b"x = 1\n" + SOURCE.encode() + b"\ndef f() -> None: ...\n")
    assert elsewhere[0].key == first.key
    changed = mutations_of("raft/log.py", SOURCE.replace("return True", "return False").encode())
    assert changed[0].key not in again
    assert list(again.report({each.key for each in changed})) == []
