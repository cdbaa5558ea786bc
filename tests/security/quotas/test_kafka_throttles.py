"""Throttle times, and the quota that counts, are those of Apache Kafka's own classes."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest
from peers import kafka

from headrace.machine.rates import TokenBucket
from headrace.metadata import client_quotas as names
from headrace.security.quotas.lookup import QuotaTable
from headrace.security.quotas.rate import Rate, in_throttle_range
from headrace.wire.messages.metadata_records import ClientQuotaRecord

pytestmark = pytest.mark.jvm

CASES = 300


def theirs(lines: list[str]) -> list[str]:
    reason = kafka.missing()
    if reason:
        pytest.skip(reason)
    source = Path(__file__).with_name("KafkaThrottles.java")
    command = kafka.java(str(source), flags=kafka.quick("-Xmx512M"))
    done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


def drawn_events(rng: random.Random, largest: float) -> list[tuple[int, int]]:
    now_ms, events = rng.randrange(10**9), []
    for _ in range(rng.randint(1, 60)):
        now_ms += rng.choice([0, 1, rng.randrange(50), rng.randrange(1500), rng.randrange(15_000)])
        events.append((now_ms, rng.randint(0, int(largest))))
    return events


def test_throttle_times_are_kafkas() -> None:
    rng = random.Random(19)
    lines, ours = [], []
    for number in range(CASES):
        samples, bound = rng.choice([11, 11, 2, 5]), rng.choice([0.5, 10.0, 1000.0, 12345.0])
        kind = ("rate", "tokens")[number % 2]
        events = drawn_events(rng, bound * rng.choice([1, 5, 20]))
        lines.append(" ".join([kind, str(samples), str(bound), *(f"{at}:{value}" for at, value in events)]))
        waits = []
        if kind == "rate":
            rate = Rate(samples, 1000)
            for at, value in events:
                rate.record(value, at)
                waits.append(rate.throttle_ms(bound, at))
        else:
            bucket = TokenBucket(1000 * samples)
            for at, value in events:
                bucket.take(value, bound, at)
                waits.append(in_throttle_range(bucket.wait_ms(bound, at)))
        ours.append(" ".join(map(str, waits)))
    answers = theirs(lines)
    different = [f"{a}\n ours   {b}\n theirs {c}" for a, b, c in zip(lines, ours, answers, strict=True) if b != c]
    assert not different, f"{len(different)} differ:\n" + "\n".join(different[:3])
    assert sum(answer.strip("0 ") != "" for answer in answers) > CASES / 3


def test_the_quota_that_counts_is_kafkas() -> None:
    rng = random.Random(20)
    lines, ours = [], []
    every = [(u, c) for u in ("a", "b", "*", "-") for c in ("x", "y", "*", "-") if (u, c) != ("-", "-")]
    for _ in range(CASES):
        chosen = rng.sample(every, rng.randint(1, 6))
        user, client = rng.choice("abc"), rng.choice("xyz")
        quotas = [(u, c, float(n + 1)) for n, (u, c) in enumerate(chosen)]
        lines.append(f"find {','.join(f'{u}/{c}={n}' for u, c, n in quotas)} {user} {client}")
        records = {}
        for u, c, n in quotas:
            parts = {names.USER: u, names.CLIENT_ID: c}
            entity = names.entity_of(
                {kind: None if name == "*" else name for kind, name in parts.items() if name != "-"}
            )
            records[entity, names.PRODUCE] = ClientQuotaRecord(key=names.PRODUCE, value=n)
        found = QuotaTable(records).find(names.PRODUCE, user, client)
        ours.append(
            "none" if found is None else f"{found.bound} {found.bucket.user or ''}/{found.bucket.client_id or ''}"
        )
    answers = theirs(lines)
    different = [f"{a}\n ours   {b}\n theirs {c}" for a, b, c in zip(lines, ours, answers, strict=True) if b != c]
    assert not different, f"{len(different)} differ:\n" + "\n".join(different[:3])
