"""The transaction coordinator: shards of transactional ids over `__transaction_state`, and the delivery of their
markers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from headrace.broker.coordinators.coordinator import Coordinator
from headrace.broker.coordinators.verifier import Patience
from headrace.env.completion import Completion, when_known
from headrace.machine.runtime import Runtime, RuntimeSettings, ShardRuntime
from headrace.metadata.levels import TRANSACTION_VERSION
from headrace.transactions.asks import Verdicts
from headrace.wire.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.broker.coordinators.door import LedPartitions, Metadata
    from headrace.broker.coordinators.marker_sender import MarkerSender
    from headrace.broker.telemetry.metrics import Registry
    from headrace.config import BrokerConfig
    from headrace.env.node import Node
    from headrace.env.owner import Owner, Timer
    from headrace.machine.outcome import Outcome
    from headrace.transactions.asks import FreshId, Marking, Partitions, TransactionSettings
    from headrace.transactions.shard import TransactionShard

TRANSACTIONS_TOPIC: Final = "__transaction_state"


class TransactionCoordinator(Coordinator["TransactionShard"]):
    """The coordinator of all transactional ids whose partitions this broker leads."""

    def __init__(
        self,
        *,
        config: Callable[[], BrokerConfig],
        partitions: LedPartitions,
        fresh_id: FreshId,
        markers: MarkerSender,
        node: Node,
        node_id: int,
        metrics: Registry,
    ) -> None:
        """`config` returns the settings in force; a shard keeps those at the time it was made. `markers` is started and
        stopped with the coordinator."""
        self._config = config
        self._fresh_id = fresh_id
        self.markers = markers
        self._sending: set[ShardRuntime[TransactionShard]] = set()
        """Shards that have more markers to send in a later turn of the loop."""
        self._joining: dict[str, dict[_Joining, None]] = {}
        """Requests that wait for the end of their id's last transaction; bounded by the number of connections."""
        super().__init__(
            TRANSACTIONS_TOPIC,
            "transactions",
            Runtime(self._make_shard, lambda: RuntimeSettings(commit_timeout_ms=config().request_timeout_ms)),
            partition_count=lambda: config().transaction_state_log_num_partitions,
            partitions=partitions,
            node=node,
            node_id=node_id,
            metrics=metrics,
        )
        metrics.gauge("transactions.ids", self._id_count)

    def start(self, metadata: Metadata) -> None:
        """Takes over the partitions that this broker leads, and follows the cluster image."""
        self.markers.start(metadata)
        super().start(metadata)

    async def stop(self) -> None:
        """Stops as `Coordinator.stop` does. The next coordinator sends the unwritten markers."""
        await self.markers.stop()
        await super().stop()

    def _id_count(self) -> int:
        return sum(runtime.shard.transaction_count for runtime in self.runtime.shards.values())

    def _prepare(self) -> None:
        import headrace.transactions.shard  # noqa: F401

    def _make_shard(self, _index: int) -> TransactionShard:
        from headrace.transactions.shard import TransactionShard

        return TransactionShard(settings_of(self._config()), self._transaction_version, self._fresh_id)

    def _transaction_version(self) -> int:
        """Returns the finalized level of `transaction.version`."""
        assert self._metadata is not None
        return self._metadata.image.features.levels.get(TRANSACTION_VERSION, 0)

    # --- clients -----------------------------------------------------------------------------------------------------

    def join(self, ask: Partitions) -> Completion[ErrorCode]:
        """Adds partitions to a client's transaction. While the markers of its last transaction are being written, which
        takes some milliseconds, the request waits, as leaders' requests do, and is decided again afterwards: a client
        that gets CONCURRENT_TRANSACTIONS retries only after 20 ms."""
        answer: Completion[ErrorCode] = Completion(self._node.completions)
        _Joining(self, self._owner, Patience(self._config(), self._clock), ask, answer).ask()
        return answer

    def hold(self, joining: _Joining) -> None:
        """Has a request ask again as soon as the transaction before it is over."""
        self._joining.setdefault(joining.transactional_id, {})[joining] = None

    def release(self, joining: _Joining) -> None:
        """Forgets a request that asks now; harmless if it was not held."""
        held = self._joining.get(joining.transactional_id)
        if held is not None:
            held.pop(joining, None)
            if not held:
                del self._joining[joining.transactional_id]

    # --- leaders of partitions on this broker ------------------------------------------------------------------------

    def add_partitions(self, ask: Partitions, verify_only: bool) -> Completion[Verdicts]:
        """Adds or verifies partitions, as described in `verifier.LocalTransactions`."""
        return self.write(ask.transactional_id, partial(_verify if verify_only else _add, ask), _refused)

    # --- markers -----------------------------------------------------------------------------------------------------

    def _drive(self, runtime: ShardRuntime[TransactionShard], now_ms: int) -> None:
        super()._drive(runtime, now_ms)
        shard = runtime.shard
        if shard.to_send and runtime not in self._sending and shard.send_some(now_ms):
            self._sending.add(runtime)
            self._owner.soon(partial(self._send_more, runtime))
        markings = shard.markings
        while markings:
            marking = markings.popleft()
            self.markers.send(runtime, marking, runtime.leader_epoch, partial(self._marked, runtime, marking))
        while shard.ended:
            for joining in self._joining.pop(shard.ended.popleft(), ()):
                joining.ask_soon()

    def _send_more(self, runtime: ShardRuntime[TransactionShard]) -> None:
        self._sending.discard(runtime)
        self._dispatch(runtime, _nothing)

    def _marked(self, runtime: ShardRuntime[TransactionShard], marking: Marking) -> None:
        self.decide_alone(runtime, lambda shard, now_ms: shard.marked(marking, now_ms))

    def _resigned(self, runtime: ShardRuntime[TransactionShard]) -> None:
        self.markers.drop(runtime)
        super()._resigned(runtime)


class _Joining:
    """A client's request to add partitions to a transaction, until it is answered."""

    __slots__ = ("_answer", "_ask", "_coordinator", "_owner", "_patience", "_timer")

    def __init__(
        self,
        coordinator: TransactionCoordinator,
        owner: Owner,
        patience: Patience,
        ask: Partitions,
        answer: Completion[ErrorCode],
    ) -> None:
        self._coordinator = coordinator
        self._owner = owner
        self._ask = ask
        self._answer = answer
        self._patience = patience
        self._timer: Timer | None = None

    @property
    def transactional_id(self) -> str:
        return self._ask.transactional_id

    def ask_soon(self) -> None:
        """Has the request decided in the next turn of the loop, instead of after its pause."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._owner.soon(self.ask)

    def ask(self) -> None:
        """Has the request decided."""
        self._coordinator.release(self)
        decision: Completion[ErrorCode] = self._coordinator.write(
            self._ask.transactional_id, partial(_join, self._ask), ErrorCode
        )
        when_known(decision, self._decided)

    def _decided(self, error: ErrorCode) -> None:
        if error is ErrorCode.CONCURRENT_TRANSACTIONS:
            pause_s = self._patience.pause_s()
            if pause_s is not None:
                self._timer = self._owner.later(pause_s, self.ask)
                self._coordinator.hold(self)
                return
        self._answer.complete(error)


def _nothing(_now_ms: int) -> None:
    """Does nothing; an event after which a shard's outputs are carried out."""


def _join(ask: Partitions, shard: TransactionShard, now_ms: int) -> Outcome:
    return shard.add_partitions(ask, now_ms)


def _verify(ask: Partitions, shard: TransactionShard, _now_ms: int) -> Outcome:
    return shard.verify_partitions(ask)


def _add(ask: Partitions, shard: TransactionShard, now_ms: int) -> Outcome:
    out = shard.add_partitions(ask, now_ms)
    out.reply = Verdicts(out.reply, dict.fromkeys(ask.partitions, ErrorCode.NONE))
    return out


def _refused(error: ErrorCode) -> Verdicts:
    return Verdicts(error, {})


def settings_of(config: BrokerConfig) -> TransactionSettings:
    """Returns the transaction settings of a broker's configuration."""
    from headrace.transactions.asks import TransactionSettings

    return TransactionSettings(
        max_timeout_ms=config.transaction_max_timeout_ms,
        two_phase_commit_enable=config.transaction_two_phase_commit_enable,
        id_expiration_ms=config.transactional_id_expiration_ms,
        timeout_check_interval_ms=config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
        expiry_check_interval_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
    )
