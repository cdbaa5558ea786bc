"""Brokers on real disks whose coordinators' logs are in a bad state for a while: they serve when it has passed."""

from __future__ import annotations

import errno
import resource
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from broker.raw import Raw, create_topic_on
from broker.storage.test_descriptors import few_descriptors
from broker.test_wrong_nodes import make
from peers.waiting import until

import headrace.testing
from headrace.broker.broker import Broker
from headrace.broker.coordinators import coordinator
from headrace.env.posix import PosixDisk, PosixFile
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from headrace.wire.messages.k22_init_producer_id import InitProducerIdRequest
from headrace.wire.primitives import Buffer

LASTS_S = 0.3
PATIENCE_S = 30.0
"""On a busy machine; that it takes less than 2 s is shown in virtual time, by tests/sim/test_load_runs.py."""
LOGS = ("/__consumer_offsets-", "/__transaction_state-")
SETTINGS = {"offsets_topic_num_partitions": "2", "transaction_state_log_num_partitions": "2"}
DOTTED = {name.replace("_", "."): value for name, value in SETTINGS.items()}


class Trouble:
    """From its `step`-th operation on the coordinators' logs on, every such operation fails."""

    def __init__(self, number: int) -> None:
        self.step = -1
        """Below 0: never."""
        self.met = False
        self.is_loading = False
        self._number = number

    def look(self, path: str) -> None:
        if self.step < 0 or not any(each in path for each in LOGS):
            return
        if self.step:
            self.step -= 1
            return
        self.met = True
        raise OSError(self._number, "not now", path)

    def end(self) -> None:
        self.step = -1


def before(patch: pytest.MonkeyPatch, owner: type, name: str, hear: Callable[..., None]) -> None:
    real = getattr(owner, name)

    def call(self: Any, *given: Any, **named: Any) -> Any:
        hear(self, *given)
        return real(self, *given, **named)

    patch.setattr(owner, name, call)


def full_disk(patch: pytest.MonkeyPatch) -> Trouble:
    trouble = Trouble(errno.ENOSPC)

    def append(file: PosixFile, _: Sequence[Buffer]) -> None:
        trouble.look(file.path)

    before(patch, PosixFile, "append", append)
    before(patch, PosixDisk, "write_file_atomically", lambda _, path, __: trouble.look(path))
    before(patch, PosixDisk, "write_file", lambda _, path, __: trouble.look(path))
    return trouble


def no_descriptors(patch: pytest.MonkeyPatch) -> Trouble:
    trouble = Trouble(errno.EMFILE)
    before(patch, PosixDisk, "open", lambda _, path: trouble.look(path))
    before(patch, PosixDisk, "list", lambda _, path: trouble.look(path))
    return trouble


def unreadable(patch: pytest.MonkeyPatch) -> Trouble:
    trouble = Trouble(errno.EIO)
    real = vars(coordinator)["read_piece"]

    def read_piece(log: Any, *given: Any) -> Any:
        trouble.look(log.directory + "/")
        return real(log, *given)

    patch.setattr(coordinator, "read_piece", read_piece)
    return trouble


def refused(raw: Raw, key_types: tuple[int, int] = (0, 1)) -> list[ErrorCode]:
    """What is refused to a group and to a transactional id."""
    found = [ErrorCode(raw.ask(FindCoordinatorRequest("k", key_type), 3).error_code) for key_type in key_types]
    topics = [OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition(0, 1)])]
    answer = raw.ask(OffsetCommitRequest(group_id="k", topics=topics), 8)
    found.append(ErrorCode(answer.topics[0].partitions[0].error_code))
    found.append(ErrorCode(raw.ask(InitProducerIdRequest("k", 60_000), 4).error_code))
    return [error for error in found if error]


def until_served(raw: Raw) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while error := refused(raw):
        assert time.monotonic() < deadline, error
        time.sleep(0.01)


def ask_through(raw: Raw, trouble: Trouble) -> None:
    """Asks until the state is met, and while it lasts."""
    until(lambda: trouble.met or not refused(raw))
    last = time.monotonic() + LASTS_S
    while trouble.met and time.monotonic() < last:
        refused(raw)
    assert trouble.met, "all was served before the step came: nothing was tried"
    trouble.end()


QUICK = [(full_disk, 0), (no_descriptors, 1)]
MATRIX = [(state, step) for state in (full_disk, no_descriptors) for step in range(10)]
QUICK_LOADS = [(full_disk, 3), (no_descriptors, 0), (no_descriptors, 3), (unreadable, 1)]
MATRIX_LOADS = [(state, step) for state in (full_disk, no_descriptors) for step in range(4)]
MATRIX_LOADS += [(unreadable, step) for step in range(2)]
"""Every step that these loads have: a test whose step does not come fails."""


def _soak(cases: list[Any]) -> list[Any]:
    return [pytest.param(*case, marks=pytest.mark.soak) for case in cases]


@pytest.mark.parametrize(("state", "step"), [*QUICK, *_soak(MATRIX)])
def test_coordination_begins_when_a_state_that_met_its_making_has_passed(
    state: Callable[[pytest.MonkeyPatch], Trouble], step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    trouble = state(monkeypatch)
    with running_broker(DOTTED) as served, Raw(served.port) as raw:
        create_topic_on(raw, "t")
        trouble.step = step
        ask_through(raw, trouble)
        until_served(raw)


@pytest.mark.parametrize(("state", "step"), [*QUICK_LOADS, *_soak(MATRIX_LOADS)])
def test_coordination_goes_on_when_a_state_that_met_a_load_has_passed(
    state: Callable[[pytest.MonkeyPatch], Trouble], step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trouble = state(monkeypatch)
    with running_broker(DOTTED, data=tmp_path) as served, Raw(served.port) as raw:
        create_topic_on(raw, "t")
        until_served(raw)
    trouble.step = step
    with running_broker(DOTTED, data=tmp_path) as served, Raw(served.port) as raw:
        ask_through(raw, trouble)
        until_served(raw)


def test_coordination_begins_in_a_process_that_had_no_descriptors(tmp_path: Path) -> None:
    with few_descriptors(tmp_path, **SETTINGS) as process, Raw(process.port) as raw:
        create_topic_on(raw, "t")
        assert len(refused(raw, (9, 9))) == 4  # brings what answers them into memory, and makes no topic
        pid = process.process.pid
        held = max(int(each.name) for each in Path(f"/proc/{pid}/fd").iterdir())
        _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (held + 1, hard))
        last = time.monotonic() + LASTS_S
        while time.monotonic() < last:
            refused(raw)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (hard, hard))
        until_served(raw)
    assert not any("Traceback" in line for line in process.said), process.said


def test_a_coordinator_is_elected_whose_log_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by a long truncation, which goes on until after the election."""
    with headrace.testing.cluster(settings=DOTTED) as three:
        make(three, "t")
        keys = [("__consumer_offsets", 0), ("__transaction_state", 0)]
        first = next(iter(three.nodes.values()))
        with Raw(first.port, timeout_s=PATIENCE_S) as raw:
            raw.ask(FindCoordinatorRequest("k", 0), 3)
            raw.ask(FindCoordinatorRequest("k", 1), 3)
        led = {key: three.leader(*key) for key in keys}
        until(lambda: all(in_sync(node, key) for node in three.nodes.values() for key in keys))
        victim = led[keys[1]]
        others = [node for node in three.nodes.values() if node.id != victim]
        for node in others:
            node.call(lambda broker: hold(broker, keys, True))
        three.kill(victim)
        until(lambda: all(three.leader(*key) != victim for key in keys))
        heirs = {node.id: [key for key in keys if three.leader(*key) == node.id] for node in others}
        for node in others:
            assert not any(serves(node, key) for key in heirs[node.id] if led[key] == victim)
            node.call(lambda broker: hold(broker, keys, False))
        deadline = time.monotonic() + PATIENCE_S
        while not all(serves(node, key) for node in others for key in heirs[node.id]):
            assert time.monotonic() < deadline
            time.sleep(0.01)


def hold(broker: Broker, keys: list[tuple[str, int]], is_held: bool) -> None:
    for key in keys:
        replica = broker.replicas.held(key)
        assert replica is not None
        if replica.error or not is_held:
            replica.is_written_aside = is_held
            broker.replicas._released(replica)


def in_sync(node: TestBroker, key: tuple[str, int]) -> bool:
    known = node.call(lambda broker: broker.image.topics.partition(*key))
    return known is not None and len(known.isr) == 3


def serves(node: TestBroker, key: tuple[str, int]) -> bool:
    def ask(broker: Broker) -> bool:
        of: Any = broker.groups if key[0] == "__consumer_offsets" else broker.transactions
        return not isinstance(of.runtime.serving(key[1]), ErrorCode)

    return node.call(ask)
