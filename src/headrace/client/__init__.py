"""A small blocking client: connections, metadata, produce, fetch, groups and administration, without an event loop.

    with Client("127.0.0.1:9092") as client:
        for fetched in Fetcher(client, {("flights", 0): 0}, ends={("flights", 0): 1000}):
            ...

`Client` is the cluster; the modules beside it are what one can do with it: `reading` (offsets, batches), `producer`,
`transactions`, `admin` (topics and configs), `describe` (cluster, quorum, log directories), `health`, `moves` (where
replicas are, who leads), `placement` (plans of moves), `throttles` (their pace), `groups` (offsets, members),
`membership` (taking part in a consumer group). None of it is safe to share between threads:
make a client a thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.client.cluster import Client as Client
    from headrace.client.errors import BrokerError as BrokerError
    from headrace.client.errors import ClientError as ClientError
    from headrace.client.producer import Producer as Producer
    from headrace.client.reading import Fetcher as Fetcher
    from headrace.client.transactions import TransactionalProducer as TransactionalProducer

_HOME = {
    "Client": "cluster",
    "BrokerError": "errors",
    "ClientError": "errors",
    "Producer": "producer",
    "Fetcher": "reading",
    "TransactionalProducer": "transactions",
}

__all__ = ["BrokerError", "Client", "ClientError", "Fetcher", "Producer", "TransactionalProducer"]


def __getattr__(name: str) -> object:
    """Imports a public name when it is first used: the commands start faster."""
    if name not in _HOME:
        raise AttributeError(f"module 'headrace.client' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"headrace.client.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
