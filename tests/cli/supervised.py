"""`headrace serve --brokers N` as a process beside a test: what it has said, its nodes, and their end."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic
from peers.kafka import free_ports
from testing.acknowledged import TOPIC, until

HERE = r"(?:127\.0\.0\.1|localhost)"
ROW = re.compile(rf"^ +(\d+)  {HERE}:(\d+) +{HERE}:(\d+) +(?:{HERE}:(\d+)|none) +(\d+)  (.*)$")
COMMAND = [sys.executable, "-m", "headrace.cli", "serve"]
FREE_PORTS = ("--listen", "127.0.0.1:0")


def own_ports(brokers: int = 3) -> tuple[str, ...]:
    """Options in place of `FREE_PORTS` where nodes end and start again: nobody else gets these ports meanwhile."""
    clients, controllers, metrics = (free_ports(brokers)[0] for _ in range(3))
    listen = ("--listen", f"127.0.0.1:{clients}", "--controller-port", str(controllers))
    return (*listen, "--set", f"metrics.listener=127.0.0.1:{metrics}")


class Running:
    """A supervisor, and what it has said so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.said: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self.ports: list[int] = []
        self.metrics_ports: list[int] = []
        self.processes: list[int] = []
        self.host = "127.0.0.1"
        self.security: dict[str, str] = {}
        """More of librdkafka's settings."""

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line.rstrip())

    def ready(self, brokers: int) -> None:
        """Reads the table, or the JSON object that is in its place."""
        assert self.process.stdout is not None
        heading = self.process.stdout.readline()
        if heading.startswith("{"):
            for node in json.loads(heading)["nodes"]:
                self.ports.append(int(node["clients"].rpartition(":")[2]))
                self.metrics_ports.append(0 if node["metrics"] == "none" else int(node["metrics"].rpartition(":")[2]))
                self.processes.append(node["process"])
            return
        assert heading.split() == ["NODE", "CLIENTS", "CONTROLLERS", "METRICS", "PROCESS", "FOLDER"], self.said
        for node_id in range(1, brokers + 1):
            row = ROW.match(self.process.stdout.readline())
            assert row and int(row[1]) == node_id
            self.ports.append(int(row[2]))
            self.metrics_ports.append(int(row[4] or 0))
            self.processes.append(int(row[5]))

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{self.host}:{port}" for port in self.ports)

    def admin(self) -> AdminClient:
        return AdminClient({**self.security, "bootstrap.servers": self.bootstrap, "log_level": 0})

    def create(self, topic: str, partitions: int = -1) -> None:
        client = self.admin()
        client.create_topics([NewTopic(topic, partitions)])[topic].result(60)

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        status = self.process.wait(90)
        self._reader.join()
        return status


@contextmanager
def serving(folder: Path, *arguments: str, brokers: int = 3, listen: tuple[str, ...] = FREE_PORTS) -> Iterator[Running]:
    """A supervisor whose nodes serve clients."""
    command = [*COMMAND, *listen, "--data", str(folder), "--brokers", str(brokers), *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    running = Running(process)
    try:
        running.ready(brokers)
        yield running
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        for child in running.processes:
            until(lambda child=child: not alive(child), "the end of a child")  # type: ignore[misc]


def alive(process: int) -> bool:
    """Whether it runs; one that has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def refused(*arguments: str) -> str:
    """The last line that a start says which is refused."""
    return all_of_refused(*arguments)[-1]


def all_of_refused(*arguments: str) -> list[str]:
    """The lines that a start says which is refused."""
    done = subprocess.run([*COMMAND, *FREE_PORTS, *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode in (1, 2), done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()


def in_sync(running: Running) -> set[int]:
    found = running.admin().list_topics(TOPIC, timeout=60).topics[TOPIC].partitions.values()
    return set.intersection(*(set(each.isrs) for each in found))
