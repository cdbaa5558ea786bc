"""A marker that a coordinator has sent twice, and whose second copy comes when its producer is in the next transaction:
whether that ends it. Why markers that a request holds up are not sent beside it: `MarkerSender`."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from peers.headrace import HeadracePeer
from peers.kafka import KafkaPeer
from peers.transactions import SMALL, set_transaction_version, state_of, visible

from headrace.client.admin import create_topic
from headrace.client.cluster import Client
from headrace.client.transaction_states import ActiveProducer, describe_producers
from headrace.client.transactions import TransactionalProducer
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

PATIENCE_S = 30.0
NONE, LATE = ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.fixture(scope="module", params=["headrace", pytest.param("kafka", marks=[pytest.mark.jvm, pytest.mark.slow])])
def bootstrap(request: pytest.FixtureRequest) -> Iterator[str]:
    kind = KafkaPeer if request.param == "kafka" else HeadracePeer
    with kind(settings=SMALL) as peer:
        yield peer.bootstrap


def write_marker(client: Client, topic: str, of: ActiveProducer, transaction_version: int, version: int) -> int:
    """Once more the marker that has given the partition this producer's epoch; returns what the leader says."""
    topics = [WritableTxnMarkerTopic(topic, [0])]
    marker = WritableTxnMarker(
        of.producer_id, of.producer_epoch, True, topics, of.coordinator_epoch, transaction_version
    )
    leader = client.topic(topic).partitions[0].leader
    router = client.router
    call = client.run(router.send(leader, WriteTxnMarkersRequest([marker]), WriteTxnMarkersResponse, version=version))
    return client.run(router.wait(call, time.monotonic() + PATIENCE_S)).markers[0].topics[0].partitions[0].error_code


@pytest.mark.parametrize(
    ("level", "version", "says"),
    [(1, 1, NONE), (1, 2, NONE), (2, 1, NONE), (2, 2, LATE)],
    ids=["version 1", "version 1, new request", "version 2, old request", "version 2"],
)
def test_a_marker_sent_twice_ends_the_next_transaction_too(
    bootstrap: str, level: int, version: int, says: ErrorCode
) -> None:
    """Unless it has the epoch that its end has brought, and the leader is told so."""
    name = f"doubled-{level}-{version}"
    with Client(bootstrap) as admin:
        set_transaction_version(admin, level)
    with Client(bootstrap) as client:
        create_topic(client, name, partitions=1)
        producer = TransactionalProducer(client, name, timeout_ms=600_000)
        producer.begin()
        producer.send(name, b"first", partition=0)
        producer.commit()
        assert state_of(client, name) == "CompleteCommit"
        (ended,) = describe_producers(client, [(name, 0)])
        assert ended.start_offset == -1
        producer.begin()
        producer.send(name, b"second", partition=0)
        producer.flush()
        (begun,) = describe_producers(client, [(name, 0)])
        assert begun.start_offset == 2 and begun.producer_epoch == ended.producer_epoch
        assert write_marker(client, name, ended, level if version == 2 else 0, version) == says
        seen = visible(client, name)
        assert seen == ([b"first"] if says == LATE else [b"first", b"second"]), "committed by nobody"
        producer.abort()
