"""A driver's commit, or a task, in a process of its own that dies at a chosen request: before it leaves, when it has
left, or when its answer has come. What the kernel has taken still reaches the broker, as after a kill.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from headrace.client.channel import Channel
from headrace.client.connection import Connection
from headrace.spark.delivery.exactly_once import commit_batch
from headrace.spark.delivery.messages import EncodedTask
from headrace.spark.options import SinkOptions
from headrace.wire.apis import ApiKey

DEAD, DONE, FAILED = 9, 0, 1


@dataclass(frozen=True)
class Death:
    """Where: at the `nth` request of an API, `when` is "before", "sent" or "answered"."""

    api: ApiKey
    when: str
    nth: int = 1

    def __str__(self) -> str:
        return f"{self.api.name.lower()} {self.nth} {self.when}"


def commit_and_die(options: SinkOptions, tasks: Sequence[EncodedTask], batch_id: int, death: Death | None) -> int:
    """Commit in a child; returns DEAD where it died as it should, DONE where it never came there."""
    return run_and_die(lambda: commit_batch(options, tasks, batch_id), death)


def run_and_die(work: Callable[[], object], death: Death | None) -> int:
    """The same with any work, which must not use connections of this process."""
    child = os.fork()
    if child == 0:
        status = FAILED
        try:
            if death is not None:
                _arrange(death)
            work()
            status = DONE
        finally:
            os._exit(status)
    _, state = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(state)


def _arrange(death: Death) -> None:
    sent: Counter[int] = Counter()
    answered: Counter[int] = Counter()
    send, complete = Connection.send, Channel._complete

    def watched_send(self: Connection, request: Any, *arguments: Any, **named: Any) -> Any:
        key = request.API_KEY
        sent[key] += 1
        if death.when == "before" and (key, sent[key]) == (death.api, death.nth):
            _die()
        call = send(self, request, *arguments, **named)
        if death.when == "sent" and (key, sent[key]) == (death.api, death.nth):
            _die()
        return call

    def watched_complete(self: Channel, frame: memoryview) -> None:
        key = self._waiting[0].response_class.API_KEY
        complete(self, frame)
        answered[key] += 1
        if death.when == "answered" and (key, answered[key]) == (death.api, death.nth):
            _die()

    Connection.send = watched_send  # type: ignore[method-assign]
    Channel._complete = watched_complete  # type: ignore[method-assign]


def _die() -> NoReturn:
    os._exit(DEAD)
