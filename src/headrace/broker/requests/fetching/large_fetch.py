"""A Fetch request with more partitions than one turn of the event loop can read.

It gives the same answers as `Fetch`, and reads in pieces. A partition may change after it was read, while others are
read, so each replica is watched before it is read, and appended bytes are counted meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from headrace.broker.net.answers import CloseConnectionError
from headrace.broker.requests.fetching.reading import refresh
from headrace.broker.requests.fetching.watch import Watch
from headrace.broker.requests.pieces import SMALL_PER_STEP, Steps, parts_of, rest_of
from headrace.env.completion import Completion
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k01_fetch import FetchResponse

if TYPE_CHECKING:
    from asyncio import Task

    from headrace.broker.net.context import RequestContext
    from headrace.broker.net.long_answers import EncodedAnswer
    from headrace.broker.requests.fetching.reading import Answer, Reading
    from headrace.broker.requests.services import Services
    from headrace.env import Timer
    from headrace.replicas.sessions import SessionPartition


class LargeFetch:
    """One Fetch request with many partitions."""

    def __init__(
        self,
        broker: Services,
        context: RequestContext,
        reading: Reading,
        response_of: Callable[[list[Answer]], Steps[FetchResponse]],
        *,
        max_wait_ms: int,
        is_followers: bool,
    ) -> None:
        """`response_of` makes the response from the answers. The wait of a consumer is counted; that of a follower is
        not, and ends if its connection sends another request."""
        self._broker = broker
        self._context = context
        self._reading = reading
        self._response_of = response_of
        self._max_wait_ms = max_wait_ms
        self._holder = "" if is_followers else context.holder
        self._watch = Watch(broker.node.completions, reading.reader, reading.resting)
        self._unmoved: list[Answer] | None = None
        """The answers from before the wait if they have no records, until a replica changes."""
        self._timer: Timer | None = None
        """The timer for `max_wait_ms`, while the fetch waits."""
        self._task: Task[None] | None = None
        """The task that reads again after a wait."""
        self._answer: Completion[Any] = Completion(
            broker.node.completions, self.cancel, hurry=self.end_wait if is_followers else None
        )
        """The encoded answer, if it comes after a wait."""

    async def run(self) -> Any:
        """Returns the encoded answer, or its completion if the fetch waits. Raises CloseConnectionError."""
        try:
            answer = await self._work()
        except BaseException:
            self._watch.close()
            raise
        return self._answer if answer is None else answer

    async def _work(self) -> EncodedAnswer | None:
        """Reads until there is an answer; returns None if it waits instead."""
        reading = self._reading
        while True:
            async with self._broker.long_answers.turn:
                found = await rest_of(self._context, self._read())
                loading = reading.load_cold()
                if loading is None:
                    if reading.is_satisfied or self._max_wait_ms <= 0:
                        return await self._encoded(found)
                    if not self._watch.has_enough(reading.bytes_wanted):
                        if not self._broker.fetches.make_room():
                            return await self._encoded(found)
                        self._wait(found)
                        return None
            if loading is not None:
                await loading

    # --- reading

    def _read(self) -> Steps[list[Answer]]:
        unmoved, self._unmoved = self._unmoved, None
        if unmoved is not None and not self._watch.has_moved:
            return self._refreshed(unmoved)
        self._watch.restart()
        if self._max_wait_ms <= 0:
            return self._reading.read_in_pieces(None)
        self._watch.add_session()
        return self._reading.read_in_pieces(self._watch_all)

    def _watch_all(self, partitions: Iterable[SessionPartition]) -> None:
        find = self._broker.replicas.held
        for partition in partitions:
            replica = find((partition.topic, partition.index))
            if replica is not None:
                self._watch.add(replica)

    def _refreshed(self, found: list[Answer]) -> Steps[list[Answer]]:
        """Returns the answers with current offsets, as nothing else has changed."""
        for number, (replica, (_, data)) in enumerate(zip(self._watch.replicas, found, strict=True), 1):
            refresh(replica, data)
            if number % SMALL_PER_STEP == 0:
                yield 1
        return found

    async def _encoded(self, found: list[Answer]) -> EncodedAnswer:
        self._watch.close()
        self._reading.reader.count_bytes(self._reading.bytes_read)
        await rest_of(self._context, self._count(found))
        response = await rest_of(self._context, self._response_of(found))
        return await self._broker.long_answers.encoded_in_turn(self._context, response)

    def _count(self, found: list[Answer]) -> Steps[None]:
        for some in parts_of(found, SMALL_PER_STEP):
            self._reading.reader.count_partitions(some)
            yield 1

    # --- waiting

    def _wait(self, found: list[Answer]) -> None:
        reading = self._reading
        if not reading.bytes_read and reading.resting is None and len(self._watch.replicas) == len(found):
            self._unmoved = found
        self._broker.fetches.waits(self, self._holder)
        self._timer = self._broker.requests_owner.later(self._max_wait_ms / 1000, self.end_wait)
        self._watch.enough(reading.bytes_wanted).deliver_to(self._go_on)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._broker.fetches.waits_no_longer(self, self._holder)

    def end_wait(self) -> None:
        """Ends the wait and answers with the data available: the time is up, the client sends another request, or
        another fetch takes its place."""
        self._max_wait_ms = 0
        self._go_on(None)

    def _go_on(self, _: None) -> None:
        """Reads again if the fetch still waits, as more may be readable."""
        if self._timer is not None:
            self._stop_waiting()
            self._task = self._broker.requests_owner.spawn(self._work_after_wait())

    async def _work_after_wait(self) -> None:
        meter = self._context.meter
        try:
            with self._broker.long_answers.freed_later(self._context):
                answer = await (self._work() if meter is None else meter.timed(self._work()))
        except CloseConnectionError:
            return
        except Exception:
            self._watch.close()
            self._answer.complete(FetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR))
            raise
        self._task = None
        if answer is not None:
            self._answer.complete(answer)

    def cancel(self) -> None:
        """Stops the fetch, as the connection is closed."""
        self._stop_waiting()
        self._watch.close()
        if self._task is not None:
            self._task.cancel()
