"""One barrier for reads after writes on Apache Kafka: what was written before it is in force when it returns.

A broker of Kafka's answers a write of metadata when the controller has committed it, and applies it a moment later: a
test on a busy machine that writes and reads at once may read what was before. Changes are applied in the order of the
metadata log, one image after the other, though a single image may carry several of them. Within an image the broker
first replaces what it describes (topics, configurations, quotas, SCRAM users, features); then come leaders,
configurations, quotas, SCRAM users, delegation tokens, ACLs and coordinators, in this order (of Apache Kafka 4.3.1's
`BrokerMetadataPublisher`).

So one mark that is seen proves that everything before it is described, and not that all of it is in force: it may be in
the very image that is being published. A second mark, written when the first was seen, is in a later image: when it is
seen, the first image was published whole. The first mark sets the quota of an address that nobody has, the second takes
it away, so nothing is left behind.

A single broker of ours needs none of this: a test that reads there what was before the write has found a fault. In a
cluster of ours the barrier has its place too: a broker that forwards a write answers with the controller's answer, as
Kafka's does, and applies the change when it comes by its metadata.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any, Final, TypeVar

from headrace.client.channel import Call, R, Request
from headrace.client.cluster import Client
from headrace.client.connection import Connection
from headrace.client.conversation import BrokerConnection, Connect, Steps
from headrace.wire.messages import k48_describe_client_quotas as k48
from headrace.wire.messages import k49_alter_client_quotas as k49
from headrace.wire.messages import response_class

from .headrace import HeadracePeer
from .kafka import KafkaPeer
from .link import Link
from .shared import is_kafka

PATIENCE_S: Final = 30.0
LOOK_S: Final = 0.005
VERSION: Final = 1
"""Of both requests."""
WRITES: Final = frozenset({19, 20, 30, 31, 33, 37, 38, 39, 40, 43, 44, 45, 49, 51, 57, 64})
"""The APIs that change metadata: topics (19, 20, 37), ACLs (30, 31), configurations (33, 44), delegation tokens (38 to
40), elections (43), reassignments (45), quotas (49), SCRAM users (51), features (57), and brokers (64)."""

T = TypeVar("T")

Ask = Callable[[Any, int], Any]
"""Sends a request in a version to one broker, and returns the answer; `Link.ask` and `Raw.ask` do."""
_RATE: Final = "connection_creation_rate"
_chance = random.SystemRandom()


def settle(*brokers: Ask) -> None:
    """Returns when every one of these brokers has in force what the cluster committed before the call."""
    entity = [k49.EntityData("ip", f"198.18.{_chance.randrange(256)}.{_chance.randrange(256)}")]
    for remove in (False, True):
        request = k49.AlterClientQuotasRequest([k49.EntryData(entity, [k49.OpData(_RATE, 1e6, remove)])], False)
        (answer,) = brokers[0](request, VERSION).entries
        assert answer.error_code == 0, answer
        last = time.monotonic() + PATIENCE_S
        for ask in brokers:
            while _is_marked(ask, entity[0]) is remove:
                assert time.monotonic() < last, "a broker does not apply what the cluster committed"
                time.sleep(LOOK_S)


def _is_marked(ask: Ask, entity: k49.EntityData) -> bool:
    asked = k48.ComponentData(entity.entity_type, 0, entity.entity_name)
    answer = ask(k48.DescribeClientQuotasRequest([asked], False), VERSION)
    assert answer.error_code == 0, answer
    return bool(answer.entries)


class KafkaClient(Client):
    """Our client for tests against Apache Kafka: what it wrote is in force on every broker when a call returns."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._written: list[int] = []
        """The APIs of the requests that changed metadata, since brokers were settled."""

    def _connect(self, step: Connect) -> BrokerConnection:
        connection = _NotedConnection(
            step.host, step.port, client_id=self.client_id, timeout_s=step.timeout_s, security=self.security
        )
        connection.written = self._written
        return connection

    def run(self, steps: Steps[T]) -> T:
        """As `Client.run`."""
        found = super().run(steps)
        if self._written:
            self.settle()
        return found

    def settle(self) -> None:
        """Waits for what others wrote as well."""
        super().run(self.router.refresh([]))
        settle(*(partial(self._ask, node_id) for node_id in self.nodes))
        self._written.clear()

    def _ask(self, node_id: int, request: Request, _version: int) -> Any:
        return super().run(self.router.call(request, response_class(request.API_KEY), node_id=node_id))


class _NotedConnection(Connection):
    """A connection that notes which requests change metadata."""

    written: list[int]

    def send(
        self, request: Request, response_class: type[R], *, version: int | None = None, expect_reply: bool = True
    ) -> Call[R]:
        """As `Connection.send`."""
        if request.API_KEY in WRITES:
            self.written.append(request.API_KEY)
        return super().send(request, response_class, version=version, expect_reply=expect_reply)


def client_of(peer: HeadracePeer | KafkaPeer | str, timeout_s: float = PATIENCE_S) -> Client:
    """A client of a peer, or of a shared one by its address, that settles where the peer is Apache Kafka."""
    if isinstance(peer, str):
        return (KafkaClient if is_kafka(peer) else Client)(peer, timeout_s=timeout_s)
    return (KafkaClient if isinstance(peer, KafkaPeer) else Client)(peer.bootstrap, timeout_s=timeout_s)


def settle_ports(*ports: int) -> None:
    """The same for brokers of this machine that ask nobody who they are."""
    with ExitStack() as stack:
        settle(*(stack.enter_context(Link(port, PATIENCE_S)).ask for port in ports))


def settle_peer(peer: object) -> None:
    """The same for a peer where it is Apache Kafka: ours needs none of it."""
    if isinstance(peer, KafkaPeer):
        settle_ports(peer.port)


def settle_at(bootstrap: str) -> None:
    """The same for all brokers of such a list."""
    settle_ports(*(int(each.rpartition(":")[2]) for each in bootstrap.split(",")))
