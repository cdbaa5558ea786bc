"""`make bench SECURITY=1`: what TLS costs, beside Apache Kafka's over TLS and beside a bare loop of the same, what
10,000 ACLs cost, beside a broker without an authorizer, and what others notice of attacks (see bench.attacks).

python -m bench --security [--only ROW]... [--attacks] [--rounds N] [--seconds S]     --attacks: those rows alone

Every row of TLS has three numbers of one run: ours, Kafka's, and what a loop of `MemoryBIO` and socket moves that knows
nothing of Kafka. The load encrypts and decrypts as well, on the other core.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench import wire_load
from bench.__main__ import keep, result_file
from bench.attacks import ATTACK_ROWS, attack_rows
from bench.link import Link
from bench.rigs import DATA, ROOT, Kafka, Ours
from bench.wire_load import Load
from bench.wire_rows import BATCH_1MB, KB, MB, run_load
from headrace.wire.messages.k30_create_acls import AclCreation, CreateAclsRequest
from tests.peers.certificates import Authority, write_trust_pem
from tests.peers.kafka import free_port

PREFILL_BYTES = 256 * MB
PARTS_OF_BARE = 0.8
"""The share of a bare loop's pace that a broker has to reach."""
Peer = Ours | Kafka


@dataclass(frozen=True)
class Case:
    """One load: `produce` or `fetch`, batches of `size` bytes, over so many connections."""

    what: str
    size: int
    connections: int

    @property
    def key(self) -> str:
        return f"{self.what}-{'16k' if self.size == 16 * KB else '1m'}-{self.connections}"

    @property
    def in_flight(self) -> int:
        return 50 if self.size == 16 * KB else 5


CASES = tuple(
    Case(what, size, connections)
    for what in ("produce", "fetch")
    for size in (16 * KB, BATCH_1MB)
    for connections in (1, 4)
)
LATENCY = "latency"
ACLS = 10_000
ACL_ROWS = ("acls-produce", "acls-fetch")


@dataclass(frozen=True)
class Secured:
    """A broker with a listener of TLS."""

    peer: Peer
    port: int
    authority: str


def settings(folder: Path, port: int, plain: str) -> tuple[str, ...]:
    """What both brokers are given: a listener of TLS beside the plain ones."""
    return (
        f"listeners={plain},SSL://127.0.0.1:{port}",
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={folder / 'server.pem'}",
    )


def both(folder: Path) -> list[Secured]:
    """Ours and Kafka's, not started."""
    ours, kafka = Ours(), Kafka()
    made: list[Secured] = []
    for peer in (ours, kafka):
        port = free_port()
        plain = f"PLAINTEXT://127.0.0.1:{peer.port}"
        if isinstance(peer, Ours):
            peer.settings = (*peer.settings, *settings(folder, port, plain))
            peer.options = ("--set", f"advertised.listeners={plain},SSL://localhost:{port}")
        else:
            plain += f",CONTROLLER://127.0.0.1:{peer.peer.controller_port}"
            peer.peer.settings |= dict(each.split("=", 1) for each in settings(folder, port, plain))
            peer.peer.settings |= {
                "advertised.listeners": f"PLAINTEXT://127.0.0.1:{peer.port},SSL://localhost:{port}",
                "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
            }
        made.append(Secured(peer, port, str(folder / "ca.pem")))
    return made


def together(connections: int, load: Callable[[], dict[str, Any]]) -> float:
    """Megabytes a second of so many generators at once."""
    with ThreadPoolExecutor(connections) as pool:
        outcomes = list(pool.map(lambda _: load(), range(connections)))
    return sum(float(each["bytes"] / each["seconds"] / MB) for each in outcomes)


def measured(secured: Secured, case: Case, seconds: float) -> float:
    """MB/s of one broker."""
    name = f"tls-{case.key}"
    with Link(secured.peer.port) as link:
        link.create_topic(name)
    if case.what == "produce":
        load = Load(
            "produce", secured.port, name, case.size, case.in_flight, case.connections, seconds,
            authority=secured.authority,
        )  # fmt: skip
        outcome = run_load(load)
        pace = float(outcome["bytes"] / outcome["seconds"] / MB)
    else:
        filled = Load("produce", secured.peer.port, name, case.size, case.in_flight, seconds=2)
        run_load(filled)
        with Link(secured.peer.port) as link:
            end = link.end_offset(name)
        _, records = wire_load.batch_of(case.size)
        load = Load(
            "fetch", secured.port, name, case.size, seconds=seconds, end_offset=end, records_per_batch=records,
            authority=secured.authority,
        )  # fmt: skip
        pace = together(case.connections, lambda: run_load(load))
    with Link(secured.peer.port) as link:
        link.delete_topic(name)
    return pace


def latencies(secured: Secured, seconds: float) -> float:
    """The p99 in ms of a producer of 16 KB, one in flight, 200 a second."""
    with Link(secured.peer.port) as link:
        link.create_topic(LATENCY)
    load = Load("produce-paced", secured.port, LATENCY, 16 * KB, seconds=seconds, rate=200, authority=secured.authority)
    found = sorted(run_load(load)["latencies"])
    with Link(secured.peer.port) as link:
        link.delete_topic(LATENCY)
    return float(found[int(0.99 * len(found))] * 1000)


def bare(folder: Path, case: Case, seconds: float) -> float:
    """MB/s of the bare loop under the same load."""
    batch, records = wire_load.batch_of(case.size)
    path = DATA / "limit.bin"
    certificate = str(folder / "server.pem")
    if case.what == "produce":
        frame = wire_load.produce_frame("limit", batch)
        arguments = ["produce", certificate, str(len(frame)), wire_load.produce_reply("limit").hex(), str(path)]
    else:
        asked, _ = wire_load.fetch_frame("limit", case.size)
        head = (60 + len(batch)).to_bytes(4, "big") + bytes(60)
        path.write_bytes(batch * max(2, PREFILL_BYTES // len(batch)))
        arguments = ["fetch", certificate, str(len(asked)), head.hex(), str(path), str(len(batch))]
    command = [sys.executable, "-m", "bench.tls_limits", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT)
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        authority = str(folder / "ca.pem")
        if case.what == "produce":
            outcome = run_load(
                Load(
                    "produce", port, "limit", case.size, case.in_flight, case.connections, seconds, authority=authority
                )
            )
            return float(outcome["bytes"] / outcome["seconds"] / MB)
        load = Load(
            "fetch", port, "limit", case.size, seconds=seconds, records_per_batch=records, authority=authority,
            end_offset=1 << 60,
        )  # fmt: skip
        return together(case.connections, lambda: run_load(load))
    finally:
        process.kill()
        process.wait()
        path.unlink(missing_ok=True)


def guarded() -> Ours:
    """A broker with ACLS ACLs, of which one lets the load in; running."""
    authorizer = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    broker = Ours(authorizer, "super.users=User:ANONYMOUS")
    broker.directory = DATA / "guarded"
    broker.start()
    topic, write, read, describe, literal, allow = 2, 4, 3, 8, 3, 3
    with Link(broker.port) as link:
        for row in ACL_ROWS:
            link.create_topic(row)
        acls = [
            AclCreation(topic, f"topic-{n}", literal, f"User:user-{n % 100}", "*", read, allow) for n in range(ACLS - 6)
        ]
        acls += [
            AclCreation(topic, row, literal, "User:ANONYMOUS", "*", operation, allow)
            for row in ACL_ROWS
            for operation in (write, read, describe)
        ]
        for at in range(0, len(acls), 1000):
            answer = link.ask(CreateAclsRequest(acls[at : at + 1000]))
            assert not any(each.error_code for each in answer.results), answer
    broker.stop()
    broker.settings = (authorizer,)
    broker.start()
    return broker


def acl_rows(wanted: Sequence[str], rounds: int, seconds: float) -> dict[str, dict[str, list[float]]]:
    """Requests a second with ACLs, and without an authorizer."""
    if not wanted:
        return {}
    found: dict[str, dict[str, list[float]]] = {row: {"headrace": [], "open": []} for row in wanted}
    opened = Ours()
    brokers = {"headrace": guarded(), "open": opened}
    try:
        opened.start()
        with Link(opened.port) as link:
            for row in ACL_ROWS:
                link.create_topic(row)
        ends = {}
        for name, broker in brokers.items():
            run_load(Load("produce", broker.port, "acls-fetch", 16 * KB, 50, seconds=2.0))
            with Link(broker.port) as link:
                ends[name] = link.end_offset("acls-fetch")
        _, records = wire_load.batch_of(16 * KB)
        for _ in range(rounds):
            for row in wanted:
                for name, broker in brokers.items():
                    if row == "acls-produce":
                        load = Load("produce", broker.port, row, 0, 50, seconds=seconds)
                    else:
                        load = Load(
                            "fetch", broker.port, row, 16 * KB, seconds=seconds, end_offset=ends[name],
                            records_per_batch=records,
                        )  # fmt: skip
                    outcome = run_load(load)
                    found[row][name].append(float(outcome["requests"] / outcome["seconds"]))
    finally:
        for broker in brokers.values():
            broker.clean()
    return found


def line_of(key: str, row: dict[str, list[float]]) -> dict[str, Any]:
    """A row as it is kept: what was measured, and ours over the others."""
    ours = median(row["headrace"])
    over = {f"over_{other}": round(ours / median(row[other]), 3) for other in ("kafka", "bare", "open") if other in row}
    return {"row": key, **row, **over}


def say(
    found: dict[str, dict[str, list[float]]], lines: list[dict[str, Any]], results: Path, asked: argparse.Namespace
) -> None:
    """Prints rows, and keeps them with those of before: a run that breaks off has what it has."""
    for key, row in found.items():
        lines.append(line_of(key, row))
        print(json.dumps(lines[-1]), flush=True)
    keep(results, {"rounds": asked.rounds, "seconds": asked.seconds}, lines)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench --security", description=__doc__)
    parser.add_argument(
        "--only", action="append", default=[], choices=[*(case.key for case in CASES), LATENCY, *ACL_ROWS, *ATTACK_ROWS]
    )
    parser.add_argument("--attacks", action="store_true", help="what others notice of attacks, and nothing else")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    asked = parser.parse_args(arguments)
    if asked.attacks:
        asked.only = [row for row in ATTACK_ROWS if not asked.only or row in asked.only]
    folder = DATA / "tls"
    folder.mkdir(parents=True, exist_ok=True)
    authority = Authority.new()
    authority.server(kind="rsa").write_pem(folder / "server.pem")
    write_trust_pem(folder / "ca.pem", [authority])
    results = result_file("security-")
    lines: list[dict[str, Any]] = []
    wanted = [case for case in CASES if not asked.only or case.key in asked.only]
    found: dict[str, dict[str, list[float]]] = {}
    has_tls = bool(wanted) or not asked.only or LATENCY in asked.only
    secured = both(folder) if has_tls else []
    try:
        for each in secured:
            each.peer.start()
        for each in secured:  # a warm virtual machine
            for case in CASES[:1]:
                measured(each, case, 8.0 if each.peer.name == "kafka" else 2.0)
        for _ in range(asked.rounds if has_tls else 0):
            for case in wanted:
                row = found.setdefault(case.key, {})
                for each in secured:
                    row.setdefault(each.peer.name, []).append(measured(each, case, asked.seconds))
                row.setdefault("bare", []).append(bare(folder, case, asked.seconds))
            if not asked.only or LATENCY in asked.only:
                row = found.setdefault(LATENCY, {})
                for each in secured:
                    row.setdefault(each.peer.name, []).append(latencies(each, asked.seconds))
    finally:
        for each in secured:
            each.peer.clean()
    of_acls = [row for row in ACL_ROWS if not asked.only or row in asked.only]
    say(found, lines, results, asked)
    say(acl_rows(of_acls, asked.rounds, asked.seconds), lines, results, asked)
    attacks = [row.removeprefix("beside-") for row in ATTACK_ROWS if not asked.only or row in asked.only]
    for line in attack_rows(attacks, DATA / "attacked-keys", asked.rounds, asked.seconds):
        lines.append(line)
        print(json.dumps(line), flush=True)
    keep(results, {"rounds": asked.rounds, "seconds": asked.seconds}, lines)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
