"""Runs the controller's transcripts: commands, and below each the answer and the records that were decided.

`--rewrite` writes what the controller says now into the scripts; the difference is the review.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.broker.settings.config_rules import SettingsRules
from headrace.config import BrokerConfig
from headrace.controller.brokers import (
    Registration,
    decide_assign_directories,
    decide_directories_failed,
    decide_elect_returned,
    decide_fence,
    decide_register,
    decide_unfence,
)
from headrace.controller.configs import Alteration, AlterOperation, decide_alter_configs
from headrace.controller.context import ControllerContext
from headrace.controller.features import FeatureUpdate, decide_update_features
from headrace.controller.partitions import (
    decide_create_partitions,
    decide_elect_leaders,
    decide_reassign,
    list_reassignments,
)
from headrace.controller.producer_ids import decide_allocate_producer_ids
from headrace.controller.topics import decide_create_topics, decide_delete_topics
from headrace.machine import Decision
from headrace.metadata import bootstrap
from headrace.metadata.framing import record_version
from headrace.metadata.image import ClusterImage, Endpoint, ResourceType
from headrace.metadata.replay import Replay
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from headrace.wire.messages.k37_create_partitions import CreatePartitionsAssignment, CreatePartitionsTopic
from headrace.wire.uuids import ZERO

SCRIPTS = sorted((Path(__file__).parent.parent / "scripts" / "controller").glob("*.txt"))
TYPES = {"topic": ResourceType.TOPIC, "broker": ResourceType.BROKER, "group": ResourceType.GROUP}


class Controller:
    """An image and the commands that move it on."""

    def __init__(self) -> None:
        self.image = ClusterImage(cluster_id="test")
        self.level = 30
        self._ids = itertools.count(1)
        config = BrokerConfig.load({"num.partitions": "2"})
        self.context = ControllerContext(1, 2, 1, SettingsRules(config), self._new_id)

    def _new_id(self) -> bytes:
        return next(self._ids).to_bytes(16, "big")

    def run(self, line: str) -> list[str]:
        words = line.split()
        flags = {word for word in words if word.startswith("--")}
        command: Callable[[list[str], set[str]], list[str]] = getattr(self, "do_" + words[0].replace("-", "_"))
        return command([word for word in words[1:] if word not in flags], flags)

    def commit(self, decision: Decision[Any]) -> list[str]:
        replay = Replay(self.image)
        for record in decision.records:
            replay.apply(record)
        replay.advance(offset=self.image.offset + len(decision.records), epoch=1, timestamp_ms=0)
        level = self.image.features.metadata_version
        self.image = replay.finish()
        return [f"  {show(record, record_version(record, level))}" for record in decision.records]

    def do_format(self, words: list[str], _: set[str]) -> list[str]:
        self.level = int(words[0])
        stored = bootstrap.bootstrap_records(bootstrap.default_levels(self.level))
        return self.commit(Decision(None, bootstrap.activation_records(stored, 1)))

    def do_register(self, words: list[str], flags: set[str]) -> list[str]:
        node = int(words[0])
        directories = tuple(int(word).to_bytes(16, "big") for word in words[1:]) or (bytes([100] * 16),)
        registration = Registration(
            node, bytes(16), (Endpoint("PLAINTEXT", "localhost", 9092, 0),), (), None, directories
        )
        decision = decide_register(self.image, registration)
        lines = [f"broker epoch {decision.reply}", *self.commit(decision)]
        if "--only" in flags:
            return lines
        lines += self.do_unfence([words[0], str(decision.reply)], set())
        return lines + self.commit(decide_elect_returned(self.image, node, was_clean="--unclean" not in flags))

    def do_unfence(self, words: list[str], _: set[str]) -> list[str]:
        decision = decide_unfence(self.image, int(words[0]), int(words[1]))
        return ([decision.reply.name] if decision.reply else []) + self.commit(decision)

    def do_elect_returned(self, words: list[str], flags: set[str]) -> list[str]:
        return self.commit(decide_elect_returned(self.image, int(words[0]), was_clean="--unclean" not in flags))

    def do_fence(self, words: list[str], _: set[str]) -> list[str]:
        return self.commit(decide_fence(self.image, int(words[0])))

    def do_directories(self, words: list[str], _: set[str]) -> list[str]:
        working = [int(word).to_bytes(16, "big") for word in words]
        return self.commit(decide_directories_failed(self.image, 1, working))

    def do_assign(self, words: list[str], _: set[str]) -> list[str]:
        chosen = []
        for word in words:
            place, directory = word.split("=")
            name, index = place.rsplit("-", 1)
            topic = self.image.topics.by_name(name)
            topic_id = bytes(16) if topic is None else topic.id
            chosen.append((topic_id, int(index), int(directory).to_bytes(16, "big")))
        return self.commit(decide_assign_directories(self.image, 1, chosen))

    def do_create(self, words: list[str], flags: set[str]) -> list[str]:
        topics: list[CreatableTopic] = []
        for word in words:
            key, equals, value = word.partition("=")
            if not equals:
                topics.append(
                    CreatableTopic(name="" if word == "''" else word, num_partitions=-1, replication_factor=-1)
                )
            elif key == "partitions":
                topics[-1].num_partitions = int(value)
            elif key == "rf":
                topics[-1].replication_factor = int(value)
            elif key == "replicas":
                topics[-1].assignments = [
                    CreatableReplicaAssignment(int(index), [int(b) for b in brokers.split("+") if b])
                    for index, _, brokers in (part.partition(":") for part in value.split(","))
                ]
            else:
                text = None if value == "null" else value
                topics[-1].configs.append(CreatableTopicConfig(name=key, value=text))
        request = CreateTopicsRequest(topics=topics, validate_only="--validate-only" in flags)
        decision = decide_create_topics(self.image, request, self.context)
        lines = [
            f"{result.name}: {outcome(result.error_code, result.error_message)}"
            + (f" partitions={result.num_partitions} rf={result.replication_factor}" if not result.error_code else "")
            for result in decision.reply.topics
        ]
        return lines + self.commit(decision)

    def do_delete(self, words: list[str], _: set[str]) -> list[str]:
        wanted = [(None, int(w[1:]).to_bytes(16, "big")) if w[0] == "#" else (w, ZERO) for w in words]
        decision = decide_delete_topics(self.image, wanted)
        lines = [f"{result.name}: {outcome(result.error_code, result.error_message)}" for result in decision.reply]
        return lines + self.commit(decision)

    def do_grow(self, words: list[str], flags: set[str]) -> list[str]:
        asked = CreatePartitionsTopic(name=words[0], count=int(words[1]), assignments=None)
        if len(words) > 2:
            asked.assignments = [
                CreatePartitionsAssignment([int(b) for b in each.split("+")]) for each in words[2].split(",")
            ]
        topics = [asked, asked] if "--twice" in flags else [asked]
        decision = decide_create_partitions(self.image, topics, validate_only="--validate-only" in flags)
        return [f"{name}: {outcome(*error)}" for name, error in decision.reply] + self.commit(decision)

    def do_alter(self, words: list[str], flags: set[str]) -> list[str]:
        kind, name, *rest = words
        changes: list[tuple[str, int, str | None]] = []
        for word in rest:
            for sign, operation in (("+=", AlterOperation.APPEND), ("-=", AlterOperation.SUBTRACT)):
                key, found, value = word.partition(sign)
                if found:
                    changes.append((key, operation, value))
                    break
            else:
                key, equals, value = word.partition("=")
                text = None if value == "null" or not equals else value
                changes.append((key, AlterOperation.SET if equals else AlterOperation.DELETE, text))
        alteration = Alteration(TYPES[kind], "" if name == "''" else name, changes, "--replace" in flags)
        alterations = [alteration, alteration] if "--twice" in flags else [alteration]
        decision = decide_alter_configs(self.image, alterations, self.context, validate_only="--validate-only" in flags)
        return [outcome(*error) for error in decision.reply] + self.commit(decision)

    def do_elect(self, words: list[str], flags: set[str]) -> list[str]:
        wanted = None if not words else [(w.rpartition("-")[0], [int(w.rpartition("-")[2])]) for w in words]
        decision = decide_elect_leaders(self.image, 1 if "--unclean" in flags else 0, wanted)
        lines = [f"{name}-{i}: {outcome(*error)}" for name, parts in decision.reply for i, error in parts]
        return lines + self.commit(decision)

    def do_reassign(self, words: list[str], flags: set[str]) -> list[str]:
        name, _, index = words[0].rpartition("-")
        target = None if words[1] == "cancel" else [int(b) for b in words[1].split("+")]
        decision = decide_reassign(self.image, [(name, [(int(index), target)])], "--keep-factor" not in flags)
        lines = [f"{name}-{i}: {outcome(*error)}" for _, parts in decision.reply for i, error in parts]
        return lines + self.commit(decision)

    def do_reassignments(self, _: list[str], __: set[str]) -> list[str]:
        return [f"{name}: {[p.index for p in parts]}" for name, parts in list_reassignments(self.image, None)]

    def do_feature(self, words: list[str], flags: set[str]) -> list[str]:
        kind = 2 if "--safe-downgrade" in flags else 3 if "--unsafe-downgrade" in flags else 1
        update = FeatureUpdate(words[0], int(words[1]), kind)
        decision = decide_update_features(self.image, [update], 1, validate_only="--validate-only" in flags)
        return [outcome(*decision.reply), *self.commit(decision)]

    def do_producer_ids(self, _: list[str], __: set[str]) -> list[str]:
        decision = decide_allocate_producer_ids(self.image, 1)
        return [f"{decision.reply.first} to {decision.reply.end - 1}", *self.commit(decision)]

    def do_topics(self, _: list[str], __: set[str]) -> list[str]:
        return [
            f"{topic.name} #{int.from_bytes(topic.id, 'big')} "
            + " ".join(f"{p.leader}@{p.leader_epoch}.{p.partition_epoch}{list(p.isr)}" for p in topic.partitions)
            for topic in self.image.topics
        ]

    def do_configs(self, _: list[str], __: set[str]) -> list[str]:
        return [f"{kind} {name!r}: {dict(v)}" for (kind, name), v in sorted(self.image.configs.overrides.items())]


def outcome(code: int, message: str | None) -> str:
    name = ErrorCode(code).name
    return name if message is None else f"{name} {message}"


def show(record: Any, version: int) -> str:
    """A record with the fields that are not at their default."""
    fresh = type(record)()
    fields: list[str] = []
    for name in type(record).__dataclass_fields__:
        value = getattr(record, name)
        if value != getattr(fresh, name) and name not in ("features", "end_points"):
            fields.append(f"{name}={small(value)}")
    return f"{type(record).__name__} v{version} {' '.join(fields)}".rstrip()


def small(value: Any) -> str:
    if isinstance(value, bytes):
        return f"#{int.from_bytes(value, 'big')}" if value[0] == 0 else f"#{value[:1].hex()}.."
    if isinstance(value, list):
        return "[" + ",".join(small(each) for each in value) + "]"
    return str(int(value)) if isinstance(value, int) else str(value)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script(path: Path, request: pytest.FixtureRequest) -> None:
    controller = Controller()
    expected = path.read_text().splitlines()
    actual: list[str] = []
    in_answer = False
    for line in expected:
        if not line.strip() or line.startswith("#"):
            in_answer = False
            actual.append(line)
        elif line.startswith("> "):
            in_answer = True
            actual.append(line)
            actual += controller.run(line[2:])
        else:
            assert in_answer, f"{path.name}: {line!r} stands below no command"
    if request.config.getoption("--rewrite"):
        path.write_text("\n".join(actual) + "\n")
    assert actual == expected


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) >= 6
