"""`headrace serve` as a process: what it takes, prints, refuses, and how it ends."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from click import BadParameter
from click.testing import CliRunner
from peers.kafka import free_port

from headrace import __version__
from headrace.cli import main
from headrace.cli.serve.properties import default_data_directory, properties_of
from headrace.client import admin
from headrace.client.cluster import Client

LISTENS = re.compile(r'^(?:headrace: |{"event": ")(\S+) listens on (\[\S+\]|[^\s:]+):(\d+)(?:"})?$')


@contextmanager
def serving(*arguments: str, before: Sequence[str] = ()) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A broker process and its first port."""
    command = [*before, sys.executable, "-m", "headrace.cli", "serve", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        match = LISTENS.match(line.strip())
        assert match, (line, process.stderr.read() if process.stderr and not line else "")
        yield process, int(match[3])
    finally:
        process.kill()
        process.communicate()


def test_port_0_prints_the_port_and_sigterm_ends_cleanly(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for expected in ([], ["kept"]):
        with serving("--data", str(data), "--listen", "127.0.0.1:0") as (process, port):
            with Client(f"127.0.0.1:{port}") as client:
                assert [topic.name for topic in client.topics()] == expected
                admin.create_topic(client, "kept", partitions=1, exist_ok=True)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        assert (data / ".kafka_cleanshutdown").exists()
    assert (data / "meta.properties").exists()
    assert (data / "kept-0").is_dir()


def test_a_terminal_that_goes_away_ends_cleanly_unless_the_signal_is_ignored(tmp_path: Path) -> None:
    """SIGHUP stops Apache Kafka's broker too; under nohup(1) it is ignored, and neither stops."""
    with serving("--data", str(tmp_path), "--listen", "127.0.0.1:0") as (process, _):
        process.send_signal(signal.SIGHUP)
        assert process.wait(60) == 0
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    with serving("--data", str(tmp_path), "--listen", "127.0.0.1:0", before=["nohup"]) as (process, port):
        process.send_signal(signal.SIGHUP)
        with Client(f"127.0.0.1:{port}") as client:
            assert client.topics() == []
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


@pytest.mark.parametrize(
    ("listen", "words"),
    [
        ("127.0.0.1:{port}", "127.0.0.1:{port}: another program listens there"),
        ("192.0.2.1:9092", "192.0.2.1:9092: this machine has no such address"),
        ("no-such-host.invalid:9092", "no-such-host.invalid:9092: "),
    ],
)
def test_an_address_that_cannot_be_had_is_said_and_nothing_is_left(tmp_path: Path, listen: str, words: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        data = tmp_path / "data"
        done = subprocess.run(
            [sys.executable, "-m", "headrace.cli", "serve", "--data", str(data), "--listen", listen.format(port=port)],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    assert done.returncode == 1
    line = done.stderr.splitlines()[-1]
    assert line.startswith("headrace: the broker cannot start: listener PLAINTEXT cannot listen on ")
    assert words.format(port=port) in line
    assert "--listen HOST:PORT" in line
    assert not data.exists()


def test_every_interface_needs_an_address_to_advertise(tmp_path: Path) -> None:
    arguments = ["serve", "--data", str(tmp_path / "data"), "--listen"]
    for host in ("0.0.0.0", "[::]"):
        done = CliRunner().invoke(main, [*arguments, f"{host}:0"])
        assert done.exit_code in (1, 2)
        line = done.stderr.splitlines()[-1]
        assert "--advertise" in line
        assert not (tmp_path / "data").exists()
    with serving("--data", str(tmp_path / "data"), "--listen", "0.0.0.0:0", "--advertise", "localhost:9") as (_, port):
        assert port


def test_an_ipv6_address_is_served_and_said_in_brackets(tmp_path: Path) -> None:
    with serving("--data", str(tmp_path), "--listen", "[::1]:0") as (_, port):
        with Client(f"[::1]:{port}") as client:
            admin.create_topic(client, "t", partitions=1)
        listed = subprocess.run(
            [sys.executable, "-m", "headrace.cli", "cluster", "describe", "-b", f"[::1]:{port}"],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
        assert f"[::1]:{port}" in listed.stdout


def test_a_second_broker_on_the_directory_is_refused(tmp_path: Path) -> None:
    with serving("--data", str(tmp_path), "--listen", "127.0.0.1:0"):
        second = subprocess.run(
            [sys.executable, "-m", "headrace.cli", "serve", "--data", str(tmp_path), "--listen", "127.0.0.1:0"],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert second.returncode == 1
        line = second.stderr.splitlines()[-1]
        assert line.startswith("headrace: ")
        assert str(tmp_path) in line


def test_a_kafka_file_is_taken_and_options_win(tmp_path: Path) -> None:
    controller = free_port()
    file = tmp_path / "server.properties"
    file.write_text(
        f"process.roles=broker,controller\nnode.id=5\nlog.dirs={tmp_path / 'one'},{tmp_path / 'two'}\n"
        f"listeners=EXTERNAL://127.0.0.1:9,CONTROLLER://127.0.0.1:{controller}\n"
        "controller.listener.names=CONTROLLER\n"
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,EXTERNAL:PLAINTEXT\n"
        "inter.broker.listener.name=EXTERNAL\n"
        f"controller.quorum.voters=5@127.0.0.1:{controller}\nnum.partitions=7\n"
    )
    arguments = (str(file), "--listen", "127.0.0.1:0", "--set", "num.partitions=2")
    with serving(*arguments) as (_, port), Client(f"127.0.0.1:{port}") as client:
        admin.create_topic(client, "t")
        assert len(client.topic("t").partitions) == 2
        assert list(client.nodes) == [5]
        with Client(f"127.0.0.1:{controller}") as at_controller:
            assert at_controller.supports(55)
    assert (tmp_path / "one" / "meta.properties").exists()
    assert (tmp_path / "two" / "meta.properties").exists()


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        (["num.partitions=0"], "num.partitions"),
        (["log.segment.bytes=x"], "log.segment.bytes"),
        (["sasl.login.class=some.Login"], "sasl.login.class"),
        (["listeners=SSL://127.0.0.1:0"], "SSL"),
        (["authorizer.class.name=some.Authorizer"], "authorizer.class.name"),
        (["remote.log.storage.system.enable=true"], "remote.log.storage"),
        (["process.roles=broker"], "process.roles"),
        (["controller.quorum.voters=1@a:1,2@b:1"], "voters"),
    ],
)
def test_what_must_not_start_says_why_in_one_line(settings: list[str], word: str, tmp_path: Path) -> None:
    arguments = ["serve", "--data", str(tmp_path / "data")]
    for setting in settings:
        arguments += ["--set", setting]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 1
    line = done.stderr.splitlines()[-1]
    assert line.startswith("headrace: ")
    assert word in line
    assert not (tmp_path / "data").exists()


def test_unknown_keys_are_named_in_a_warning_each(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "headrace.cli", "serve", "--data", str(tmp_path), "--listen", "127.0.0.1:0"]
    command += ["--set", "no.such.key=1", "--set", "zz.unknown=2"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert LISTENS.match(process.stdout.readline().strip())
    process.terminate()
    _, said = process.communicate(timeout=60)
    for key in ("no.such.key", "zz.unknown"):
        assert len([line for line in said.splitlines() if key in line]) == 1


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["serve", str(tmp_path / "none.properties")])
    assert done.exit_code == 4
    assert "No such file" in done.stderr


def test_bare_serve_has_a_directory_and_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "/somewhere")
    assert str(default_data_directory()) == "/somewhere/headrace"
    properties = properties_of(None, [], None, None, [])
    assert properties["log.dirs"] == "/somewhere/headrace"
    assert properties["listeners"] == "PLAINTEXT://127.0.0.1:9092"
    assert "controller.listener.names" not in properties


def test_options_become_properties() -> None:
    properties = properties_of(None, ["a", "b"], "0.0.0.0:9", "host:10", ["log.retention.ms=5"])
    assert properties["log.dirs"] == "a,b"
    assert properties["listeners"] == "PLAINTEXT://0.0.0.0:9"
    assert properties["advertised.listeners"] == "PLAINTEXT://host:10"
    assert properties["log.retention.ms"] == "5"
    assert (
        properties_of(None, [], None, None, ["log.dir=x", "listeners=PLAINTEXT://:1"])["listeners"] == "PLAINTEXT://:1"
    )
    for bad in ("9092", "host:", "host:port", "host:70000"):
        with pytest.raises(BadParameter):
            properties_of(None, [], bad, None, [])


def test_a_start_says_what_it_is_where_its_data_is_and_where_it_listens(tmp_path: Path) -> None:
    with serving("--data", str(tmp_path), "--listen", "127.0.0.1:0") as (process, _):
        process.send_signal(signal.SIGTERM)
        _, written = process.communicate(timeout=60)
    introduced = [line for line in written.splitlines() if line.startswith("headrace: ")]
    assert introduced == [
        f"headrace: version {__version__}, node 1: broker and controller",
        f"headrace: data in {tmp_path}",
    ]


def test_the_life_of_a_broker_is_told_as_json(tmp_path: Path) -> None:
    quiet = ("--set", "metrics.listener=-1", "--log-format", "json")
    with serving("--data", str(tmp_path), "--listen", "127.0.0.1:0", *quiet) as (process, port):
        with Client(f"127.0.0.1:{port}") as client:
            admin.create_topic(client, "rides", partitions=3)
            admin.delete_topic(client, "rides")
        with socket.create_connection(("127.0.0.1", port)) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert stranger.recv(1) == b""
        process.send_signal(signal.SIGTERM)
        _, told = process.communicate(timeout=60)
    lines = [json.loads(line) for line in told.splitlines()]
    events = {line["event"]: line for line in lines}
    assert list(events) == [
        "broker starts",
        "metadata read",
        "features are finalized that this broker preserves and does not serve yet",
        "listening",
        "broker serves",
        "topic created",
        "topic deleted",
        "connection closed",
        "broker stops",
        "broker stopped",
    ]
    assert events["metadata read"]["shutdown"] == "none"
    features = "share.version 1, streams.version 1"
    assert next(line for line in lines if "features" in line)["features"] == features
    assert events["listening"]["port"] == port
    assert (events["topic created"]["topic"], events["topic created"]["partitions"]) == ("rides", 3)
    assert events["connection closed"]["why"].startswith("a frame of")
    assert {line["level"] for line in lines} == {"INFO", "WARNING"}
