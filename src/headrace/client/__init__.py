"""A client of a cluster in two shells: `Client` blocks and needs no event loop, `AsyncClient` runs on asyncio.

    with Client("127.0.0.1:9092") as client:
        for fetched in Fetcher(client, {("flights", 0): 0}, ends={("flights", 0): 1000}):
            ...

The modules beside them have what one can do with either: `admin` (topics and configs), `describe` (cluster, quorum, log
directories), `groups` (offsets, members), `reading` (offsets, batches), `health`, `moves` (where replicas are, who
leads), `placement` (plans of moves), `throttles` (their pace), `acls`, `users`, `quotas`, `tokens`. Their functions
return the result with a `Client`, and are awaited with an `AsyncClient`. Producers, fetchers and members of groups have
a class for each. None of it is safe to share between threads: make a client a thread.

How: an operation is a conversation (`conversation`), which queues requests and yields what it waits for. `Router` has
the conversations that find the right broker, and the two clients perform the steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.client.async_client import AsyncClient as AsyncClient
    from headrace.client.async_consumer import AsyncFetcher as AsyncFetcher
    from headrace.client.async_consumer import AsyncMember as AsyncMember
    from headrace.client.async_producer import AsyncProducer as AsyncProducer
    from headrace.client.async_producer import AsyncTransactionalProducer as AsyncTransactionalProducer
    from headrace.client.cluster import Client as Client
    from headrace.client.errors import BrokerError as BrokerError
    from headrace.client.errors import ClientError as ClientError
    from headrace.client.fetcher import Fetcher as Fetcher
    from headrace.client.membership import Member as Member
    from headrace.client.producer import Producer as Producer
    from headrace.client.transactions import TransactionalProducer as TransactionalProducer

_HOME = {
    "AsyncClient": "async_client",
    "AsyncFetcher": "async_consumer",
    "AsyncMember": "async_consumer",
    "AsyncProducer": "async_producer",
    "AsyncTransactionalProducer": "async_producer",
    "Client": "cluster",
    "BrokerError": "errors",
    "ClientError": "errors",
    "Producer": "producer",
    "Fetcher": "fetcher",
    "Member": "membership",
    "TransactionalProducer": "transactions",
}

__all__ = [
    "AsyncClient",
    "AsyncFetcher",
    "AsyncMember",
    "AsyncProducer",
    "AsyncTransactionalProducer",
    "BrokerError",
    "Client",
    "ClientError",
    "Fetcher",
    "Producer",
    "TransactionalProducer",
]


def __getattr__(name: str) -> object:
    """Imports a public name when it is first used: the commands start faster."""
    if name not in _HOME:
        raise AttributeError(f"module 'headrace.client' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"headrace.client.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
