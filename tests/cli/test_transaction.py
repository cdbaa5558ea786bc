"""`headrace transaction`, against both brokers; and a transaction that hangs, on one of ours that verifies nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from cli.conftest import Run
from click.testing import CliRunner

from headrace.cli import main
from headrace.client.cluster import Client
from headrace.client.reading import LATEST, list_offsets
from headrace.client.transactions import TransactionalProducer
from headrace.testing import broker
from headrace.wire.messages.k00_produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from headrace.wire.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headrace.wire.records import Record, build_batch

RunJson = Callable[..., Any]


def test_from_the_first_write_to_the_last_marker(bootstrap: str, topic: str, run: Run, run_json: RunJson) -> None:
    name = f"of-{topic}"
    run("topic", "create", topic, "-p", "2")
    with Client(bootstrap) as client:
        producer = TransactionalProducer(client, name)
        producer.begin()
        producer.send(topic, b"one", partition=0)
        producer.flush()
        (open_,) = run_json("transaction", "describe", name)
        assert open_["state"] == "Ongoing" and open_["partitions"] == [{"topic": topic, "partition": 0}]
        assert f"{name}: Ongoing" in run("transaction", "describe", name).stdout
        (listed,) = run_json("transaction", "list", "--state", "Ongoing", "--producer-id", str(open_["producer_id"]))
        assert listed == {
            "transactional_id": name,
            "producer_id": open_["producer_id"],
            "state": "Ongoing",
            "coordinator": open_["coordinator"],
        }
        assert run_json("transaction", "list", "--longer-than", "1h", "--state", "Ongoing") == []
        assert [each["transactional_id"] for each in run_json("transaction", "list", "--pattern", "of-.*")] == [name]
        assert name in run("transaction", "list").stdout
        assert run_json("transaction", "find-hanging", topic, "--longer-than", "0ms") == []
        producer.commit()
    until = time.monotonic() + 60
    while (found := run_json("transaction", "describe", name)[0])["state"] != "CompleteCommit":
        assert time.monotonic() < until, found
        time.sleep(0.05)
    assert found["partitions"] == []


def test_what_is_not_there(topic: str, run: Run) -> None:
    run("topic", "create", topic, "-p", "1")
    said = run("transaction", "describe", "nobody", code=4).stderr
    assert said.strip() == "headrace: there is no transactional id nobody; `headrace transaction list` lists them"
    assert "no transaction is open" in run("transaction", "abort", topic, "0", "3", "-y", code=4).stderr
    assert "has no partition 99" in run("transaction", "abort", topic, "99", "0", "-y", code=4).stderr


def test_one_that_hangs_is_found_and_ended() -> None:
    with broker({"transaction.partition.verification.enable": "false"}) as ours, Client(ours.bootstrap) as client:

        def run(*arguments: str, code: int = 0) -> str:
            done = CliRunner(env={"HEADRACE_BOOTSTRAP": ours.bootstrap}).invoke(main, arguments)
            assert done.exit_code == code, (arguments, done.output, done.exception)
            return done.stdout

        run("topic", "create", "t", "-p", "1")
        router, leader = client.router, client.topic("t").partitions[0].leader
        name = InitProducerIdRequest("id", 60_000)
        coordinator = client.coordinator("id", kind=1)
        made = client.call(name, InitProducerIdResponse, node_id=coordinator)
        until = time.monotonic() + 60
        while made.error_code:  # the coordinator loads
            assert time.monotonic() < until
            made = client.call(name, InitProducerIdResponse, node_id=coordinator)
        batch = build_batch(
            [Record(0, time.time_ns() // 1_000_000, None, b"late")],
            producer_id=made.producer_id, producer_epoch=made.producer_epoch, base_sequence=0, transactional=True,
        )  # fmt: skip
        data = TopicProduceData(name="t", partition_data=[PartitionProduceData(0, batch)])
        request = ProduceRequest(transactional_id="id", acks=-1, timeout_ms=10_000, topic_data=[data])
        call = client.run(router.send(leader, request, ProduceResponse, version=9))
        answer = client.run(router.wait(call, time.monotonic() + 60))
        assert answer.responses[0].partition_responses[0].error_code == 0

        def stable() -> int:
            return list_offsets(client, {("t", 0): LATEST}, isolation="read_committed")["t", 0].offset

        assert stable() == 0
        assert run("transaction", "find-hanging", "--longer-than", "1h").count("\n") <= 1
        time.sleep(0.01)
        found = run("transaction", "find-hanging", "--longer-than", "1ms")
        assert f" {made.producer_id} " in found
        assert "aborted" in run("transaction", "abort", "t", "0", "0", "-y")
        assert stable() == 2
        assert run("transaction", "find-hanging", "--longer-than", "1ms").count("\n") <= 1
        assert run("consume", "t", "--committed") == ""
