"""What the quorum says as Kafka's requests and answers: Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch, FetchSnapshot.

Pure: translates `headrace.raft.messages` to wire messages and back, on both sides of a request. A message for another
cluster or another topic is refused here, before it reaches the machine. At kraft.version 0 no voter's directory is
known: directory ids are dropped, except the id of a replica that fetches, which may be an observer. Source: KIP-595,
KIP-630, KIP-853, KIP-996.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from headrace.broker.quorum.voter_addresses import VoterAddresses
from headrace.broker.quorum.voter_codec import read_voter_response, voter_request
from headrace.controller.names import METADATA_TOPIC, METADATA_TOPIC_ID
from headrace.raft.control import ControlRecord, decode_controls
from headrace.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    Entries,
    EpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Position,
    ReplicaKey,
    Request,
    Response,
    VoteRequest,
    VoteResponse,
)
from headrace.raft.quorum_state import NO_NODE
from headrace.raft.voter_set import VoterHistory
from headrace.wire.batch import BATCH_OVERHEAD, MAGIC, check_crc, read_header
from headrace.wire.errors import ErrorCode
from headrace.wire.file_slice import FileSlice
from headrace.wire.messages import (
    k01_fetch,
    k52_vote,
    k53_begin_quorum_epoch,
    k54_end_quorum_epoch,
    k59_fetch_snapshot,
)
from headrace.wire.primitives import Buffer
from headrace.wire.records import CorruptBatch
from headrace.wire.uuids import ZERO

FETCH_BYTES_MAX: Final = 1024 * 1024
"""What one answer to a fetch of the metadata log holds at most, beyond its first batch (as in Kafka)."""
SUCCESSORS_MAX: Final = 100
"""Successors that are read of a leader that steps down: the first one is a candidate at once."""
VOTER_TIMEOUT_MS: Final = 30_000
"""What a node that joins by itself allows for it; a leader has a limit of its own."""
PRE_VOTE_VERSION: Final = 2
"""The first version of Vote that can ask whether a vote would be given."""

FETCH_VERSION: Final = 17
"""The first version of Fetch that is answered here: replicas of releases from 3.9 on ask in it."""

LeaderResponse = VoteResponse | EpochResponse | FetchResponse | FetchSnapshotResponse
"""The responses that name the leader to a replica."""


class Codec:
    """The messages of one node of one cluster.

    `key` is the node's own, with the id of its metadata directory. `addresses` finds the voters of `sets`, whose
    kraft.version says whether directories count.
    """

    def __init__(self, cluster_id: str, key: ReplicaKey, addresses: VoterAddresses, sets: VoterHistory) -> None:
        self._cluster_id = cluster_id
        self._me = key
        self._addresses = addresses
        self._sets = sets

    def _key(self, node_id: int, directory_id: bytes) -> ReplicaKey:
        return ReplicaKey(node_id, directory_id if self._sets.newest.kraft_version > 0 else ZERO)

    def _addressed(self, node_id: int, directory_id: bytes) -> ReplicaKey:
        """Whom a request means: an old one does not say it, or not which directory."""
        return ReplicaKey(self._me.id if node_id == NO_NODE else node_id, directory_id)

    def _refusal(self, request: Any) -> ErrorCode | None:
        """Returns the error in a request's frame; None if it is for this cluster's metadata log."""
        if request.cluster_id is not None and request.cluster_id != self._cluster_id:
            return ErrorCode.INCONSISTENT_CLUSTER_ID
        only = _only_partition(request.topics)
        if only is None:
            return ErrorCode.INVALID_REQUEST
        topic, partition = only
        if isinstance(request, k59_fetch_snapshot.FetchSnapshotRequest):
            named = topic.name, partition.partition
        else:
            named = topic.topic_name, partition.partition_index
        return None if named == (METADATA_TOPIC, 0) else ErrorCode.INVALID_REQUEST

    # --- requests, to be sent

    def request(self, message: Request) -> tuple[Any, Any]:
        """(the request, the class of its answer)."""
        if isinstance(message, VoteRequest):
            return self._vote(message), k52_vote.VoteResponse
        if isinstance(message, BeginQuorumEpochRequest):
            return self._begin(message), k53_begin_quorum_epoch.BeginQuorumEpochResponse
        if isinstance(message, EndQuorumEpochRequest):
            return self._end(message), k54_end_quorum_epoch.EndQuorumEpochResponse
        if isinstance(message, FetchSnapshotRequest):
            return self._fetch_snapshot(message), k59_fetch_snapshot.FetchSnapshotResponse
        if isinstance(message, FetchRequest):
            return self._fetch(message), k01_fetch.FetchResponse
        return voter_request(message, self._cluster_id, VOTER_TIMEOUT_MS)

    def _vote(self, message: VoteRequest) -> k52_vote.VoteRequest:
        partition = k52_vote.PartitionData(
            replica_epoch=message.epoch,
            replica_id=message.candidate.id,
            replica_directory_id=message.candidate.directory_id,
            voter_directory_id=message.voter.directory_id,
            last_offset_epoch=message.log_end.epoch,
            last_offset=message.log_end.offset,
            pre_vote=message.pre_vote,
        )
        return k52_vote.VoteRequest(
            cluster_id=self._cluster_id,
            voter_id=message.voter.id,
            topics=[k52_vote.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        )

    def _begin(self, message: BeginQuorumEpochRequest) -> k53_begin_quorum_epoch.BeginQuorumEpochRequest:
        wire = k53_begin_quorum_epoch
        partition = wire.PartitionData(
            voter_directory_id=message.voter.directory_id, leader_id=message.leader_id, leader_epoch=message.epoch
        )
        return wire.BeginQuorumEpochRequest(
            cluster_id=self._cluster_id,
            voter_id=message.voter.id,
            topics=[wire.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
            leader_endpoints=self._endpoints(message.leader_id, wire.LeaderEndpoint),
        )

    def _end(self, message: EndQuorumEpochRequest) -> k54_end_quorum_epoch.EndQuorumEpochRequest:
        wire = k54_end_quorum_epoch
        partition = wire.PartitionData(
            leader_id=message.leader_id,
            leader_epoch=message.epoch,
            preferred_successors=[key.id for key in message.successors],
            preferred_candidates=[
                wire.ReplicaInfo(candidate_id=key.id, candidate_directory_id=key.directory_id)
                for key in message.successors
            ],
        )
        return wire.EndQuorumEpochRequest(
            cluster_id=self._cluster_id,
            topics=[wire.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
            leader_endpoints=self._endpoints(message.leader_id, wire.LeaderEndpoint),
        )

    def _endpoints(self, leader_id: int, make: Callable[..., Any]) -> list[Any]:
        own = self._addresses.endpoint(leader_id)
        return [] if own is None else [make(name=own.name, host=own.host, port=own.port)]

    def _fetch(self, message: FetchRequest) -> k01_fetch.FetchRequest:
        partition = k01_fetch.FetchPartition(
            current_leader_epoch=message.epoch,
            fetch_offset=message.offset,
            last_fetched_epoch=message.last_fetched_epoch,
            partition_max_bytes=FETCH_BYTES_MAX,
            replica_directory_id=message.replica.directory_id,
            high_watermark=message.high_watermark,
        )
        return k01_fetch.FetchRequest(
            cluster_id=self._cluster_id,
            replica_state=k01_fetch.ReplicaState(replica_id=message.replica.id),
            max_wait_ms=message.wait_ms,
            max_bytes=FETCH_BYTES_MAX,
            topics=[k01_fetch.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[partition])],
        )

    def _fetch_snapshot(self, message: FetchSnapshotRequest) -> k59_fetch_snapshot.FetchSnapshotRequest:
        wire = k59_fetch_snapshot
        partition = wire.PartitionSnapshot(
            current_leader_epoch=message.epoch,
            snapshot_id=wire.SnapshotId(end_offset=message.snapshot.offset, epoch=message.snapshot.epoch),
            position=message.position,
            replica_directory_id=message.replica.directory_id,
        )
        return wire.FetchSnapshotRequest(
            cluster_id=self._cluster_id,
            replica_id=message.replica.id,
            max_bytes=message.max_bytes,
            topics=[wire.TopicSnapshot(name=METADATA_TOPIC, partitions=[partition])],
        )

    # --- requests, as they come

    def read_vote(self, request: k52_vote.VoteRequest) -> VoteRequest | ErrorCode:
        """What a candidate asks, or the code that the whole request is refused with."""
        refusal = self._refusal(request)
        if refusal is not None:
            return refusal
        partition = request.topics[0].partitions[0]
        if partition.replica_epoch < 0 or partition.last_offset < 0 or partition.last_offset_epoch < 0:
            return ErrorCode.INVALID_REQUEST
        return VoteRequest(
            partition.replica_epoch,
            self._key(partition.replica_id, partition.replica_directory_id),
            self._addressed(request.voter_id, partition.voter_directory_id),
            Position(partition.last_offset_epoch, partition.last_offset),
            partition.pre_vote,
        )

    def read_begin(
        self, request: k53_begin_quorum_epoch.BeginQuorumEpochRequest
    ) -> BeginQuorumEpochRequest | ErrorCode:
        """What a leader says, or the code that the whole request is refused with."""
        refusal = self._refusal(request)
        if refusal is not None:
            return refusal
        partition = request.topics[0].partitions[0]
        return BeginQuorumEpochRequest(
            partition.leader_epoch, partition.leader_id, self._addressed(request.voter_id, partition.voter_directory_id)
        )

    def read_end(self, request: k54_end_quorum_epoch.EndQuorumEpochRequest) -> EndQuorumEpochRequest | ErrorCode:
        """What a leader says that steps down, or the code that the whole request is refused with."""
        refusal = self._refusal(request)
        if refusal is not None:
            return refusal
        partition = request.topics[0].partitions[0]
        candidates = partition.preferred_candidates[:SUCCESSORS_MAX]
        named = [self._key(each.candidate_id, each.candidate_directory_id) for each in candidates]
        successors = named or [ReplicaKey(node_id) for node_id in partition.preferred_successors[:SUCCESSORS_MAX]]
        return EndQuorumEpochRequest(partition.leader_epoch, partition.leader_id, tuple(successors))

    def read_fetch(self, request: k01_fetch.FetchRequest) -> FetchRequest | ErrorCode:
        """What a replica of the metadata log asks for, or the code that the whole request is refused with."""
        if request.cluster_id is not None and request.cluster_id != self._cluster_id:
            return ErrorCode.INCONSISTENT_CLUSTER_ID
        only = _only_partition(request.topics)
        if only is None:
            return ErrorCode.INVALID_REQUEST
        topic, partition = only
        named = topic.topic, topic.topic_id, partition.partition
        if named not in (("", METADATA_TOPIC_ID, 0), (METADATA_TOPIC, ZERO, 0)):
            return ErrorCode.INVALID_REQUEST
        replica_id = request.replica_id if request.replica_state is None else request.replica_state.replica_id
        return FetchRequest(
            partition.current_leader_epoch,
            ReplicaKey(replica_id, partition.replica_directory_id),
            partition.last_fetched_epoch,
            partition.fetch_offset,
            partition.high_watermark,
            max(request.max_wait_ms, 0),
        )

    def read_fetch_snapshot(self, request: k59_fetch_snapshot.FetchSnapshotRequest) -> FetchSnapshotRequest | ErrorCode:
        """What a replica asks of a snapshot, or the code that the whole request is refused with."""
        refusal = self._refusal(request)
        if refusal is not None:
            return refusal
        partition = request.topics[0].partitions[0]
        return FetchSnapshotRequest(
            partition.current_leader_epoch,
            ReplicaKey(request.replica_id, partition.replica_directory_id),
            Position(partition.snapshot_id.epoch, partition.snapshot_id.end_offset),
            partition.position,
            request.max_bytes,
        )

    # --- answers, to be sent

    def _leader(self, message: LeaderResponse) -> int:
        return NO_NODE if message.leader_id is None else message.leader_id

    def _nodes(self, message: LeaderResponse, make: Callable[..., Any], knows: bool) -> list[Any]:
        """Where the leader is, for those who do not know; `knows`: whether that version can say it."""
        endpoint = None if message.leader_id is None or not knows else self._addresses.endpoint(message.leader_id)
        return [] if endpoint is None else [make(node_id=message.leader_id, host=endpoint.host, port=endpoint.port)]

    def _answer(self, wire: Any, make: Any, message: Any, version: int, **more: Any) -> Any:
        """An answer of the three that are shaped alike: of the module `wire`, whose class `make` is."""
        if isinstance(message, ErrorCode):
            return make(error_code=message)
        partition = wire.ResponsePartitionData(
            error_code=message.error, leader_id=self._leader(message), leader_epoch=message.epoch, **more
        )
        topic = wire.ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
        return make(topics=[topic], node_endpoints=self._nodes(message, wire.NodeEndpoint, version >= 1))

    def vote_response(self, message: VoteResponse | ErrorCode, version: int) -> k52_vote.VoteResponse:
        """The answer to a candidate."""
        more = {} if isinstance(message, ErrorCode) else {"vote_granted": message.granted}
        answer: k52_vote.VoteResponse = self._answer(k52_vote, k52_vote.VoteResponse, message, version, **more)
        return answer

    def begin_response(
        self, message: EpochResponse | ErrorCode, version: int
    ) -> k53_begin_quorum_epoch.BeginQuorumEpochResponse:
        """The answer to a leader."""
        wire = k53_begin_quorum_epoch
        answer: wire.BeginQuorumEpochResponse = self._answer(wire, wire.BeginQuorumEpochResponse, message, version)
        return answer

    def end_response(
        self, message: EpochResponse | ErrorCode, version: int
    ) -> k54_end_quorum_epoch.EndQuorumEpochResponse:
        """The answer to a leader that steps down."""
        wire = k54_end_quorum_epoch
        answer: wire.EndQuorumEpochResponse = self._answer(wire, wire.EndQuorumEpochResponse, message, version)
        return answer

    def fetch_response(
        self, message: FetchResponse | ErrorCode, records: Buffer = b"", log_start_offset: int = -1
    ) -> k01_fetch.FetchResponse:
        """The answer to a replica, with the batches that its `entries` are; see `FETCH_VERSION`."""
        wire = k01_fetch
        if isinstance(message, ErrorCode):
            return wire.FetchResponse(error_code=message)
        diverging, snapshot = message.diverging, message.snapshot
        partition = wire.PartitionData(
            error_code=message.error,
            high_watermark=message.high_watermark,
            log_start_offset=log_start_offset,
            diverging_epoch=None
            if diverging is None
            else wire.EpochEndOffset(epoch=diverging.epoch, end_offset=diverging.offset),
            current_leader=wire.LeaderIdAndEpoch(leader_id=self._leader(message), leader_epoch=message.epoch),
            snapshot_id=None if snapshot is None else wire.SnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch),
            records=records,
        )
        topic = wire.FetchableTopicResponse(topic_id=METADATA_TOPIC_ID, partitions=[partition])
        return wire.FetchResponse(responses=[topic], node_endpoints=self._nodes(message, wire.NodeEndpoint, True))

    def fetch_snapshot_response(
        self, message: FetchSnapshotResponse | ErrorCode, version: int
    ) -> k59_fetch_snapshot.FetchSnapshotResponse:
        """The answer to a replica that loads a snapshot."""
        wire = k59_fetch_snapshot
        if isinstance(message, ErrorCode):
            return wire.FetchSnapshotResponse(error_code=message)
        partition = wire.ResponsePartitionSnapshot(
            error_code=message.error,
            snapshot_id=wire.SnapshotId(end_offset=message.snapshot.offset, epoch=message.snapshot.epoch),
            current_leader=wire.LeaderIdAndEpoch(leader_id=self._leader(message), leader_epoch=message.epoch),
            size=message.size,
            position=message.position,
            unaligned_records=message.data,
        )
        topic = wire.ResponseTopicSnapshot(name=METADATA_TOPIC, partitions=[partition])
        return wire.FetchSnapshotResponse(
            topics=[topic], node_endpoints=self._nodes(message, wire.NodeEndpoint, version >= 1)
        )

    # --- answers, as they come

    def response(self, request: Request, response: Any) -> Response:
        """What the answer to a request says. Raises CorruptBatch where it holds batches that are none, or damaged."""
        if isinstance(request, FetchRequest):
            return _read_fetched(request, response)
        if isinstance(request, FetchSnapshotRequest):
            return _read_piece(request, response)
        if not isinstance(request, VoteRequest | BeginQuorumEpochRequest | EndQuorumEpochRequest):
            return read_voter_response(request, response)
        partitions = [p for topic in getattr(response, "topics", ()) for p in topic.partitions]
        error = ErrorCode(response.error_code)
        if error or not partitions:
            error = error or ErrorCode.INVALID_REQUEST
            if isinstance(request, VoteRequest):
                return VoteResponse(request.epoch, None, False, request.pre_vote, error)
            return EpochResponse(request.epoch, None, error)
        partition = partitions[0]
        leader, error = _known(partition.leader_id), ErrorCode(partition.error_code)
        if isinstance(request, VoteRequest):
            return VoteResponse(partition.leader_epoch, leader, partition.vote_granted, request.pre_vote, error)
        return EpochResponse(partition.leader_epoch, leader, error)


def _only_partition(topics: Sequence[Any]) -> tuple[Any, Any] | None:
    """The topic and the partition of a request that names no other; None otherwise. It may name a million."""
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        return None
    return topics[0], topics[0].partitions[0]


def leader_in(response: Any) -> tuple[int, str, int] | None:
    """Returns (node, host, port) of the leader that an answer names; None if it does not give the address."""
    nodes = getattr(response, "node_endpoints", ())
    return next(((each.node_id, each.host, each.port) for each in nodes if each.node_id >= 0), None)


def _known(leader_id: int) -> int | None:
    return None if leader_id < 0 else leader_id


def _read_fetched(request: FetchRequest, response: k01_fetch.FetchResponse) -> FetchResponse:
    partitions = [p for topic in response.responses for p in topic.partitions]
    if response.error_code or not partitions:
        error = ErrorCode(response.error_code) or ErrorCode.INVALID_REQUEST
        return FetchResponse(request.epoch, None, error=error)
    partition = partitions[0]
    assert not isinstance(partition.records, FileSlice), "what was received is in memory"
    leader, diverging, snapshot = partition.current_leader, partition.diverging_epoch, partition.snapshot_id
    epoch, leader_id = (request.epoch, NO_NODE) if leader is None else (leader.leader_epoch, leader.leader_id)
    return FetchResponse(
        epoch,
        _known(leader_id),
        partition.high_watermark,
        entries=tuple(_entries(partition.records or b"")),
        diverging=None
        if diverging is None or diverging.end_offset < 0
        else Position(diverging.epoch, diverging.end_offset),
        snapshot=None if snapshot is None or snapshot.end_offset < 0 else Position(snapshot.epoch, snapshot.end_offset),
        error=ErrorCode(partition.error_code),
    )


def _read_piece(
    request: FetchSnapshotRequest, response: k59_fetch_snapshot.FetchSnapshotResponse
) -> FetchSnapshotResponse:
    partitions = [p for topic in response.topics for p in topic.partitions]
    if response.error_code or not partitions:
        error = ErrorCode(response.error_code) or ErrorCode.INVALID_REQUEST
        return FetchSnapshotResponse(request.epoch, None, request.snapshot, error=error)
    partition = partitions[0]
    assert not isinstance(partition.unaligned_records, FileSlice), "what was received is in memory"
    leader = partition.current_leader
    epoch, leader_id = (request.epoch, NO_NODE) if leader is None else (leader.leader_epoch, leader.leader_id)
    return FetchSnapshotResponse(
        epoch,
        _known(leader_id),
        Position(partition.snapshot_id.epoch, partition.snapshot_id.end_offset),
        partition.position,
        partition.size,
        bytes(partition.unaligned_records or b""),
        ErrorCode(partition.error_code),
    )


def _entries(records: Buffer) -> list[Entries]:
    """The whole batches in an answer; the last one may be cut. They are copies. Raises CorruptBatch."""
    view = memoryview(records)
    found = []
    at = 0
    while len(view) - at >= BATCH_OVERHEAD:
        header = read_header(view, at)
        if header.magic != MAGIC or header.size < BATCH_OVERHEAD or header.last_offset_delta < 0:
            raise CorruptBatch(f"no batch of the metadata log begins at byte {at} of a leader's answer")
        if header.size > len(view) - at:
            break
        if not check_crc(view, at, header):
            raise CorruptBatch(f"a batch of the metadata log at offset {header.base_offset} is damaged on its way")
        batch = bytes(view[at : at + header.size])
        count = header.last_offset_delta + 1
        controls: tuple[ControlRecord | None, ...] = tuple(decode_controls(batch)) if header.is_control else ()
        if controls and len(controls) != count:
            raise CorruptBatch(f"a control batch at offset {header.base_offset} has {len(controls)} of {count} records")
        found.append(Entries(header.base_offset, header.partition_leader_epoch, count, batch, controls))
        at += header.size
    return found
