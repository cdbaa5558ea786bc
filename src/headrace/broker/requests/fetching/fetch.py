"""A Fetch request with as many partitions as one turn of the event loop can read: reads them, and waits for more data.

A waiting fetch has no task and no thread: it watches the replicas that it reads, and holds one timer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.broker.requests.fetching.reading import refresh
from headrace.broker.requests.fetching.watch import Watch
from headrace.env.completion import Completion

if TYPE_CHECKING:
    from headrace.broker.requests.fetching.reading import Answer, Reading
    from headrace.broker.requests.services import Services
    from headrace.env import Timer
    from headrace.env.workers import Raised

MAX_WAIT_MS: Final = 2**31 - 1


class Fetch:
    """One Fetch request. It ends with answers that are counted as sent, unless it is cancelled before."""

    __slots__ = (
        "_broker",
        "_found",
        "_holder",
        "_is_followers",
        "_max_wait_ms",
        "_reading",
        "_timer",
        "_unmoved",
        "_watch",
    )

    def __init__(
        self, broker: Services, reading: Reading, *, max_wait_ms: int, holder: str, is_followers: bool
    ) -> None:
        """`holder` is the name under which the wait of a consumer is counted (`RequestContext.holder`). The wait of a
        follower is not counted, and ends if its connection sends another request."""
        self._broker = broker
        self._reading = reading
        self._max_wait_ms = max_wait_ms
        self._holder = "" if is_followers else holder
        self._is_followers = is_followers
        self._found: Completion[list[Answer]] | None = None
        """The answers to come, once `run` has returned their completion; None again after the end."""
        self._timer: Timer | None = None
        """The timer for `max_wait_ms`, while the fetch waits."""
        self._watch: Watch | None = None
        """The watched replicas, from the first wait on."""
        self._unmoved: list[Answer] | None = None
        """The answers from before the wait if they have no records, until a replica changes."""

    def run(self) -> list[Answer] | Completion[list[Answer]]:
        """Reads the partitions. Returns the answers, or their completion if data has to be loaded or there is too
        little yet."""
        answers = self._attempt()
        if answers is not None:
            self._reading.count(answers)
            return answers
        hurry = self.hurry if self._is_followers else None
        """Answers with the data available in the next turn, as the connection has further requests."""
        self._found = Completion(self._broker.node.completions, self.cancel, hurry=hurry)
        return self._found

    def _attempt(self) -> list[Answer] | None:
        """Reads the partitions; returns None if the answers come later."""
        reading = self._reading
        answers = reading.read()
        loading = reading.load_cold()
        if loading is not None:
            loading.deliver_to(self._loaded)
        elif reading.is_satisfied or self._max_wait_ms <= 0 or not self._broker.fetches.make_room():
            return answers
        else:
            self._wait(answers)
        return None

    def _loaded(self, _: Raised | None) -> None:
        """Reads again, with the data loaded. An error of the worker occurs in this reading too."""
        if self._is_open:
            answers = self._attempt()
            if answers is not None:
                self._finish(answers)

    # --- waiting

    def _wait(self, answers: list[Answer]) -> None:
        reading, broker = self._reading, self._broker
        reading.begin_wait()
        self._watch = watch = Watch(broker.node.completions, reading.reader, reading.resting)
        find = broker.replicas.held
        for partition in reading.partitions:
            replica = find((partition.topic, partition.index))
            if replica is not None:
                watch.add(replica)
        watch.add_session()
        # In a session with resting partitions the others are few: they are read again.
        if reading.resting is None and not reading.bytes_read and len(watch.replicas) == len(answers):
            self._unmoved = answers
        broker.fetches.waits(self, self._holder)
        self._timer = broker.requests_owner.later(self._max_wait_ms / 1000, self._time_is_up)
        watch.enough(reading.bytes_wanted).deliver_to(self._look)

    def _look(self, _: None) -> None:
        """Reads again, as more may be readable."""
        watch, reading = self._watch, self._reading
        if watch is None or not self._is_open:
            return
        self._unmoved = None
        watch.restart()
        answers = reading.read()
        if reading.is_satisfied:
            self._finish(answers)
        else:
            watch.enough(reading.bytes_wanted).deliver_to(self._look)

    def end_wait(self) -> None:
        """Answers now with the data available, as another fetch takes its place."""
        self._max_wait_ms = 0
        self._time_is_up()

    def hurry(self) -> None:
        """Answers with what there is in the next turn, as other work waits behind it."""
        self._max_wait_ms = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = self._broker.requests_owner.soon(self._time_is_up)

    def _time_is_up(self) -> None:
        watch = self._watch
        if watch is None or not self._is_open:
            return
        if self._unmoved is None or watch.has_moved:
            self._finish(self._reading.read())
            return
        # Another reading would give the same, so the answers are reused: a session may have thousands of partitions.
        for replica, (_, data) in zip(watch.replicas, self._unmoved, strict=True):
            refresh(replica, data)
        self._finish(self._unmoved)

    # --- the end

    @property
    def _is_open(self) -> bool:
        """Whether the client still waits for the answers."""
        return self._found is not None and not self._found.done

    def _finish(self, answers: list[Answer]) -> None:
        found = self._found
        assert found is not None, "a fetch that waits has a completion"
        self._reading.count(answers)
        self.cancel()
        found.complete(answers)

    def cancel(self) -> None:
        """Stops waiting: the connection is closed, or the answers are complete."""
        self._found = None
        if self._timer is None:
            return
        assert self._watch is not None, "a timer runs while it watches"
        self._watch.close()
        self._unmoved = None
        self._broker.fetches.waits_no_longer(self, self._holder)
        self._timer.cancel()
        self._timer = None
