"""Incremental fetch sessions (KIP-227): the partitions that a consumer reads, and what it was last sent of each.

A client opens a session with a full fetch (session id 0, epoch 0), then sends only what changed (epochs 1, 2, ...). The
response to an incremental fetch omits partitions without records and without changes. Epoch -1 ends a session or asks
for none. The cache is bounded: a session gives way to a new one if it has been idle for long enough, or if the new one
reads more partitions and the old one has existed for long enough. A client's session gives way to a follower's at once,
and never displaces a follower's in use.

A session belongs to the principal that opened it. Another principal that knows its id could move a parked fetch to
other offsets, and the owner would silently miss records.
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
"""How long a session must be unused before it gives way to a new one (Kafka's
min.incremental.fetch.session.eviction.ms)."""

PARTITIONS_MAX: Final = 500_000
"""The limit of partitions in all clients' sessions together; a client beyond it stays with full fetches."""
ERRORS_MAX: Final = 1_000
"""The limit of partitions of one session that are answered with an error, and so are named in each response."""

Key = tuple[bytes, str, int]
"""A partition in a session: topic id (zeros in versions that name topics), topic name, index."""


class SessionPartition:
    """One partition of a fetch, and what the client was last sent of it."""

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
        """The log start offset of the fetching follower; -1 if the reader is none or does not send it."""
        self.sent_high_watermark = -1
        self.sent_log_start_offset = -1
        self.reader: object = None
        """The shell's state of the partition between fetches."""

    def must_tell(
        self, *, error: int, has_records: bool, high_watermark: int, log_start_offset: int, leads_away: bool
    ) -> bool:
        """Returns whether an incremental response has to name this partition. `leads_away`: the reader's log diverges,
        or it should read from another replica."""
        return (
            has_records
            or error != ErrorCode.NONE
            or leads_away
            or high_watermark != self.sent_high_watermark
            or log_start_offset != self.sent_log_start_offset
        )

    def sent(self, *, error: int, high_watermark: int, log_start_offset: int) -> None:
        """Remembers what a response says. After an error the next response names the partition again."""
        self.sent_high_watermark = -1 if error else high_watermark
        self.sent_log_start_offset = log_start_offset


class Kept(Protocol):
    """The shell's state of a session between fetches; receives the session's changes."""

    def named(self, partition: SessionPartition) -> None:
        """Notes that a partition was added, or that its fetch position changed."""
        ...

    def forgotten(self, partition: SessionPartition) -> None:
        """Notes that a partition was removed."""
        ...

    def served(self, partition: SessionPartition) -> None:
        """Notes that a partition had records: the others come first in the next response."""
        ...

    def end(self) -> None:
        """Ends the state with the session, or when other state replaces it."""
        ...


class Session:
    """One client's partitions, in the order in which they are served."""

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
        """The topics image in which the partitions' names were last looked up."""
        self.kept: Kept | None = None
        self.created_ms = now_ms
        self.used_ms = now_ms

    @property
    def only(self) -> SessionPartition | None:
        """The session's partition if it has exactly one."""
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
        """Replaces the shell's state of the session; ends the previous one."""
        before, self.kept = self.kept, kept
        if before is not None:
            before.end()

    def next_epoch(self) -> None:
        """Advances to the epoch that the client's next request must carry."""
        self.epoch = 1 if self.epoch == MAX_EPOCH else self.epoch + 1


class Wanted(NamedTuple):
    """The size of a new session."""

    partitions: int
    readable: int
    """Partitions that the client may read."""
    errors: int
    """Partitions that are answered with an error."""


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
        """Partitions in the sessions of clients; those of followers are bounded by the replicas that exist."""
        return sum(len(session.partitions) for session in self.sessions.values() if not session.is_followers)

    def find(
        self, session_id: int, epoch: int, uses_topic_ids: bool, now_ms: int, principal: str
    ) -> Session | ErrorCode:
        """Returns the session of a principal's incremental request, or why there is none."""
        session = self.sessions.get(session_id)
        if session is None or session.principal != principal:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.uses_topic_ids != uses_topic_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        session.used_ms = now_ms
        # The dictionary is in the order of use: the first session is evicted first.
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
        """Opens a session under a fresh id. Returns None if all slots are taken by sessions with precedence, or if its
        partitions are too many. A client that may read none of them gets no session, which would take a slot from
        others."""
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
        """Returns whether clients' sessions may have this many more partitions. Evicts long unused sessions."""
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
        """Returns whether a session that has grown is within the limit."""
        return session.is_followers or self.partitions_of_clients <= PARTITIONS_MAX

    def _evictable(self, readable: int, now_ms: int, *, of_follower: bool) -> Session | None:
        """Returns the session to evict for a new one, if any."""
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
        """Ends a session of a principal; ignores one that does not exist or belongs to another principal."""
        session = self.sessions.get(session_id)
        if session is not None and session.principal == principal:
            self.close(session_id)

    def close(self, session_id: int) -> None:
        """Ends a session if it exists."""
        session = self.sessions.pop(session_id, None)
        if session is not None:
            session.keep(None)
