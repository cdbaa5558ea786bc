"""A follower's fetches from one leader node: which partitions, from which offsets, and what a response means. Pure.

The shell sends what `next_request` returns, one request at a time, and carries out the step returned for each partition
of the response: it appends, truncates, or looks up the bounds of the leader's log, and reports the new log end. The
shell owns logs, connections and timers. Times are milliseconds of a monotonic clock.

The rules are Kafka's. A partition starts at the end of its log. If the leader's log diverges there, the response names
the point of divergence (KIP-595), and the log is truncated, several times if necessary (KIP-279). A response counts
only if the partition is still fetched from the offset, and under the leader epoch, of the request. Sessions are those
of KIP-227, from the client's side.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from enum import Enum
from typing import Final, NamedTuple

from headrace.replicas.sessions import FINAL_EPOCH, INITIAL_EPOCH, MAX_EPOCH, NO_SESSION
from headrace.wire.errors import ErrorCode

UNKNOWN: Final = -1
FIRST_BACKOFF_MS: Final = 10
"""The first backoff after a leader did not know yet that it leads; it doubles each time, up to the configured backoff.
"""
Key = tuple[bytes, int]
"""A partition: topic id and index."""

_SESSION_ERRORS: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
_NOT_YET: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Errors of a leader that does not have the follower's metadata yet."""


class FetchState(Enum):
    """The state of a partition in the fetcher."""

    FETCHING = "fetching"
    CUTTING = "cutting"
    """The log is being truncated, or the bounds of the leader's log are being looked up."""
    WAITING = "waiting"
    """Backing off after an error."""
    STOPPED = "stopped"
    """The leader has a newer epoch: the partition waits for newer metadata."""


class Step(Enum):
    """What the shell does with a partition's response."""

    NOTHING = "nothing"
    APPEND = "append"
    """Append the records, if any, take over the leader's watermarks, then call `Fetcher.appended`."""
    CUT = "cut"
    """Truncate the log at `cut_at` of the leader's diverging epoch, then call `Fetcher.cut`."""
    LOOK_UP = "look up"
    """Look up where the leader's log begins and ends, move the log by `bounds_of`, then call `Fetcher.cut`."""


class Followed:
    """One partition followed under one leader epoch.

    Following it again creates a new object, so late responses reach only the old one.
    """

    __slots__ = ("key", "last_epoch", "leader_epoch", "log_start", "offset", "refusals", "state", "until_ms")

    def __init__(self, key: Key, leader_epoch: int, offset: int, last_epoch: int, log_start: int) -> None:
        self.key = key
        self.leader_epoch = leader_epoch
        self.offset = offset
        """The end of the log, and the next offset to fetch."""
        self.last_epoch = last_epoch
        """The leader epoch of the log's last batch; -1 if the log has none."""
        self.log_start = log_start
        self.state = FetchState.FETCHING
        self.until_ms = 0
        self.refusals = 0
        """Consecutive responses in which the leader did not know yet that it leads."""

    @property
    def is_stopped(self) -> bool:
        """Whether the partition waits for newer metadata."""
        return self.state is FetchState.STOPPED


class Named(NamedTuple):
    """The fetch position of one partition in a request."""

    leader_epoch: int
    offset: int
    last_epoch: int
    log_start: int


class NextRequest(NamedTuple):
    """A fetch request. `named` holds all partitions in a full request, and only the changed ones in an incremental
    request."""

    session_id: int
    session_epoch: int
    named: dict[Key, Named]
    forgotten: list[Key]


class PartitionAnswer(NamedTuple):
    """The leader's response for one partition; `diverging` is (epoch, end offset)."""

    error: ErrorCode
    diverging: tuple[int, int] | None = None


class Bounds(NamedTuple):
    """The repair of a log whose end is out of the leader's range: fetching goes on at `offset`."""

    offset: int
    is_restart: bool
    """Whether the whole log is dropped and starts at `offset`; otherwise it is truncated to `offset` if it is longer.
    """


def cut_at(leader: tuple[int, int], own: tuple[int, int], log_end: int) -> int:
    """Returns where to truncate a log that diverges from the leader's.

    `leader` is the epoch that both logs may have, with its end in the leader's log. `own` is the largest epoch of this
    log that is not above it, with its end (-1, -1: none is known).
    """
    if own[0] < 0:
        return min(leader[1], log_end)
    if own[0] != leader[0]:
        return min(own[1], log_end)  # the next response diverges at that epoch
    return min(own[1], leader[1], log_end)


def bounds_of(leader_start: int, leader_end: int, log_end: int) -> Bounds:
    """Returns how to repair a log that ends at `log_end` if the leader's log does not have that offset."""
    if leader_end < log_end:
        return Bounds(leader_end, False)
    if leader_start > log_end:
        return Bounds(leader_start, True)
    return Bounds(log_end, False)


class Fetcher:
    """The partitions fetched from one leader, and the fetch session with it. At most one request is in flight."""

    def __init__(self, backoff_ms: int, *, has_session: bool = True) -> None:
        """Creates a fetcher without partitions.

        `backoff_ms` is how long a partition waits after an error (replica.fetch.backoff.ms). Without a session every
        request is a full one, which suits few partitions and a short time.
        """
        self.partitions: dict[Key, Followed] = {}
        """The followed partitions, in the order in which they are fetched next."""
        self._backoff_ms = backoff_ms
        self._has_session = has_session
        self._session_id = NO_SESSION
        self._session_epoch = INITIAL_EPOCH
        self._in_session: dict[Key, Named] = {}
        self._requested: dict[Key, tuple[Followed, int]] = {}
        """The session's partitions as of the newest request, each with the offset asked for."""
        self._touched: dict[Key, None] = {}
        """Partitions that may differ from the last request, in the order of their changes. Of thousands of partitions
        nearly all are idle, so only these are looked at."""
        self._waiting: dict[Followed, None] = {}
        self._was_full = True
        self._session_failed = False

    # --- which partitions

    def follow(self, key: Key, leader_epoch: int, offset: int, last_epoch: int, log_start: int) -> Followed:
        """Starts to fetch a partition from the end of its log, and drops what was known of it."""
        assert offset >= 0 and leader_epoch >= 0
        followed = self.partitions[key] = Followed(key, leader_epoch, offset, last_epoch, log_start)
        self._touch(key)
        return followed

    def _touch(self, key: Key) -> None:
        self._touched.pop(key, None)
        self._touched[key] = None

    def forget(self, key: Key) -> None:
        """Stops fetching a partition from this leader."""
        self.partitions.pop(key, None)
        self._touch(key)

    def is_current(self, followed: Followed) -> bool:
        """Returns whether the partition is still followed by this object."""
        return self.partitions.get(followed.key) is followed

    def touched(self, now_ms: int) -> list[Followed]:
        """Returns the partitions to be fetched that changed since the last request."""
        self._wake(now_ms)
        found = (self.partitions.get(key) for key in self._touched)
        return [each for each in found if each is not None and each.state is FetchState.FETCHING]

    def _wake(self, now_ms: int) -> None:
        """Resumes the partitions whose backoff has passed."""
        over = [each for each in self._waiting if each.until_ms <= now_ms or not self.is_current(each)]
        for each in over:
            del self._waiting[each]
            if self.is_current(each) and each.state is FetchState.WAITING:
                each.state = FetchState.FETCHING
                self._touch(each.key)

    def wake_at_ms(self) -> int | None:
        """Returns when the first backoff passes; None if no partition is backing off."""
        return min(
            (each.until_ms for each in self._waiting if self.is_current(each) and each.state is FetchState.WAITING),
            default=None,
        )

    # --- requests

    def next_request(self, now_ms: int, held_back: Callable[[Key], bool] | None = None) -> NextRequest | None:
        """Returns the next request, without the partitions that are `held_back`; None if there is nothing to fetch."""
        self._wake(now_ms)
        self._was_full = self._session_epoch == INITIAL_EPOCH
        changed: dict[Key, Named] = {}
        forgotten: dict[Key, Named] = {}
        held: list[Key] = []
        for key in self._to_look_at(everywhere=self._was_full or held_back is not None):
            followed = self.partitions.get(key)
            is_fetched = followed is not None and followed.state is FetchState.FETCHING
            if is_fetched and held_back is not None and held_back(key):
                held.append(key)
                is_fetched = False
            if not is_fetched:
                self._requested.pop(key, None)
                if key in self._in_session:
                    forgotten[key] = self._in_session.pop(key)
                continue
            assert followed is not None
            self._requested[key] = (followed, followed.offset)
            named = Named(followed.leader_epoch, followed.offset, followed.last_epoch, followed.log_start)
            if self._was_full or self._in_session.get(key) != named:
                self._in_session[key] = changed[key] = named
        if not self._requested:
            self._in_session = forgotten  # still in the leader's session
            return None
        self._touched = dict.fromkeys(held)
        if self._was_full:
            epoch = INITIAL_EPOCH if self._has_session else FINAL_EPOCH
            return NextRequest(self._session_id, epoch, changed, [])
        return NextRequest(self._session_id, self._session_epoch, changed, list(forgotten))

    def _to_look_at(self, *, everywhere: bool) -> list[Key]:
        if not everywhere:
            return list(self._touched)
        return [*self.partitions, *(key for key in self._in_session if key not in self.partitions)]

    def failed(self, now_ms: int) -> None:
        """Notes that the request failed: its partitions back off, and a new session starts."""
        self._close_session()
        for followed, _ in self._requested.values():
            if self.is_current(followed):
                self.wait(followed, now_ms)

    def answered(self, error: ErrorCode, session_id: int, keys: Collection[Key], now_ms: int) -> bool:
        """Takes the header of a response for these partitions; returns whether its partitions may be used."""
        if error:
            if error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._new_session()
            else:
                self._close_session()
            if error not in _SESSION_ERRORS or self._session_failed:
                self.failed(now_ms)
            self._session_failed = error in _SESSION_ERRORS
            return False
        self._session_failed = False
        is_complete = keys == self._requested.keys() if self._was_full else all(key in self._in_session for key in keys)
        if not is_complete:
            self._close_session()
        elif session_id == NO_SESSION:
            self._new_session()
        else:
            self._session_id = session_id
            self._session_epoch = self._session_epoch % MAX_EPOCH + 1
        return is_complete

    def _new_session(self) -> None:
        self._session_id = NO_SESSION
        self._session_epoch = INITIAL_EPOCH

    def _close_session(self) -> None:
        """Makes the next request a full one, which closes the current session, if any."""
        self._session_epoch = INITIAL_EPOCH

    # --- answers

    def heard(self, key: Key, answer: PartitionAnswer, now_ms: int) -> tuple[Step, Followed | None]:
        """Returns the step that a partition's response requires, and the partition if it is still current."""
        followed, offset = self._requested.get(key, (None, UNKNOWN))
        if (
            followed is None
            or not self.is_current(followed)
            or followed.offset != offset
            or followed.state is not FetchState.FETCHING
        ):
            return Step.NOTHING, None
        error = answer.error
        if error is ErrorCode.OFFSET_OUT_OF_RANGE:
            self.begin_cut(followed)
            return Step.LOOK_UP, followed
        if error is ErrorCode.FENCED_LEADER_EPOCH:
            followed.state = FetchState.STOPPED
            self._touch(key)
            return Step.NOTHING, followed
        if error in _NOT_YET:
            self.wait(followed, now_ms, FIRST_BACKOFF_MS << min(followed.refusals, 16))
            followed.refusals += 1
            return Step.NOTHING, followed
        followed.refusals = 0
        if error or (answer.diverging is not None and min(answer.diverging) < 0):
            self.wait(followed, now_ms)
            return Step.NOTHING, followed
        if answer.diverging is not None:
            self.begin_cut(followed)
            return Step.CUT, followed
        return Step.APPEND, followed

    def appended(self, followed: Followed, offset: int, last_epoch: int, log_start: int) -> None:
        """Notes that the log now reaches `offset`. `last_epoch` is that of the last appended batch, -1 if there was
        none."""
        assert self.is_current(followed) and offset >= followed.offset, "a follower's log grows by what was asked for"
        if offset > followed.offset:
            # The others come first in the next response.
            del self.partitions[followed.key]
            self.partitions[followed.key] = followed
        if (offset, log_start) != (followed.offset, followed.log_start):
            self._touch(followed.key)
        followed.offset = offset
        followed.log_start = log_start
        if last_epoch != UNKNOWN:
            followed.last_epoch = last_epoch

    def is_behind(self, followed: Followed, high_watermark: int) -> bool:
        """Returns whether the log is still below the leader's high watermark, so no commit waits for it."""
        return followed.offset < high_watermark

    def begin_cut(self, followed: Followed) -> None:
        """Stops fetching until `cut` reports that the log was truncated or restarted."""
        followed.state = FetchState.CUTTING
        self._touch(followed.key)

    def cut(self, followed: Followed, offset: int, last_epoch: int, log_start: int, now_ms: int) -> None:
        """Notes that the log was truncated or restarted and ends at `offset`; `last_epoch` is its last known epoch."""
        assert self.is_current(followed) and followed.state is FetchState.CUTTING
        followed.state = FetchState.FETCHING
        self._touch(followed.key)
        if (offset, last_epoch) == (followed.offset, followed.last_epoch):
            self.wait(followed, now_ms)  # the leader would diverge at the same point again
        followed.offset = offset
        followed.last_epoch = last_epoch
        followed.log_start = log_start

    def wait(self, followed: Followed, now_ms: int, backoff_ms: int = sys.maxsize) -> None:
        """Backs off after an error: the partition is retried after at most `backoff_ms`."""
        followed.state = FetchState.WAITING
        followed.until_ms = now_ms + min(backoff_ms, self._backoff_ms)
        self._waiting[followed] = None
        self._touch(followed.key)
