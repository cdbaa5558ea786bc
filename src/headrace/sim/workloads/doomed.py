"""Transactions on topics that an operator deletes from: all committed records of one topic, and the other topic as a
whole, which is created again under its name. Open transactions can still be ended."""

from __future__ import annotations

from asyncio import sleep
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Final

from headrace.client.errors import ClientError
from headrace.sim.checkers.deletions import HIGH_WATERMARK
from headrace.sim.checkers.isolation import Appends
from headrace.sim.workloads.topics import make_topic
from headrace.sim.workloads.transacting import NEW, OLD, Pauses, Transactor
from headrace.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from headrace.wire.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)

if TYPE_CHECKING:
    from headrace.sim.cluster_client import ClusterClient

EMPTIED: Final = "emptied"
DOOMED: Final = "doomed"
PARTITIONS: Final = 2
"""Of which the topic has one or both, each time that it is made."""
LIVES_S: Final = (0.1, 0.8)
GONE_S: Final = (0.0, 0.5)
EMPTIES: Final = 0.5
"""How often, while the topic is there, the records of the other one are deleted."""
PAUSE_S: Final = 0.2
TIMEOUT_MS: Final = 5_000


class Doomed:
    """Transactions whose records or topic an operator deletes."""

    def __init__(self, new_client: Callable[[str], ClusterClient]) -> None:
        self.deleted = 0
        """Topics, as the operator was answered."""
        self._operator = new_client("operator")
        self._new_client = new_client
        self._transactors: list[Transactor] = []
        self._is_calm = False

    def begin(self) -> None:
        """Until its nodes end."""
        self._operator.owner.spawn(self._operate())

    def calm_down(self) -> None:
        """Nothing more is deleted."""
        self._is_calm = True

    def expectation(self) -> Callable[[], list[str]]:
        """From now on each gets a transaction through: the function that is returned names those that have not."""
        wanted = [(each, each.committed) for each in self._transactors]

        def late() -> list[str]:
            return [f"{each.client.host} commits nothing" for each, before in wanted if each.committed <= before]

        return late

    async def _operate(self) -> None:
        operator, rng = self._operator, self._operator.rng
        await make_topic(operator, EMPTIED, 1, {}, replicas=3)
        self._start()
        while True:
            await make_topic(operator, DOOMED, rng.randint(1, PARTITIONS), {}, replicas=3)
            await sleep(rng.uniform(*LIVES_S))
            if self._is_calm:
                return
            try:
                if rng.random() < EMPTIES:
                    await self._empty()
                await self._delete()
            except ClientError:
                pass  # it may come to pass all the same
            await sleep(rng.uniform(*GONE_S))

    def _start(self) -> None:
        numbers, history = count(), Appends()
        keys = [(EMPTIED, 0), *((DOOMED, index) for index in range(PARTITIONS))]
        for number, protocol in enumerate((OLD, NEW)):
            client = self._new_client("transactor")
            made = Transactor(client, history, keys, f"doomed-{number}", protocol, numbers)
            made.pauses = Pauses(PAUSE_S)
            self._transactors.append(made)
            client.owner.spawn(made.run())

    async def _empty(self) -> None:
        partitions = [DeleteRecordsPartition(partition_index=0, offset=HIGH_WATERMARK)]
        topics = [DeleteRecordsTopic(name=EMPTIED, partitions=partitions)]
        await self._operator.ask(DeleteRecordsRequest(topics=topics, timeout_ms=TIMEOUT_MS), DeleteRecordsResponse, 2)

    async def _delete(self) -> None:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=DOOMED)], timeout_ms=TIMEOUT_MS)
        answer = await self._operator.ask(request, DeleteTopicsResponse, 6)
        self.deleted += answer.responses[0].error_code == 0
