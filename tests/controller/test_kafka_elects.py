"""Partitions change as Apache Kafka's controller changes them: the same thousands of changes, asked of both."""

from __future__ import annotations

import random
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from peers import kafka

from headrace.broker.settings.config_rules import SettingsRules
from headrace.config import BrokerConfig
from headrace.controller.context import ControllerContext
from headrace.controller.partition_changes import Election, PartitionChanges, Target
from headrace.metadata import levels
from headrace.metadata.image import (
    DIRECTORY_UNASSIGNED,
    NO_LEADER,
    Broker,
    ClusterImage,
    ConfigsImage,
    Features,
    Partition,
    ResourceType,
    Topic,
    TopicsImage,
)

pytestmark = pytest.mark.jvm

CASES = 20_000
TOPIC_ID = bytes(15) + b"\x09"
RULES = SettingsRules(BrokerConfig.load({}))


@dataclass
class Case:
    """A partition, what is to become of it, and what it depends on."""

    partition: Partition
    target: Target
    active: list[int]
    enough: int
    has_elr: bool
    level: int

    def line(self) -> str:
        """For KafkaElects."""
        p, target = self.partition, self.target
        assert target.election is not None
        told: dict[str, Any] = {
            "replicas": p.replicas,
            "isr": p.isr,
            "removing": p.removing,
            "adding": p.adding,
            "elr": p.eligible_leaders,
            "last": p.last_known_eligible_leaders,
            "leader": p.leader,
            "recovery": p.leader_recovery_state,
            "active": [broker for broker in self.active if broker not in target.lost],
            "has_elr": int(self.has_elr),
            "level": self.level,
            "enough": min(self.enough, len(p.replicas)),
            "election": target.election.name,
            "lost": target.lost,
            "to_isr": target.isr,
            "to_replicas": target.replicas,
            "to_removing": target.removing,
            "to_adding": target.adding,
            "to_recovery": target.recovery_state,
        }
        return " ".join(f"{name}={said(value)}" for name, value in told.items() if value is not None)

    def ours(self) -> str:
        """The record that we make, in the words of KafkaElects."""
        found = {levels.METADATA_VERSION: self.level, levels.ELR_VERSION: int(self.has_elr)}
        topic = Topic("t", TOPIC_ID, (self.partition,))
        image = ClusterImage(
            features=Features(found),
            brokers={i: Broker(i, i, bytes(16), (), (), None, i not in self.active, False, ()) for i in range(1, 7)},
            topics=TopicsImage({topic.id: topic}, {"t": topic}),
            configs=ConfigsImage({(ResourceType.TOPIC, "t"): {"min.insync.replicas": str(self.enough)}}),
        )
        changes = PartitionChanges(image, ControllerContext(1, 1, 1, RULES, bytes))
        changes.change(topic, self.partition, self.target)
        if not changes.records:
            return "nothing"
        (record,) = changes.records
        return (
            f"leader={record.leader} isr={said(record.isr)} replicas={said(record.replicas)} "
            f"removing={said(record.removing_replicas)} adding={said(record.adding_replicas)} "
            f"recovery={record.leader_recovery_state} elr={said(record.eligible_leader_replicas)} "
            f"last={said(record.last_known_elr)}"
        )


def said(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def draw(rng: random.Random) -> Case:
    """A partition as a controller may have left it, and a change as one may ask for."""
    has_elr = rng.random() < 0.6
    replicas = rng.sample(range(1, 6), rng.randint(1, 4))
    isr = [r for r in rng.sample(replicas, len(replicas)) if rng.random() < 0.6]
    if not isr and not has_elr:
        isr = [rng.choice(replicas)]
    rest = [r for r in replicas if r not in isr]
    eligible = sorted(r for r in rest if has_elr and rng.random() < 0.4)
    leader = rng.choice(isr) if isr and (len(isr) > 1 or rng.random() < 0.7) else NO_LEADER
    last = [rng.choice(replicas)] if has_elr and leader == NO_LEADER and rng.random() < 0.7 else []
    recovery = int(len(isr) == 1 and rng.random() < 0.3)
    moving = rng.random() < 0.4
    adding = sorted(r for r in replicas if moving and rng.random() < 0.4)
    removing = sorted(r for r in replicas if moving and r not in adding and rng.random() < 0.5)
    partition = Partition(
        0,
        tuple(replicas),
        (DIRECTORY_UNASSIGNED,) * len(replicas),
        tuple(isr),
        leader,
        1,
        1,
        tuple(removing),
        tuple(adding),
        recovery,
        tuple(eligible),
        tuple(last),
    )
    active = [broker for broker in range(1, 6) if broker in isr or rng.random() < 0.6]
    level = rng.choice([30, 30, 30, 12, 7]) if not has_elr else 30
    target = draw_target(rng, partition, active)
    return Case(partition, target, active, rng.randint(1, 3), has_elr, level)


def draw_target(rng: random.Random, partition: Partition, active: list[int]) -> Target:
    election = rng.choice(list(Election))
    kind = rng.choice(["down", "lost", "none", "isr", "move", "cancel"])
    isr, replicas = list(partition.isr), list(partition.replicas)
    if kind in ("down", "lost"):
        gone = rng.choice(replicas)
        if gone in active:
            active.remove(gone)
        return Target(isr=[r for r in isr if r != gone], election=election, lost=[gone] if kind == "lost" else [])
    if kind == "isr" and partition.leader != NO_LEADER:
        members = [partition.leader, *(r for r in replicas if r != partition.leader and r in active)]
        members = members[: rng.randint(1, len(members))]
        return Target(isr=rng.sample(members, len(members)), recovery_state=0, election=election)
    if kind == "move":
        wanted = rng.sample(range(1, 6), rng.randint(1, 4))
        removing = sorted(set(replicas) - set(wanted))
        adding = sorted(set(wanted) - set(replicas))
        return Target(replicas=[*wanted, *removing], removing=removing, adding=adding, election=election)
    if kind == "cancel":
        back = [r for r in replicas if r not in partition.adding]
        kept = [r for r in isr if r in back] or back[:1]
        if back:
            return Target(isr=kept, replicas=back, removing=[], adding=[], election=election)
    return Target(election=election)


def theirs(cases: list[Case]) -> list[str]:
    source = Path(__file__).with_name("KafkaElects.java")
    command = kafka.java(str(source), flags=kafka.quick("-Xmx512M"))
    lines = "\n".join(case.line() for case in cases)
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    answers = done.stdout.splitlines()
    assert len(answers) == len(cases), done.stderr[-2000:]
    return answers


def keeps_nonsense(case: Case, answer: str) -> bool:
    """Whether Kafka notes as eligible who is no replica any more, as it does when a move ends.

    We do not: such a broker cannot lead, and stands in the way of the last known leader. Nor do we note that nobody led
    last.
    """
    if answer == "nothing":
        return False
    found = dict(word.split("=") for word in answer.split())
    if found["last"] == "-1":
        return True
    eligible = said(case.partition.eligible_leaders) if found["elr"] == "None" else found["elr"]
    replicas = said(case.partition.replicas) if found["replicas"] == "None" else found["replicas"]
    return not set(filter(None, eligible.split(","))) <= set(replicas.split(","))


def test_kafka_changes_partitions_as_we_do() -> None:
    reason = kafka.missing()
    if reason:
        pytest.skip(reason)
    rng = random.Random(3)
    cases = [draw(rng) for _ in range(CASES)]
    answers = theirs(cases)
    different = [
        f"{case.line()}\n  ours   {ours}\n  theirs {answer}"
        for case, answer in zip(cases, answers, strict=True)
        if (ours := case.ours()) != answer and not keeps_nonsense(case, answer)
    ]
    assert not different, f"{len(different)} differ:\n" + "\n".join(different[:12])
    assert sum(answer != "nothing" for answer in answers) > CASES / 2
