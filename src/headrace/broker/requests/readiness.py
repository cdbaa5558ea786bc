"""A request for a partition that is not ready yet waits for it: its log is to be opened, or its leader's epoch written.

That is so for a moment after a start, and for new partitions. The connection takes no further request meanwhile, so
that what its requests do happens in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterable
from types import CoroutineType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asyncio import Future

    from headrace.broker.partitions.replica import Key
    from headrace.broker.requests.services import Services


def once_ready(
    broker: Services,
    keys: Iterable[Key],
    answer: Callable[[], Any],
    *,
    for_appends: bool = False,
    before_waiting: Callable[[], None] | None = None,
) -> Any | Coroutine[Any, Any, Any]:
    """What `answer()` returns: at once where the partitions are ready, as they are but for a moment, else later.

    `for_appends`: they have to take appends. `before_waiting` is called where it is later: what the request holds of
    the connection's buffer is overwritten then.
    """
    replicas = broker.replicas
    if replicas.all_ready(for_appends):
        return answer()
    waiting = [key for key in dict.fromkeys(keys) if not replicas.is_ready(key, for_appends=for_appends)]
    if not waiting:
        return answer()
    if before_waiting is not None:
        before_waiting()
    return _later(broker, waiting, answer, for_appends)


async def _later(broker: Services, keys: list[Key], answer: Callable[[], Any], for_appends: bool) -> Any:
    answered = await _when_ready(broker, keys, answer, for_appends)
    return await answered if type(answered) is CoroutineType else answered


async def until_ready(broker: Services, keys: Collection[Key], *, for_appends: bool) -> None:
    """Returns when the partitions are ready, or will not be."""
    if keys:
        await _when_ready(broker, keys, lambda: None, for_appends)


def _when_ready(broker: Services, keys: Collection[Key], answer: Callable[[], Any], for_appends: bool) -> Future[Any]:
    """What `answer()` returns in the very call that says of the last partition that it is ready: a turn of the loop
    later it may lead under another epoch, or lie elsewhere, and take no appends again."""
    done: Future[Any] = broker.node.future()
    left = len(keys)

    def ready() -> None:
        nonlocal left
        left -= 1
        if left or done.done():
            return
        try:
            done.set_result(answer())
        except Exception as error:  # it is raised where the request is answered
            done.set_exception(error)

    for key in keys:
        broker.replicas.when_ready(key, ready, for_appends=for_appends)
    return done
