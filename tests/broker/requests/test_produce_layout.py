"""Requests of several partitions that are alike but for their records: what the short path does with them is what the
handler does with each."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from broker.raw import Raw, batch, create_topic, produce

from headrace.broker.requests import produce_run
from headrace.broker.requests.produce_layout import Layout, layout_of
from headrace.broker.requests.produce_run import ProduceRun
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker
from headrace.wire.batch import iter_headers
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.wire.messages.k20_delete_topics import DeleteTopicsRequest
from headrace.wire.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

PARTITIONS = 3
BATCH_BYTES_MAX = 300
TOPICS = {
    "plain": {},
    "small": {"max.message.bytes": str(BATCH_BYTES_MAX)},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "packed": {"compression.type": "gzip"},
    "keyed": {"cleanup.policy": "compact"},
    "rolled": {"segment.bytes": "1048576", "index.interval.bytes": "100", "segment.jitter.ms": "0"},
    "flushed": {"flush.messages": "3"},
}
NOWHERE = "nowhere"
SEEDS = 12
VERSIONS = (7, 9, 11, 12)
_names = itertools.count()


class Switch:
    """Whether the short path is off."""

    off = False


@pytest.fixture(scope="module")
def served() -> Iterator[TestBroker]:
    with running_broker({"auto.create.topics.enable": "false"}) as served:
        yield served


@pytest.fixture
def switch(monkeypatch: pytest.MonkeyPatch) -> Switch:
    switch = Switch()
    for way in ("add", "add_alike"):
        original = getattr(ProduceRun, way)

        def switched(self: ProduceRun, *arguments: object, way: Callable[..., bool] = original) -> bool:
            return not switch.off and way(self, *arguments)

        monkeypatch.setattr(ProduceRun, way, switched)
    return switch


@dataclass
class Part:
    """What a request has for one partition."""

    topic: str
    index: int
    kind: str
    producer: int
    sequence: int
    size: int

    def records(self) -> bytes | None:
        if self.kind == "none":
            return None
        fields: dict[str, Any] = {}
        if self.kind in ("sequenced", "transactional"):
            fields = {"producer_id": self.producer, "producer_epoch": 0, "base_sequence": self.sequence}
        values = [b"x" * self.size] * (1 + self.size % 3)
        data = bytearray(batch(*values, key=b"k" if self.kind == "keyed" else None, **fields))
        if self.kind == "damaged":
            data[-1] ^= 1
        elif self.kind == "cut":
            del data[self.size % len(data) :]
        elif self.kind == "transactional":
            data = bytearray(batch(*values, transactional=True, **fields))
        return bytes(data)


KINDS = ("plain",) * 6 + ("sequenced",) * 3 + ("keyed", "damaged", "cut", "none", "transactional")


def asked(rng: random.Random) -> list[tuple[int, int, list[Part]]]:
    """Requests of one connection: version, acks and parts."""
    found: list[tuple[int, int, list[Part]]] = []
    for _ in range(rng.randint(1, 4)):
        topics = rng.choices([*TOPICS, "plain", "plain", "rolled", NOWHERE], k=rng.randint(1, 3))
        if rng.random() < 0.5:
            topics = ["plain", "rolled"]
        places = [(topic, index) for topic in topics for index in range(rng.randint(1, PARTITIONS))]
        if rng.random() < 0.2:
            places.append(places[0])
        version, acks = rng.choice(VERSIONS), rng.choice((1, 1, -1))
        oddness = rng.choice((0.0, 0.0, 0.1, 1.0))
        for _ in range(rng.randint(1, 6)):
            parts = []
            for topic, index in places:
                kind = rng.choice(KINDS) if rng.random() < oddness else "plain"
                sequence = rng.choice((len(found), len(found), 0))
                parts.append(Part(topic, index, kind, rng.randint(1, 2), sequence, rng.randint(1, 150)))
            found.append((version, acks, parts))
    return found


def request_of(family: str, acks: int, parts: list[Part], made: list[bytes | None]) -> ProduceRequest:
    topics = []
    rest = iter(made)
    for name, group in itertools.groupby(parts, key=lambda part: part.topic):
        data = [PartitionProduceData(index=part.index, records=next(rest)) for part in group]
        topics.append(TopicProduceData(name=f"{family}{name}", partition_data=data))
    return ProduceRequest(acks=acks, timeout_ms=5000, topic_data=topics)


def stored(served: TestBroker, family: str, topics: list[str]) -> dict[tuple[str, int], list[object]]:
    """What is in the logs of a family: their bytes, or the headers but for what has the time of the append in it."""
    found: dict[tuple[str, int], list[object]] = {}
    for topic in topics:
        for index in range(PARTITIONS):
            paths = sorted((served.data / f"{family}{topic}-{index}").glob("*.log"))
            data = b"".join(path.read_bytes() for path in paths)
            if topic == "stamped":
                kept: list[object] = [
                    (
                        head.base_offset,
                        head.partition_leader_epoch,
                        head.producer_id,
                        head.base_sequence,
                        head.record_count,
                    )
                    for _, head in iter_headers(data)
                ]
            else:
                kept = [data]
            found[topic, index] = kept
    return found


def answers_of(raw: Raw, frames: list[tuple[int, bytes]], family: str) -> list[object]:
    raw.socket.sendall(b"".join(frame for _, frame in frames))
    found: list[object] = []
    for version, _ in frames:
        number, answer = raw.receive(0, version)
        for topic in answer.responses:
            assert topic.name.startswith(family)
            topic.name = topic.name.removeprefix(family)
            for part in topic.partition_responses:
                if topic.name == "stamped" and part.log_append_time_ms > 0:
                    part.log_append_time_ms = 1
                if part.error_message:
                    part.error_message = part.error_message.replace(family, "")
                for each in part.record_errors:
                    each.batch_index_error_message = (each.batch_index_error_message or "").replace(family, "")
                found.append((number, topic.name, part))
    return found


def run_both(served: TestBroker, switch: Switch, seed: int) -> None:
    rng = random.Random(seed)
    number = next(_names)
    requests = asked(rng)
    made = [[part.records() for part in parts] for _, _, parts in requests]
    first = batch(b"w", key=b"k")
    topics = sorted({part.topic for _, _, parts in requests for part in parts} - {NOWHERE})
    outcomes = []
    for family, off in ((f"s{number}-", False), (f"l{number}-", True)):
        for name in topics:
            configs = {key.replace(".", "_"): value for key, value in TOPICS[name].items()}
            create_topic(served.port, f"{family}{name}", PARTITIONS, **configs)
        with Raw(served.port) as raw:
            warm = produce(f"{family}plain", *[first] * PARTITIONS, acks=1)
            for topic in topics:  # the start of each leader's epoch is on disk from then on
                warm.topic_data[0].name = f"{family}{topic}"
                raw.ask(warm, 9)
            switch.off = off
            frames = [
                (version, raw.frame(request_of(family, acks, parts, records), version))
                for (version, acks, parts), records in zip(requests, made, strict=True)
            ]
            outcomes.append((answers_of(raw, frames, family), stored(served, family, topics)))
            switch.off = False
    (short, short_logs), (long, long_logs) = outcomes
    for one, other in zip(short, long, strict=True):
        assert one == other, seed
    assert short_logs == long_logs, seed


def test_the_short_way_leaves_what_the_long_one_does(served: TestBroker, switch: Switch) -> None:
    for seed in range(SEEDS):
        run_both(served, switch, seed)


# --- when the short path is taken


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Versions of the requests that the short path decodes."""
    seen: list[int] = []
    decode = produce_run._decode

    def counted(frame: memoryview, version: int, *rest: int) -> ProduceRequest:
        seen.append(version)
        return decode(frame, version, *rest)

    monkeypatch.setattr(produce_run, "_decode", counted)
    return seen


def wide(name: str, acks: int = 1, value: bytes = b"x") -> ProduceRequest:
    return produce(name, *[batch(value)] * PARTITIONS, acks=acks)


def errors(raw: Raw, requests: list[ProduceRequest], version: int = 9) -> list[list[int]]:
    raw.socket.sendall(b"".join(raw.frame(each, version) for each in requests))
    answers = [raw.receive(0, version)[1] for _ in requests]
    return [[part.error_code for topic in each.responses for part in topic.partition_responses] for each in answers]


@pytest.mark.parametrize("version", [9, 12, 13])
@pytest.mark.parametrize("acks", [-1, 0, 1])
def test_what_is_alike_is_decoded_once(served: TestBroker, decoded: list[int], version: int, acks: int) -> None:
    name = f"once{next(_names)}"
    topic_id = create_topic(served.port, name, PARTITIONS)
    create_topic(served.port, f"{name}-b", PARTITIONS)
    with Raw(served.port) as raw:
        errors(raw, [wide(name)])
        decoded.clear()
        requests = [wide(name, acks, b"y" * size) for size in (1, 70, 200, 20_000)] * 5
        if version == 13:
            for each in requests:
                each.topic_data[0].topic_id = topic_id
        raw.socket.sendall(b"".join(raw.frame(each, version) for each in requests))
        for offset in range(1, 1 + len(requests) if acks else 1):
            number, answer = raw.receive(0, version)
            assert number == 1 + offset
            (topic,) = answer.responses
            assert (topic.name, topic.topic_id) == (("", topic_id) if version == 13 else (name, bytes(16)))
            assert [(part.index, part.error_code, part.base_offset) for part in topic.partition_responses] == [
                (index, 0, offset) for index in range(PARTITIONS)
            ]
        assert errors(raw, [wide(name)]) == [[0] * PARTITIONS]
    assert decoded.count(version) <= 3, "the first two, and the closing one"
    assert {served.call(lambda inside: inside.replicas.by_name[name, 1].log.end_offset)} == {2 + len(requests)}


def configure(admin: Raw, topic: str, setting: str, value: str) -> None:
    config = AlterableConfig(name=setting, config_operation=0, value=value)
    resource = AlterConfigsResource(resource_type=2, resource_name=topic, configs=[config])
    assert admin.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses[0].error_code == 0


def test_what_its_topic_opens_goes_to_the_handler(served: TestBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[bool] = []
    add_alike = ProduceRun.add_alike

    def noted(self: ProduceRun, *arguments: Any) -> bool:
        taken.append(add_alike(self, *arguments))
        return taken[-1]

    monkeypatch.setattr(ProduceRun, "add_alike", noted)
    name = f"opened{next(_names)}"
    create_topic(served.port, name, PARTITIONS)

    def is_taken(**fields: Any) -> bool:
        """Whether the short path takes a request whose last batch has these fields, once there is a layout."""
        keyed = batch(b"x", key=b"k")
        assert errors(raw, [produce(name, *[keyed] * PARTITIONS, acks=1)] * 3) == [[0] * PARTITIONS] * 3
        taken.clear()
        last = batch(b"x" * 100, key=b"k", **fields)
        asked = produce(name, *[keyed] * (PARTITIONS - 1), last, acks=1)
        assert errors(raw, [asked]) == [[0] * PARTITIONS]
        (outcome,) = taken
        return outcome

    with Raw(served.port) as raw, Raw(served.port) as admin:
        assert is_taken()
        assert is_taken(compression=1)
        configure(admin, name, "cleanup.policy", "compact")
        assert is_taken()
        assert not is_taken(compression=1)
        errors(raw, [produce(name, *[batch(b"x", key=b"k")] * PARTITIONS, acks=1)] * 3)
        configure(admin, name, "compression.type", "gzip")
        taken.clear()
        assert errors(raw, [produce(name, *[batch(b"x", key=b"k")] * PARTITIONS, acks=1)]) == [[0] * PARTITIONS]
        assert taken == [False]


def test_what_is_set_between_two_alike_requests_counts(served: TestBroker) -> None:
    name = f"set{next(_names)}"
    create_topic(served.port, name, PARTITIONS)
    with Raw(served.port) as raw, Raw(served.port) as admin:
        large = wide(name, 1, b"x" * BATCH_BYTES_MAX)
        assert errors(raw, [large] * 3) == [[0] * PARTITIONS] * 3
        for setting, value, code in (
            ("max.message.bytes", str(BATCH_BYTES_MAX), ErrorCode.MESSAGE_TOO_LARGE),
            ("max.message.bytes", "1000000", 0),
            ("cleanup.policy", "compact", ErrorCode.INVALID_RECORD),
        ):
            configure(admin, name, setting, value)
            assert errors(raw, [large] * 3) == [[code] * PARTITIONS] * 3
        admin.ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=5000), 5)
        assert errors(raw, [large] * 2) == [[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * PARTITIONS] * 2
        create_topic(served.port, name, PARTITIONS)
        assert errors(raw, [large] * 2) == [[0] * PARTITIONS] * 2


def test_an_error_with_acks_0_ends_the_connection(served: TestBroker) -> None:
    name = f"none{next(_names)}"
    create_topic(served.port, name, PARTITIONS)
    damaged = bytearray(batch(b"x"))
    damaged[-1] ^= 1
    with Raw(served.port) as raw:
        errors(raw, [wide(name)] * 2)
        bad = produce(name, batch(b"x"), bytes(damaged), batch(b"x"), acks=0)
        raw.socket.sendall(b"".join(raw.frame(each, 9) for each in (wide(name, 0), bad, wide(name, 0))))
        assert raw.is_closed()


def test_what_has_no_layout(served: TestBroker) -> None:
    create_topic(served.port, "odd", PARTITIONS)
    replicas = served.call(lambda inside: [inside.replicas.by_name["odd", index] for index in range(PARTITIONS)])
    raw = Raw(served.port)
    raw.socket.close()

    def laid(frame: bytes, plan: list[list[object]]) -> Layout | None:
        view = memoryview(bytearray(frame))[4:]
        request = ProduceRequest.decode(view, 9, 14)
        return layout_of(view, 9, request, plan, 0)  # type: ignore[arg-type]

    good = raw.frame(wide("odd"), 9)
    layout = laid(good, [[*replicas]])
    assert layout is not None
    assert layout.gaps[0].endswith(b"\0\0\0\0")
    assert layout.gaps[1:] == [b"\0\0\0\0\1", b"\0\0\0\0\2", b"\0\0\0"]
    assert laid(good, [[replicas[0], replicas[0], replicas[1]]]) is None, "a partition twice"
    tagged = bytearray(good[:-1]) + b"\1\7\1x"
    assert laid(bytes(tagged), [[*replicas]]) is None, "a tagged field behind the topics"
