"""Takes appends, and acknowledges them when their three conditions hold: see `Replica.wait`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING, TypeAlias

from headrace.log.append_results import AppendResult, PlainResults
from headrace.wire.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.broker.partitions.epoch_starts import EpochStarts
    from headrace.broker.partitions.failing import Failures
    from headrace.broker.partitions.flusher import Flusher
    from headrace.broker.partitions.replica import Replica
    from headrace.broker.telemetry.metrics import Registry
    from headrace.env import Owner
    from headrace.env.clock import Clock
    from headrace.log.producers import Origin
    from headrace.log.validate import Accepted
    from headrace.wire.primitives import Buffer

InternalAppend: TypeAlias = tuple[bytes, Callable[[ErrorCode, int], None]]
"""Batches, and who is told what became of them: an error, or NONE and their base offset."""


class Appender:
    """The one way of records into the partitions that this broker leads."""

    def __init__(
        self,
        clock: Clock,
        owner: Owner,
        metrics: Registry,
        flusher: Flusher,
        epoch_starts: EpochStarts,
        failures: Failures,
    ) -> None:
        self._clock = clock
        self._owner = owner
        self._flusher = flusher
        self._epoch_starts = epoch_starts
        self._failures = failures
        self._bytes_in = metrics.counter("produce.bytes")
        self.appends = metrics.counter("produce.batches")
        self._messages = metrics.counter("produce.messages")

    def append_many(
        self, replica: Replica, chunks: Sequence[Buffer | Accepted], now_ms: int, origin: Origin = "client"
    ) -> Sequence[AppendResult]:
        """Appends what several requests bring to one partition, in order; a result for each chunk."""
        if not replica.takes_appends:
            return self._refused(replica, len(chunks))
        log, leader_epoch = replica.log, replica.state.leader_epoch
        bounds = log.bounds
        before = bounds.end_offset
        try:
            results = log.writer.append_many(chunks, leader_epoch=leader_epoch, now_ms=now_ms, origin=origin)
        except OSError as error:
            self._failures.storage_failed(replica, error)
            refused = AppendResult(ErrorCode.KAFKA_STORAGE_ERROR, error_message=str(error))
            return [refused] * len(chunks)
        except Exception as error:
            # As in Kafka an answer: what came together with these, for other partitions, is served.
            self._failures.defect(replica, error, "an append")
            return [AppendResult(ErrorCode.UNKNOWN_SERVER_ERROR)] * len(chunks)
        end = bounds.end_offset
        if end != before:
            if type(results) is PlainResults:
                size = results.size
            else:
                size = sum(map(len, chunks))
            self._bytes_in.value += size
            self._messages.value += end - before
            replica.bytes_in += size
            self.appends.value += len(chunks)
            self._flusher.appended(replica, size)
            if log.state.producers.unstable is not replica.state.unstable:
                replica.transactions_changed()
            if replica.shared:
                replica.appended(size)
            if replica.flush_gated:
                self._flusher.request(replica)
            else:
                replica.reached(end, size)
                if end - log.flushing.flushed_offset >= log.state.config.flush_messages:
                    self._flusher.request(replica)
        return results

    def _refused(self, replica: Replica, count: int) -> list[AppendResult]:
        """Its directory failed under an append that came together with this one, or the disk does not take its epoch's
        start now."""
        if not replica.error and replica in self._epoch_starts:
            self._epoch_starts.hurry(replica)
        return [AppendResult(replica.error or ErrorCode.KAFKA_STORAGE_ERROR)] * count

    def append_internal(self, replica: Replica, appends: Sequence[InternalAppend], origin: Origin) -> None:
        """Appends what coordinators decided, each with its batches, all of them or none: records, to an internal topic,
        or ends of transactions, to any. A refusal of one leaves the others.

        `on_committed(error, base_offset)` is called exactly once: when the high watermark has passed the last batch, or
        with the error (and -1) when they were refused. It may be called before this returns. Appends to one partition
        take effect in the order in which they are asked for.
        """
        if replica in self._epoch_starts:
            self._epoch_starts.when_written(replica, lambda: self._append_internal(replica, appends, origin))
        else:
            self._append_internal(replica, appends, origin)

    def _append_internal(self, replica: Replica, appends: Sequence[InternalAppend], origin: Origin) -> None:
        if replica.shared and replica.under_min_isr:
            for _, on_committed in appends:
                on_committed(ErrorCode.NOT_ENOUGH_REPLICAS, -1)
            return
        results = self.append_many(replica, [batches for batches, _ in appends], self._clock.now_ms(), origin)
        for result, (_, on_committed) in zip(results, appends, strict=True):
            if result.error:
                on_committed(result.error, -1)
            elif not replica.answers_wait:
                on_committed(ErrorCode.NONE, result.base_offset)
            else:
                told = partial(_tell, on_committed, result.base_offset)
                self.when_acknowledged(replica, result.last_offset + 1, True, told)

    def when_acknowledged(
        self,
        replica: Replica,
        offset: int,
        needs_all: bool,
        callback: Callable[[ErrorCode], None],
        timeout_ms: float = inf,
    ) -> None:
        """Calls back with NONE once everything below `offset` may be acknowledged (at once if it may; `needs_all` for
        acks=all), or with an error: REQUEST_TIMED_OUT where that takes longer than `timeout_ms`."""
        if replica.wait(offset, needs_all, callback, self._clock.monotonic() + timeout_ms / 1000):
            self._wake_in_time(replica)

    def _wake_in_time(self, replica: Replica) -> None:
        """Sets the timer of those who wait. It runs on when they are answered, for those who come after them: a busy
        partition has one timer in the span of a timeout, an idle one has none."""
        if replica.timer is not None:
            replica.timer.cancel()
            replica.timer = None
        if replica.wake_at < inf:
            delay = replica.wake_at - self._clock.monotonic()
            replica.timer = self._owner.later(delay, self._waited_too_long, replica)

    def _waited_too_long(self, replica: Replica) -> None:
        replica.expire(self._clock.monotonic())
        self._wake_in_time(replica)


def _tell(on_committed: Callable[[ErrorCode, int], None], base_offset: int, error: ErrorCode) -> None:
    on_committed(error, base_offset if error is ErrorCode.NONE else -1)
