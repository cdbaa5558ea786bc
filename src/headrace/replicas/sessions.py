"""Incremental fetch sessions (KIP-227): which partitions a consumer reads, and what was last sent to it of each.

A client opens a session with a full fetch (session id 0, epoch 0), then sends only what changed (epochs 1, 2, ...). The
answer to an incremental fetch omits partitions that have no records and of which nothing changed. Epoch -1 ends a
session or asks for none. The cache has a bound: a session makes room for a new one when it has been idle for long
enough, or when the new one reads more partitions and it has had its time. A client's makes room for a follower's at
once, and takes the place of none in use.

A session belongs to the principal that opened it. Another one that knows its number could move a waiting fetch to other
offsets, and the owner would miss records silently.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

from headrace.wire.errors import ErrorCode

FINAL_EPOCH: Final = -1
INITIAL_EPOCH: Final = 0
NO_SESSION: Final = 0
MAX_EPOCH: Final = 2**31 - 1
EVICTION_MS: Final = 120_000
"""A session that was not used for this long gives way to a new one (Kafka's
min.incremental.fetch.session.eviction.ms)."""

PARTITIONS_MAX: Final = 500_000
"""Partitions of all clients' sessions together: a client that would have more goes on with full fetches."""
ERRORS_MAX: Final = 1_000
"""Partitions of one session that are answered with an error, and so named in each answer."""

Key = tuple[bytes, str, int]
"""A partition in a session: topic id (zeros where the version names topics), topic name, index."""


class SessionPartition:
    """One partition of a fetch, and what was last sent to the client of it."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "follower_log_start",
        "index",
        "last_fetched_epoch",
        "max_bytes",
        "reader",
        "sent_high_watermark",
        "sent_log_start_offset",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: str, topic_id: bytes, index: int) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.fetch_offset = 0
        self.max_bytes = 0
        self.current_leader_epoch = -1
        self.last_fetched_epoch = -1
        self.follower_log_start = -1
        """Where the log of the follower begins that asks; -1: it is none, or does not tell."""
        self.sent_high_watermark = -1
        self.sent_log_start_offset = -1
        self.reader: object = None
        """What the shell keeps of the partition from one fetch to the next."""

    def must_tell(
        self, *, error: int, has_records: bool, high_watermark: int, log_start_offset: int, leads_away: bool
    ) -> bool:
        """Whether an incremental answer has to name this partition; `leads_away`: the reader's log diverges, or it is
        to read from another replica."""
        return (
            has_records
            or error != ErrorCode.NONE
            or leads_away
            or high_watermark != self.sent_high_watermark
            or log_start_offset != self.sent_log_start_offset
        )

    def sent(self, *, error: int, high_watermark: int, log_start_offset: int) -> None:
        """Remembers what an answer says. An error makes the next answer name the partition, when it is over."""
        self.sent_high_watermark = -1 if error else high_watermark
        self.sent_log_start_offset = log_start_offset


class Kept(Protocol):
    """What the shell keeps of a session as a whole from one fetch to the next. It hears of what changes there."""

    def named(self, partition: SessionPartition) -> None:
        """The partition is in the session, and is asked for in another way than before."""
        ...

    def forgotten(self, partition: SessionPartition) -> None:
        """The partition is not in the session any more."""
        ...

    def served(self, partition: SessionPartition) -> None:
        """The partition had its turn: the others come first next time."""
        ...

    def end(self) -> None:
        """The session is over, or nothing is kept of it any more."""
        ...


class Session:
    """One client's set of partitions, in the order in which they take their turn."""

    __slots__ = (
        "created_ms",
        "epoch",
        "id",
        "is_followers",
        "kept",
        "named_by",
        "partitions",
        "principal",
        "used_ms",
        "uses_topic_ids",
    )

    def __init__(
        self, session_id: int, now_ms: int, uses_topic_ids: bool, principal: str, *, is_followers: bool = False
    ) -> None:
        self.id = session_id
        self.principal = principal
        self.is_followers = is_followers
        self.epoch = 1
        self.uses_topic_ids = uses_topic_ids
        self.partitions: dict[Key, SessionPartition] = {}
        self.named_by: object = None
        """The topics of the image that the names of its partitions were looked up in last."""
        self.kept: Kept | None = None
        self.created_ms = now_ms
        self.used_ms = now_ms

    @property
    def only(self) -> SessionPartition | None:
        """Its partition, where it has one."""
        partitions = self.partitions
        return next(iter(partitions.values())) if len(partitions) == 1 else None

    def rotate(self, keys: Iterable[Key]) -> None:
        """Moves partitions that just had records to the end, so that the others come first next time."""
        for key in keys:
            partition = self.partitions.pop(key, None)
            if partition is not None:
                self.partitions[key] = partition
                if self.kept is not None:
                    self.kept.served(partition)

    def forget(self, key: Key) -> None:
        """Removes a partition from the session."""
        partition = self.partitions.pop(key, None)
        if partition is not None and self.kept is not None:
            self.kept.forgotten(partition)

    def keep(self, kept: Kept | None) -> None:
        """Keeps this in place of what was kept before."""
        before, self.kept = self.kept, kept
        if before is not None:
            before.end()

    def next_epoch(self) -> None:
        """The epoch that the client's next request must carry."""
        self.epoch = 1 if self.epoch == MAX_EPOCH else self.epoch + 1


class Wanted(NamedTuple):
    """What a new session would hold."""

    partitions: int
    readable: int
    """Of them, those that the client may read."""
    errors: int
    """Of them, those that are answered with an error."""


class SessionCache:
    """All sessions of a broker, at most `slots` of them."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.sessions: dict[int, Session] = {}
        self.evictions = 0

    def __len__(self) -> int:
        return len(self.sessions)

    @property
    def partitions(self) -> int:
        """Partitions in all sessions together."""
        return sum(len(session.partitions) for session in self.sessions.values())

    @property
    def partitions_of_clients(self) -> int:
        """The same, without those of followers: these are replicas that exist."""
        return sum(len(session.partitions) for session in self.sessions.values() if not session.is_followers)

    def find(
        self, session_id: int, epoch: int, uses_topic_ids: bool, now_ms: int, principal: str
    ) -> Session | ErrorCode:
        """The session that an incremental request of a principal goes on with, or why it cannot."""
        session = self.sessions.get(session_id)
        if session is None or session.principal != principal:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.uses_topic_ids != uses_topic_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        session.used_ms = now_ms
        # The order of use is the order of the dictionary: the first is the one that gives way.
        self.sessions[session_id] = self.sessions.pop(session_id)
        return session

    def open(
        self,
        session_id: int,
        wanted: Wanted,
        uses_topic_ids: bool,
        now_ms: int,
        principal: str,
        *,
        of_follower: bool = False,
    ) -> Session | None:
        """A new session under a fresh id, or None when every slot is taken by a session with a better right to it, or
        its partitions are too many. A client that may read none of them gets no session: it would take a slot from
        others.
        """
        if self.slots <= 0 or wanted.readable == 0 or wanted.errors > ERRORS_MAX:
            return None
        if not of_follower and not self._has_room(wanted.partitions, now_ms):
            return None
        if len(self.sessions) >= self.slots:
            evicted = self._evictable(wanted.readable, now_ms, of_follower=of_follower)
            if evicted is None:
                return None
            self.close(evicted.id)
            self.evictions += 1
        assert session_id not in self.sessions and len(self.sessions) < self.slots, "a session has a slot of its own"
        session = Session(session_id, now_ms, uses_topic_ids, principal, is_followers=of_follower)
        self.sessions[session_id] = session
        return session

    def _has_room(self, partitions: int, now_ms: int) -> bool:
        """Whether clients' sessions may have so many partitions more. Those that were not used for long give way."""
        left = PARTITIONS_MAX - self.partitions_of_clients - partitions
        for session in list(self.sessions.values()) if left < 0 else ():
            if left >= 0 or now_ms - session.used_ms <= EVICTION_MS:
                break
            if not session.is_followers:
                left += len(session.partitions)
                self.close(session.id)
                self.evictions += 1
        return left >= 0

    def may_grow(self, session: Session) -> bool:
        """Whether a session that has more partitions than before may have them."""
        return session.is_followers or self.partitions_of_clients <= PARTITIONS_MAX

    def _evictable(self, readable: int, now_ms: int, *, of_follower: bool) -> Session | None:
        """The session whose place a new one takes."""
        oldest = next(iter(self.sessions.values()))
        if now_ms - oldest.used_ms > EVICTION_MS:
            return oldest
        of_client = next((each for each in self.sessions.values() if not each.is_followers), None)
        if of_client is not None and of_follower:
            return of_client
        peer = oldest if of_follower else of_client
        if peer is None or now_ms - peer.created_ms <= EVICTION_MS or len(peer.partitions) >= readable:
            return None
        return peer

    def end(self, session_id: int, principal: str) -> None:
        """Ends a session of a principal; one that is not there, or another's, is no error and stays."""
        session = self.sessions.get(session_id)
        if session is not None and session.principal == principal:
            self.close(session_id)

    def close(self, session_id: int) -> None:
        """Ends a session; one that is not there is no error."""
        session = self.sessions.pop(session_id, None)
        if session is not None:
            session.keep(None)
