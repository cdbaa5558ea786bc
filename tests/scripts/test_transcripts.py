"""Every script of this folder, each against a fresh machine; `--rewrite` writes what the machines do now."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from controller.clustered import ClusteredController
from groups.consumer.mixed import MixedGroups
from groups.consumer.scripted import ConsumerGroups
from groups.scripted import Coordinator
from machine.scripted import Runtimes
from raft.scripted import Quorum
from replicas.fetching import Fetching
from replicas.scripted import Replica
from scripts.transcript import Scripted, Words, rewritten
from security.scripted import Session
from transactions.scripted import Transactions

FOLDER = Path(__file__).parent
MACHINES: Final[dict[str, Callable[[], Scripted]]] = {
    "consumer_groups": ConsumerGroups,
    "controller": ClusteredController,
    "fetching": Fetching,
    "groups": Coordinator,
    "machine": Runtimes,
    "mixed_groups": MixedGroups,
    "raft": Quorum,
    "replicas": Replica,
    "sasl": Session,
    "transactions": Transactions,
}
SCRIPTS = sorted(FOLDER.glob("*/*.txt"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_transcript(script: Path, request: pytest.FixtureRequest) -> None:
    text = script.read_text()
    now = rewritten(text, MACHINES[script.parent.name]())
    if request.config.getoption("--rewrite"):
        script.write_text(now)
    else:
        assert text == now


def test_every_machine_has_scripts() -> None:
    assert {script.parent.name for script in SCRIPTS} == set(MACHINES)


class Adder(Scripted):
    """Adds what it is told."""

    def do_add(self, words: Words) -> None:
        self.say(f"{sum(map(int, words.plain))} {words.named} {sorted(words.switches)}")

    def do_wait_for(self, words: Words) -> None:
        with self.at(int(words.plain[0])):
            if "quietly" not in words.switches:
                self.say("over")


def test_a_script_is_rewritten_to_what_the_machine_says_now() -> None:
    told = "# Sums.\n\nadd 1 2 by='a b' --twice\nwait-for 5\nwait-for 6 --quietly\n----\nan old trace\n\nadd 3\n"
    said = "# Sums.\n\nadd 1 2 by='a b' --twice\nwait-for 5\nwait-for 6 --quietly\n----\n3 {'by': 'a b'} ['twice']\n"
    said += "at 5\nover\n\nadd 3\n----\n3 {} []\n"
    assert rewritten(told, Adder()) == rewritten(said, Adder()) == said
