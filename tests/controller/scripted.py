"""The controller's decisions that scripts drive: each command leaves its answer and the records that were decided.

A controller is an image; what is decided moves it on at once.
"""

from __future__ import annotations

import itertools
from typing import Any

from scripts.transcript import Scripted, Words

from headrace.broker.settings.config_rules import SettingsRules
from headrace.config import BrokerConfig
from headrace.controller.brokers import (
    Registration,
    decide_elect_returned,
    decide_fence,
    decide_register,
    decide_unfence,
)
from headrace.controller.configs import Alteration, AlterOperation, decide_alter_configs
from headrace.controller.context import ControllerContext
from headrace.controller.directories import decide_assign_directories, decide_directories_failed
from headrace.controller.features import FeatureUpdate, decide_update_features
from headrace.controller.leaders import decide_elect_leaders
from headrace.controller.partitions import decide_create_partitions
from headrace.controller.producer_ids import decide_allocate_producer_ids
from headrace.controller.reassignments import decide_reassign, list_reassignments
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

TYPES = {"topic": ResourceType.TOPIC, "broker": ResourceType.BROKER, "group": ResourceType.GROUP}


class Controller(Scripted):
    """An image and the commands that move it on."""

    def __init__(self) -> None:
        super().__init__()
        self.image = ClusterImage(cluster_id="test")
        self.level = 30
        self._ids = itertools.count(1)
        config = BrokerConfig.load({"num.partitions": "2"})
        self.context = ControllerContext(1, 2, 1, SettingsRules(config), self._new_id)

    def _new_id(self) -> bytes:
        return next(self._ids).to_bytes(16, "big")

    def commit(self, decision: Decision[Any]) -> None:
        """Moves the image on, and says by which records."""
        replay = Replay(self.image)
        for record in decision.records:
            replay.apply(record)
        replay.advance(offset=self.image.offset + len(decision.records), epoch=1, timestamp_ms=0)
        level = self.image.features.metadata_version
        self.image = replay.finish()
        for record in decision.records:
            self.say(f"  {show(record, record_version(record, level))}")

    def do_format(self, words: Words) -> None:
        self.level = int(words.plain[0])
        stored = bootstrap.bootstrap_records(bootstrap.default_levels(self.level))
        self.commit(Decision(None, bootstrap.activation_records(stored, 1)))

    def do_register(self, words: Words) -> None:
        """register NODE [DIRECTORY...]: it is unfenced too, and leads again what it may, but with --only."""
        node = int(words.plain[0])
        directories = tuple(int(word).to_bytes(16, "big") for word in words.plain[1:]) or (bytes([100] * 16),)
        registration = Registration(
            node, bytes(16), (Endpoint("PLAINTEXT", "localhost", 9092, 0),), (), None, directories
        )
        decision = decide_register(self.image, registration)
        self.say(f"broker epoch {decision.reply.broker_epoch}")
        self.commit(decision)
        if "only" not in words.switches:
            self.unfence(node, decision.reply.broker_epoch)
            self.commit(decide_elect_returned(self.image, node, was_clean="unclean" not in words.switches))

    def do_unfence(self, words: Words) -> None:
        node, epoch = map(int, words.plain)
        self.unfence(node, epoch)

    def unfence(self, node: int, epoch: int) -> None:
        decision = decide_unfence(self.image, node, epoch)
        if decision.reply:
            self.say(decision.reply.name)
        self.commit(decision)

    def do_elect_returned(self, words: Words) -> None:
        (node,) = map(int, words.plain)
        self.commit(decide_elect_returned(self.image, node, was_clean="unclean" not in words.switches))

    def do_fence(self, words: Words) -> None:
        (node,) = map(int, words.plain)
        self.commit(decide_fence(self.image, node))

    def do_directories(self, words: Words) -> None:
        """The directories of broker 1 that still work."""
        working = [int(word).to_bytes(16, "big") for word in words.plain]
        self.commit(decide_directories_failed(self.image, 1, working))

    def do_assign(self, words: Words) -> None:
        """assign TOPIC-INDEX=DIRECTORY...: where broker 1 has put its replicas."""
        chosen = []
        for place, directory in words.named.items():
            name, index = place.rsplit("-", 1)
            topic = self.image.topics.by_name(name)
            topic_id = bytes(16) if topic is None else topic.id
            chosen.append((topic_id, int(index), int(directory).to_bytes(16, "big")))
        self.commit(decide_assign_directories(self.image, self.context, 1, chosen))

    def do_create(self, words: Words) -> None:
        """create TOPIC [partitions=N] [rf=N] [replicas=INDEX:A+B,...] [SETTING=VALUE]...: arguments are those of the
        topic before them.
        """
        topics: list[CreatableTopic] = []
        for word in words.ordered:
            key, equals, value = word.partition("=")
            if word.startswith("--"):
                continue
            if not equals:
                topics.append(CreatableTopic(name=word, num_partitions=-1, replication_factor=-1))
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
        request = CreateTopicsRequest(topics=topics, validate_only="validate-only" in words.switches)
        decision = decide_create_topics(self.image, request, self.context)
        for result in decision.reply.topics:
            made = f" partitions={result.num_partitions} rf={result.replication_factor}"
            said = outcome(result.error_code, result.error_message)
            self.say(f"{result.name}: {said}{'' if result.error_code else made}")
        self.commit(decision)

    def do_delete(self, words: Words) -> None:
        """delete TOPIC|#ID..."""
        wanted = [(None, int(w[1:]).to_bytes(16, "big")) if w[0] == "#" else (w, ZERO) for w in words.plain]
        decision = decide_delete_topics(self.image, wanted, self.context)
        for result in decision.reply:
            self.say(f"{result.name}: {outcome(result.error_code, result.error_message)}")
        self.commit(decision)

    def do_grow(self, words: Words) -> None:
        """grow TOPIC COUNT [A+B,...]: the replicas of each partition that is new."""
        name, count, *assigned = words.plain
        asked = CreatePartitionsTopic(name=name, count=int(count), assignments=None)
        if assigned:
            asked.assignments = [
                CreatePartitionsAssignment([int(b) for b in each.split("+")]) for each in assigned[0].split(",")
            ]
        topics = [asked, asked] if "twice" in words.switches else [asked]
        validate_only = "validate-only" in words.switches
        decision = decide_create_partitions(self.image, topics, validate_only=validate_only)
        for topic, error in decision.reply:
            self.say(f"{topic}: {outcome(*error)}")
        self.commit(decision)

    def do_alter(self, words: Words) -> None:
        """alter KIND NAME [SETTING=VALUE] [SETTING+=ITEM] [SETTING-=ITEM] [SETTING]...: alone it is deleted."""
        kind, name, *rest = [word for word in words.ordered if not word.startswith("--")]
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
        alteration = Alteration(TYPES[kind], name, changes, "replace" in words.switches)
        alterations = [alteration, alteration] if "twice" in words.switches else [alteration]
        validate_only = "validate-only" in words.switches
        decision = decide_alter_configs(self.image, alterations, self.context, validate_only=validate_only)
        for error in decision.reply:
            self.say(outcome(*error))
        self.commit(decision)

    def do_elect(self, words: Words) -> None:
        """elect [TOPIC-INDEX...]: without any, of every partition."""
        asked = (word.rpartition("-") for word in words.plain)
        wanted = [(name, [int(index)]) for name, _, index in asked] or None
        decision = decide_elect_leaders(self.image, self.context, 1 if "unclean" in words.switches else 0, wanted)
        for name, parts in decision.reply:
            for index, error in parts:
                self.say(f"{name}-{index}: {outcome(*error)}")
        self.commit(decision)

    def do_reassign(self, words: Words) -> None:
        """reassign TOPIC-INDEX A+B|cancel"""
        place, brokers = words.plain
        name, _, index = place.rpartition("-")
        target = None if brokers == "cancel" else [int(b) for b in brokers.split("+")]
        may_change_factor = "keep-factor" not in words.switches
        decision = decide_reassign(self.image, self.context, [(name, [(int(index), target)])], may_change_factor)
        for topic, parts in decision.reply:
            for at, error in parts:
                self.say(f"{topic}-{at}: {outcome(*error)}")
        self.commit(decision)

    def do_reassignments(self, words: Words) -> None:
        for name, parts in list_reassignments(self.image, None):
            self.say(f"{name}: {[p.index for p in parts]}")

    def do_feature(self, words: Words) -> None:
        name, level = words.plain
        kind = 2 if "safe-downgrade" in words.switches else 3 if "unsafe-downgrade" in words.switches else 1
        update = FeatureUpdate(name, int(level), kind)
        validate_only = "validate-only" in words.switches
        decision = decide_update_features(self.image, [update], self.context, validate_only=validate_only)
        self.say(outcome(*decision.reply))
        self.commit(decision)

    def do_producer_ids(self, words: Words) -> None:
        decision = decide_allocate_producer_ids(self.image, 1)
        self.say(f"{decision.reply.first} to {decision.reply.end - 1}")
        self.commit(decision)

    def do_topics(self, words: Words) -> None:
        for topic in self.image.topics:
            parts = (f"{p.leader}@{p.leader_epoch}.{p.partition_epoch}{list(p.isr)}" for p in topic.partitions)
            self.say(f"{topic.name} #{int.from_bytes(topic.id, 'big')} {' '.join(parts)}")

    def do_configs(self, words: Words) -> None:
        for (kind, name), values in sorted(self.image.configs.overrides.items()):
            self.say(f"{kind} {name!r}: {dict(values)}")


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
