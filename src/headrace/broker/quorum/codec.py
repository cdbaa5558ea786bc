"""What the quorum says as Kafka's requests and answers: Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch, FetchSnapshot.

Pure: `headrace.raft.messages` to wire messages and back, for whoever asks and for whoever answers. What speaks of
another cluster or another topic is refused here, before the machine hears of it. At kraft.version 0 no voter's
directory is known: ids of directories are dropped, but of whoever fetches, who may be an observer. Source: KIP-595,
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

Told = VoteResponse | EpochResponse | FetchResponse | FetchSnapshotResponse
"""The answers that say who leads, to replicas."""


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
        """What is wrong with the frame of a request, None where it is about this cluster's metadata log."""
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
        said = request.topics[0].partitions[0]
        if said.replica_epoch < 0 or said.last_offset < 0 or said.last_offset_epoch < 0:
            return ErrorCode.INVALID_REQUEST
        return VoteRequest(
            said.replica_epoch,
            self._key(said.replica_id, said.replica_directory_id),
            self._addressed(request.voter_id, said.voter_directory_id),
            Position(said.last_offset_epoch, said.last_offset),
            said.pre_vote,
        )

    def read_begin(
        self, request: k53_begin_quorum_epoch.BeginQuorumEpochRequest
    ) -> BeginQuorumEpochRequest | ErrorCode:
        """What a leader says, or the code that the whole request is refused with."""
        refusal = self._refusal(request)
        if refusal is not None:
            return refusal
        said = request.topics[0].partitions[0]
        return BeginQuorumEpochRequest(
            said.leader_epoch, said.leader_id, self._addressed(request.voter_id, said.voter_directory_id)
        )

    def read_end(self, request: k54_end_quorum_epoch.EndQuorumEpochRequest) -> EndQuorumEpochRequest | ErrorCode:
        """What a leader says that steps down, or the code that the whole request is refused with."""
        refusal = self._refusal(request)
        if refusal is not None:
            return refusal
        said = request.topics[0].partitions[0]
        candidates = said.preferred_candidates[:SUCCESSORS_MAX]
        named = [self._key(each.candidate_id, each.candidate_directory_id) for each in candidates]
        successors = named or [ReplicaKey(node_id) for node_id in said.preferred_successors[:SUCCESSORS_MAX]]
        return EndQuorumEpochRequest(said.leader_epoch, said.leader_id, tuple(successors))

    def read_fetch(self, request: k01_fetch.FetchRequest) -> FetchRequest | ErrorCode:
        """What a replica of the metadata log asks for, or the code that the whole request is refused with."""
        if request.cluster_id is not None and request.cluster_id != self._cluster_id:
            return ErrorCode.INCONSISTENT_CLUSTER_ID
        only = _only_partition(request.topics)
        if only is None:
            return ErrorCode.INVALID_REQUEST
        topic, said = only
        named = topic.topic, topic.topic_id, said.partition
        if named not in (("", METADATA_TOPIC_ID, 0), (METADATA_TOPIC, ZERO, 0)):
            return ErrorCode.INVALID_REQUEST
        replica_id = request.replica_id if request.replica_state is None else request.replica_state.replica_id
        return FetchRequest(
            said.current_leader_epoch,
            ReplicaKey(replica_id, said.replica_directory_id),
            said.last_fetched_epoch,
            said.fetch_offset,
            said.high_watermark,
            max(request.max_wait_ms, 0),
        )

    def read_fetch_snapshot(self, request: k59_fetch_snapshot.FetchSnapshotRequest) -> FetchSnapshotRequest | ErrorCode:
        """What a replica asks of a snapshot, or the code that the whole request is refused with."""
        refusal = self._refusal(request)
        if refusal is not None:
            return refusal
        said = request.topics[0].partitions[0]
        return FetchSnapshotRequest(
            said.current_leader_epoch,
            ReplicaKey(request.replica_id, said.replica_directory_id),
            Position(said.snapshot_id.epoch, said.snapshot_id.end_offset),
            said.position,
            request.max_bytes,
        )

    # --- answers, to be sent

    def _leader(self, message: Told) -> int:
        return NO_NODE if message.leader_id is None else message.leader_id

    def _nodes(self, message: Told, make: Callable[..., Any], knows: bool) -> list[Any]:
        """Where the leader is, for those who do not know; `knows`: whether that version can say it."""
        endpoint = None if message.leader_id is None or not knows else self._addresses.endpoint(message.leader_id)
        return [] if endpoint is None else [make(node_id=message.leader_id, host=endpoint.host, port=endpoint.port)]

    def _answer(self, wire: Any, make: Any, message: Any, version: int, **more: Any) -> Any:
        """An answer of the three that are shaped alike: of the module `wire`, whose class `make` is."""
        if isinstance(message, ErrorCode):
            return make(error_code=message)
        said = wire.ResponsePartitionData(
            error_code=message.error, leader_id=self._leader(message), leader_epoch=message.epoch, **more
        )
        topic = wire.ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[said])
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
        said = wire.PartitionData(
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
        topic = wire.FetchableTopicResponse(topic_id=METADATA_TOPIC_ID, partitions=[said])
        return wire.FetchResponse(responses=[topic], node_endpoints=self._nodes(message, wire.NodeEndpoint, True))

    def fetch_snapshot_response(
        self, message: FetchSnapshotResponse | ErrorCode, version: int
    ) -> k59_fetch_snapshot.FetchSnapshotResponse:
        """The answer to a replica that loads a snapshot."""
        wire = k59_fetch_snapshot
        if isinstance(message, ErrorCode):
            return wire.FetchSnapshotResponse(error_code=message)
        said = wire.ResponsePartitionSnapshot(
            error_code=message.error,
            snapshot_id=wire.SnapshotId(end_offset=message.snapshot.offset, epoch=message.snapshot.epoch),
            current_leader=wire.LeaderIdAndEpoch(leader_id=self._leader(message), leader_epoch=message.epoch),
            size=message.size,
            position=message.position,
            unaligned_records=message.data,
        )
        topic = wire.ResponseTopicSnapshot(name=METADATA_TOPIC, partitions=[said])
        return wire.FetchSnapshotResponse(
            topics=[topic], node_endpoints=self._nodes(message, wire.NodeEndpoint, version >= 1)
        )

    # --- answers, as they come

    def response(self, asked: Request, response: Any) -> Response:
        """What the answer to a request says. Raises CorruptBatch where it holds batches that are none, or damaged."""
        if isinstance(asked, FetchRequest):
            return _read_fetched(asked, response)
        if isinstance(asked, FetchSnapshotRequest):
            return _read_piece(asked, response)
        if not isinstance(asked, VoteRequest | BeginQuorumEpochRequest | EndQuorumEpochRequest):
            return read_voter_response(asked, response)
        partitions = [p for topic in getattr(response, "topics", ()) for p in topic.partitions]
        error = ErrorCode(response.error_code)
        if error or not partitions:
            error = error or ErrorCode.INVALID_REQUEST
            if isinstance(asked, VoteRequest):
                return VoteResponse(asked.epoch, None, False, asked.pre_vote, error)
            return EpochResponse(asked.epoch, None, error)
        said = partitions[0]
        leader, error = _known(said.leader_id), ErrorCode(said.error_code)
        if isinstance(asked, VoteRequest):
            return VoteResponse(said.leader_epoch, leader, said.vote_granted, asked.pre_vote, error)
        return EpochResponse(said.leader_epoch, leader, error)


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


def _read_fetched(asked: FetchRequest, response: k01_fetch.FetchResponse) -> FetchResponse:
    partitions = [p for topic in response.responses for p in topic.partitions]
    if response.error_code or not partitions:
        error = ErrorCode(response.error_code) or ErrorCode.INVALID_REQUEST
        return FetchResponse(asked.epoch, None, error=error)
    said = partitions[0]
    assert not isinstance(said.records, FileSlice), "what was received is in memory"
    leader, diverging, snapshot = said.current_leader, said.diverging_epoch, said.snapshot_id
    epoch, leader_id = (asked.epoch, NO_NODE) if leader is None else (leader.leader_epoch, leader.leader_id)
    return FetchResponse(
        epoch,
        _known(leader_id),
        said.high_watermark,
        entries=tuple(_entries(said.records or b"")),
        diverging=None
        if diverging is None or diverging.end_offset < 0
        else Position(diverging.epoch, diverging.end_offset),
        snapshot=None if snapshot is None or snapshot.end_offset < 0 else Position(snapshot.epoch, snapshot.end_offset),
        error=ErrorCode(said.error_code),
    )


def _read_piece(
    asked: FetchSnapshotRequest, response: k59_fetch_snapshot.FetchSnapshotResponse
) -> FetchSnapshotResponse:
    partitions = [p for topic in response.topics for p in topic.partitions]
    if response.error_code or not partitions:
        error = ErrorCode(response.error_code) or ErrorCode.INVALID_REQUEST
        return FetchSnapshotResponse(asked.epoch, None, asked.snapshot, error=error)
    said = partitions[0]
    assert not isinstance(said.unaligned_records, FileSlice), "what was received is in memory"
    leader = said.current_leader
    epoch, leader_id = (asked.epoch, NO_NODE) if leader is None else (leader.leader_epoch, leader.leader_id)
    return FetchSnapshotResponse(
        epoch,
        _known(leader_id),
        Position(said.snapshot_id.epoch, said.snapshot_id.end_offset),
        said.position,
        said.size,
        bytes(said.unaligned_records or b""),
        ErrorCode(said.error_code),
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
