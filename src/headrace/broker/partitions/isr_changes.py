"""Asks the controller to change in-sync sets when a follower has caught up or fallen behind.

One request is in flight at a time; later changes go into the next one. `headrace.replicas.partition` decides what an
answer means for a partition. Sources: KIP-497, KIP-841, KIP-903.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Final

from headrace.broker.quorum.port.controller import ControllerError
from headrace.controller.in_sync import AlterPartitions, PartitionAlteration, PartitionsAltered
from headrace.metadata.image import LEADER_RECOVERED
from headrace.wire.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.broker.partitions.replica import Replica
    from headrace.broker.telemetry.metrics import Registry
    from headrace.config import BrokerConfig
    from headrace.env import Node
    from headrace.metadata.image import Partition
    from headrace.replicas.partition import AlterIsr

AGAIN_S: Final = 0.05
"""Pause before a request that the controller did not take is sent again."""


Ask = Callable[[AlterPartitions], Awaitable[PartitionsAltered]]
"""Sends a request to the active controller. Raises ControllerError."""


async def no_controller(_: AlterPartitions) -> PartitionsAltered:
    """Replaces a controller that cannot be reached. Always raises ControllerError."""
    raise ControllerError(ErrorCode.NOT_CONTROLLER)


GROWS: Final = "in-sync set grows"
SHRINKS: Final = "in-sync set shrinks"
NOT_CHANGED: Final = "in-sync set was not changed"
SAME: Final = ""
NAMED_MAX: Final = 10
"""Number of partitions of one answer that a log line names; the others are counted."""


class IsrChanges:
    """The wanted changes, and the request in flight."""

    def __init__(
        self,
        node: Node,
        config: BrokerConfig,
        metrics: Registry,
        replicas: Callable[[], Iterable[Replica]],
        *,
        ask: Ask,
        broker_epoch: Callable[[], int],
    ) -> None:
        """`replicas` returns the replicas that this broker leads, `broker_epoch` the epoch of its registration."""
        self._node_id = config.node_id
        self._replicas = replicas
        self._ask = ask
        self._broker_epoch = broker_epoch
        self._scan_s = config.replica_lag_time_max_ms / 2000
        self._log = node.logger("partitions")
        self._owner = node.owner("changes of in-sync sets")
        self._wished: dict[Replica, AlterIsr] = {}
        """Changes for the next request."""
        self._is_asking = False
        self._shrinks = metrics.counter("replicas.isr_shrinks")
        self._expands = metrics.counter("replicas.isr_expands")
        self._failures = metrics.counter("replicas.isr_failed_updates")

    def start(self) -> None:
        """Starts the periodic check for followers that have fallen behind."""
        self._owner.later(self._scan_s, self._scan)

    def stop(self) -> None:
        """Sends no further requests."""
        self._wished.clear()
        self._owner.close()

    def _scan(self) -> None:
        self._owner.later(self._scan_s, self._scan)
        for replica in self._replicas():
            if replica.shared and (wish := replica.shrink()) is not None:
                self.wish(replica, wish)

    def wish(self, replica: Replica, change: AlterIsr) -> None:
        """Queues a change to be requested soon; the replica gets the answer."""
        self._wished[replica] = change
        if not self._is_asking:
            self._is_asking = True
            self._owner.spawn(self._ask_all())

    async def _ask_all(self) -> None:
        while True:
            # A change that is no longer pending was settled by newer metadata.
            asked = {each: change for each, change in self._wished.items() if each.state.pending is change}
            self._wished.clear()
            if not asked:
                self._is_asking = False
                return
            error = await self._ask_for(asked)
            if error:
                self._wished = {**asked, **self._wished}
                self._again()
                return

    def _again(self) -> None:
        def again() -> None:
            self._owner.spawn(self._ask_all())

        self._owner.later(AGAIN_S, again)

    async def _ask_for(self, asked: dict[Replica, AlterIsr]) -> bool:
        """Requests changes, and gives each partition its answer; returns whether the whole request has to be sent
        again."""
        by_key = {
            (replica.topic_id, replica.index): (replica, change, replica.state.isr) for replica, change in asked.items()
        }
        changes = [
            PartitionAlteration(*key, change.leader_epoch, change.partition_epoch, change.members, LEADER_RECOVERED)
            for key, (_, change, _) in by_key.items()
        ]
        request = AlterPartitions(self._node_id, self._broker_epoch(), changes)
        try:
            answer = await self._ask(request)
        except ControllerError as error:
            self._log.debug("the controller takes no change of an in-sync set now", why=error)
            return True
        if answer.error:
            self._log.debug("the controller takes no change of an in-sync set now", why=answer.error.name)
            return True
        if any(code is ErrorCode.NOT_CONTROLLER for _, _, code, _ in answer.results):
            return True
        settled: dict[str, list[dict[str, object]]] = {}
        for topic_id, index, code, partition in answer.results:
            found = by_key.pop((topic_id, index), None)
            if found is not None:
                event, fields = self._settle(*found, code, partition)
                settled.setdefault(event, []).append(fields)
        self._report(settled)
        self._wished.update({replica: change for replica, change, _ in by_key.values() if replica not in self._wished})
        return False

    def _settle(
        self,
        replica: Replica,
        change: AlterIsr,
        before: tuple[int, ...],
        error: ErrorCode,
        partition: Partition | None,
    ) -> tuple[str, dict[str, object]]:
        """Applies an answer; returns its event and fields for the log. `before` is the in-sync set when the change was
        requested: metadata may have arrived before the answer."""
        retry = replica.altered(change, error, partition)
        if retry is not None:
            self._wished.setdefault(replica, retry)
        after = before if partition is None else partition.isr
        if error:
            self._failures.value += 1
            return NOT_CHANGED, {"partition": replica.log.name, "why": error.name}
        if len(after) < len(before):
            self._shrinks.value += 1
        elif len(after) > len(before):
            self._expands.value += 1
        event = SHRINKS if len(after) < len(before) else GROWS if len(after) > len(before) else SAME
        return event, {"partition": replica.log.name, "isr": list(after), "was": list(before)}

    def _report(self, settled: dict[str, list[dict[str, object]]]) -> None:
        """Logs one line for each kind of result in an answer, which may cover thousands of partitions."""
        for event, changes in settled.items():
            if event == SAME:
                continue
            if len(changes) == 1:
                self._log.info(event, **changes[0])
                continue
            named = ", ".join(str(each["partition"]) for each in changes[:NAMED_MAX])
            self._log.info(event, partitions=len(changes), named=named)
