"""What a prompt, or a failed assertion, shows of the public objects: which ones they are, and their state."""

from __future__ import annotations

import re

import headrace.testing
from headrace.client import Client, Fetcher, Producer, TransactionalProducer
from headrace.client.admin import create_topic
from headrace.client.describe import describe_quorum
from headrace.client.reading import Fetched, latest_offsets


def test_they_say_which_they_are_and_how_far() -> None:
    assert repr(Client("a:1,b:2")) == "<Client of a:1,b:2>"
    with headrace.testing.broker() as broker, broker.client() as client:
        assert repr(broker) == f"<TestBroker 1: {broker.bootstrap}>"
        create_topic(client, "t", partitions=5)
        assert repr(client) == f"<Client of {broker.bootstrap}, cluster {client.cluster_id}, brokers [1]>"
        (topic,) = client.topics(["t"])
        assert re.match(r"TopicInfo\(name='t', id=[\w-]{22}, internal=False, partitions=\(PartitionInfo", repr(topic))
        with Producer(client) as producer:
            for _ in range(3):
                producer.send("t", b"value", partition=1)
            producer.flush()
            assert repr(producer) == "<Producer, records delivered: 3, bytes waiting: 0>"
        fetcher = Fetcher(client, {("t", 1): 0}, ends={("t", 1): latest_offsets(client, "t")[1]})
        assert repr(fetcher) == "<Fetcher of t-1 from 0 to 3>"
        (fetched,) = fetcher
        assert re.fullmatch(r"<Fetched t-1, offsets 0 to 2, \d+ bytes>", repr(fetched))
        assert repr(Fetcher(client, {("t", n): 0 for n in range(5)})) == (
            "<Fetcher of t-0 from 0, t-1 from 0, t-2 from 0, 2 more>"
        )
        writer = TransactionalProducer(client, "id")
        assert repr(writer) == "<TransactionalProducer 'id', new, records committed: 0>"
    assert repr(broker) == "<TestBroker 1: not running>"


def test_the_replicas_of_the_quorum_are_named_by_text() -> None:
    with headrace.testing.broker() as broker, broker.client() as client:
        (replica,) = describe_quorum(client).replicas
    assert re.match(r"<QuorumReplica 1, voter, directory [\w-]{22}, log end \d+, last fetch", repr(replica))


def test_an_empty_piece() -> None:
    piece = Fetched("t", 0, 5, 5, None, memoryview(b""), 5, 5, 0)
    assert repr(piece) == "<Fetched t-0, nothing, 0 bytes>"


def test_a_cluster_says_how_many_of_its_nodes_run() -> None:
    with headrace.testing.cluster() as cluster:
        assert repr(cluster) == f"<TestCluster at {cluster.bootstrap}: 3 of 3 nodes running>"
        cluster.kill(2)
        assert repr(cluster).endswith(": 2 of 3 nodes running>")
        assert repr(cluster.nodes[2]) == "<TestNode 2: not running>"
