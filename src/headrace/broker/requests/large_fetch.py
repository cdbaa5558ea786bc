"""A Fetch of more partitions than are looked at in one turn of the event loop.

It answers what `Fetch` answers, and reads in pieces. A partition that it has read may change while it reads others: it
is registered with each replica before it reads it, and counts what is appended then as there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from headrace.broker.net.answers import CloseConnectionError
from headrace.broker.requests.fetching import see_again
from headrace.broker.requests.pieces import SMALL_PER_STEP, Steps, parts_of, rest_of
from headrace.env.completion import Completion
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k01_fetch import FetchResponse

if TYPE_CHECKING:
    from asyncio import Task

    from headrace.broker.net.context import RequestContext
    from headrace.broker.net.long_answers import EncodedAnswer
    from headrace.broker.partitions.replica import Replica
    from headrace.broker.requests.fetching import Answer, Fetch
    from headrace.broker.requests.services import Services
    from headrace.env import Timer
    from headrace.replicas.sessions import SessionPartition


class LargeFetch:
    """One such request at work."""

    def __init__(
        self,
        broker: Services,
        context: RequestContext,
        fetch: Fetch,
        respond: Callable[[list[Answer]], Steps[FetchResponse]],
        *,
        max_wait_ms: int,
        is_consumers: bool,
    ) -> None:
        """`fetch` reads, and `respond` makes the response of what it has read. The wait of a consumer has a share of
        the places, that of a follower ends when it asks for something else."""
        self._broker = broker
        self._context = context
        self._fetch = fetch
        self._respond = respond
        self._max_wait_ms = max_wait_ms
        self._holder = context.holder if is_consumers else ""
        self._watched: dict[Replica, None] = {}
        self._appended = 0
        """Bytes that were appended since the last reading began."""
        self._has_changed = False
        """Whether something else has changed since then."""
        self._unmoved: list[Answer] | None = None
        """What was read before the wait, while that is still all there is: no records, of any partition."""
        self._timer: Timer | None = None
        """While it waits."""
        self._task: Task[None] | None = None
        """While it works after a wait."""
        self._pending: Completion[Any] = Completion(
            broker.node.completions, self.cancel, hurry=None if is_consumers else self.end_wait
        )

    async def run(self) -> Any:
        """Returns the encoded answer, or its promise if the fetch waits. Raises CloseConnectionError."""
        try:
            answer = await self._work()
        except BaseException:
            self._unregister()
            raise
        return self._pending if answer is None else answer

    async def _work(self) -> EncodedAnswer | None:
        """Reads until there is an answer, or nothing to do but to wait: it begins that, and returns None."""
        while True:
            async with self._broker.long_answers.turn:
                found = await rest_of(self._context, self._reading())
                look_up = self._fetch.cold_lookup()
                if look_up is None:
                    if self._fetch.is_satisfied or self._max_wait_ms <= 0:
                        return await self._answer(found)
                    if not self._is_to_read_again:
                        if not self._broker.fetches.make_room():
                            return await self._answer(found)
                        self._wait(found)
                        return None
            if look_up is not None:
                await self._broker.node.workers.run(look_up)

    # --- reading

    def _reading(self) -> Steps[list[Answer]]:
        unmoved, self._unmoved = self._unmoved, None
        if unmoved is not None:
            return self._seen_again(unmoved)
        self._appended, self._has_changed = 0, False
        if self._max_wait_ms <= 0:
            return self._fetch.reading(None)
        if (resting := self._fetch.resting) is not None:
            resting.waiting[self] = None
        return self._fetch.reading(self._watch)

    def _seen_again(self, found: list[Answer]) -> Steps[list[Answer]]:
        """What another reading would give where nothing came."""
        for number, (replica, (_, data)) in enumerate(zip(self._watched, found, strict=True), 1):
            see_again(replica, data)
            if number % SMALL_PER_STEP == 0:
                yield 1
        return found

    async def _answer(self, found: list[Answer]) -> EncodedAnswer:
        self._unregister()
        self._fetch.count_bytes()
        await rest_of(self._context, self._counting(found))
        response = await rest_of(self._context, self._respond(found))
        return await self._broker.long_answers.encoded_in_turn(self._context, response)

    def _counting(self, found: list[Answer]) -> Steps[None]:
        for some in parts_of(found, SMALL_PER_STEP):
            self._fetch.count_partitions(some)
            yield 1

    # --- changes

    def _watch(self, partitions: Iterable[SessionPartition]) -> None:
        find = self._broker.replicas.held
        for partition in partitions:
            replica = find((partition.topic, partition.index))
            if replica is not None:
                self._register(replica)

    def _register(self, replica: Replica) -> None:
        self._watched[replica] = None
        self._fetch.waiters(replica)[self] = None

    def _unregister(self) -> None:
        if (resting := self._fetch.resting) is not None:
            resting.waiting.pop(self, None)
        for replica in self._watched:
            self._fetch.waiters(replica).pop(self, None)
        self._watched.clear()

    def moved(self, replica: Replica, byte_count: int) -> None:
        """More can be read, or something else has changed (0)."""
        self._unmoved = None
        self._appended += byte_count
        self._has_changed = self._has_changed or not byte_count
        if self._timer is not None and self._is_to_read_again:
            self._go_on()

    def woke(self, replica: Replica, byte_count: int) -> None:
        """A partition that rested when this fetch looked at it moved."""
        self._register(replica)
        self.moved(replica, byte_count)

    @property
    def _is_to_read_again(self) -> bool:
        """Whether another reading may find enough."""
        return self._has_changed or self._appended >= self._fetch.bytes_wanted

    # --- waiting

    def _wait(self, found: list[Answer]) -> None:
        if not self._fetch.bytes_read and self._fetch.resting is None and len(self._watched) == len(found):
            self._unmoved = found
        self._broker.fetches.waits(self, self._holder)
        self._timer = self._broker.requests_owner.later(self._max_wait_ms / 1000, self.end_wait)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._broker.fetches.waits_no_longer(self, self._holder)

    def end_wait(self) -> None:
        """Answers with what there is: the time is up, the client asks for something else, or others wait instead."""
        self._max_wait_ms = 0
        if self._timer is not None:
            self._go_on()

    def _go_on(self) -> None:
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
            self._unregister()
            self._pending.complete(FetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR))
            raise
        self._task = None
        if answer is not None:
            self._pending.complete(answer)

    def cancel(self) -> None:
        """Nobody waits for the answer any longer."""
        self._stop_waiting()
        self._unregister()
        if self._task is not None:
            self._task.cancel()
