"""What one Python process of Spark keeps from task to task and from batch to batch: connections and producers.

Spark owns the processes and gives this package no object that outlives a call: it unpickles a new writer or reader for
every task, and a new one for every batch on the driver's side. Without state that belongs to the process, each task
would open its own connections and each batch would initialize its producer again. So there is exactly one such object
in a process, which `this_process` returns, and everything that outlives a call is in it.

Its lifetime is that of the process: it begins empty, also in a process that Spark forks or that unpickles something of
ours, and its connections end at `close`, which runs when the interpreter exits. Spark may kill the process at any
time, so nothing here may be needed for a correct result: after a loss it is opened or read again.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from headrace.client.cluster import Client

if TYPE_CHECKING:
    from headrace.client.producer import Producer
    from headrace.spark.client_settings import ClusterSettings
    from headrace.spark.delivery.query_producer import QueryProducer
    from headrace.spark.options import SinkOptions

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

KEPT_MAX: Final = 100
"""Values that a pool keeps; the one that was used least recently is closed to make room."""


class Pool(Generic[K, V]):
    """Values by key that are not in use; one that is taken belongs to its taker until it is put back.

    So a client, which belongs to one thread, is never given to two, and no value is closed while it is in use.
    """

    def __init__(self, close: Callable[[V], None], most: int = KEPT_MAX) -> None:
        assert most > 0
        self.kept: OrderedDict[K, V] = OrderedDict()
        """The least recently used first."""
        self._close = close
        self._most = most
        self._lock = threading.Lock()

    def take(self, key: K) -> V | None:
        """Removes the value of a key and returns it; None if there is none."""
        with self._lock:
            return self.kept.pop(key, None)

    def put(self, key: K, value: V) -> None:
        """Keeps a value, and closes what it replaces: another of its key, or the least recently used."""
        with self._lock:
            older = [self.kept.pop(key)] if key in self.kept else []
            self.kept[key] = value
            if len(self.kept) > self._most:
                older.append(self.kept.popitem(last=False)[1])
        for each in older:
            self._close(each)

    def drop(self, key: K) -> None:
        """Closes the value of a key, if there is one."""
        value = self.take(key)
        if value is not None:
            self._close(value)

    def close(self) -> None:
        """Closes all values."""
        while self.kept:
            self.drop(next(iter(self.kept)))


class ProcessState:
    """The clients and producers of a process. Each is bounded by `KEPT_MAX`."""

    def __init__(self) -> None:
        self.readers: Pool[ClusterSettings, Client] = Pool(Client.close)
        """The clients that the source's tasks fetch with."""
        self.writers: Pool[ClusterSettings, Client] = Pool(Client.close)
        """The clients that the sink's tasks ask for partitions, and in which they write transactions."""
        self.producers: Pool[SinkOptions, Producer] = Pool(lambda producer: producer.client.close())
        """The idempotent producers of delivery at least once: a producer id for each task would be millions a day."""
        self.query_producers: Pool[tuple[ClusterSettings, str], QueryProducer] = Pool(
            lambda kept: kept.producer.client.close()
        )
        """By cluster and query, the transactional producers of the process that commits batches: one for each query,
        however many sinks that has, as they share its transactional id."""

    @contextmanager
    def writer(self, cluster: ClusterSettings) -> Iterator[Client]:
        """A client of a cluster for a sink's task, kept afterwards; it is a new one if none is free."""
        client = self.writers.take(cluster)
        if client is None:
            client = cluster.client(known=True)
        try:
            yield client
        finally:
            self.writers.put(cluster, client)

    def close(self) -> None:
        """Closes all connections that are not in use. What comes later opens new ones."""
        self.query_producers.close()
        self.producers.close()
        self.writers.close()
        self.readers.close()


_STATE = ProcessState()


def this_process() -> ProcessState:
    """Returns the state of the process that runs this."""
    return _STATE


def _begin_empty() -> None:
    """Gives a forked process a state of its own: the sockets that it inherits are its parent's to use and to close."""
    global _STATE
    _STATE = ProcessState()


os.register_at_fork(after_in_child=_begin_empty)
atexit.register(lambda: this_process().close())
