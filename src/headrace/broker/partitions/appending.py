"""Appends records to led partitions, and acknowledges them when the three conditions of `Replica.acknowledged` hold."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING, TypeAlias

from headrace.env.completion import Completion, when_known
from headrace.log.append_results import AppendResult, PlainResults
from headrace.wire.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.broker.partitions.epoch_starts import EpochStarts
    from headrace.broker.partitions.failing import Failures
    from headrace.broker.partitions.flusher import Flusher
    from headrace.broker.partitions.replica import Replica
    from headrace.broker.telemetry.metrics import Registry
    from headrace.env.node import Node
    from headrace.log.producers import Origin
    from headrace.log.validate import Accepted
    from headrace.wire.primitives import Buffer

Acknowledgement: TypeAlias = "ErrorCode | Completion[ErrorCode]"
"""NONE if records may be acknowledged, or the error why not: known now, or later."""


class Appender:
    """Appends records to the partitions that this broker leads; all appends of leaders go through it."""

    def __init__(
        self,
        node: Node,
        metrics: Registry,
        flusher: Flusher,
        epoch_starts: EpochStarts,
        failures: Failures,
    ) -> None:
        self._clock = node.clock
        self._completions = node.completions
        self._owner = node.owner("acknowledgements")
        self._flusher = flusher
        self._epoch_starts = epoch_starts
        self._failures = failures
        self._bytes_in = metrics.counter("produce.bytes")
        self.appends = metrics.counter("produce.batches")
        self._messages = metrics.counter("produce.messages")

    def append_many(
        self, replica: Replica, chunks: Sequence[Buffer | Accepted], now_ms: int, origin: Origin = "client"
    ) -> Sequence[AppendResult]:
        """Appends the chunks of several requests to one partition, in order; returns a result for each chunk."""
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
            # Answered as in Kafka, so that requests for other partitions in the same run are served.
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
        """Returns errors for a replica that takes no appends: its directory has failed, or the start of its epoch could
        not be written yet, in which case that is retried."""
        if not replica.error and replica in self._epoch_starts:
            self._epoch_starts.hurry(replica)
        return [AppendResult(replica.error or ErrorCode.KAFKA_STORAGE_ERROR)] * count

    def append_internal(self, replica: Replica, appends: Sequence[bytes], origin: Origin) -> list[Acknowledgement]:
        """Appends records of coordinators to an internal topic, or transaction markers to any topic.

        The batches of each of `appends` are appended as a whole or refused; a refusal does not affect the others.
        Returns for each the state of its commit: NONE once the high watermark has passed its last batch, or the error
        why it was refused. Appends to one partition take effect in the order of the calls.
        """
        if replica not in self._epoch_starts:
            return self._append_internal(replica, appends, origin)
        later: list[Completion[ErrorCode]] = [Completion(self._completions) for _ in appends]

        def append() -> None:
            for completion, known in zip(later, self._append_internal(replica, appends, origin), strict=True):
                when_known(known, completion.complete)

        self._epoch_starts.when_written(replica, append)
        return list(later)

    def _append_internal(self, replica: Replica, appends: Sequence[bytes], origin: Origin) -> list[Acknowledgement]:
        if replica.shared and replica.under_min_isr:
            return [ErrorCode.NOT_ENOUGH_REPLICAS] * len(appends)
        results = self.append_many(replica, appends, self._clock.now_ms(), origin)
        if not replica.answers_wait:
            return [result.error for result in results]
        return [result.error or self.acknowledged(replica, result.last_offset + 1, True) for result in results]

    def acknowledged(self, replica: Replica, offset: int, needs_all: bool, timeout_ms: float = inf) -> Acknowledgement:
        """Returns NONE, now or later, when everything below `offset` may be acknowledged (`needs_all`: acks=all), or an
        error: REQUEST_TIMED_OUT after `timeout_ms`."""
        known = replica.acknowledged(offset, needs_all)
        if known is not None:
            return known
        completion: Completion[ErrorCode] = Completion(self._completions)
        if replica.wait(offset, needs_all, completion, self._clock.monotonic() + timeout_ms / 1000):
            self._wake_in_time(replica)
        return completion

    def _wake_in_time(self, replica: Replica) -> None:
        """Sets the timer of waiting acknowledgements. It is not cancelled when they are answered: a busy partition then
        sets one timer per timeout, an idle one none."""
        if replica.timer is not None:
            replica.timer.cancel()
            replica.timer = None
        if replica.wake_at < inf:
            delay = replica.wake_at - self._clock.monotonic()
            replica.timer = self._owner.later(delay, self._waited_too_long, replica)

    def _waited_too_long(self, replica: Replica) -> None:
        replica.expire(self._clock.monotonic())
        self._wake_in_time(replica)
