"""The life of a node's pages: which address, when they say what, and what is missing where a library is."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from broker.controllers import until
from broker.telemetry.pages import Answer, get
from peers.kafka import free_port

from headrace.broker.broker import Broker
from headrace.broker.controller_node import ControllerNode
from headrace.broker.quorum.metadata_start import format_storage
from headrace.broker.telemetry import exposition
from headrace.broker.telemetry.monitor import CannotListenForMetrics
from headrace.config import BrokerConfig, ConfigError
from headrace.config.headrace_table import HEADRACE_ROWS
from headrace.env.posix_node import PosixNode

ALONE = {"node.id": "1", "process.roles": "broker,controller", "listeners": "PLAINTEXT://127.0.0.1:0"}


def config_of(folder: Path, **given: str) -> BrokerConfig:
    settings = {**ALONE, "log.dirs": str(folder), **{name.replace("_", "."): text for name, text in given.items()}}
    return BrokerConfig.load(settings)


@asynccontextmanager
async def running(config: BrokerConfig) -> AsyncIterator[Broker]:
    broker = Broker(config, PosixNode())
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()
        assert broker.node.defects.count == 0, broker.node.defects.first


async def page(port: int | None, path: str) -> Answer:
    assert port is not None
    return await asyncio.to_thread(get, port, path)


async def said(port: int | None, path: str) -> tuple[int, str]:
    answer = await page(port, path)
    return answer.status, answer.body.decode().strip()


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9404", ("127.0.0.1", 9404)),
        ("0", ("127.0.0.1", 0)),
        (":9404", ("", 9404)),
        ("[::1]:9", ("::1", 9)),
        ("-1", None),
        ("127.0.0.1:-1", None),
    ],
)
def test_the_setting(text: str, address: tuple[str, int] | None) -> None:
    assert BrokerConfig.load({"metrics.listener": text}).metrics_address == address


@pytest.mark.parametrize("text", ["", "here", "127.0.0.1:", "127.0.0.1:65536", "::1:9", "-2", "http://x:80/"])
def test_the_setting_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"metrics\.listener"):
        BrokerConfig.load({"metrics.listener": text})


async def test_a_taken_default_is_a_line(
    tmp_path: Path, taken: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert next(row for row in HEADRACE_ROWS if row.name == "metrics.listener").default == "127.0.0.1:9404"
    monkeypatch.setattr(BrokerConfig, "metrics_address", ("127.0.0.1", taken))
    with caplog.at_level(logging.WARNING):
        async with running(config_of(tmp_path)) as broker:
            assert broker.monitor.port is None
            assert broker.server.shared.times is None, "nothing is timed that nobody sees"
    lines = [record.getMessage() for record in caplog.records if record.name == "headrace.metrics"]
    assert len(lines) == 1 and f"127.0.0.1:{taken}" in lines[0] and "Address already in use" in lines[0]


async def test_a_taken_address_that_is_asked_for_ends_the_start(tmp_path: Path, taken: int) -> None:
    broker = Broker(config_of(tmp_path / "data", metrics_listener=f"127.0.0.1:{taken}"), PosixNode())
    with pytest.raises(CannotListenForMetrics, match=rf"metrics.listener cannot have 127.0.0.1:{taken}: .*; give"):
        await broker.start()
    assert not (tmp_path / "data").exists()


async def test_it_is_switched_off(tmp_path: Path) -> None:
    async with running(config_of(tmp_path, metrics_listener="-1")) as broker:
        assert broker.monitor.port is None
        assert broker.server.shared.times is None


async def test_two_on_one_machine(tmp_path: Path) -> None:
    async with running(config_of(tmp_path / "1", metrics_listener="0")) as one:
        async with running(config_of(tmp_path / "2", metrics_listener="0")) as two:
            assert await said(one.monitor.port, "/readyz") == await said(two.monitor.port, "/readyz") == (200, "ready")


async def test_without_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(exposition, "is_installed", lambda: False)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with caplog.at_level(logging.WARNING):
        async with running(config_of(tmp_path, metrics_listener="0")) as broker:
            assert await said(broker.monitor.port, "/livez") == (200, "alive")
            assert await said(broker.monitor.port, "/readyz") == (200, "ready")
            status, line = await said(broker.monitor.port, "/metrics")
            assert (status, line) == (404, "the metrics need prometheus-client: pip install 'headrace[metrics]'")
            assert broker.server.shared.times is None
    lines = [record.getMessage() for record in caplog.records if record.name == "headrace.metrics"]
    assert len(lines) == 1 and "prometheus-client is not installed" in lines[0]


async def test_a_broken_library_is_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposition, "is_installed", lambda: True)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    broker = Broker(config_of(tmp_path, metrics_listener="0"), PosixNode())
    await broker.start()
    try:
        assert (await page(broker.monitor.port, "/metrics")).status == 500
        assert (await page(broker.monitor.port, "/metrics")).status == 500
        assert isinstance(broker.node.defects.first, ImportError)
    finally:
        await broker.stop()


async def test_what_a_broker_says_of_its_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(config_of(tmp_path, metrics_listener="0"), PosixNode())
    join, seen = broker._join, []

    async def looked_at() -> None:
        seen.append(await said(broker.monitor.port, "/livez"))
        seen.append(await said(broker.monitor.port, "/readyz"))
        await join()

    monkeypatch.setattr(broker, "_join", looked_at)
    await broker.start()
    assert seen == [(200, "alive"), (503, "starts")]
    assert await said(broker.monitor.port, "/readyz") == (200, "ready")
    deregister = broker._deregister

    async def looked_at_again() -> None:
        seen.append(await said(broker.monitor.port, "/readyz"))
        await deregister()

    monkeypatch.setattr(broker, "_deregister", looked_at_again)
    broker.fail("its disks are\ngone")
    assert await said(broker.monitor.port, "/livez") == (503, "its disks are gone")
    assert await said(broker.monitor.port, "/readyz") == (503, "its disks are gone")
    broker.monitor._failure = ""
    await broker.stop()
    assert seen[2:] == [(503, "stops")]


async def test_a_broker_that_is_fenced_is_not_ready(tmp_path: Path) -> None:
    async with running(config_of(tmp_path, metrics_listener="0")) as broker:
        await broker._deregister()
        assert await said(broker.monitor.port, "/readyz") == (503, "the controller has fenced this broker")
        assert await said(broker.monitor.port, "/livez") == (200, "alive")


async def test_controllers(tmp_path: Path) -> None:
    """Ready once there is a leader; one of them is the active one, and counts brokers."""
    pytest.importorskip("prometheus_client")
    nodes = (1, 2, 3)
    ports = {node: free_port() for node in nodes}
    running: dict[int, ControllerNode] = {}

    async def start(node: int) -> None:
        config = BrokerConfig.load(
            {
                "node.id": str(node),
                "process.roles": "controller",
                "listeners": f"CONTROLLER://127.0.0.1:{ports[node]}",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": ",".join(f"{each}@127.0.0.1:{ports[each]}" for each in nodes),
                "log.dirs": str(tmp_path / str(node)),
                "metrics.listener": "0",
            }
        )
        env = PosixNode()
        format_storage(env, config, "dGhyZWUtY29udHJvbGxlcg")
        running[node] = ControllerNode(config, env)
        await running[node].start()

    try:
        await start(1)
        assert await said(running[1].monitor.port, "/livez") == (200, "alive")
        assert await said(running[1].monitor.port, "/readyz") == (503, "no leader of the metadata quorum is known")
        await start(2)
        await start(3)
        async with asyncio.timeout(20):
            await until(lambda: sum(node.quorum.decides for node in running.values()) == 1)
            for node in running.values():
                while await said(node.monitor.port, "/readyz") != (200, "ready"):  # noqa: ASYNC110 - asks the node
                    await asyncio.sleep(0.02)
        texts = [(await page(node.monitor.port, "/metrics")).body.decode() for node in running.values()]
        active = [text for text in texts if "\nkafka_controller_kafkacontroller_activecontrollercount 1" in text]
        assert len(active) == 1
        assert "\nkafka_controller_kafkacontroller_activebrokercount 0.0\n" in active[0]
        assert active[0].count("\nheadrace_quorum_voter_lag_records{voter=") == 2
        others = [text for text in texts if text != active[0]]
        assert all("activebrokercount" not in text and "brokertopicmetrics" not in text for text in others)
        assert all('current_state="follower"} 1.0' in text for text in others)
    finally:
        for node in running.values():
            await node.stop()
            assert node.node.defects.count == 0, node.node.defects.first
