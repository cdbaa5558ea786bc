"""Delays requests for partitions that are not ready yet: the log is not open, or the leader's epoch is not written.

That is so for a moment after a start, and for new partitions. The connection takes no further request meanwhile, so
that its requests take effect in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator
from itertools import chain, islice
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from asyncio import Future

    from headrace.broker.partitions.replica import Key
    from headrace.broker.requests.services import Services

LOOKED_AT_ONCE: Final = 1000
"""Partitions of a request that are checked without a pause."""


def once_ready(
    broker: Services,
    keys: Iterable[Key | None],
    answer: Callable[[], Any],
    *,
    for_appends: bool = False,
    before_waiting: Callable[[], None] | None = None,
) -> Any | Coroutine[Any, Any, Any]:
    """Returns `answer()`: at once if the partitions are ready, as they usually are, else as a coroutine.

    A None among the keys counts for a topic, which may have no partitions (see `keys_in`). With `for_appends` the
    partitions must take appends. `before_waiting` is called before the request waits, as the connection's buffer, which
    it may refer to, is overwritten then.
    """
    replicas = broker.replicas
    if replicas.all_ready(for_appends):
        return answer()
    left = iter(keys)
    waiting = _not_ready(broker, left, for_appends)
    following = list(islice(left, 1))
    if not waiting and not following:
        return answer()
    if before_waiting is not None:
        before_waiting()
    if following:
        return _look_on(broker, waiting, chain(following, left), answer, for_appends)
    return _later(broker, list(waiting), answer, for_appends)


def keys_in(topics: Iterable[tuple[str, Iterable[int]]]) -> Iterator[Key | None]:
    """Yields None for each topic and then its partitions, so that topics without partitions count too."""
    for name, indexes in topics:
        yield None
        for index in indexes:
            yield name, index


def _not_ready(broker: Services, keys: Iterable[Key | None], for_appends: bool) -> dict[Key, None]:
    """Returns those of the next LOOKED_AT_ONCE keys whose partitions are not ready."""
    is_ready = broker.replicas.is_ready
    some = islice(keys, LOOKED_AT_ONCE)
    return {key: None for key in some if key is not None and not is_ready(key, for_appends=for_appends)}


async def _look_on(
    broker: Services, waiting: dict[Key, None], keys: Iterator[Key | None], answer: Callable[[], Any], for_appends: bool
) -> Any:
    """Checks the remaining keys in pieces, so that other work runs in between, and then answers."""
    async with broker.long_answers.turn:
        for key in keys:
            waiting |= _not_ready(broker, chain((key,), keys), for_appends)
            await asyncio.sleep(0)
    if waiting:
        return await _later(broker, list(waiting), answer, for_appends)
    answered = answer()
    return await answered if type(answered) is CoroutineType else answered


async def _later(broker: Services, keys: list[Key], answer: Callable[[], Any], for_appends: bool) -> Any:
    answered = await _when_ready(broker, keys, answer, for_appends)
    return await answered if type(answered) is CoroutineType else answered


async def until_ready(broker: Services, keys: Collection[Key], *, for_appends: bool) -> None:
    """Returns when the partitions are ready, or will never be."""
    if keys:
        await _when_ready(broker, keys, lambda: None, for_appends)


def _when_ready(broker: Services, keys: Collection[Key], answer: Callable[[], Any], for_appends: bool) -> Future[Any]:
    """Returns a future of `answer()`, which runs in the very call that makes the last partition ready: one turn of the
    loop later the partition may have another leader epoch or another log directory, and take no appends again."""
    done: Future[Any] = broker.node.future()
    left = len(keys)

    def ready() -> None:
        nonlocal left
        left -= 1
        if left or done.done():
            return
        try:
            done.set_result(answer())
        except Exception as error:  # raised again where the request is answered
            done.set_exception(error)

    for key in keys:
        broker.replicas.when_ready(key, ready, for_appends=for_appends)
    return done
