"""One connection to a leader, over which this broker fetches partitions that it follows: one request at a time.

`headrace.replicas.fetcher` decides what to fetch and interprets the answers; `following` changes the logs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, Final

from headrace.broker.partitions.following import PIECE_BATCHES, PIECE_BYTES, Appended
from headrace.client.async_connection import AsyncConnection
from headrace.client.errors import ClientError, ProtocolMismatchError, RefusedError, UnreachableError
from headrace.replicas.fetcher import Fetcher, Followed, Key, NextRequest, PartitionAnswer, Step, bounds_of, cut_at
from headrace.replicas.pieces import pieces
from headrace.wire.apis import ApiKey
from headrace.wire.batch import CorruptBatch
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from headrace.wire.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

if TYPE_CHECKING:
    from headrace.broker.partitions.following import Following
    from headrace.broker.partitions.lost_leaders import LostLeaders
    from headrace.broker.partitions.ports import BrokerState
    from headrace.broker.partitions.replica import Replica
    from headrace.broker.partitions.throttles import Throttles
    from headrace.config import BrokerConfig
    from headrace.env import Node, Owner
    from headrace.metadata.image import Endpoint
    from headrace.replicas.pieces import Piece

_LEAST_VERSION: Final = 15
"""First version of Fetch with the broker epoch (KIP-903)."""
_LATEST: Final = -1
_EARLIEST: Final = -2
_KNOWN: Final = frozenset(ErrorCode)


@dataclass(frozen=True)
class FetchServices:
    """Objects that all connections to leaders share."""

    node: Node
    config: BrokerConfig
    following: Following
    lost_leaders: LostLeaders
    throttles: Throttles
    broker: BrokerState
    owner: Owner


class FetchLoop:
    """The fetches from one leader over one connection. `run` ends when no partition is left, or after `stop`."""

    def __init__(
        self,
        shared: FetchServices,
        leader: int,
        *,
        is_apart: bool,
        change_lane: Callable[[Replica], None],
    ) -> None:
        """`is_apart`: this connection fetches only replicas that are far behind. `change_lane` is called with a replica
        that belongs on the other kind of connection."""
        self.leader = leader
        self.is_apart = is_apart
        self._change_lane = change_lane
        self.machine = Fetcher(shared.config.replica_fetch_backoff_ms, has_session=not is_apart)
        self._replicas: dict[Key, Replica] = {}
        self._node = shared.node
        self._owner = shared.owner
        self._config = shared.config
        self._following = shared.following
        self._lost_leaders = shared.lost_leaders
        self._broker = shared.broker
        self._throttles = shared.throttles
        self._log = shared.node.logger("partitions")
        self._holds_back = False
        """Whether a partition is held back by the replication throttle."""
        self._waits = False
        """Whether a fetch is waiting at the leader and has not been ended early."""
        self._follows_more = False
        """Whether a followed partition is missing from the newest request."""
        self._gated = shared.config.acks_flush == "before-reply"
        self._connection: AsyncConnection | None = None
        self._opening: asyncio.Task[AsyncConnection | ClientError] | None = None
        """Task that opens the connection."""
        self._blind: list[Followed] = []
        """Partitions to cut before fetching: logs without an epoch to compare are cut to their known committed part
        (KIP-101), and logs with a possible gap after a power loss to the beginning of the gap."""
        self._address: tuple[str, int] | None = None
        """Address that the connection was opened to."""
        self._changed = asyncio.Event()
        self._stopped = False
        self._is_reachable = True
        self._appended = 0

    # --- followed partitions

    def follow(self, replica: Replica) -> None:
        """Fetches a partition from the end of its log, under the current leader epoch."""
        key = (replica.topic_id, replica.index)
        log = replica.log
        self._replicas[key] = replica
        epoch = log.state.epochs.latest
        start, end = log.bounds.log_start_offset, log.bounds.end_offset
        followed = self.machine.follow(key, replica.leader_epoch, end, epoch, start)
        if self._kept_end(replica) < end:
            self.machine.begin_cut(followed)
            self._blind.append(followed)
        self._changed.set()
        self._follows_more = True
        self._end_wait()

    def _end_wait(self) -> None:
        """Ends a fetch that waits at the leader, since it lacks a newly followed partition, for which a producer may
        wait. Our leaders answer a waiting fetch when another request arrives behind it; Apache Kafka's do not."""
        if self._waits and self._connection is not None and not self._connection.closed:
            self._waits = False
            self._connection.ask_versions(timeout_s=self._config.replica_socket_timeout_ms / 1000)

    def forget(self, replica: Replica) -> None:
        """Stops fetching a partition from this leader."""
        key = (replica.topic_id, replica.index)
        if self._replicas.get(key) is replica:
            del self._replicas[key]
            self.machine.forget(key)
            if not self._replicas:
                self._hang_up()

    def leader_epoch(self, replica: Replica) -> int:
        """Returns the leader epoch under which a partition is fetched here, or -1 if it is not."""
        followed = self.machine.partitions.get((replica.topic_id, replica.index))
        return -1 if followed is None else followed.leader_epoch

    def __len__(self) -> int:
        return len(self._replicas)

    def _endpoint(self) -> Endpoint | None:
        """Returns the leader's current endpoint, or None if it is not known."""
        broker = self._broker.image.brokers.get(self.leader)
        return None if broker is None else broker.endpoint(self._config.inter_broker_listener)

    def look_at_address(self) -> None:
        """Closes the connection if the leader's address has changed."""
        found = self._endpoint()
        if found is not None and self._address not in (None, (found.host, found.port)):
            self._hang_up()

    def stop(self) -> None:
        """Sends no further requests; `run` returns once the one in flight has ended."""
        self._stopped = True
        self._hang_up()

    def _hang_up(self) -> None:
        self._changed.set()
        if self._opening is not None:
            self._opening.cancel()
        if self._connection is not None:
            self._connection.on_end = None
            self._connection.close()

    # --- the loop

    @property
    def _is_wanted(self) -> bool:
        return bool(self._replicas) and not self._stopped

    def _now_ms(self) -> int:
        return int(self._node.clock.monotonic() * 1000)

    async def run(self) -> None:
        """Fetches until no partition is left."""
        try:
            while self._is_wanted:
                while self._blind:
                    await self._cut_blindly(self._blind.pop())
                if self._gated:
                    await self._sync()
                asked = self._next_request()
                if asked is None:
                    await self._rest()
                    continue
                try:
                    response = await self._ask(asked)
                except ClientError as error:
                    self._failed(error)
                else:
                    await self._take(response)
        finally:
            self._hang_up()

    def _next_request(self) -> NextRequest | None:
        """Returns the next request, without the partitions that the throttle holds back."""
        now_ms = self._now_ms()
        self._holds_back = self._follows_more = False
        if not self._throttles.follower.is_limited:
            return self.machine.next_request(now_ms)

        def is_held_back(key: Key) -> bool:
            if self._throttles.holds_back(self._replicas[key]):
                self._holds_back = True
                return True
            return False

        return self.machine.next_request(now_ms, is_held_back)

    async def _rest(self) -> None:
        """Waits until a partition is to be retried, or something changes."""
        self._changed.clear()
        wake_at_ms = self.machine.wake_at_ms()
        timer = None
        wait_s = inf if wake_at_ms is None else (wake_at_ms - self._now_ms()) / 1000
        if self._holds_back:
            wait_s = min(wait_s, self._throttles.follower.wait_s, self._config.replica_fetch_backoff_ms / 1000)
        if wait_s < inf:
            timer = self._owner.later(max(wait_s, 0.0) + 0.001, self._changed.set)
        await self._changed.wait()
        if timer is not None:
            timer.cancel()

    @staticmethod
    def _kept_end(replica: Replica) -> int:
        """Returns the offset to cut a log to before the first fetch; its end if no cut is needed."""
        log = replica.log
        if replica.missing_from >= 0:
            return replica.missing_from
        end = log.bounds.end_offset
        return end if log.state.epochs.latest >= 0 else min(replica.high_watermark, end)

    async def _cut_blindly(self, followed: Followed) -> None:
        if self.machine.is_current(followed):
            replica = self._replicas[followed.key]
            self._note_cut(followed, replica, await self._following.cut(replica, self._kept_end(replica)))

    async def _sync(self) -> None:
        """Syncs the offsets that the next request reports, if acknowledgements wait for the disk."""
        due = [(each, self._replicas[each.key]) for each in self.machine.touched(self._now_ms())]
        unsafe = [(each, replica) for each, replica in due if replica.log.flushing.flushed_offset < each.offset]
        synced = await self._following.sync([replica for _, replica in unsafe])
        for (followed, _), is_safe in zip(unsafe, synced, strict=True):
            if not is_safe and self.machine.is_current(followed):
                self.machine.wait(followed, self._now_ms())

    def _failed(self, error: ClientError) -> None:
        self.machine.failed(self._now_ms())
        if self._connection is not None:
            self._connection.close()
        if self._is_reachable and self._is_wanted:
            self._is_reachable = False
            if isinstance(error, RefusedError):
                self._lost_leaders.lost(self.leader)
            self._log.warning("leader cannot be reached", leader=self.leader, partitions=len(self), why=error)

    def _lost(self) -> None:
        """Reports that the leader has ended the connection, at once, because a client may ask for the leader in the
        same turn."""
        if self._is_wanted:
            self._lost_leaders.lost(self.leader)

    # --- asking

    async def _connected(self) -> AsyncConnection:
        """Returns the connection to the leader, opening it if needed. Raises ClientError."""
        connection = self._connection
        if connection is not None and not connection.closed:
            return connection
        endpoint = self._endpoint()
        if endpoint is None:
            raise UnreachableError(f"nothing is known of where broker {self.leader} is")
        self._address = (endpoint.host, endpoint.port)
        self._opening = self._owner.spawn(self._open(endpoint))
        await asyncio.wait([self._opening])
        opening, self._opening = self._opening, None
        if opening.cancelled():
            raise UnreachableError(f"broker {self.leader} is no longer asked")
        opened = opening.result()
        if isinstance(opened, ClientError):
            raise opened
        self._connection = connection = opened
        connection.on_end = self._lost
        if not connection.channel.supports(ApiKey.FETCH, _LEAST_VERSION):
            connection.close()
            raise ProtocolMismatchError(f"broker {self.leader} serves no Fetch of version {_LEAST_VERSION} or newer")
        if not self._is_wanted:
            connection.close()
        return connection

    async def _open(self, endpoint: Endpoint) -> AsyncConnection | ClientError:
        try:
            return await AsyncConnection.open(
                self._node,
                self._owner,
                endpoint.host,
                endpoint.port,
                client_id=f"broker-{self._config.node_id}-fetcher",
                timeout_s=self._config.socket_connection_setup_timeout_ms / 1000,
                security=self._broker.connection_security(),
            )
        except ClientError as error:
            return error

    async def _ask(self, asked: NextRequest) -> FetchResponse:
        config = self._config
        connection = await self._connected()
        request = FetchRequest(
            replica_state=ReplicaState(config.node_id, self._broker.epoch),
            max_wait_ms=self._patience_ms(),
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            session_id=asked.session_id,
            session_epoch=asked.session_epoch,
            topics=self._topics(asked),
            forgotten_topics_data=_forgotten(asked),
        )
        self._waits = request.max_wait_ms > 0
        try:
            response = await connection.ask(request, FetchResponse, timeout_s=config.replica_socket_timeout_ms / 1000)
        finally:
            self._waits = False
        if not self._is_reachable:
            self._is_reachable = True
            self._lost_leaders.reached(self.leader)
            self._log.info("leader is reached again", leader=self.leader)
        return response

    def _patience_ms(self) -> int:
        """Returns how long the leader may wait for data: at most until a partition that is not requested may be
        retried."""
        if self._follows_more:
            return 0
        longest: int = self._config.replica_fetch_wait_max_ms
        wake_at_ms = self.machine.wake_at_ms()
        if wake_at_ms is not None:
            longest = min(longest, max(wake_at_ms - self._now_ms(), 1))
        if not self._holds_back:
            return longest
        return int(min(longest, 1000 * self._throttles.follower.wait_s))

    def _topics(self, asked: NextRequest) -> list[FetchTopic]:
        topics: dict[bytes, FetchTopic] = {}
        for (topic_id, index), named in asked.named.items():
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = FetchTopic(topic_id=topic_id)
            topic.partitions.append(
                FetchPartition(
                    partition=index,
                    current_leader_epoch=named.leader_epoch,
                    fetch_offset=named.offset,
                    last_fetched_epoch=named.last_epoch,
                    log_start_offset=named.log_start,
                    partition_max_bytes=self._config.replica_fetch_max_bytes,
                )
            )
        return list(topics.values())

    # --- what comes back

    async def _take(self, response: FetchResponse) -> None:
        answers = {
            (topic.topic_id, data.partition_index): data for topic in response.responses for data in topic.partitions
        }
        error = _error(response.error_code)
        if not self.machine.answered(error, response.session_id, answers.keys(), self._now_ms()):
            if error:
                self._log.debug("leader refuses a fetch", leader=self.leader, why=error.name)
            return
        for key, data in answers.items():
            diverging = None
            if data.diverging_epoch is not None:
                diverging = data.diverging_epoch.epoch, data.diverging_epoch.end_offset
            answer = PartitionAnswer(_error(data.error_code), diverging)
            step, followed = self.machine.heard(key, answer, self._now_ms())
            if followed is None:
                continue
            replica = self._replicas[key]
            if data.records and self._throttles.counts_as_follower(replica):
                self._throttles.follower.passed(len(data.records))
            if step is Step.APPEND:
                await self._append(followed, replica, data)
            elif step is Step.CUT:
                assert diverging is not None
                log = replica.log
                offset = cut_at(diverging, log.end_offset_for_epoch(diverging[0]), log.bounds.end_offset)
                self._note_cut(followed, replica, await self._following.cut(replica, offset))
            elif step is Step.LOOK_UP:
                await self._look_up(followed, replica)
            elif answer.error:
                what = "partition is not fetched before newer metadata" if followed.is_stopped else "fetch is refused"
                self._log.debug(what, partition=replica.log.name, leader=self.leader, why=answer.error.name)

    async def _append(self, followed: Followed, replica: Replica, data: PartitionData) -> None:
        """Appends the records of one partition, as long as its state is still the one they were fetched for."""
        machine, following = self.machine, self._following
        records: Any = data.records or b""
        try:
            for piece in pieces(records, followed.leader_epoch, bytes_max=PIECE_BYTES, batches_max=PIECE_BATCHES):
                await self._pause(len(piece.data))
                if not machine.is_current(followed):
                    return
                done = await self._append_piece(replica, piece, data.high_watermark)
                if done is Appended.BEGINS_EARLIER:
                    done = await self._append_from_earlier(followed, replica, piece, data.high_watermark)
                if not machine.is_current(followed):
                    return
                if done is not Appended.DONE:
                    machine.wait(followed, self._now_ms())
                    return
                replica.followed(data.high_watermark, data.log_start_offset)
                log = replica.log
                machine.appended(followed, log.bounds.end_offset, piece.last_epoch, log.bounds.log_start_offset)
        except CorruptBatch as error:
            following.unusable(replica, error)
            machine.wait(followed, self._now_ms())
            return
        replica.followed(data.high_watermark, data.log_start_offset)
        machine.appended(followed, replica.log.bounds.end_offset, -1, replica.log.bounds.log_start_offset)
        # A replica that has a connection of its own delays no other.
        if machine.is_behind(followed, data.high_watermark) is not self.is_apart and (self.is_apart or len(self) > 1):
            self._change_lane(replica)

    async def _append_from_earlier(
        self, followed: Followed, replica: Replica, piece: Piece, high_watermark: int
    ) -> Appended:
        """Appends a batch that begins before the start of an empty log, which happens if the leader deleted the records
        before that start.

        The log then begins with the batch until it takes over the leader's start. If the batch cannot be appended, the
        log begins again at its old start: the leader relies on it, and may have confirmed a deletion.
        """
        machine, following = self.machine, self._following
        start = replica.log.bounds.log_start_offset
        machine.begin_cut(followed)
        self._note_cut(followed, replica, await following.start_at(replica, piece.first_offset))
        if not machine.is_current(followed):
            return Appended.BEGINS_EARLIER
        done = await self._append_piece(replica, piece, high_watermark)
        if done is not Appended.DONE and machine.is_current(followed) and replica.log.bounds.end_offset < start:
            machine.begin_cut(followed)
            self._note_cut(followed, replica, await following.start_at(replica, start))
        return done

    async def _append_piece(self, replica: Replica, piece: Piece, high_watermark: int) -> Appended:
        if piece.next_offset < high_watermark:  # no acknowledgement waits for it
            return await self._following.append_aside(replica, piece)
        return self._following.append(replica, piece)

    async def _pause(self, size: int) -> None:
        """Yields to other tasks, and waits for the disk if it is behind, before the next bytes are appended."""
        self._appended += size
        if self._appended > PIECE_BYTES:
            self._appended = 0
            await asyncio.sleep(0)
        await self._following.disk_keeps_up(is_waited_for=not self.is_apart)

    def _note_cut(self, followed: Followed, replica: Replica, is_done: bool) -> None:
        """Updates the fetch position after a cut, as far as the disk took it."""
        if self.machine.is_current(followed):
            log = replica.log
            now_ms = self._now_ms()
            bounds, epoch = log.bounds, log.state.epochs.latest
            self.machine.cut(followed, bounds.end_offset, epoch, bounds.log_start_offset, now_ms)
            if not is_done:
                self.machine.wait(followed, now_ms)

    async def _look_up(self, followed: Followed, replica: Replica) -> None:
        """Moves to an offset that the leader's log has, after it reported the requested one as out of range."""
        try:
            end = await self._offset_at(followed, replica, _LATEST)
            start = 0 if end is None else await self._offset_at(followed, replica, _EARLIEST)
        except ClientError as error:
            self._log.debug("a leader's log is not looked up", partition=replica.log.name, why=error)
            end = start = None
        if not self.machine.is_current(followed):
            return
        if start is None or end is None:
            self.machine.wait(followed, self._now_ms())
            return
        bounds = bounds_of(start, end, replica.log.bounds.end_offset)
        change = self._following.start_at if bounds.is_restart else self._following.cut
        self._note_cut(followed, replica, await change(replica, bounds.offset))

    async def _offset_at(self, followed: Followed, replica: Replica, timestamp: int) -> int | None:
        """Returns the end or start of the leader's log, or None if the leader does not report it. Raises
        ClientError."""
        asked = ListOffsetsPartition(
            partition_index=replica.index, current_leader_epoch=followed.leader_epoch, timestamp=timestamp
        )
        request = ListOffsetsRequest(
            replica_id=self._config.node_id, topics=[ListOffsetsTopic(name=replica.topic, partitions=[asked])]
        )
        connection = await self._connected()
        timeout_s = self._config.replica_socket_timeout_ms / 1000
        response = await connection.ask(request, ListOffsetsResponse, timeout_s=timeout_s)
        for topic in response.topics:
            for found in topic.partitions:
                if topic.name == replica.topic and found.partition_index == replica.index and not found.error_code:
                    offset: int = found.offset
                    return offset if offset >= 0 else None
        return None


def _forgotten(asked: NextRequest) -> list[ForgottenTopic]:
    topics: dict[bytes, ForgottenTopic] = {}
    for topic_id, index in asked.forgotten:
        if topic_id not in topics:
            topics[topic_id] = ForgottenTopic(topic_id=topic_id)
        topics[topic_id].partitions.append(index)
    return list(topics.values())


def _error(code: int) -> ErrorCode:
    """Returns an error code; an unknown one of a later release becomes UNKNOWN_SERVER_ERROR."""
    return ErrorCode(code) if code in _KNOWN else ErrorCode.UNKNOWN_SERVER_ERROR
