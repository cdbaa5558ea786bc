"""Others beside an attack: the p99 of a producer that has logged in over TLS, alone and while strangers attack.

A part of `make bench SECURITY=1`; alone:
python -m bench --security --attacks [--only ROW]... [--rounds N] [--seconds S]

Each round has the producer alone and beside the attack, one after the other, on the same broker. The broker has the
settings that it comes with, a key of P-256 as docs/security.md makes it, and a processor of its own where there are
two; producer and attackers share the other one, and attackers, who would be elsewhere, have what the producer leaves. A
row's number is the median over its rounds of beside over alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bench.attackers import KINDS, TOPIC
from bench.link import Link
from bench.rigs import DATA, ROOT, Ours
from bench.wire_load import Load
from bench.wire_rows import KB, MB, run_load
from tests.peers.certificates import Authority, write_trust_pem
from tests.peers.kafka import free_port

TIMES_MAX = 2.0
"""What an attack may make of others' p99."""
RATE = 400.0
"""Requests a second of the producer, of 16 KB each."""
WARM_UP_S = 1.0
"""How long an attack runs before it is measured beside."""
BESIDE = "beside"
USER, PASSWORD = "ann", "pencil"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


class Attacked:
    """A broker with a listener of each kind, and its neighbour."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        authority = Authority.new()
        authority.server(kind="ec").write_pem(folder / "server.pem")
        write_trust_pem(folder / "ca.pem", [authority])
        self.broker = Ours()
        self.broker.directory = DATA / "attacked"
        self.ports = {name: free_port() for name in ("LOGIN", "BARE", "TLS")}
        self.authority = str(folder / "ca.pem")
        plain = f"PLAINTEXT://127.0.0.1:{self.broker.port}"
        rest = ",".join(f"{name}://127.0.0.1:{port}" for name, port in self.ports.items())
        advertised = ",".join(f"{name}://localhost:{port}" for name, port in self.ports.items())
        jaas = f'{PLAIN} required user_{USER}="{PASSWORD}";'
        self.broker.options = ("--set", f"advertised.listeners={plain},{advertised}")
        self.broker.settings = (
            f"listeners={plain},{rest}",
            "inter.broker.listener.name=PLAINTEXT",
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,LOGIN:SASL_SSL,BARE:SASL_PLAINTEXT,TLS:SSL",
            "ssl.keystore.type=PEM",
            f"ssl.keystore.location={folder / 'server.pem'}",
            "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256",
            f"listener.name.login.plain.sasl.jaas.config={jaas}",
            f"listener.name.bare.plain.sasl.jaas.config={jaas}",
        )

    def start(self) -> None:
        self.broker.start()
        _pin(self.broker.pid, 0)
        with Link(self.broker.port) as link:
            link.create_topic(BESIDE)
            link.create_topic(TOPIC)
        run_load(Load("produce", self.broker.port, TOPIC, MB - 2 * KB, 5, seconds=1.0))
        self.p99_ms(2.0)  # warm

    def p99_ms(self, seconds: float) -> float:
        """Of the producer, in ms."""
        load = Load(
            "produce-paced", self.ports["LOGIN"], BESIDE, 16 * KB, seconds=seconds, rate=RATE,
            authority=self.authority, login=f"{USER}:{PASSWORD}",
        )  # fmt: skip
        found = sorted(run_load(load)["latencies"])
        return float(found[int(0.99 * len(found))] * 1000)

    def beside(self, kind: str, seconds: float) -> tuple[float, int]:
        """The p99 beside an attack in ms, and how often the attackers came to do what they do, a second."""
        lasts = seconds + WARM_UP_S + 1.0
        command = [sys.executable, "-m", "bench.attackers", kind, json.dumps(self.ports), str(lasts)]
        attackers = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, text=True)
        try:
            assert attackers.stdout is not None
            attackers.stdout.readline()
            time.sleep(WARM_UP_S)
            found = self.p99_ms(seconds)
            said = attackers.stdout.readline()
        finally:
            attackers.kill()
            attackers.wait()
        return found, round(int(said) / lasts)


def _pin(pid: int, processor: int) -> None:
    """Gives a process one processor, and this one and those that it starts the others, where there are two or more."""
    available = sorted(os.sched_getaffinity(0))
    if len(available) > 1:
        os.sched_setaffinity(pid, {available[processor]})
        os.sched_setaffinity(0, set(available) - {available[processor]})


def _first() -> None:
    """What this process starts from now on has its processor before all others, where the system allows that: attackers
    on machines of their own would not take it."""
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))


def attack_rows(wanted: Sequence[str], folder: Path, rounds: int, seconds: float) -> list[dict[str, Any]]:
    """A row of each attack: what both p99 were in each round, and the median of how they stand to each other."""
    if not wanted:
        return []
    free = os.sched_getaffinity(0)
    attacked = Attacked(folder)
    found: dict[str, dict[str, list[float]]] = {}
    try:
        attacked.start()
        _first()
        for _ in range(rounds):
            for kind in wanted:
                row = found.setdefault(kind, {"alone_p99_ms": [], "beside_p99_ms": [], "attacks_per_s": []})
                row["alone_p99_ms"].append(round(attacked.p99_ms(seconds), 3))
                beside, rate = attacked.beside(kind, seconds)
                row["beside_p99_ms"].append(round(beside, 3))
                row["attacks_per_s"].append(rate)
    finally:
        attacked.broker.clean()
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        os.sched_setaffinity(0, free)
    return [line_of(kind, row) for kind, row in found.items()]


def line_of(kind: str, row: dict[str, list[float]]) -> dict[str, Any]:
    """A row as it is kept."""
    pairs = zip(row["beside_p99_ms"], row["alone_p99_ms"], strict=True)
    times = round(median(beside / alone for beside, alone in pairs), 2)
    return {"row": f"beside-{kind}", **row, "times": times, "bar": TIMES_MAX, "holds": times <= TIMES_MAX}


ATTACK_ROWS = tuple(f"beside-{kind}" for kind in KINDS)
