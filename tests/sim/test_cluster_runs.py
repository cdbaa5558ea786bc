"""Whole clusters under the simulator: seeds that must hold, one trace a seed in every process, and planted faults."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable, Sequence

import pytest

from headrace.env.tls import TlsStream
from headrace.sim.cluster_run import (
    ClusterRun,
    run_apart_seed,
    run_cluster_seed,
    run_dynamic_seed,
    run_encrypted_seed,
    run_grouped_seed,
    run_guarded_seed,
    run_raised_seed,
    run_transactions_seed,
)
from headrace.sim.found_at import SEEDS_OF_A_PLANT, seeds_of
from headrace.sim.run import Result
from headrace.sim.sabotage import (
    PLANTED_IN_CLUSTERS,
    PLANTED_IN_GROUPS,
    PLANTED_IN_RAISES,
    PLANTED_IN_RIGHTS,
    PLANTED_IN_TRANSACTIONS,
    planted,
)
from headrace.wire.primitives import Buffer

SEEDS = (4, pytest.param(36, marks=pytest.mark.slow), pytest.param(24, marks=pytest.mark.soak))
SEEDS_APART = (1, pytest.param(2, marks=pytest.mark.slow))
SEEDS_DYNAMIC = (1, pytest.param(5, marks=pytest.mark.soak))
SEED_RAISED = 7
"""Two leaders fail that have appended what raises kraft.version, and it is cut from their logs; then it is raised."""
SEED_CHANGED = 20
"""Where the search begins for a run in which it is raised, and voters come and go several times."""
SEED_FENCED_WRONGLY = 1000041
SEEDS_RAISED = (SEED_RAISED, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(20, 30)))
SEEDS_TRANSACTIONAL = (5, 8)
SEEDS_GUARDED = (1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 30)))
SEEDS_ENCRYPTED = (1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 20)))
SEEDS_GROUPED = (26, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(30, 40)))
BLOCKS = [2, *(pytest.param(block, marks=pytest.mark.soak) for block in (0, 1, 3, 4, 5))]
BLOCK_SEEDS = 3

BROKE = (
    pytest.param(run_apart_seed, 51, id="a heartbeat that came while the active controller stopped met an assertion"),
    pytest.param(run_dynamic_seed, 500321, id="a follower that waited for its disk ended the rest of a stop"),
    pytest.param(
        run_raised_seed,
        500240,
        id="a deposed controller took its log for damaged beside a newer snapshot",
        marks=pytest.mark.soak,
    ),
    pytest.param(
        run_raised_seed, 500294, id="a clock that was set forward held a rebalance up", marks=pytest.mark.soak
    ),
)
"""Seeds that broke something once, and what."""

THIN_RAISES = ("keeps-a-level-that-was-cut",)
"""The one that is found soonest."""
THIN = (
    "answers-what-is-not-committed",
    "sends-markers-too-early",
    "takes-any-marker",
    "takes-a-batch-after-its-marker",
    "counts-offsets-at-once",
    "times-out-without-a-raise",
    "ends-some-the-other-way",
    "names-no-aborted",
    "lets-two-live",
)
"""Those that are found before the two minutes are over in which everybody must get on."""


@pytest.mark.parametrize("seed", SEEDS)
def test_a_cluster_keeps_its_promises(seed: int) -> None:
    result = run_cluster_seed(seed)
    assert result.objection is None, f"python -m headrace.sim --cluster --seed {seed}"
    assert result.acknowledged > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS_TRANSACTIONAL)
def test_transactions_keep_their_promises(seed: int) -> None:
    result = run_transactions_seed(seed)
    assert result.objection is None, f"python -m headrace.sim --transactions --seed {seed}"
    assert result.judged >= result.transactions > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS_GROUPED)
def test_transactions_that_commit_as_groups_keep_their_promises(seed: int) -> None:
    result = run_grouped_seed(seed)
    assert result.objection is None, f"python -m headrace.sim --grouped --seed {seed}"
    assert result.judged >= result.transactions > 0


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", PLANTED_IN_GROUPS)
def test_a_fault_planted_into_groups_of_transactions_is_found(name: str) -> None:
    with planted(name):
        assert any(run_grouped_seed(seed).objection is not None for seed in seeds_of(name))


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS_GUARDED)
def test_rights_that_change_are_kept(seed: int) -> None:
    run = ClusterRun(seed, guarded=True)
    assert run.run().objection is None, f"python -m headrace.sim --guarded --seed {seed}"
    assert run.rights is not None
    assert run.rights.accepted > 0 < run.rights.refused


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS_ENCRYPTED)
def test_nodes_that_speak_tls_keep_their_promises(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    send = TlsStream.send

    def noted(stream: TlsStream, parts: Sequence[Buffer], more: bool = False) -> int:
        opened.append(stream.protocol)
        return send(stream, parts, more)

    monkeypatch.setattr(TlsStream, "send", noted)
    assert run_encrypted_seed(seed).objection is None, f"python -m headrace.sim --encrypted --seed {seed}"
    assert opened.count("TLSv1.3") > 1000


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED_IN_RIGHTS)
def test_a_fault_planted_into_rights_is_found(name: str) -> None:
    with planted(name):
        assert any(run_guarded_seed(seed).objection is not None for seed in seeds_of(name))


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS_APART)
def test_brokers_beside_controllers_keep_their_promises(seed: int) -> None:
    result = run_apart_seed(seed)
    assert result.objection is None, f"python -m headrace.sim --apart --seed {seed}"
    assert result.acknowledged > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS_DYNAMIC)
def test_a_cluster_whose_voters_come_and_go_keeps_its_promises(seed: int) -> None:
    result = run_dynamic_seed(seed)
    assert result.objection is None, f"python -m headrace.sim --dynamic --seed {seed}"
    assert result.acknowledged > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS_RAISED)
def test_a_cluster_that_raises_kraft_version_keeps_its_promises(seed: int) -> None:
    result = run_raised_seed(seed)
    assert result.objection is None, f"python -m headrace.sim --raised --seed {seed}"
    assert result.acknowledged > 0


@pytest.mark.slow
def test_voters_come_and_go_once_kraft_version_is_raised() -> None:
    results = (run_raised_seed(seed) for seed in range(SEED_CHANGED, SEED_CHANGED + SEEDS_OF_A_PLANT))
    assert any(result.kraft_version == 1 and result.voter_changes > 3 for result in results)


@pytest.mark.slow
def test_a_broker_that_is_fenced_though_it_lives_loses_nothing() -> None:
    """Its listener refuses the controller, its connections end, and it goes on (ADR 11)."""
    told: list[str] = []
    result = run_cluster_seed(SEED_FENCED_WRONGLY, told.append)
    assert any("broker was fenced though it lives" in line for line in told)
    assert result.objection is None and result.acknowledged > 0


@pytest.mark.slow
@pytest.mark.parametrize(("run", "seed"), BROKE)
def test_what_broke_once_holds(run: Callable[[int], Result], seed: int) -> None:
    assert run(seed).objection is None


@pytest.mark.slow
@pytest.mark.parametrize("block", BLOCKS)
def test_no_promise_is_broken(block: int) -> None:
    for seed in range(1000 + block * BLOCK_SEEDS, 1000 + (block + 1) * BLOCK_SEEDS):
        assert run_cluster_seed(seed).objection is None, f"python -m headrace.sim --cluster --seed {seed}"


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED_IN_CLUSTERS)
def test_a_planted_fault_is_found(name: str) -> None:
    with planted(name):
        assert any(run_cluster_seed(seed).objection is not None for seed in seeds_of(name))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in THIN_RAISES else pytest.mark.soak) for name in PLANTED_IN_RAISES]
)
def test_a_fault_planted_into_a_raise_of_kraft_version_is_found(name: str) -> None:
    with planted(name):
        assert any(run_raised_seed(seed).objection is not None for seed in seeds_of(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", THIN)
def test_a_fault_planted_into_transactions_is_found(name: str) -> None:
    with planted(name):
        assert any(run_transactions_seed(seed).objection is not None for seed in seeds_of(name))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", PLANTED_IN_TRANSACTIONS)
def test_every_fault_planted_into_transactions_is_found(name: str) -> None:
    with planted(name):
        assert any(run_transactions_seed(seed).objection is not None for seed in seeds_of(name))


@pytest.mark.slow
def test_a_seed_has_one_trace_whatever_the_process() -> None:
    def digest(hash_seed: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "headrace.sim", "--cluster", "--seed", "4"],
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.splitlines()[-1]

    first = digest("0")
    assert first.startswith("digest: ")
    assert digest("1") == first


def test_a_run_that_an_objection_ends_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    ignored: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda raised: ignored.append(raised.exc_value))
    run = ClusterRun(1)
    run.world.loop.call_at(8.0, run.world.object, "enough")
    result = run.run()
    assert str(result.objection) == "enough"
    assert result.simulated_s < 9
    assert run.world.nodes() == []
    del run
    gc.collect()
    assert ignored == []
