"""One partition of `__transaction_state`: every decision about the transactional ids that hash to it.

A `machine.runtime.Shard`. Decisions are made upon the latest state, whether it is committed or not: the runtime holds
answers back until what they speak of is committed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from headrace.machine.batches import Pair
from headrace.machine.outcome import Outcome
from headrace.machine.timeline import Timeline
from headrace.transactions.asks import (
    Described,
    End,
    Filters,
    FreshId,
    InitProducer,
    Listed,
    Marking,
    Partitions,
    TransactionSettings,
)


class TransactionShard:
    """The transactions of one partition."""

    timeline: Timeline
    markings: deque[Marking]
    """Ends of transactions whose markers are to be sent: taken by whoever sends them, after every step."""

    def __init__(
        self, settings: TransactionSettings, transaction_version: Callable[[], int], fresh_id: FreshId
    ) -> None:
        """`transaction_version` is the finalized feature's level."""
        raise NotImplementedError

    # --- requests: decided by `ShardRuntime.decide` ------------------------------------------------------------------

    def init_producer(self, ask: InitProducer, now_ms: int) -> Outcome:
        """Gives a transactional id's producer its id and epoch; replies an `Identity`."""
        raise NotImplementedError

    def add_partitions(self, ask: Partitions, now_ms: int) -> Outcome:
        """Takes partitions into the transaction, which opens it; replies an ErrorCode."""
        raise NotImplementedError

    def verify_partitions(self, ask: Partitions) -> Outcome:
        """Whether partitions are in the open transaction; replies `Verdicts`."""
        raise NotImplementedError

    def end(self, ask: End, now_ms: int) -> Outcome:
        """Decides a commit or an abort; replies an `Identity`."""
        raise NotImplementedError

    def marked(self, marking: Marking, now_ms: int) -> Outcome:
        """Every partition of `marking` holds its marker: the transaction is over. Without a reply. Written again by
        the shard itself where it could not be appended."""
        raise NotImplementedError

    # --- reads -------------------------------------------------------------------------------------------------------

    def describe(self, transactional_id: str) -> Described:
        """A transactional id as it is committed."""
        raise NotImplementedError

    def list_transactions(self, filters: Filters, now_ms: int) -> list[Listed]:
        """Transactional ids as they are committed."""
        raise NotImplementedError

    # --- what the runtime asks ---------------------------------------------------------------------------------------

    def encode(self, record: Any) -> Pair:
        """As `Shard.encode`."""
        raise NotImplementedError

    def decode(self, key: bytes, value: bytes | None) -> Any:
        """As `Shard.decode`."""
        raise NotImplementedError

    def apply(self, record: Any, log_offset: int, producer_id: int = -1) -> None:
        """As `Shard.apply`."""
        raise NotImplementedError

    def apply_marker(self, producer_id: int, committed: bool) -> None:
        """As `Shard.apply_marker`."""
        raise NotImplementedError

    def loaded(self, now_ms: int) -> Outcome:
        """As `Shard.loaded`."""
        raise NotImplementedError

    def revert(self, now_ms: int) -> Outcome:
        """As `Shard.revert`."""
        raise NotImplementedError

    def unload(self, now_ms: int) -> Outcome:
        """As `Shard.unload`."""
        raise NotImplementedError

    def deadline_ms(self) -> int | None:
        """As `Shard.deadline_ms`."""
        raise NotImplementedError

    def due(self, now_ms: int) -> Outcome | None:
        """As `Shard.due`."""
        raise NotImplementedError

    def clock_stepped(self, by_ms: int) -> None:
        """As `Shard.clock_stepped`."""
        raise NotImplementedError
