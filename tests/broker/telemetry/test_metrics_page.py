"""The page of metrics of a running broker, read by prometheus-client's own parser, and by curl."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka as ck
import pytest
from broker.raw import Raw, batch, create_topic, fetch, produce
from broker.telemetry.pages import Answer, get
from peers.waiting import until

from headrace.broker.broker import Broker
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker

prometheus_client = pytest.importorskip("prometheus_client")
parser = pytest.importorskip("prometheus_client.parser")

Page = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture(scope="module")
def node() -> Iterator[TestBroker]:
    with running_broker({"metrics.listener": "127.0.0.1:0"}) as running:
        yield running


def port_of(node: TestBroker) -> int:
    port = node.inside.monitor.port
    assert port is not None
    return port


def families(answer: Answer) -> list[Any]:
    assert answer.status == 200, answer.body
    return list(parser.text_string_to_metric_families(answer.body.decode()))


def page(node: TestBroker) -> Page:
    """Every sample by its name and labels."""
    found: Page = {}
    for family in families(get(port_of(node), "/metrics")):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found, f"{key} is there twice"
            found[key] = sample.value
    return found


def key(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(labels.items())


def test_the_page_is_what_prometheus_reads(node: TestBroker) -> None:
    answer = get(port_of(node), "/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    found = families(answer)
    names = [family.name for family in found]
    assert len(names) == len(set(names)), "a family is one block of lines"
    assert all(family.type != "unknown" and family.documentation for family in found)
    assert {sample.name for family in found for sample in family.samples} >= {
        "process_cpu_seconds_total",
        "process_resident_memory_bytes",
        "process_open_fds",
        "headrace_loop_lag_seconds_count",
        "headrace_log_directory_free_bytes",
        "headrace_build_info",
    }


def test_what_clients_do_is_counted(node: TestBroker) -> None:
    create_topic(node.port, "traffic", 1)
    record = batch(b"a", b"b", b"c")
    before = page(node)
    with Raw(node.port) as raw:
        for _ in range(4):
            raw.ask(produce("traffic", record), 9)
        assert raw.ask(produce("traffic", record, partition=7), 9).responses[0].partition_responses[0].error_code == 3
        for offset in (0, 3, 6):
            raw.ask(fetch("traffic", offset, partition_max_bytes=1), 11)
    after = page(node)

    def grew(name: str, **labels: str) -> float:
        return after[key(name, **labels)] - before.get(key(name, **labels), 0)

    requests = "kafka_network_requestmetrics_"
    topics = "kafka_server_brokertopicmetrics_"
    assert grew(f"{requests}requests_total", request="Produce") == 5
    assert grew(f"{requests}errors_total", request="Produce", error="UNKNOWN_TOPIC_OR_PARTITION") == 1
    assert grew(f"{requests}totaltimems_count", request="Produce") == 5
    assert grew(f"{requests}totaltimems_count", request="Fetch") == 3
    assert grew(f"{requests}totaltimems_bucket", request="Fetch", le="+Inf") == 3
    assert grew(f"{topics}totalproducerequests_total") == 5
    assert grew(f"{topics}failedproducerequests_total") == 1
    assert grew(f"{topics}totalfetchrequests_total") == 3
    assert grew(f"{topics}bytesin_total") == 4 * len(record)
    assert grew(f"{topics}bytesin_total", topic="traffic") == 4 * len(record)
    assert grew(f"{topics}bytesout_total") == 3 * len(record)
    assert grew(f"{topics}bytesout_total", topic="traffic") == 3 * len(record)
    assert grew(f"{topics}messagesin_total") == 12
    assert grew(f"{topics}messagesin_total", topic="traffic") == 12


def test_every_way_of_a_request_is_timed_once(node: TestBroker) -> None:
    """Short, long, together, and those whose answers wait."""
    create_topic(node.port, "timed", 2)

    def counts() -> tuple[list[float], list[float]]:
        found = page(node)
        names = ("kafka_network_requestmetrics_requests_total", "kafka_network_requestmetrics_totaltimems_count")
        apis = ("Produce", "Fetch", "Metadata", "ApiVersions", "CreateTopics", "FindCoordinator")
        return tuple([found.get(key(name, request=api), 0) for api in apis] for name in names)  # type: ignore[return-value]

    with Raw(node.port) as raw, Raw(node.port) as other:
        raw.socket.sendall(b"".join(raw.frame(produce("timed", batch(b"x"), acks=1), 9) for _ in range(20)))
        for _ in range(20):
            raw.receive(0, 9)
        damaged = batch(b"x" * 99)[:-1] + b"y"
        assert raw.ask(produce("timed", damaged), 9).responses[0].partition_responses[0].error_code == 2
        raw.ask(produce("timed", batch(b"x"), batch(b"y")), 9)  # two partitions: the general path
        raw.send(produce("timed", batch(b"x"), acks=0), 9)  # no answer
        raw.socket.sendall(raw.frame(fetch("timed", 0), 11) + raw.frame(fetch("timed", 1), 11))
        raw.receive(1, 11)
        raw.receive(1, 11)
        raw.send(fetch("timed", 23, max_wait_ms=5000), 11)  # waits for more
        raw.send(fetch("timed", 0), 11)  # and this one behind it
        time.sleep(0.05)
        other.ask(produce("timed", batch(b"z"), acks=1), 9)
        raw.receive(1, 11)
        raw.receive(1, 11)
        create_topic(node.port, "timed-too", 1)
    requests, timed = counts()
    assert requests == timed
    assert requests[0] >= 24 and requests[1] >= 4


def test_partitions_and_the_quorum(node: TestBroker) -> None:
    before = page(node)
    create_topic(node.port, "counted", 5)
    found = page(node)
    replicas, controller, raft = (
        "kafka_server_replicamanager_",
        "kafka_controller_kafkacontroller_",
        "kafka_server_raftmetrics_",
    )
    for name in (f"{replicas}leadercount", f"{replicas}partitioncount", f"{controller}globalpartitioncount"):
        assert found[key(name)] - before[key(name)] == 5
    assert found[key(f"{controller}globaltopiccount")] - before[key(f"{controller}globaltopiccount")] == 1
    for name in (
        f"{replicas}underreplicatedpartitions",
        f"{replicas}underminisrpartitioncount",
        f"{replicas}atminisrpartitioncount",
        f"{replicas}offlinereplicacount",
        f"{replicas}isrshrinks_total",
        f"{replicas}isrexpands_total",
        f"{controller}offlinepartitionscount",
        f"{controller}fencedbrokercount",
        "kafka_log_logmanager_offlinelogdirectorycount",
    ):
        assert found[key(name)] == 0, name
    assert found[key("headrace_defects")] == before[key("headrace_defects")], "another test may have planted one"
    assert found[key(f"{controller}activecontrollercount")] == 1
    assert found[key(f"{controller}activebrokercount")] == found[key("kafka_brokers")] == 1
    assert found[key("kafka_topic_partitions", topic="counted")] == 5
    assert found[key(f"{raft}current_leader")] == node.inside.node_id
    assert found[key(f"{raft}current_state", current_state="leader")] == 1
    assert found[key(f"{raft}current_epoch")] == node.call(lambda broker: broker.quorum.epoch)
    assert found[key(f"{raft}high_watermark")] == found[key(f"{raft}log_end_offset")]
    assert found[key("headrace_metadata_image_offset")] == found[key(f"{raft}log_end_offset")] - 1
    assert found[key("kafka_server_kafkaserver_brokerstate")] == 3


def test_every_partition_has_the_size_of_its_log(node: TestBroker) -> None:
    create_topic(node.port, "sized", 2)
    record = batch(b"x" * 100)
    with Raw(node.port) as raw:
        raw.ask(produce("sized", record, partition=1), 9)
    found = page(node)
    assert found[key("kafka_log_log_size", topic="sized", partition="0")] == 0
    assert found[key("kafka_log_log_size", topic="sized", partition="1")] == len(record)
    assert found[key("headrace_log_size_bytes")] >= len(record)
    assert found[key("headrace_partitions_without_series")] == 0


def test_what_a_group_has_not_read(node: TestBroker) -> None:
    create_topic(node.port, "read", 2)
    with Raw(node.port) as raw:
        for _ in range(3):
            raw.ask(produce("read", batch(b"x"), partition=1), 9)
    consumer = ck.Consumer({"bootstrap.servers": node.bootstrap, "group.id": "readers"})
    consumer.commit(offsets=[ck.TopicPartition("read", 0, 0), ck.TopicPartition("read", 1, 1)], asynchronous=False)
    consumer.close()
    found = page(node)
    of_group = {"consumergroup": "readers", "topic": "read"}
    assert found[key("kafka_consumergroup_current_offset", **of_group, partition="1")] == 1
    assert found[key("kafka_consumergroup_lag", **of_group, partition="0")] == 0
    assert found[key("kafka_consumergroup_lag", **of_group, partition="1")] == 2
    assert found[key("kafka_consumergroup_lag_sum", **of_group)] == 2
    assert found[key("kafka_topic_partition_current_offset", topic="read", partition="1")] == 3
    assert found[key("kafka_topic_partition_oldest_offset", topic="read", partition="1")] == 0
    assert found[key("kafka_cluster_partition_underminisr", topic="read", partition="1")] == 0
    assert found[key("headrace_group_offsets_without_series")] == 0


def test_the_loop_is_idle_or_not(node: TestBroker) -> None:
    names = (
        "kafka_network_socketserver_networkprocessoravgidle_percent",
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
    )
    before = page(node)[key(names[0])]
    share = node.inside.monitor._share
    assert share is not None

    def work(_: Broker) -> None:
        began_s = time.thread_time()
        share._marks.clear()
        share.start()
        while time.thread_time() - began_s < 0.3:
            pass

    assert 0 <= before <= 1
    node.call(work)
    busy = page(node)
    assert busy[key(names[0])] < before and busy[key(names[0])] < 0.9
    assert busy[key(names[1])] == pytest.approx(busy[key(names[0])], abs=0.1)


def test_topics_have_series_up_to_a_bound() -> None:
    with running_broker({"metrics.listener": "127.0.0.1:0", "metrics.topics.max": 2}) as node:
        for number in range(4):
            create_topic(node.port, f"bounded-{number}", 1)
        found = page(node)
        with_series = {dict(labels)["topic"] for name, labels in found if name == "headrace_topic_leaders"}
        assert len(with_series) == 2
        assert found[key("headrace_topics_without_series")] == 2


def test_a_page_is_made_once_for_those_who_ask_together(node: TestBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    exposition = node.inside.monitor._page
    assert exposition is not None
    begun: list[None] = []
    begin = exposition._begin

    def counted() -> None:
        begun.append(None)
        begin()

    monkeypatch.setattr(exposition, "_begin", counted)
    pages: list[bytes | None] = []

    async def ask() -> None:
        pages.append(await exposition.render())

    def ask_together(broker: Broker) -> None:
        owner = broker.node.owner("asks")
        for _each in range(3):
            owner.spawn(ask())

    node.call(ask_together)
    until(lambda: len(pages) == 3, "all have a page")
    assert len(begun) == 1 and pages[0] == pages[1] == pages[2]
    assert page(node)


def test_a_defect_in_a_section_is_an_answer(node: TestBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    exposition = node.inside.monitor._page
    assert exposition is not None

    def broken() -> Iterator[None]:
        yield None
        raise ZeroDivisionError

    monkeypatch.setattr(exposition, "_sections", [broken])
    assert get(port_of(node), "/metrics").status == 500
    assert isinstance(node.take_defect(), ZeroDivisionError)
    monkeypatch.undo()
    assert get(port_of(node), "/metrics").status == 200


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not here")
def test_curl(node: TestBroker) -> None:
    def curl(*arguments: str) -> str:
        command = ["curl", "--silent", "--show-error", "--fail", "--max-time", "10", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    address = f"http://127.0.0.1:{port_of(node)}"
    assert curl(f"{address}/livez", f"{address}/readyz") == "alive\nready\n"
    assert "\nkafka_server_replicamanager_leadercount " in curl(f"{address}/metrics")
    assert curl("--head", f"{address}/metrics").startswith("HTTP/1.1 200 OK\n")
    assert curl("--http1.0", f"{address}/readyz") == "ready\n"


def wait_for(look: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not look():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_held_loop_is_seen(node: TestBroker) -> None:
    lag = node.inside.monitor._lag
    assert lag is not None
    node.call(lambda _: time.sleep(0.4))
    wait_for(lambda: lag.max_s >= 0.2)
    found = page(node)
    assert found[key("headrace_loop_lag_max_seconds")] >= 0.2
    late = (
        found[key("headrace_loop_lag_seconds_bucket", le="+Inf")]
        - found[key("headrace_loop_lag_seconds_bucket", le="0.1")]
    )
    assert late >= 1
