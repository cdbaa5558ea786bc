"""What a follower fetches from one leader node: which partitions, from where, and what an answer means. A pure machine.

The shell sends what `next_request` names, one request at a time, and carries out the step returned for each partition
of the answer: it appends, cuts, or looks up where the leader's log begins and ends, and says how far the log is then.
It owns logs, connections and timers. Times are milliseconds of a steady clock.

The rules are Kafka's: a partition begins at the end of its log; a leader that finds another history there says where
the two part (KIP-595), and the log is cut, several times if need be (KIP-279). An answer counts only where the
partition is still fetched from the offset, and under the leader epoch, that it was asked with. Sessions are those of
KIP-227, from the client's side.
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
"""How soon a leader is asked again that does not know of itself yet; twice as long each time, up to the backoff."""
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
"""What a leader says that does not have the metadata yet which have reached its follower."""


class FetchState(Enum):
    """What happens to a partition now."""

    FETCHING = "fetching"
    CUTTING = "cutting"
    """Its log is being cut, or it is looked up where the leader's begins and ends."""
    WAITING = "waiting"
    """After an error, until it is tried again."""
    STOPPED = "stopped"
    """Its leader knows a newer epoch: metadata that say so are on their way."""


class Step(Enum):
    """What the shell is to do with the answer for a partition."""

    NOTHING = "nothing"
    APPEND = "append"
    """The records, if any, then the leader's watermarks; then `Fetcher.appended`."""
    CUT = "cut"
    """At `cut_at` of what the leader says of its epochs; then `Fetcher.cut`."""
    LOOK_UP = "look up"
    """Where the leader's log begins and ends; then `Fetcher.looked_up`."""


class Followed:
    """One partition under one leader epoch.

    Following it again makes a new object, so old answers only reach the old one.
    """

    __slots__ = ("key", "last_epoch", "leader_epoch", "log_start", "offset", "refusals", "state", "until_ms")

    def __init__(self, key: Key, leader_epoch: int, offset: int, last_epoch: int, log_start: int) -> None:
        self.key = key
        self.leader_epoch = leader_epoch
        self.offset = offset
        """The end of the log, and the next offset to fetch."""
        self.last_epoch = last_epoch
        """The epoch of the last batch of the log, -1 where it has none."""
        self.log_start = log_start
        self.state = FetchState.FETCHING
        self.until_ms = 0
        self.refusals = 0
        """How often in a row the leader did not know yet that it leads."""

    @property
    def is_stopped(self) -> bool:
        """Whether only newer metadata make it go on."""
        return self.state is FetchState.STOPPED


class Named(NamedTuple):
    """What a request says of one partition."""

    leader_epoch: int
    offset: int
    last_epoch: int
    log_start: int


class NextRequest(NamedTuple):
    """`named` are all partitions of a full request, and of an incremental one those that changed."""

    session_id: int
    session_epoch: int
    named: dict[Key, Named]
    forgotten: list[Key]


class PartitionAnswer(NamedTuple):
    """What the leader says of one partition; `diverging` is (epoch, end offset)."""

    error: ErrorCode
    diverging: tuple[int, int] | None = None


class Bounds(NamedTuple):
    """What to do with a log whose offset is out of the leader's range: it goes on at `offset`."""

    offset: int
    is_restart: bool
    """Whether the whole log is dropped, and begins there; else it is cut there, where it is longer."""


def cut_at(leader: tuple[int, int], own: tuple[int, int], log_end: int) -> int:
    """Where a log is cut that the leader's parts from. `leader` is the epoch that both may have, and its end there;
    `own` is the largest epoch here that is not above, and its end (-1, -1: none is known)."""
    if own[0] < 0:
        return min(leader[1], log_end)
    if own[0] != leader[0]:
        return min(own[1], log_end)  # what the leader has of that epoch, it says next time
    return min(own[1], leader[1], log_end)


def bounds_of(leader_start: int, leader_end: int, log_end: int) -> Bounds:
    """What becomes of a log that ends at `log_end`, where the leader's has no such offset."""
    if leader_end < log_end:
        return Bounds(leader_end, False)
    if leader_start > log_end:
        return Bounds(leader_start, True)
    return Bounds(log_end, False)


class Fetcher:
    """Fetches partitions from one leader node. One request is under way at a time."""

    def __init__(self, backoff_ms: int, *, has_session: bool = True) -> None:
        """`backoff_ms`: how long a partition waits after an error (replica.fetch.backoff.ms). Without a session every
        request is a full one: for few partitions and a short time."""
        self.partitions: dict[Key, Followed] = {}
        """In the order in which they take their turn."""
        self._backoff_ms = backoff_ms
        self._has_session = has_session
        self._session_id = NO_SESSION
        self._session_epoch = INITIAL_EPOCH
        self._in_session: dict[Key, Named] = {}
        self._requested: dict[Key, tuple[Followed, int]] = {}
        """What the session has, which is what the newest request asks for: a partition, and from where."""
        self._touched: dict[Key, None] = {}
        """Those that may not be as the last request says, in the order in which they came to it: nearly all of
        thousands rest, and are not looked at."""
        self._waiting: dict[Followed, None] = {}
        self._was_full = True
        self._session_failed = False

    # --- which partitions

    def follow(self, key: Key, leader_epoch: int, offset: int, last_epoch: int, log_start: int) -> Followed:
        """Fetches a partition from the end of its log on; whatever was known of it is forgotten."""
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
        """Whether nothing has taken its place meanwhile."""
        return self.partitions.get(followed.key) is followed

    def touched(self, now_ms: int) -> list[Followed]:
        """Those that the next request may ask for, and that the last one did not, or not so."""
        self._wake(now_ms)
        found = (self.partitions.get(key) for key in self._touched)
        return [each for each in found if each is not None and each.state is FetchState.FETCHING]

    def _wake(self, now_ms: int) -> None:
        """Those that have waited long enough are fetched again."""
        over = [each for each in self._waiting if each.until_ms <= now_ms or not self.is_current(each)]
        for each in over:
            del self._waiting[each]
            if self.is_current(each) and each.state is FetchState.WAITING:
                each.state = FetchState.FETCHING
                self._touch(each.key)

    def wake_at_ms(self) -> int | None:
        """When a partition that waits is tried again; None where none waits."""
        return min(
            (each.until_ms for each in self._waiting if self.is_current(each) and each.state is FetchState.WAITING),
            default=None,
        )

    # --- requests

    def next_request(self, now_ms: int, held_back: Callable[[Key], bool] | None = None) -> NextRequest | None:
        """What to ask for now, without the partitions that are `held_back`; None while there is nothing to fetch."""
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
            self._in_session = forgotten  # the leader has them still
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
        """The request has no answer: everything that it asked for waits, and the session is another one."""
        self._close_session()
        for followed, _ in self._requested.values():
            if self.is_current(followed):
                self.wait(followed, now_ms)

    def answered(self, error: ErrorCode, session_id: int, keys: Collection[Key], now_ms: int) -> bool:
        """An answer came, for these partitions; whether what it says of them may be used."""
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
        """The next request is a full one, and closes the session that there may be."""
        self._session_epoch = INITIAL_EPOCH

    # --- answers

    def heard(self, key: Key, answer: PartitionAnswer, now_ms: int) -> tuple[Step, Followed | None]:
        """What to do with the answer for a partition."""
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
        """The log reaches to `offset` now. `last_epoch` is that of the last batch appended, -1 where there was none."""
        assert self.is_current(followed) and offset >= followed.offset, "a follower's log grows by what was asked for"
        if offset > followed.offset:
            # Others come first next time.
            del self.partitions[followed.key]
            self.partitions[followed.key] = followed
        if (offset, log_start) != (followed.offset, followed.log_start):
            self._touch(followed.key)
        followed.offset = offset
        followed.log_start = log_start
        if last_epoch != UNKNOWN:
            followed.last_epoch = last_epoch

    def is_behind(self, followed: Followed, high_watermark: int) -> bool:
        """Whether a partition is so far behind that one answer did not have all it lacks: nobody waits for it, as the
        leader's high watermark is beyond its end."""
        return followed.offset < high_watermark

    def begin_cut(self, followed: Followed) -> None:
        """The log has to begin elsewhere before it takes what the leader sent: `cut` is to follow."""
        followed.state = FetchState.CUTTING
        self._touch(followed.key)

    def cut(self, followed: Followed, offset: int, last_epoch: int, log_start: int, now_ms: int) -> None:
        """The log was cut, or begins elsewhere, and ends at `offset`; `last_epoch` is the last that it knows of."""
        assert self.is_current(followed) and followed.state is FetchState.CUTTING
        followed.state = FetchState.FETCHING
        self._touch(followed.key)
        if (offset, last_epoch) == (followed.offset, followed.last_epoch):
            self.wait(followed, now_ms)  # the leader would say the same again
        followed.offset = offset
        followed.last_epoch = last_epoch
        followed.log_start = log_start

    def wait(self, followed: Followed, now_ms: int, backoff_ms: int = sys.maxsize) -> None:
        """Something went wrong with a partition: it is tried again after a while, `backoff_ms` at most."""
        followed.state = FetchState.WAITING
        followed.until_ms = now_ms + min(backoff_ms, self._backoff_ms)
        self._waiting[followed] = None
        self._touch(followed.key)
