"""What nodes ask of one another on a controllers' listener, in every version of every API there; what is asked of a
controller about the cluster; and envelopes. Another cluster is meant, or a broker that does not exist: nothing changes.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Any

from headrace.wire.apis import APIS
from headrace.wire.frame import SIZE_BYTES, RequestHeader, decode_response_header, encode_request
from headrace.wire.messages import k01_fetch as k01
from headrace.wire.messages import k52_vote as k52
from headrace.wire.messages import k53_begin_quorum_epoch as k53
from headrace.wire.messages import k54_end_quorum_epoch as k54
from headrace.wire.messages import k56_alter_partition as k56
from headrace.wire.messages import k58_envelope as k58
from headrace.wire.messages import k59_fetch_snapshot as k59
from headrace.wire.messages import k60_describe_cluster as k60
from headrace.wire.messages import k62_broker_registration as k62
from headrace.wire.messages import k63_broker_heartbeat as k63
from headrace.wire.messages import k64_unregister_broker as k64
from headrace.wire.messages import k67_allocate_producer_ids as k67
from headrace.wire.messages import k70_controller_registration as k70
from headrace.wire.messages import k73_assign_replicas_to_dirs as k73
from headrace.wire.messages import k82_update_raft_voter as k82
from headrace.wire.messages import response_class
from headrace.wire.messages.principal import DefaultPrincipalData

from .rights import OTHER_CLUSTER, RIGHTS, ROOT, Case, World, always
from .rights_asked import REPLICA, cases

METADATA = "__cluster_metadata"
EPOCH = 0
"""A broker epoch that no broker has."""


def cases_of_controllers() -> Iterator[Case]:
    """Of all APIs of a controllers' listener."""
    yield from _quorum()
    yield from _brokers()
    yield from _envelopes()
    for case in cases():
        # What is fetched there is the metadata log, and who describes the cluster there asks for its controllers.
        if "controller" in APIS[case.key].listeners and case.key not in (k01.FetchRequest.API_KEY, 60):
            yield case
    yield Case("DescribeCluster", always(k60.DescribeClusterRequest(True, 1)))
    yield Case("DescribeCluster of controllers", always(k60.DescribeClusterRequest(True, 2)), first=1)


def _quorum() -> Iterator[Case]:
    def fetch(world: World) -> Any:
        part = [k01.FetchPartition(partition=0, partition_max_bytes=1 << 20)]
        read = [k01.FetchTopic(METADATA, b"\0" * 15 + b"\1", part)]
        return k01.FetchRequest(max_wait_ms=1, session_epoch=-1, topics=read)

    def fetch_elsewhere(world: World) -> Any:
        request = fetch(world)
        request.cluster_id = OTHER_CLUSTER
        return request

    yield Case("Fetch of another cluster", fetch_elsewhere, first=12)
    yield Case("Fetch of two partitions", always(k01.FetchRequest(max_wait_ms=1, session_epoch=-1)))
    vote = k52.TopicData(METADATA, [k52.PartitionData(0, 1, REPLICA)])
    yield Case("Vote", always(k52.VoteRequest(OTHER_CLUSTER, topics=[vote])))
    begun = k53.TopicData(METADATA, [k53.PartitionData(0, leader_id=REPLICA, leader_epoch=1)])
    yield Case("BeginQuorumEpoch", always(k53.BeginQuorumEpochRequest(OTHER_CLUSTER, topics=[begun])))
    ended = k54.TopicData(METADATA, [k54.PartitionData(0, REPLICA, 1)])
    yield Case("EndQuorumEpoch", always(k54.EndQuorumEpochRequest(OTHER_CLUSTER, [ended])))
    snapshot = k59.TopicSnapshot(METADATA, [k59.PartitionSnapshot(0, 1, k59.SnapshotId(1, 1))])
    yield Case("FetchSnapshot", always(k59.FetchSnapshotRequest(OTHER_CLUSTER, topics=[snapshot])))
    yield Case("UpdateRaftVoter", always(k82.UpdateRaftVoterRequest(OTHER_CLUSTER, 1, REPLICA, b"\x01" * 16)))


def _brokers() -> Iterator[Case]:
    def alter(world: World) -> Any:
        topic = k56.TopicData(world.topic_id, [k56.PartitionData(0)])
        return k56.AlterPartitionRequest(REPLICA, EPOCH, [topic])

    yield Case("AlterPartition", alter)
    elsewhere = k62.BrokerRegistrationRequest(REPLICA, OTHER_CLUSTER, b"\x01" * 16)
    yield Case("BrokerRegistration", always(elsewhere))
    yield Case("BrokerHeartbeat", always(k63.BrokerHeartbeatRequest(REPLICA, EPOCH)))
    yield Case("AllocateProducerIds", always(k67.AllocateProducerIdsRequest(REPLICA, EPOCH)))
    yield Case("ControllerRegistration", always(k70.ControllerRegistrationRequest(REPLICA, b"\x01" * 16)))
    yield Case("AssignReplicasToDirs", always(k73.AssignReplicasToDirsRequest(REPLICA, EPOCH)))


def _envelopes() -> Iterator[Case]:
    """What somebody may who stands in the envelope, and what the one who sends it."""
    nobody, everything = RIGHTS["nothing"].host, RIGHTS["everything"].host
    for who, host in (("ANONYMOUS", nobody), ("ANONYMOUS", everything), (ROOT, nobody)):
        yield Case(f"Envelope of {who} at {host}", always(_envelope(_principal(who), host)))
    for principal in (None, b"", b"\x00", b"\x00\x09" + _principal("ANONYMOUS")[2:], _principal(ROOT)[:-2]):
        yield Case(f"Envelope of {principal!r}", always(_envelope(principal, everything)))
    not_forwarded = k63.BrokerHeartbeatRequest(REPLICA, EPOCH)
    yield Case("Envelope with a heartbeat", always(_envelope(_principal(ROOT), everything, not_forwarded, 1)))
    within = _envelope(_principal(ROOT), everything)
    yield Case("Envelope with an envelope", always(_envelope(_principal(ROOT), everything, within, 0)))
    of_nothing = k58.EnvelopeRequest(b"", _principal(ROOT), ipaddress.ip_address(nobody).packed)
    yield Case("Envelope with nothing", always(of_nothing))
    nowhere = k58.EnvelopeRequest(within.request_data, _principal(ROOT), b"\x01\x02")
    yield Case("Envelope from no address", always(nowhere))


def _principal(name: str) -> bytes:
    return b"\x00\x00" + DefaultPrincipalData(type="User", name=name).encode(0)


def _envelope(principal: bytes | None, host: str, request: Any = None, version: int = 0) -> k58.EnvelopeRequest:
    """Of a broker that does not exist, which is to be forgotten."""
    request = k64.UnregisterBrokerRequest(REPLICA) if request is None else request
    frame = encode_request(RequestHeader(request.API_KEY, version, 7, "tests"), request)
    return k58.EnvelopeRequest(bytes(frame[SIZE_BYTES:]), principal, ipaddress.ip_address(host).packed)


def opened(answer: Any) -> Any:
    """What is in the envelope that comes back; other answers as they are."""
    if not isinstance(answer, k58.EnvelopeResponse) or not answer.response_data:
        return answer
    key = k64.UnregisterBrokerRequest.API_KEY
    _, at = decode_response_header(answer.response_data, key, 0)
    return response_class(key).decode(answer.response_data, 0, at)
