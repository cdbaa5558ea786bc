"""Apache Kafka's own assignors and hashes, on the same input as ours."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from peers.kafka import java

from headrace.groups.consumer.assignors import ASSIGNORS, Assignment, Subscriber
from headrace.groups.modern.topics import TopicInfo

pytestmark = pytest.mark.jvm

GROUPS = 2_500
"""For each assignor; each is changed a few times over, and goes on from what it had."""
PROGRAM = Path(__file__).with_name("KafkaAssigns.java")


def ask(lines: list[str]) -> list[str]:
    """What Kafka's classes say to each line."""
    done = subprocess.run(
        java(str(PROGRAM)), check=False, input="\n".join(lines), capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[: len(lines)]


def topic_id(number: int) -> bytes:
    return number.to_bytes(16, "big")


def number(topic: bytes) -> int:
    return int.from_bytes(topic, "big")


def said_partitions(partitions: Mapping[bytes, frozenset[int]]) -> str:
    return ",".join(
        f"{number(topic)}:{'.'.join(map(str, sorted(all_)))}" for topic, all_ in sorted(partitions.items()) if all_
    )


def said(assignment: Assignment) -> str:
    return ";".join(
        f"{member}={told}" for member, partitions in sorted(assignment.items()) if (told := said_partitions(partitions))
    )


def line(name: str, members: list[Subscriber], counts: dict[bytes, int]) -> str:
    said_counts = ",".join(f"{number(topic)}={count}" for topic, count in counts.items())
    each = [
        "/".join(
            (
                member.id,
                member.instance_id or "",
                ",".join(str(number(topic)) for topic in sorted(member.topics)),
                said_partitions(member.has),
            )
        )
        for member in members
    ]
    return f"assign {name} {said_counts} {';'.join(each)}"


def histories(name: str, chance: random.Random) -> list[tuple[list[Subscriber], dict[bytes, int]]]:
    """Groups that members join and leave, whose topics grow, come and go: each goes on from what we assigned."""
    found = []
    for _ in range(GROUPS):
        counts = {topic_id(each): chance.randint(1, 9) for each in range(1, chance.randint(2, 7))}
        alike = chance.random() < 0.4
        members = [f"m{each}" for each in range(chance.randint(1, 7))]
        had: Assignment = {}
        for _ in range(3):
            everything = list(counts)
            shared = frozenset(chance.sample(everything, chance.randint(1, len(everything))))
            group = []
            for member in members:
                topics = frozenset(chance.sample(everything, chance.randint(0, len(everything))))
                instance = f"i{chance.randint(0, 99)}{member}" if chance.random() < 0.3 else None
                group.append(Subscriber(member, instance, shared if alike else topics, had.get(member, {})))
            found.append((group, dict(counts)))
            had = ASSIGNORS[name](group, counts)
            members = [member for member in members if chance.random() < 0.8] or members[:1]
            members += [f"n{len(found)}{each}" for each in range(chance.randint(0, 2))]
            counts = {topic: count + chance.choice((0, 0, 3)) for topic, count in counts.items()}
            if chance.random() < 0.2 and len(counts) > 1:
                del counts[next(iter(counts))]
    return found


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
def test_the_same_group_is_assigned_the_same(name: str) -> None:
    cases = histories(name, random.Random(848))
    theirs = ask([line(name, members, counts) for members, counts in cases])
    for (members, counts), they_say in zip(cases, theirs, strict=True):
        ours = ASSIGNORS[name](members, counts)
        assert said(ours) == they_say, line(name, members, counts)


def test_hashes_of_topics() -> None:
    chance = random.Random(7)
    topics = []
    for each in range(50):
        racks = tuple(tuple(chance.sample(["a", "rack-b", "ü"], chance.randint(0, 3))) for _ in range(1 + each % 9))
        name = chance.choice(["t", "orders.v1", "x" * 200])
        topics.append(TopicInfo(name, topic_id(each << 64 | ~each & (1 << 64) - 1), len(racks), racks))
    asked = [
        f"topic {topic.name} {number(topic.id) >> 64} {','.join('.'.join(racks) for racks in topic.racks)}"
        for topic in topics
    ]
    assert [str(topic.hash) for topic in topics] == ask(asked)
