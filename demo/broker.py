"""A real broker in a process of its own, or a cluster of them, on free ports, as a user starts it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

START_PATIENCE_S: Final = 30.0
STOP_PATIENCE_S: Final = 30.0
ANSWER_PATIENCE_S: Final = 10.0
HEADRACE: Final = Path(sys.executable).parent / "headrace"
FLIGHTS: Final = "flights"
SURGE: Final = "surge"


ALONE: Final = re.compile(r"listens on (\S+:\d+)\n()()")
"""The line by which a broker says that it serves."""
NODE: Final = re.compile(r"^ *(?=\d+  (\S+:\d+))(\d+)  \S+  \S+:\d+  \S+ +(\d+)  \S+\n", re.MULTILINE)
"""A row of the table by which a cluster says that it serves: the address, the node, its process."""


class DemoError(Exception):
    """The demo cannot go on; one line that says why."""


@dataclass(slots=True)
class BrokerProcess:
    """`headrace serve` with its data and its log under `directory`. In a cluster it is the process that runs the nodes,
    whose own processes are in `nodes`: by node, as files of processes (`os.pidfd_open`)."""

    directory: Path
    bootstrap: str
    process: subprocess.Popen[bytes]
    nodes: dict[int, int] = field(default_factory=dict)

    def stop(self) -> None:
        """A clean shutdown, and a kill if that takes too long."""
        self.process.terminate()
        try:
            self.process.wait(STOP_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def start_broker(directory: Path, brokers: int = 1) -> BrokerProcess:
    """Starts a broker, or as many as one cluster, on ports that the system chooses. Raises DemoError with its last
    words."""
    command = [sys.executable, "-m", "headrace.cli", "serve"]
    command += ["--data", str(directory / "data"), "--listen", "127.0.0.1:0"]
    command += ["--brokers", str(brokers)] if brokers > 1 else []
    said = directory / "broker.log"
    with said.open("wb") as log:
        # a session of its own: an interrupt ends the demo, which then stops the broker
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    deadline = time.monotonic() + START_PATIENCE_S
    wanted = NODE if brokers > 1 else ALONE
    try:
        while len(listens := wanted.findall(said.read_text())) < brokers:
            if process.poll() is not None or time.monotonic() > deadline:
                last = said.read_text().strip().splitlines()[-1:]
                raise DemoError(f"the broker did not start: {' '.join(last) or 'it said nothing'}")
            time.sleep(0.02)
        nodes = {int(node): os.pidfd_open(int(number)) for _, node, number in listens} if brokers > 1 else {}
    except BaseException:
        process.kill()  # also where the demo is interrupted: nobody else knows of the broker yet
        process.wait()
        raise
    return BrokerProcess(directory, ",".join(address for address, _, _ in listens), process, nodes)


def create_topics(bootstrap: str, replicas: int = 1) -> None:
    """`flights`, which keeps records of 2013, and `surge`, which keeps the last value of a key.

    Raises DemoError where no broker answers, and where one has such a topic: what is in it would be counted too.
    """
    flights = NewTopic(FLIGHTS, num_partitions=4, replication_factor=replicas, config={"retention.ms": "-1"})
    surge = NewTopic(SURGE, num_partitions=2, replication_factor=replicas, config={"cleanup.policy": "compact"})
    # log_level 0: what goes wrong is said here, in one line
    admin = AdminClient({"bootstrap.servers": bootstrap, "client.id": "demo", "log_level": 0})
    try:
        there = admin.list_topics(timeout=ANSWER_PATIENCE_S).topics
    except KafkaException as error:
        raise DemoError(f"no broker answers on {bootstrap}: {error.args[0].str()}") from error
    if held := [name for name in (FLIGHTS, SURGE) if name in there]:
        raise DemoError(
            f"{bootstrap} has a topic {' and a topic '.join(held)} already, and the demo begins with none; "
            f"{HEADRACE} topic delete {' '.join(held)} -b {bootstrap} makes room for another run"
        )
    for name, created in admin.create_topics([flights, surge], request_timeout=START_PATIENCE_S).items():
        try:
            created.result(START_PATIENCE_S)
        except Exception as error:
            raise DemoError(f"topic {name} was not created: {error}") from error
