"""Planted faults: each has a kind of runs that is to find it, and one command counts the seeds that do."""

from __future__ import annotations

import pytest

from headrace.sim import plants
from headrace.sim.__main__ import main
from headrace.sim.found_at import FOUND_AT, seeds_of
from headrace.sim.kinds import EVERY_PLANT, kind_of
from headrace.sim.plants import StalePlantError, search
from headrace.sim.run import Result
from headrace.sim.sabotage import planted
from headrace.sim.world import Objection

QUICK = "drops-tombstones-too-early"


def test_every_fault_has_one_kind_and_no_seed_is_of_another_fault() -> None:
    assert len(set(EVERY_PLANT)) == len(EVERY_PLANT)
    assert FOUND_AT.keys() < set(EVERY_PLANT)
    assert kind_of(QUICK).flag == "log"


@pytest.mark.parametrize("name", EVERY_PLANT)
def test_every_fault_can_be_planted(name: str) -> None:
    """What it replaces is still there."""
    with planted(name):
        pass


def test_a_search_stops_when_enough_seeds_have_found_the_fault() -> None:
    found = search(QUICK, enough=2)
    assert len(found.found) == 2 and found.tried == found.found[-1] < len(seeds_of(QUICK))
    assert found.is_found_first


def test_a_fault_that_fails_by_itself_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it replaces is called in another form since."""
    objection = Objection("a defect in a request")
    objection.__cause__ = TypeError("'Completion' object is not callable")
    monkeypatch.setattr(plants, "run_of_plant", lambda _: lambda seed, _: Result(seed, "", 0.0, 0, 0, 0, 1, objection))
    with pytest.raises(StalePlantError, match=f"{QUICK}: a defect in a request"):
        search(QUICK, enough=2)


def test_the_command_says_which_faults_are_found_too_rarely(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["plants", QUICK, "--enough", "2"]) == 0
    monkeypatch.setattr(plants, "seeds_of", lambda _: range(1, 2))
    assert main(["plants", QUICK]) == 1
    *_, table, last = capsys.readouterr().out.splitlines()
    assert table.startswith(f"{QUICK} ") and " 1 of  1: 1 (" in table
    assert last == f"found by fewer than 2 seeds: {QUICK}"


def test_the_command_says_which_first_seeds_are_stale(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plants, "seeds_of", lambda _: range(2, 9))
    assert main(["plants", QUICK]) == 1
    table, last = capsys.readouterr().out.splitlines()
    assert "; seed 2 does not find it (" in table
    assert last == f"not found by their first seed: {QUICK}"


@pytest.mark.parametrize("arguments", [["no-such-fault"], [QUICK, "--enough", "1"]])
def test_arguments_that_make_no_sense(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["plants", *arguments])
    assert "usage" in capsys.readouterr().err
