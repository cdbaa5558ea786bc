"""`headrace serve --brokers N` as a process: what it starts, keeps running, refuses, and how it ends."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from broker.telemetry.pages import get
from cli.supervised import alive, all_of_refused, in_sync, own_ports, refused, serving
from click.testing import CliRunner
from peers.kafka import free_ports
from testing.acknowledged import PARTITIONS, TOPIC, Load, until

from headrace.cli import main
from headrace.cli.failures import Failure
from headrace.cli.serve import several
from headrace.cli.serve.folder import HeldPorts, Layout, hold_metrics_ports
from headrace.cli.serve.restarts import Restarts
from headrace.config import load_properties_file
from headrace.env.posix import PosixDisk


@pytest.mark.slow
def test_three_nodes_under_load_outlive_the_kill_of_one_and_of_two(tmp_path: Path) -> None:
    with serving(tmp_path / "a folder") as running:
        until(lambda: set(running.admin().list_topics(timeout=60).brokers) == {1, 2, 3}, "three brokers")
        running.create(TOPIC, PARTITIONS)
        with Load(running.bootstrap) as load:
            os.kill(running.processes[0], signal.SIGKILL)
            load.goes_on()
            until(lambda: in_sync(running) == {1, 2, 3}, "the first node back in sync")
            for child in running.processes[1:]:
                os.kill(child, signal.SIGKILL)
            load.goes_on()
            until(lambda: in_sync(running) == {1, 2, 3}, "both nodes back in sync")
        load.is_kept()
        assert [line for line in running.said if "node 1 died by signal SIGKILL, and starts again in 0.1 s" in line]
        assert running.end() == 0
    assert all((tmp_path / "a folder" / f"node-{at}" / "data" / ".kafka_cleanshutdown").exists() for at in (1, 2, 3))


@pytest.mark.slow
def test_a_stopped_child_is_waited_for_and_comes_back(tmp_path: Path) -> None:
    with serving(tmp_path, "--set", "broker.session.timeout.ms=2000") as running:
        running.create(TOPIC, PARTITIONS)
        with Load(running.bootstrap) as load:
            os.kill(running.processes[1], signal.SIGSTOP)
            until(lambda: 2 not in in_sync(running), "the others without it")
            load.goes_on()
            os.kill(running.processes[1], signal.SIGCONT)
            until(lambda: in_sync(running) == {1, 2, 3}, "the node back in sync")
        load.is_kept()
        assert not [line for line in running.said if "died" in line]
        os.kill(running.processes[1], signal.SIGSTOP)
        running.process.send_signal(signal.SIGINT)
        until(lambda: not alive(running.processes[0]) and not alive(running.processes[2]), "the end of the others")
        assert running.process.poll() is None, "it waits for all"
        assert running.end() == 1
        assert running.said[-1] == "headrace: nodes were killed that had not stopped yet"


@pytest.mark.slow
def test_a_folder_is_one_cluster_with_its_own_ports(tmp_path: Path) -> None:
    with serving(tmp_path, listen=own_ports()) as running:
        running.create("kept", 1)
        ports, metrics_ports = running.ports, running.metrics_ports
        assert [get(port, "/readyz").body for port in metrics_ports] == [b"ready\n"] * 3
        assert "is in use" in refused("--data", str(tmp_path), "--brokers", "3")
        assert running.end(signal.SIGHUP) == 0
    with serving(tmp_path) as running:
        assert (running.ports, running.metrics_ports) == (ports, metrics_ports)
        found = running.admin().list_topics("kept", timeout=60).topics["kept"].partitions[0]
        assert sorted(found.replicas) == [1, 2, 3]
        assert running.end() == 0
    assert "holds a cluster of 3 brokers, not 5" in refused("--data", str(tmp_path), "--brokers", "5")
    file = tmp_path / "node-2" / "server.properties"
    assert file.read_text().startswith("# written by headrace serve --brokers at each start")
    properties = load_properties_file(str(file))
    assert properties["default.replication.factor"] == "3"
    assert properties["min.insync.replicas"] == "2"
    assert properties["broker.rack"] == socket.gethostname()


@pytest.mark.slow
def test_nodes_end_when_their_supervisor_is_killed(tmp_path: Path) -> None:
    with serving(tmp_path, listen=own_ports()) as running:
        running.process.kill()
        until(lambda: not any(map(alive, running.processes)), "the end of the nodes")
    for port in running.ports:
        with socket.socket() as free:
            free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections that ended linger for a minute
            free.bind(("127.0.0.1", port))
            free.listen()
    with serving(tmp_path) as running:
        assert running.end() == 0


def test_one_node(tmp_path: Path) -> None:
    settings = ("--set", "num.partitions=7", "--set", "metrics.listener=-1")
    with serving(tmp_path, *settings, "--log-format", "json", brokers=1) as running:
        assert running.metrics_ports == [0]
        running.create("t")
        assert len(running.admin().list_topics("t", timeout=60).topics["t"].partitions) == 7
        assert running.end() == 0
    assert any(line.startswith('{"from_node": 1, "time": ') for line in running.said)
    assert all("event" in json.loads(line) for line in running.said), "all that is written is JSON"


@pytest.mark.slow
def test_a_node_that_dies_again_and_again_ends_the_whole(tmp_path: Path) -> None:
    with serving(tmp_path) as running:
        number = re.compile(r"node 2 died")
        for death in range(1, 6):
            victim = child_of(running.process.pid, "node-2")
            os.kill(victim, signal.SIGKILL)
            if death < 5:
                until(lambda death=death: sum(map(bool, map(number.search, running.said))) == death, "a death")  # type: ignore[misc]
                until(lambda: child_of(running.process.pid, "node-2"), "another process")
        assert running.process.wait(90) == 1
    assert "node 2 died 5 times within 60 s, the last time by signal SIGKILL" in running.said[-1]
    assert (tmp_path / "node-1" / "data" / ".kafka_cleanshutdown").exists()


@pytest.mark.slow
def test_nodes_that_are_stopped_start_again_as_often_as_that_happens(tmp_path: Path) -> None:
    """A stop by SIGTERM is no failure: it is neither counted nor followed by a pause."""
    with serving(tmp_path) as running:
        line = "headrace: node 2 was stopped, and starts again"

        def serves() -> int:
            return serving_child(running.process.pid, "node-2", running.metrics_ports[1])

        for stop in range(1, 7):
            until(serves, "node 2")
            os.kill(child_of(running.process.pid, "node-2"), signal.SIGTERM)
            until(lambda stop=stop: running.said.count(line) == stop, "its restart")  # type: ignore[misc]
        until(serves, "node 2")
        assert running.end() == 0
    assert not [line for line in running.said if "died" in line]


def serving_child(parent: int, word: str, metrics_port: int) -> int:
    """The process as `child_of` returns it, if it is alive by its own account (`/livez`); else 0."""
    child = child_of(parent, word)
    with suppress(OSError):
        return child if child and get(metrics_port, "/livez").status == 200 else 0
    return 0


def child_of(parent: int, word: str) -> int:
    """The process of that parent with the word in its command; 0 without one."""
    for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        try:
            if word.encode() in Path(f"/proc/{child}/cmdline").read_bytes():
                return int(child)
        except (FileNotFoundError, ProcessLookupError):
            pass
    return 0


@pytest.mark.slow
def test_a_node_that_cannot_start_is_not_started_again(tmp_path: Path) -> None:
    with serving(tmp_path, listen=own_ports()) as running:
        assert running.end() == 0
    meta = tmp_path / "node-2" / "data" / ".lock"
    meta.unlink()
    meta.mkdir()
    lines = all_of_refused("--data", str(tmp_path), "--brokers", "3")
    assert lines[-1].startswith("headrace: node 2 cannot start: ")
    assert not [line for line in lines if "starts again" in line]


def test_nobody_comes_in_while_a_refused_start_removes_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither another process nor another one of this one: it would lose what it writes there."""
    folder, real, locks = tmp_path / "new", shutil.rmtree, list[object]()
    look = f"from headrace.env.posix import PosixDisk; print(PosixDisk().lock({str(folder / '.lock')!r}))"

    def rmtree(path: Path, **how: Any) -> None:
        locks.append(PosixDisk().lock(str(folder / ".lock")))
        locks.append(subprocess.run([sys.executable, "-c", look], check=True, capture_output=True, text=True).stdout)
        real(path, **how)

    def unable(*_: object) -> bool:
        raise OSError(28, "No space left on device", str(folder))

    monkeypatch.setattr(shutil, "rmtree", rmtree)
    monkeypatch.setattr(several, "format_nodes", unable)
    done = CliRunner().invoke(main, ["serve", "--brokers", "1", "--data", str(folder), "--listen", "127.0.0.1:0"])
    assert done.exit_code == 1 and done.stderr.endswith(f"headrace: {folder}: No space left on device\n")
    assert locks and set(locks) == {None, "None\n"} and not folder.exists()


def test_a_port_that_is_taken_leaves_nothing(tmp_path: Path) -> None:
    first, second = free_ports(2)
    with socket.create_server(("127.0.0.1", second)):
        line = refused("--data", str(tmp_path / "new"), "--brokers", "2", "--listen", f"127.0.0.1:{first}")
    assert line.startswith(f"headrace: cannot listen on 127.0.0.1:{second}: another program listens there")
    assert not (tmp_path / "new").exists()


def test_metrics_have_ports_of_their_own() -> None:
    clients_and_controllers = (client, _, controller, _) = tuple(free_ports(4))

    def ports(given: str | None, kept: tuple[int, ...] = (), *, free: bool = False) -> tuple[int, ...]:
        held = HeldPorts()
        others = clients_and_controllers
        layout = Layout("x", others[:2], others[2:], kept) if kept else None
        try:
            return hold_metrics_ports(held, given, 2, free=free, others=others, kept=layout)[1]
        finally:
            held.release()

    port, following = free_ports(2)
    with socket.create_server(("127.0.0.1", port)):
        assert port not in (found := ports(None, (port, controller))) and controller not in found
        assert len(set(found)) == 2
        with pytest.raises(Failure, match=f"cannot listen on 127.0.0.1:{port}: another program listens there"):
            ports(f"127.0.0.1:{port}")
    with pytest.raises(Failure, match="the ports of listeners and of metrics overlap"):
        ports(str(client - 1))
    assert ports(None, (port, following)) == ports(str(port)) == (port, following)
    for found in (ports("0"), ports(None, free=True)):
        assert len({*found} - {9404, 9405}) == 2
    assert ports("-1", (port, following)) == ()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--brokers", "0"], "0 is not in the range"),
        (["--brokers", "3", "--set", "node.id=7"], "node.id is each node's own"),
        (["--brokers", "3", "--data", "x", "--data", "y"], "one folder"),
        (["--brokers", "3", "--listen", "0.0.0.0:0"], "--advertise"),
        (["--brokers", "3", "--listen", "127.0.0.1:65534"], "more than there are"),
        (["--brokers", "3", "--set", "metrics.listener=127.0.0.1:65534"], "more than there are"),
        (["--brokers", "3", "--set", "metrics.listener=nowhere"], "it must read HOST:PORT"),
        (["--brokers", "2", "--listen", "127.0.0.1:{free[0]}", "--set", "metrics.listener={free[1]}"], "overlap"),
        (["--brokers", "3", "--set", "num.partitions=0"], "num.partitions"),
        (["--brokers", "3", "--data", "a,b"], "comma"),
        (["--brokers", "3", "--data", "file"], "File exists"),
        (["--brokers", "3", "--data", "single"], "a single broker"),
        (["--brokers", "3", "gone"], "No such file"),
        (["--brokers", "3", "one"], "log.dirs is each node's own with --brokers, and cannot be set for all; --data"),
        (["--brokers", "3", "--set", "process.roles=broker"], "every node is a broker and a controller"),
        (["--brokers", "3", "--set", "listeners=A://:0"], "No security protocol defined for listener A"),
        (["--brokers", "3", "--set", "listeners=PLAINTEXT://127.0.0.1:20000,SSL://127.0.0.1:20002"], "overlap"),
        (["--brokers", "3", "--set", "listeners=SSL://127.0.0.1:0"], "needs listener.name.ssl.ssl.keystore.location"),
        (["--brokers", "3", "scram"], "let them log in by PLAIN, or show certificates (SSL)"),
        (["--brokers", "3", "--add-scram", "SCRAM-SHA-256=[name=ann]"], "one of password and saltedpassword"),
        (["--add-scram", "SCRAM-SHA-256=[name=ann,password=x]"], "--brokers"),
        (["--controller-port", "9"], "--brokers"),
    ],
)
def test_what_must_not_start_says_why_in_one_line(
    arguments: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "one").write_text("log.dirs=data\n")
    (tmp_path / "scram").write_text(
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT\n"
        "sasl.mechanism.controller.protocol=SCRAM-SHA-256\n"
    )
    (tmp_path / "single").mkdir()
    (tmp_path / "single" / "meta.properties").touch()
    free = free_ports(2)
    given = [each.format(free=free) for each in arguments]
    given = given if "--data" in arguments else [*given, "--data", "new"]
    listen = [] if "--listen" in arguments else ["--listen", "127.0.0.1:0"]
    done = CliRunner().invoke(main, ["serve", *listen, *given])
    assert done.exit_code in (1, 2, 4)
    line = done.stderr.splitlines()[-1]
    assert line.startswith("headrace: ")
    assert words in line
    assert not (tmp_path / "new").exists()


def test_restarts_back_off_and_have_an_end() -> None:
    restarts = Restarts()
    assert [restarts.died(now) for now in (0.0, 20.0, 40.0, 60.0)] == [0.1, 0.2, 0.4, 0.8]
    assert restarts.died(70.0) == 1.6, "the first of five was over a minute ago"
    assert restarts.died(71.0) is None
    restarts = Restarts()
    pauses = [restarts.died(now * 20.0) for now in range(12)]
    assert pauses[-1] == 10.0
    assert restarts.died(1000.0) == 0.1, "after a minute without a death all is as at first"


def test_a_node_that_waits_for_the_others_can_be_ended(tmp_path: Path) -> None:
    """As when the supervisor is stopped while its nodes start."""
    ports = free_ports(4)
    file = tmp_path / "server.properties"
    file.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
        f"listeners=PLAINTEXT://127.0.0.1:{ports[0]},CONTROLLER://127.0.0.1:{ports[1]}\n"
        f"controller.quorum.voters=1@127.0.0.1:{ports[1]},2@127.0.0.1:{ports[2]},3@127.0.0.1:{ports[3]}\n"
        f"log.dirs={tmp_path / 'data'}\n"
    )
    node = [sys.executable, "-m", "headrace.cli"]
    subprocess.run([*node, "storage", "format", "-t", "three", "-c", str(file)], check=True, capture_output=True)
    process = subprocess.Popen([*node, "serve", str(file)], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        while "waits to be registered" not in (line := process.stderr.readline()):
            assert line, "it ended by itself"
        process.terminate()
        assert process.wait(60) == 0
        said = process.stderr.read()
        assert "Traceback" not in said
        assert "defect" not in said
    finally:
        process.kill()
        process.communicate()
