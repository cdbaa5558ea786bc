"""`headrace cluster health --wait`: it asks until the cluster answers and is healthy, and no longer than it may."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from click.testing import CliRunner, Result

import headrace.testing
from headrace.cli import cluster as command
from headrace.cli import main
from headrace.client import Client, health
from headrace.client.errors import ClientError, UnreachableError, UntrustedError

NOBODY = UnreachableError("no broker answers")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["cluster", "health", *arguments], prog_name="headrace")


@pytest.fixture
def healthy() -> health.Health:
    with headrace.testing.broker() as broker, broker.client() as client:
        return health.examine(client)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[object]]:
    """Lets the cluster give these answers, one after the other; returns those that are left."""

    def give(*each: health.Health | ClientError) -> list[object]:
        left: list[object] = list(each)

        def examine(client: Client) -> object:
            found = left.pop(0)
            if isinstance(found, ClientError):
                raise found
            return found

        monkeypatch.setattr(health, "examine", examine)
        monkeypatch.setattr(command, "ASK_AGAIN_S", 0.0)
        return left

    return give


def test_it_waits_for_a_cluster_that_starts(healthy: health.Health, answers: Callable[..., list[object]]) -> None:
    left = answers(NOBODY, replace(healthy, silent=(2,)), NOBODY, healthy, healthy)
    assert run("--wait", "600").exit_code == 0
    assert left == [healthy]


def test_without_it_the_first_answer_counts(healthy: health.Health, answers: Callable[..., list[object]]) -> None:
    left = answers(replace(healthy, silent=(2,)), NOBODY, healthy)
    assert run().exit_code == 1
    assert run().exit_code == 3
    assert left == [healthy]


def test_what_stays_wrong_is_shown_at_the_end(healthy: health.Health, answers: Callable[..., list[object]]) -> None:
    answers(*[replace(healthy, silent=(2,))] * 100_000)
    done = run("--wait", "0.05")
    assert done.exit_code == 1 and "broker 2 does not answer" in done.stdout


def test_waiting_does_not_help_who_is_not_believed(answers: Callable[..., list[object]]) -> None:
    left = answers(UntrustedError("the certificate is not believed"), NOBODY)
    assert run("--wait", "600").exit_code != 0
    assert left == [NOBODY]
