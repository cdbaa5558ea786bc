"""`headrace produce --transactional-id` against Apache Kafka: all of the input is seen, or none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from peers.kafka import KafkaPeer
from peers.transactions import SMALL, settled_ends

from headrace.cli import main
from headrace.client.cluster import Client
from headrace.client.transactions import TransactionalProducer

pytestmark = pytest.mark.jvm


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaPeer]:
    with KafkaPeer(settings=SMALL) as kafka:
        yield kafka


@pytest.fixture
def run(kafka: KafkaPeer) -> Callable[..., Any]:
    def run(*arguments: str, stdin: str | None = None, code: int = 0) -> Any:
        done = CliRunner(env={"HEADRACE_BOOTSTRAP": kafka.bootstrap}).invoke(main, arguments, input=stdin)
        assert done.exit_code == code, (arguments, done.output, done.exception)
        return done

    return run


def test_all_of_the_input_or_none(run: Callable[..., Any], kafka: KafkaPeer) -> None:
    run("topic", "create", "paid", "-p", "2")
    said = run("produce", "paid", "--transactional-id", "billing", stdin="a\nb\nc\n").stderr
    assert "wrote 3 records to topic paid" in said
    bad = ("produce", "paid", "--format", "json", "--transactional-id", "billing")
    said = run(*bad, stdin='{"value": "d"}\n{\n', code=1).stderr
    assert "line 2: not JSON" in said and said.rstrip().endswith("the command wrote no record")
    assert sorted(run("consume", "paid", "--committed").stdout.split()) == ["a", "b", "c"]
    with Client(kafka.bootstrap) as client:
        other = TransactionalProducer(client, "billing")
        other.begin()
        other.send("paid", b"other", partition=0)
        other.flush()
        run("produce", "paid", "--transactional-id", "billing", stdin="e\n")
        settled_ends(client, "paid")
    assert sorted(run("consume", "paid", "--committed").stdout.split()) == ["a", "b", "c", "e"]
    run("produce", "paid", "--transactional-id", "billing", "--acks", "1", stdin="x\n", code=2)
