"""The largest requests of every API that a controller's listener serves, made from its messages, also in the envelopes
of brokers: however many elements one has, it takes the loop of the active controller in small turns.

See `test_long_requests`, which has those of listeners for clients.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Any, NamedTuple

import broker.requests.large
import pytest
from broker.raw import Raw, batch, create_topic, fetch, produce
from broker.requests.large import HOSTS, LOGINS, THERE, ByHost, Path, fit, paths_of, request
from broker.turns import Turns, turns_of
from peers.waiting import until

from headrace.broker.net import request_reader
from headrace.broker.requests.apis import CLUSTER, FORWARDED, SERVED, k58_envelope
from headrace.controller.names import METADATA_TOPIC
from headrace.metadata.bootstrap import SUPPORTED_FEATURES
from headrace.testing.running_cluster import TestNode, cluster
from headrace.wire.apis import APIS, ApiKey
from headrace.wire.frame import SIZE_BYTES, RequestHeader, encode_request
from headrace.wire.messages import k62_broker_registration as k62
from headrace.wire.messages import request_class
from headrace.wire.messages.k18_api_versions import ApiVersionsRequest
from headrace.wire.messages.k58_envelope import EnvelopeRequest
from headrace.wire.messages.principal import DefaultPrincipalData

MANY = 6000
FEW_BYTES = 1024
CALLS_MAX = 24_000
"""As in `test_long_requests`."""
SLOW = {
    "controller.quorum.fetch.timeout.ms": "60000",
    "controller.quorum.request.timeout.ms": "60000",
    "broker.session.timeout.ms": "60000",
}
LEFT_BYTES = 4096
ABOUT_METADATA = (
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
    ApiKey.END_QUORUM_EPOCH,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.FETCH_SNAPSHOT,
)
OTHER = 99
"""A broker that registers, and is never seen."""
ANYBODY = "ANONYMOUS"


def is_served(key: int) -> bool:
    return "controller" in APIS[key].listeners and key in {*SERVED, *CLUSTER} and key not in LOGINS


def cases() -> Iterator[tuple[int, Path, bool]]:
    for key in filter(is_served, sorted(APIS)):
        yield from ((key, path, False) for path in paths_of(request_class(key)))
    for key in sorted(FORWARDED):
        yield from ((key, path, True) for path in paths_of(request_class(key)))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TestNode, int, Turns]]:
    with pytest.MonkeyPatch.context() as patched:
        for decodes in (request_reader, k58_envelope):
            patched.setattr(decodes, "FEW_ELEMENT_BYTES", FEW_BYTES)
        with cluster(3, SLOW, data=tmp_path_factory.mktemp("data")) as three:
            node = three.nodes[three.controller()]
            broker.requests.large.ID = create_topic(node.port, THERE, 2)
            port = next(each.port for each in node.inside.server.listeners if each.name == "CONTROLLER")
            node.call(lambda inside: setattr(inside, "authorizer", ByHost()))
            with turns_of(node, counts_calls=True) as turns:
                epoch = node.inside.quorum.epoch
                yield node, port, turns
            assert node.inside.quorum.decides and node.inside.quorum.epoch == epoch
            assert {each.id for each in node.inside.image.online_brokers()} == three.nodes.keys()
            leader = three.nodes[three.leader(THERE, 0)]
            with Raw(leader.port) as raw:
                assert raw.ask(produce(THERE, batch(b"as ever")), 9).responses[0].partition_responses[0].error_code == 0
                answer = raw.ask(fetch(THERE), 11)
                assert b"as ever" in bytes(answer.responses[0].partitions[0].records)


class Speaker(NamedTuple):
    """A node for which a request is made."""

    cluster_id: str
    node_id: int
    broker_epoch: int


def speak_as_node(message: Any, speaker: Speaker, path: Path) -> None:
    """Makes a request one of this cluster's, so that it gets as far as one of a node does."""
    for field, value in {
        "cluster_id": speaker.cluster_id,
        "broker_id": speaker.node_id,
        "broker_epoch": speaker.broker_epoch,
        "controller_id": OTHER,
        "voter_id": speaker.node_id,
    }.items():
        if hasattr(message, field):
            setattr(message, field, value)
    if isinstance(message, k62.BrokerRegistrationRequest):
        message.broker_id = OTHER
        message.features += [k62.Feature(name, *span) for name, span in SUPPORTED_FEATURES.items()]
        message.log_dirs = message.log_dirs or [bytes(15) + b"\xff"]
    if message.API_KEY in ABOUT_METADATA and path != ("topics",):
        for topic in message.topics:
            for field in ("topic_name", "name"):
                if hasattr(topic, field):
                    setattr(topic, field, METADATA_TOPIC)


def in_envelope(message: Any, version: int, host: str, user: str = ANYBODY) -> EnvelopeRequest:
    framed = encode_request(RequestHeader(message.API_KEY, version, 7, "client"), message)
    principal = b"\x00\x00" + DefaultPrincipalData(type="User", name=user).encode(0)
    return EnvelopeRequest(framed[SIZE_BYTES:], principal, ipaddress.ip_address(host).packed)


def test_no_api_is_forgotten(running: tuple[TestNode, int, Turns]) -> None:
    _, port, _ = running
    with Raw(port) as raw:
        advertised = {each.api_key for each in raw.ask(ApiVersionsRequest(), 0).api_keys}
    have_lists = {key for key in advertised if key not in LOGINS and any(paths_of(request_class(key)))}
    assert have_lists == {key for key, _, wrapped in cases() if not wrapped}
    assert {key for key, _, wrapped in cases() if wrapped} == {k for k in FORWARDED if any(paths_of(request_class(k)))}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "path", "wrapped"),
    [
        pytest.param(*case, id=f"{'envelope-' if case[2] else ''}{APIS[case[0]].name}-{'.'.join(case[1])}")
        for case in cases()
    ],
)
def test_turns_are_small(running: tuple[TestNode, int, Turns], key: int, path: Path, wrapped: bool) -> None:
    node, port, turns = running
    versions = range(APIS[key].max_version, APIS[key].min_version - 1, -1)
    version = next((each for each in versions if fit(request(key, path, 1, alike=True), each, path)), None)
    assert version is not None, "no version says that"
    ways = [("nobody", False), ("few rights", True), ("super user", False), ("super user", True)]
    for count, who, alike in [
        (1, "super user", False),
        *((MANY, *way) for way in ways),
    ]:  # the first one imports modules
        message = request(key, path, count, alike=alike)
        known = node.inside.image.brokers[node.id]
        speak_as_node(message, Speaker(node.inside.cluster_id, node.id, known.epoch), path)
        fit(message, version, path)
        with Raw(port, timeout_s=60, source=HOSTS["super user" if wrapped else who]) as raw:
            turns.reset()
            try:
                raw.ask(in_envelope(message, version, HOSTS[who]), 0) if wrapped else raw.ask(message, version)
            except ConnectionError:
                pass  # Kafka closes the connection too
        assert count == 1 or turns.most_calls <= CALLS_MAX, (who, "alike" if alike else "distinct")
    inside = node.inside
    # Fetches of other nodes wait.
    until(lambda: node.call(lambda inside: inside.server.requests_budget.used) < LEFT_BYTES, "what it held is freed")
    assert inside.node.defects.first is None
    assert inside.quorum.decides
