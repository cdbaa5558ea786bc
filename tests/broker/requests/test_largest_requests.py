"""The largest legal request for each list of each API, on each kind of listener, by a user without rights, by one with
few, and by a super user: on the active controller of three secured nodes with thousands of topics and groups.

`test_long_requests` and `test_long_controller_requests` count what a turn does, in every `make test`. This one measures
real nodes: how long another client waits, what the longest turn took of the processor, and what is held.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import broker.requests.large
import pytest
from broker.raw import Raw, batch, fetch, produce
from broker.requests.attacked import (
    LISTENERS,
    REQUEST_BYTES,
    RESPONSE_BYTES,
    USERS,
    AttackedCluster,
    Bystander,
    Listener,
    commit,
    resident_bytes,
    turns_of_node,
)
from broker.requests.large import LOGINS, THERE, Path, fit, paths_of, request
from broker.requests.test_long_controller_requests import Speaker, in_envelope, speak_as_node
from peers.cluster import CLUSTER_ID

from headrace.broker.net.long_answers import DECODED_PER_BYTE
from headrace.broker.requests.apis import CLUSTER, FORWARDED, SERVED
from headrace.groups.shard_state import ASSIGNMENT_BYTES_MAX, MEMBER_BYTES_MAX
from headrace.replicas.sessions import PARTITIONS_MAX
from headrace.wire.apis import APIS, ApiKey
from headrace.wire.frame import RequestHeader, encode_request
from headrace.wire.messages import k03_metadata as k03
from headrace.wire.messages import k10_find_coordinator as k10
from headrace.wire.messages import k15_describe_groups as k15
from headrace.wire.messages import k18_api_versions as k18
from headrace.wire.messages import k49_alter_client_quotas as k49
from headrace.wire.messages import k55_describe_quorum as k55
from headrace.wire.messages import k63_broker_heartbeat as k63
from headrace.wire.messages import request_class
from headrace.wire.primitives import REQUEST_ELEMENT_BYTES, DecodeError

pytestmark = [pytest.mark.soak, pytest.mark.slow, pytest.mark.timeout(1800)]

MOST = 400_000
"""Elements to begin with; fewer where a request may not hold so many. One listener of each role gets so many: what
comes behind a decoded request is the same on all."""
PROBED = 2000
"""Elements of a request from which the bytes of one are found out."""
BESIDE_BYTES = 4096
"""Of lists beside the large one."""
MANY = 9_000
"""What the other listeners and users get: several times what is decoded on the loop, or taken in one turn, and hardly
less than the 10,000 things that the controller decides on together."""
WAITS_S = 0.3
TURN_S = 0.02
"""Of the processor, on a quiet machine."""
WORK_S = 0.007
"""What `work_s` takes there."""
SLOWEST = 4.0
"""A machine that is slower, or busier, is not taken for slow."""
TRIES = 3
"""Of what takes too long each time: other programs use the machine too."""
BUSY = 2 * (os.cpu_count() or 1)
"""Above such a load of the machine a wait says nothing; the longest turn, in time of the processor, does."""
GROWTH_BYTES = 1 << 30
"""What may be held beyond a quiet node: 256 MB of requests (`queued.max.request.bytes`), one request more, decoded and
answered, and what the system keeps of memory that was freed."""
ONE_DECODED_BYTES = DECODED_PER_BYTE * REQUEST_ELEMENT_BYTES
PUT_LAST = (ApiKey.DELETE_TOPICS, ApiKey.DELETE_GROUPS, ApiKey.DELETE_ACLS)
SLOW_QUOTA = 0.01
"""Percent of the time of the processor."""


def work_s() -> float:
    """The time of the processor that a piece of work takes now which is like a broker's."""
    began = time.thread_time()
    made = [{"n": str(number)} for number in range(20_000)]
    seen = {each["n"] for each in made}
    del made, seen
    return time.thread_time() - began


def slowness() -> float:
    """How much longer than on a quiet machine work takes of the processor now."""
    return min(SLOWEST, max(1.0, sorted(work_s() for _ in range(5))[2] / WORK_S))


class Attack(NamedTuple):
    key: int
    path: Path
    role: str
    how: str = ""
    """`envelope`: as another broker sends it on; `forwarded`: to a broker that sends it on to the active controller."""

    @property
    def label(self) -> str:
        return f"{self.role}-{self.how and self.how + '-'}{APIS[self.key].name}-{'.'.join(self.path)}"


def attacks() -> list[Attack]:
    made = [
        Attack(key, path, role)
        for role in ("controller", "broker")
        for key in sorted({*SERVED, *CLUSTER} - {*LOGINS})
        if role in APIS[key].listeners
        for path in paths_of(request_class(key))
    ]
    for key in sorted(FORWARDED):
        for path in paths_of(request_class(key)):
            made += [Attack(key, path, "controller", "envelope"), Attack(key, path, "broker", "forwarded")]
    return sorted(made, key=lambda each: (each.key in PUT_LAST, each.role == "broker"))


class Attacked(NamedTuple):
    cluster: AttackedCluster
    node: int
    speaker: Speaker

    @property
    def follower(self) -> int:
        """Another node."""
        return next(each for each in self.cluster.nodes if each != self.node)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedCluster]:
    with AttackedCluster(tmp_path_factory.mktemp("data") / "cluster") as cluster:
        cluster.fill()
        with Raw(cluster.ports[1][0]) as raw:
            broker.requests.large.ID = (
                raw.ask(k03.MetadataRequest([k03.MetadataRequestTopic(name=THERE)]), 12).topics[0].topic_id
            )
        yield cluster


@pytest.fixture
def attacked(filled: AttackedCluster) -> Attacked:
    """With its active controller of now: one test that moves it fails, and not all behind it."""
    node = filled.quorum().leader_id
    return Attacked(filled, node, Speaker(CLUSTER_ID, node, epoch_of(filled, node)))


def epoch_of(cluster: AttackedCluster, node: int) -> int:
    """The broker epoch of a node: an offset of the metadata log."""
    with Raw(cluster.more_ports[node]["CPLAIN"]) as raw:
        for epoch in range(1000):
            if not raw.ask(k63.BrokerHeartbeatRequest(node, epoch, want_fence=False), 1).error_code:
                return epoch
    raise AssertionError("no epoch is the broker's")


class Ask(NamedTuple):
    """A request of an attack: where it is sent, by whom, how many elements it has at most, and whether these differ."""

    listener: Listener
    user: str
    most: int
    alike: bool = False
    within: str = ""
    """In an envelope: whose request it is."""

    def __str__(self) -> str:
        whose = f" of {self.within}" if self.within else ""
        return f"{self.listener.name} {self.user}{whose} {self.most} {'alike' if self.alike else 'distinct'}"


def largest(attack: Attack, speaker: Speaker, ask: Ask) -> bytes:
    """The request with the most elements that is still read, up to so many."""
    message, version = _made(attack, speaker, min(ask.most, _readable(attack, speaker)), alike=ask.alike)
    if ask.within:
        message, version = in_envelope(message, version, "127.0.0.1", USERS[ask.within]), 0
    return encode_request(RequestHeader(message.API_KEY, version, 1, "large"), message)


def _made(attack: Attack, speaker: Speaker, count: int, *, alike: bool) -> tuple[Any, int]:
    """A request with so many elements, and the newest version that can say it."""
    versions = range(APIS[attack.key].max_version, APIS[attack.key].min_version - 1, -1)
    for version in versions:
        small = request(attack.key, attack.path, 1, alike=True)
        speak_as_node(small, speaker, attack.path)
        if fit(small, version, attack.path):
            break
    else:
        raise AssertionError("no version says that")
    message = request(attack.key, attack.path, count, alike=alike)
    speak_as_node(message, speaker, attack.path)
    for field in type(message).__slots__:
        if field != attack.path[0]:  # as `fit` has found it
            setattr(message, field, getattr(small, field))
    return message, version


def _readable(attack: Attack, speaker: Speaker) -> int:
    """How many elements may a request have: what they take at least is bounded."""
    message, version = _made(attack, speaker, PROBED, alike=True)
    encoded, decode = message.encode(version), request_class(attack.key).decode
    least, most = 0, REQUEST_ELEMENT_BYTES
    while least < most:
        middle = (least + most) // 2
        try:
            decode(encoded, version, 0, middle)
        except DecodeError:
            least = middle + 1
        else:
            most = middle
    return (REQUEST_ELEMENT_BYTES - BESIDE_BYTES) * PROBED // least


def asks(cluster: AttackedCluster, attack: Attack) -> Iterator[Ask]:
    """How the requests of an attack are sent. The largest ones come from every kind of user, over one listener; the
    other listeners have several times what takes more than one turn."""
    first, *others = [each for each in LISTENERS if each.role == attack.role and each.protocol != "SSL"]
    others += [each for each in LISTENERS if each.role == attack.role and each.protocol == "SSL"]
    users = cluster.users_at(first)
    if attack.how == "envelope":
        yield Ask(first, users[0], MOST, within="super user")
        for most in (MOST, MANY):
            yield from (Ask(first, "super user", most, within=user) for user in users)
        yield from (Ask(each, "super user", MANY, within="super user") for each in others)
        return
    yield from (Ask(first, user, MOST) for user in users)
    yield Ask(first, users[0], MOST, alike=True)
    for user in users:
        yield from (Ask(first, user, MANY, alike) for alike in (False, True))
    if attack.how != "forwarded":
        for listener in others:
            yield from (Ask(listener, user, MANY) for user in cluster.users_at(listener))


@pytest.mark.parametrize("attack", [pytest.param(each, id=each.label) for each in attacks()])
def test_nobody_waits(attacked: Attacked, attack: Attack) -> None:
    cluster, leads, speaker = attacked
    node = attacked.follower if attack.how == "forwarded" else leads
    failures: list[str] = []
    frames: dict[tuple[int, bool, str], bytes] = {}
    for ask in asks(cluster, attack):
        kind = ask.most, ask.alike, ask.within
        if kind not in frames:
            frames[kind] = largest(attack, speaker, ask)
        said = ""
        for _ in range(TRIES):
            said = attempt(cluster, node, attack.label, ask, frames[kind])
            if not said:
                break
        failures += [said] if said else []
    assert not failures, "\n".join(failures)
    is_as_ever(cluster, leads)


def attempt(cluster: AttackedCluster, node: int, label: str, ask: Ask, frame: bytes) -> str:
    """Sends a request to a node; what it did to others, if that is too much."""
    longest, pid = turns_of_node(cluster, node), cluster.nodes[node].pid
    answer = b""
    with cluster.entered(node, ask.listener, ask.user) as raw:
        raw.ask(k18.ApiVersionsRequest("large", "1"), 3)
        before = resident_bytes(pid)
        bystander = Bystander(cluster.ports[node][0])
        longest.reset()
        began = time.monotonic()
        try:
            raw.socket.sendall(frame)
            answer = raw.receive_frame()
        except ConnectionError:
            pass  # as Kafka's
        took_s = time.monotonic() - began
        bystander.close()
    turn_s, grown = longest.seconds, resident_bytes(pid) - before
    slower = slowness() if turn_s > TURN_S else 1.0
    over = over_budget(longest.levels, len(frame), len(answer))
    said = (
        f"{label} {ask}: waits {bystander.longest_s:.3f} turn {turn_s:.3f} of {slower * TURN_S:.3f} ({longest.parts}) "
    )
    said += f"took {took_s:.1f} grown {grown >> 20} MB answer {len(answer)} {over}"
    print(said, flush=True)
    waits = bystander.longest_s > WAITS_S and os.getloadavg()[0] <= BUSY
    return said if waits or turn_s > slower * TURN_S or grown > GROWTH_BYTES or over else ""


def over_budget(levels: dict[str, float], asked: int, answered: int) -> str:
    """The budgets that were exceeded, by name. One request, and one answer, may go beyond."""
    most = {
        "requests.bytes_held": REQUEST_BYTES + ONE_DECODED_BYTES + 2 * asked,
        "responses.bytes_held": RESPONSE_BYTES + answered,
        "fetch.session_partitions": PARTITIONS_MAX,
        "groups.member_bytes_counted": MEMBER_BYTES_MAX,
        "groups.assignment_bytes_held": ASSIGNMENT_BYTES_MAX,
    }
    assert most.keys() == levels.keys()
    return ", ".join(f"{name} {level:.0f} of {most[name]}" for name, level in levels.items() if level > most[name])


def test_a_request_quota_holds(attacked: Attacked) -> None:
    """Whoever may use a hundredth of a percent of the processor is told to wait, and is not read from meanwhile."""
    cluster, node, _ = attacked
    listener = next(each for each in LISTENERS if each.name == "LOGINS")
    groups = k15.DescribeGroupsRequest([f"n{number}" for number in range(MANY)])
    with Raw(cluster.ports[node][0], timeout_s=60) as root:
        quota = k49.EntryData(
            [k49.EntityData("user", USERS["few rights"])], [k49.OpData("request_percentage", SLOW_QUOTA)]
        )
        assert not root.ask(k49.AlterClientQuotasRequest([quota]), 1).entries[0].error_code
        with cluster.entered(node, listener, "few rights") as raw:
            answer = raw.ask(groups, 5)
            assert answer.throttle_time_ms > 0
            raw.socket.settimeout(min(1.0, answer.throttle_time_ms / 2000))
            with pytest.raises(TimeoutError):
                raw.ask(groups, 5)
        quota.ops[0].remove = True
        assert not root.ask(k49.AlterClientQuotasRequest([quota]), 1).entries[0].error_code


def is_as_ever(cluster: AttackedCluster, node: int) -> None:
    """The controller is the same, no broker is fenced, and an ordinary client produces, consumes and commits."""
    topics = [k55.TopicData("__cluster_metadata", [k55.PartitionData(0)])]
    with Raw(cluster.ports[node][0], timeout_s=60) as raw:
        assert raw.ask(k55.DescribeQuorumRequest(topics), 2).topics[0].partitions[0].leader_id == node
        metadata = raw.ask(k03.MetadataRequest([k03.MetadataRequestTopic(name=THERE)]), 12)
        assert {each.node_id for each in metadata.brokers} == set(cluster.nodes)
        leader = next(each.leader_id for each in metadata.topics[0].partitions if each.partition_index == 0)
        (found,) = raw.ask(k10.FindCoordinatorRequest("", 0, ["as ever"]), 4).coordinators
    with Raw(cluster.ports[leader][0], timeout_s=60) as raw:
        made = raw.ask(produce(THERE, batch(b"as ever")), 9).responses[0].partition_responses[0]
        assert made.error_code == 0
        read = raw.ask(fetch(THERE, made.base_offset), 11).responses[0].partitions[0]
        assert b"as ever" in bytes(read.records)
    with Raw(cluster.ports[found.node_id][0], timeout_s=60) as raw:
        assert commit(raw, "as ever")
