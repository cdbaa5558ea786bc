"""Three brokers, seen from outside: what any of them takes, who may speak as a node, and hand-overs."""

from __future__ import annotations

import shutil
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from peers.link import Link
from peers.waiting import until

import headrace.testing
from headrace.broker.broker import Broker
from headrace.broker.partitions import lost_leaders
from headrace.broker.storage.storage_format import StorageError
from headrace.client.producer import Producer
from headrace.machine.decision import Decision
from headrace.metadata.image import ClusterImage
from headrace.security.authorizer import UNCACHED, ClosedAuthorizer
from headrace.testing import TestCluster
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.frame import SIZE_BYTES, RequestHeader, encode_request
from headrace.wire.messages import k03_metadata as k03
from headrace.wire.messages import k10_find_coordinator as k10
from headrace.wire.messages import k18_api_versions as k18
from headrace.wire.messages import k19_create_topics as k19
from headrace.wire.messages import k20_delete_topics as k20
from headrace.wire.messages import k29_describe_acls as k29
from headrace.wire.messages import k44_incremental_alter_configs as k44
from headrace.wire.messages import k55_describe_quorum as k55
from headrace.wire.messages import k56_alter_partition as k56
from headrace.wire.messages import k58_envelope as k58
from headrace.wire.messages import k60_describe_cluster as k60
from headrace.wire.messages import k62_broker_registration as k62
from headrace.wire.messages import k63_broker_heartbeat as k63
from headrace.wire.messages import k64_unregister_broker as k64
from headrace.wire.messages import k67_allocate_producer_ids as k67
from headrace.wire.messages import metadata_records as mr
from headrace.wire.messages.principal import DefaultPrincipalData

NODE_APIS = {56, 58, 62, 63, 67, 70, 73}
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def three() -> Iterator[TestCluster]:
    with headrace.testing.cluster() as running:
        yield running


def controller_port(cluster: TestCluster, node: int) -> int:
    return next(opened.port for opened in cluster.nodes[node].inside.server.listeners if opened.name == "CONTROLLER")


def topic_of(name: str, factor: int = 3) -> k19.CreateTopicsRequest:
    return k19.CreateTopicsRequest(
        topics=[k19.CreatableTopic(name=name, num_partitions=2, replication_factor=factor)], timeout_ms=30_000
    )


def knows_the_quorum(link: Link, cluster: TestCluster) -> bool:
    """Whether a node names the leader of three voters; a busy machine may have another one elected."""
    asked = k55.TopicData(topic_name="__cluster_metadata", partitions=[k55.PartitionData()])
    quorum = link.ask(k55.DescribeQuorumRequest(topics=[asked]), 2).topics[0].partitions[0]
    return quorum.leader_id == cluster.controller() and len(quorum.current_voters) == 3


def test_every_broker_takes_what_the_controller_decides(three: TestCluster) -> None:
    for id_, node in three.nodes.items():
        with Link(node.port) as link:
            made = link.ask(topic_of(f"through-{id_}"), 7).topics[0]
            assert (made.error_code, made.num_partitions, made.replication_factor) == (0, 2, 3)
            configs = [k44.AlterableConfig(name="retention.ms", value="1000000")]
            resource = k44.AlterConfigsResource(2, f"through-{id_}", configs)
            altered = link.ask(k44.IncrementalAlterConfigsRequest(resources=[resource]), 1)
            assert altered.responses[0].error_code == 0
            until(lambda link=link: knows_the_quorum(link, three))  # type: ignore[misc]
    for id_, node in three.nodes.items():
        with Link(node.port) as link:
            gone = link.ask(k20.DeleteTopicsRequest([k20.DeleteTopicState(f"through-{id_}")], timeout_ms=30_000), 6)
            assert gone.responses[0].error_code == 0


def test_a_logger_is_set_where_it_is_and_the_rest_where_it_is_decided(three: TestCluster) -> None:
    follower = next(id_ for id_ in three.nodes if id_ != three.controller())
    with Link(three.nodes[follower].port) as link:
        resources = [
            k44.AlterConfigsResource(8, str(follower), [k44.AlterableConfig("headrace.net", 0, "DEBUG")]),
            k44.AlterConfigsResource(4, "", [k44.AlterableConfig("log.retention.ms", 0, "2000000")]),
        ]
        answer = link.ask(k44.IncrementalAlterConfigsRequest(resources=resources), 1)
        assert [each.error_code for each in answer.responses] == [0, 0]
    until(lambda: all(node.inside.config.shown("log.retention.ms") == "2000000" for node in three.nodes.values()))


def test_an_error_comes_back_as_it_was_said(three: TestCluster) -> None:
    for node in three.nodes.values():
        with Link(node.port) as link:
            assert link.ask(topic_of("too-many", 4), 7).topics[0].error_code == ErrorCode.INVALID_REPLICATION_FACTOR


def test_nodes_are_served_on_the_controllers_listener_alone(three: TestCluster) -> None:
    for id_, node in three.nodes.items():
        with Link(node.port) as clients, Link(controller_port(three, id_)) as nodes:
            for link, served in ((clients, set()), (nodes, NODE_APIS)):
                answer = link.ask(k18.ApiVersionsRequest("test", "1"), 3)
                assert {each.api_key for each in answer.api_keys} & NODE_APIS == served


def test_brokers_and_controllers_are_described(three: TestCluster) -> None:
    """By each node, once it knows the controller: a busy machine may have another one elected."""
    ports = {n: node.port for n, node in three.nodes.items()}

    def described(id_: int) -> bool:
        with Link(three.nodes[id_].port) as clients, Link(controller_port(three, id_)) as nodes:
            brokers = clients.ask(k60.DescribeClusterRequest(endpoint_type=1), 1)
            controllers = nodes.ask(k60.DescribeClusterRequest(endpoint_type=2), 1)
        assert {each.broker_id for each in controllers.brokers} == set(three.nodes)
        found = {each.broker_id: each.port for each in brokers.brokers}
        return found == ports and controllers.controller_id == three.controller()

    for id_ in three.nodes:
        until(lambda id_=id_: described(id_))  # type: ignore[misc]


def test_whoever_is_not_the_controller_says_so(three: TestCluster) -> None:
    follower = next(id_ for id_ in three.nodes if id_ != three.controller())
    with Link(controller_port(three, follower)) as link:
        no = ErrorCode.NOT_CONTROLLER
        assert link.ask(k58.EnvelopeRequest(), 0).error_code == no
        assert link.ask(k62.BrokerRegistrationRequest(broker_id=9), 4).error_code == no
        assert link.ask(k63.BrokerHeartbeatRequest(broker_id=1), 2).error_code == no
        assert link.ask(k56.AlterPartitionRequest(broker_id=1), 3).error_code == no
        assert link.ask(k67.AllocateProducerIdsRequest(broker_id=1), 0).error_code == no
        assert link.ask(topic_of("x"), 7).topics[0].error_code == no


def test_a_registration_of_earlier_is_no_good(three: TestCluster) -> None:
    with Link(controller_port(three, three.controller())) as link:
        stale = ErrorCode.STALE_BROKER_EPOCH
        assert link.ask(k63.BrokerHeartbeatRequest(broker_id=1, broker_epoch=0), 2).error_code == stale
        assert link.ask(k67.AllocateProducerIdsRequest(broker_id=1, broker_epoch=0), 0).error_code == stale
        assert link.ask(k56.AlterPartitionRequest(broker_id=1, broker_epoch=0), 3).error_code == stale
        wrong = k62.BrokerRegistrationRequest(broker_id=1, cluster_id="another")
        assert link.ask(wrong, 4).error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
        twice = k62.BrokerRegistrationRequest(
            broker_id=1, cluster_id=three.nodes[1].inside.cluster_id, incarnation_id=bytes(16)
        )
        assert link.ask(twice, 4).error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    time.sleep(0.5)  # longer than the two attempts to reach it, which the refusal has set off
    assert not three.nodes[three.controller()].inside.image.brokers[1].fenced


def registered(link: Link, like: Broker, incarnation: bytes, port: int) -> k62.BrokerRegistrationResponse:
    """What is answered to broker 9, which can what another one can, in one of its lives."""
    about = like.image.brokers[like.node_id]
    request = k62.BrokerRegistrationRequest(
        broker_id=9,
        cluster_id=like.cluster_id,
        incarnation_id=incarnation,
        listeners=[k62.Listener(name=each.name, host=each.host, port=port) for each in about.endpoints],
        features=[k62.Feature(each.name, each.min_level, each.max_level) for each in about.features],
        log_dirs=[b"9" * 16],
    )
    answer: k62.BrokerRegistrationResponse = link.ask(request, 4)
    return answer


def test_a_broker_that_starts_again_does_not_wait_for_its_last_session() -> None:
    """Nobody saw its last life end, whose session lasts: the controller looks where it listened."""
    with headrace.testing.cluster(settings={"broker.session.timeout.ms": "600000"}) as running:
        controller = running.nodes[running.controller()].inside
        with (
            Link(controller_port(running, controller.node_id)) as first,
            Link(controller_port(running, controller.node_id)) as second,
            socket.create_server(("127.0.0.1", 0)) as listener,
        ):
            port = listener.getsockname()[1]
            before = registered(first, controller, bytes(15) + b"1", port)
            assert before.error_code == 0
            beat = k63.BrokerHeartbeatRequest(9, before.broker_epoch, before.broker_epoch)
            until(lambda: not first.ask(beat, 2).is_fenced)

            def refused() -> bool:
                answer = registered(second, controller, bytes(15) + b"2", port)
                return bool(answer.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION)

            assert refused()
            time.sleep(0.5)  # longer than the attempts to reach it, which the refusal has set off
            assert refused() and not controller.image.brokers[9].fenced
            listener.close()
            until(lambda: not refused())
            assert controller.image.brokers[9].epoch > before.broker_epoch
            assert first.ask(beat, 2).error_code == ErrorCode.STALE_BROKER_EPOCH


def principal(version: bytes = b"\x00\x00") -> bytes:
    return version + DefaultPrincipalData(type="User", name="somebody").encode(0)


def enveloped(request: object, key: int, version: int) -> bytes:
    return encode_request(RequestHeader(key, version, 7, "client"), request)[SIZE_BYTES:]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("data", "who", "address", "error"),
    [
        (b"", principal(), b"\x7f\x00\x00\x01", ErrorCode.UNSUPPORTED_VERSION),
        (b"\x00\x13\x00\x07garbage", principal(), b"\x7f\x00\x00\x01", ErrorCode.UNSUPPORTED_VERSION),
        (enveloped(topic_of("e"), ApiKey.CREATE_TOPICS, 7)[:-3], principal(), bytes(4), ErrorCode.UNSUPPORTED_VERSION),
        (enveloped(topic_of("e"), ApiKey.CREATE_TOPICS, 7), principal(), b"\x7f", ErrorCode.INVALID_REQUEST),
        (enveloped(k03.MetadataRequest(), ApiKey.METADATA, 12), principal(), bytes(4), ErrorCode.INVALID_REQUEST),
        (enveloped(k58.EnvelopeRequest(), ApiKey.ENVELOPE, 0), principal(), bytes(4), ErrorCode.INVALID_REQUEST),
        (enveloped(k29.DescribeAclsRequest(), ApiKey.DESCRIBE_ACLS, 3), principal(), bytes(4),
         ErrorCode.INVALID_REQUEST),
        (b"\x00\x13\x00\x63\x00\x00\x00\x01\xff\xff\x00", principal(), bytes(4), ErrorCode.UNSUPPORTED_VERSION),
        (enveloped(topic_of("e"), ApiKey.CREATE_TOPICS, 7), None, bytes(4),
         ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (enveloped(topic_of("e"), ApiKey.CREATE_TOPICS, 7), principal(b"\x00\x09"), bytes(4),
         ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (enveloped(topic_of("e"), ApiKey.CREATE_TOPICS, 7), b"\x00\x00\xff", bytes(4),
         ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (enveloped(topic_of("enveloped"), ApiKey.CREATE_TOPICS, 7), principal(), bytes(16), ErrorCode.NONE),
    ],
)  # fmt: skip
def test_envelopes(three: TestCluster, data: bytes, who: bytes | None, address: bytes, error: ErrorCode) -> None:
    with Link(controller_port(three, three.controller())) as link:
        answer = link.ask(k58.EnvelopeRequest(data, who, address), 0)
        assert answer.error_code == error
        assert (answer.response_data is not None) == (error is ErrorCode.NONE)


class Nothing:
    """Allows nothing."""

    generation = UNCACHED
    audit = None

    def authorize(self, *_: object) -> bool:
        return False

    authorize_any = authorize


def test_whoever_is_no_node_has_no_say(three: TestCluster) -> None:
    node = three.nodes[three.controller()].inside
    before, node.authorizer = node.authorizer, Nothing()
    try:
        with Link(controller_port(three, node.node_id)) as link:
            denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            assert link.ask(k58.EnvelopeRequest(), 0).error_code == denied
            assert link.ask(k62.BrokerRegistrationRequest(broker_id=9), 4).error_code == denied
            assert link.ask(k56.AlterPartitionRequest(broker_id=1), 3).error_code == denied
            assert link.ask(k67.AllocateProducerIdsRequest(broker_id=1), 0).error_code == denied
    finally:
        node.authorizer = before


def test_a_broker_that_stops_hands_over_and_comes_back(three: TestCluster) -> None:
    with Link(three.nodes[1].port) as link:
        assert link.ask(topic_of("handed-over"), 7).topics[0].error_code == 0
    leaving = three.leader("handed-over", 0)
    three.stop(leaving)
    left = three.nodes[next(id_ for id_ in three.nodes if id_ != leaving)].inside

    def led() -> set[int]:
        topic = left.image.topics.by_name("handed-over")
        assert topic is not None
        return {partition.leader for partition in topic.partitions}

    until(lambda: leaving not in led() and -1 not in led())
    until(lambda: left.image.brokers[leaving].fenced)
    three.restart(leaving)
    until(lambda: not left.image.brokers[leaving].fenced)
    until(lambda: all(len(p.isr) == 3 for p in left.image.topics.topics_by_name["handed-over"].partitions))


@pytest.mark.slow
@pytest.mark.parametrize("hands_over", [True, False])
def test_a_broker_hands_over_before_it_stops_where_the_file_says_so(hands_over: bool) -> None:
    with headrace.testing.cluster(settings={"controlled.shutdown.enable": hands_over}) as cluster:
        stops = next(id_ for id_ in cluster.nodes if id_ != cluster.controller())
        stays = cluster.nodes[cluster.controller()]
        assigned = [k19.CreatableReplicaAssignment(partition_index=0, broker_ids=[stops, cluster.controller()])]
        topic = k19.CreatableTopic(name="t", num_partitions=-1, replication_factor=-1, assignments=assigned)
        with Link(stays.port) as link:
            assert link.ask(k19.CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7).topics[0].error_code == 0
        said: set[bool] = set()

        def hear(_: object, image: ClusterImage, __: object) -> None:
            said.add(image.brokers[stops].in_controlled_shutdown)

        stays.call(lambda broker: broker.quorum.on_image(hear))
        cluster.stop(stops)
        until(lambda: stays.inside.image.brokers[stops].fenced)
        assert (True in said) is hands_over


def test_a_broker_that_is_gone_is_forgotten_and_may_come_back(three: TestCluster) -> None:
    gone, asked = [id_ for id_ in three.nodes if id_ != three.controller()]
    three.stop(gone)
    left = three.nodes[asked].inside
    with Link(three.nodes[asked].port) as link:
        assert link.ask(k64.UnregisterBrokerRequest(gone), 0).error_code == ErrorCode.NONE
        until(lambda: gone not in left.image.brokers)
        assert link.ask(k64.UnregisterBrokerRequest(gone), 0).error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    three.restart(gone)
    until(lambda: gone in left.image.brokers and not left.image.brokers[gone].fenced)


@pytest.mark.slow
def test_all_may_stop_at_once_and_come_back() -> None:
    with headrace.testing.cluster() as cluster:
        with Link(cluster.nodes[1].port) as link:
            assert link.ask(topic_of("kept"), 7).topics[0].error_code == 0
        for id_ in cluster.nodes:
            cluster.kill(id_)
        starts = [threading.Thread(target=cluster.restart, args=(id_,)) for id_ in list(cluster.nodes)]
        for each in starts:
            each.start()
        for each in starts:
            each.join()
        with Link(cluster.nodes[2].port) as link:
            until(lambda: link.ask(k03.MetadataRequest(topics=[k03.MetadataRequestTopic(name="kept")]), 12)
                  .topics[0].error_code == 0)  # fmt: skip


@pytest.mark.slow
def test_the_active_controller_stops_after_the_others() -> None:
    """Two of three stop, and the third stands still: without the controller there is none, and no other one soon."""
    with headrace.testing.cluster(settings={"controller.quorum.fetch.timeout.ms": 60_000}) as cluster:
        first = cluster.controller()
        leaving, stands = (id_ for id_ in cluster.nodes if id_ != first)
        assigned = [k19.CreatableReplicaAssignment(partition_index=0, broker_ids=[leaving, stands])]
        topic = k19.CreatableTopic(name="t", num_partitions=-1, replication_factor=-1, assignments=assigned)
        with Link(cluster.nodes[first].port) as link:
            assert link.ask(k19.CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7).topics[0].error_code == 0
        until(lambda: cluster.leader("t", 0) == leaving)
        cluster.pause(stands)
        cluster.nodes[leaving].ask_to_stop()
        until(lambda: cluster.nodes[first].inside.image.brokers[leaving].in_controlled_shutdown)
        assert not cluster.nodes[first].inside.image.brokers[leaving].fenced, "the one that stands is to hear of it"
        cluster.nodes[first].ask_to_stop()
        cluster.nodes[leaving].join()
        cluster.nodes[first].join()
        cluster.kill(stands)


@pytest.mark.slow
def test_who_asks_for_a_leader_that_just_died_hears_of_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a broker that fetched from it, Metadata and FindCoordinator wait for the election."""
    monkeypatch.setattr(lost_leaders, "HOLD_S", PATIENCE_S)
    monkeypatch.setattr(lost_leaders, "NAMED_S", PATIENCE_S)  # a busy machine may take longer to elect
    settings = {"early.fencing.enable": "false", "broker.session.timeout.ms": "1500"}
    with headrace.testing.cluster(settings=settings) as cluster:
        asked = cluster.nodes[cluster.controller()]
        with Link(asked.port) as link:
            assert link.ask(topic_of("t"), 7).topics[0].error_code == 0
            named = k03.MetadataRequest(topics=[k03.MetadataRequestTopic(name="t")])
            groups = k10.FindCoordinatorRequest(key_type=0, coordinator_keys=[f"g{n}" for n in range(20)])
            until(lambda: not any(each.error_code for each in link.ask(groups, 4).coordinators))
            dies = next(leader for n in (0, 1) if (leader := cluster.leader("t", n)) != cluster.controller())
            cluster.kill(dies)
            lost = asked.inside.replicas.lost_leaders
            until(lambda: bool(lost))
            answer = link.ask(named, 12)
            assert dies not in {each.leader_id for each in answer.topics[0].partitions}
            assert dies in {each.node_id for each in answer.brokers}, "clients let go of it when they have moved on"
            assert dies not in {each.node_id for each in link.ask(groups, 4).coordinators}
            assert not lost
            asked.call(lambda _: lost._forget(dies, lost.recent[dies]))  # as it does after NAMED_S
            until(lambda: dies not in {each.node_id for each in link.ask(named, 12).brokers})


def test_a_cluster_with_acls_is_not_joined() -> None:
    """One of Apache Kafka's nodes may have stored them: a node of ours would serve everybody everything."""
    acl = mr.AccessControlEntryRecord(id=b"a" * 16, principal="User:x", resource_name="t")
    refused = pytest.raises(StorageError, match=r"cannot be joined: 1 ACLs are stored .*User:x on t")
    with refused, headrace.testing.cluster() as cluster:
        leader = cluster.controller()
        follower = next(id_ for id_ in cluster.nodes if id_ != leader)
        cluster.stop(follower)
        cluster.nodes[leader].call(lambda inside: inside.quorum.submit(lambda _: Decision(None, [acl])))
        until(lambda: len(cluster.nodes[leader].inside.image.kept.acls) == 1)
        cluster.restart(follower)


def test_acls_that_come_while_nodes_serve_end_their_service() -> None:
    """One of Apache Kafka's nodes may store them: from then on nobody is served as if there were none."""
    acl = mr.AccessControlEntryRecord(id=b"a" * 16, principal="User:x", resource_name="t")
    with headrace.testing.cluster() as cluster:
        failed: list[str] = []
        for node in cluster.nodes.values():
            node.inside.on_failure = failed.append
        with Link(cluster.nodes[1].port) as link:
            assert link.ask(topic_of("t"), 7).topics[0].error_code == 0
            leader = cluster.controller()
            cluster.nodes[leader].call(lambda inside: inside.quorum.submit(lambda _: Decision(None, [acl])))
            until(lambda: len(failed) == 3)
            with pytest.raises(ConnectionError):
                link.ask(k03.MetadataRequest(), 12)
        for node in cluster.nodes.values():
            with pytest.raises(ConnectionRefusedError):
                Link(node.port)
            assert type(node.inside.authorizer) is ClosedAuthorizer
        why = "1 ACLs are stored (the first is of User:x on t), and this node has no authorizer that enforces them"
        assert set(failed) == {f"{why} (authorizer.class.name): this node serves no client from now on"}


def test_a_node_on_a_new_disk_copies_what_others_have() -> None:
    with headrace.testing.cluster() as cluster:
        with Link(cluster.nodes[1].port) as link:
            assert link.ask(topic_of("copied"), 7).topics[0].error_code == 0
        with cluster.client() as client, Producer(client) as producer:
            for number in range(500):
                producer.send("copied", b"%d" % number, partition=number % 2)
        replaced = cluster.leader("copied", 0)
        cluster.stop(replaced)
        shutil.rmtree(cluster.nodes[replaced].data)
        cluster._format()
        fresh = cluster.restart(replaced).inside
        until(lambda: all(len(p.isr) == 3 for p in fresh.image.topics.topics_by_name["copied"].partitions))
        (home,) = fresh.layout.directory_ids.values()
        until(lambda: all(
            p.directory_of(replaced) == home for p in fresh.image.topics.topics_by_name["copied"].partitions
        ))  # fmt: skip
        for partition in range(2):
            logs = {
                b"".join(file.read_bytes() for file in sorted((node.data / f"copied-{partition}").glob("*.log")))
                for node in cluster.nodes.values()
            }
            assert len(logs) == 1 and len(logs.pop()) > 1_000
