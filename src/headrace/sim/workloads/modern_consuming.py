"""Members of a consumer group that speak the protocol of KIP-848: they join, send heartbeats, give up what they have to
before they say so, and leave; static ones leave for a while and come back as another process.

What they do between two heartbeats takes time: a member that gives something up goes on owning it meanwhile. Some take
longer than their rebalance timeout. A fenced member sends one or two more requests as a zombie, which the coordinator
must refuse.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from headrace.sim.workloads.consuming import (
    COORDINATOR_MOVED,
    REVOKES_S,
    REVOKES_SLOWLY_S,
    SLOW,
    Consumer,
    Group,
    by_topic,
)
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

if TYPE_CHECKING:
    from headrace.sim.checkers.commits import Place
    from headrace.sim.cluster_client import ClusterClient

VERSION: Final = 1
"""Of the heartbeat: members make their own ids."""
REBALANCE_MS: Final = 4_000
JOINS: Final = 0
RESUBSCRIBES: Final = 0.02
"""How often, between two heartbeats, it subscribes to something else."""
FENCED: Final = frozenset((ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND))
"""Errors after which a member drops its partitions and rejoins. GROUP_ID_NOT_FOUND: the group is a classic one, and may
not be converted."""


class ModernConsumer(Consumer):
    """A member of a consumer group by KIP-848."""

    def __init__(
        self,
        client: ClusterClient,
        group: Group,
        topics: Mapping[bytes, str],
        member_id: str,
        instance: str | None = None,
        *,
        by_regex: bool = False,
    ) -> None:
        """`topics` are the names of all topics by their ids; `by_regex`: it subscribes by a regular expression."""
        super().__init__(client, group, instance)
        self._by_regex = by_regex
        self.member_id = member_id
        self._names = topics
        self._target: set[Place] = set()
        self._gives_up: set[Place] = set()
        self._given_up_at = 0.0
        self._is_full = True
        """Whether its next heartbeat says everything."""
        self._resubscribes = False
        """Whether its next heartbeat says what it subscribes to."""
        self._has_news = False
        """Whether it owns something else than its last heartbeat listed."""

    @property
    def is_at_rest(self) -> bool:
        """See Consumer."""
        return self.epoch > 0 and self.owned == self._target and not self._has_news

    # --- what it does

    async def _live(self) -> None:
        if self.epoch > 0 and self.group.is_restless and self.client.rng.random() < RESUBSCRIBES:
            self._resubscribe()
        await self._beat()
        self._reconcile()
        if self.epoch > 0:
            await self._commit_some()
            await self._haunt()

    def _resubscribe(self) -> None:
        """One topic more, or one less; the one that all read stays."""
        topic = self.client.rng.choice([each for each in self.group.partitions if each != self.group.topic])
        self.topics ^= {topic}
        self._resubscribes = True

    async def _beat(self) -> None:
        joins, is_full = self.epoch == JOINS, self._is_full or self.epoch == JOINS
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group.id, member_id=self.member_id, member_epoch=self.epoch, instance_id=self.instance
        )
        if is_full:
            request.rebalance_timeout_ms = REBALANCE_MS
        if is_full or self._resubscribes:
            self._say_topics(request)
        if is_full or self._has_news:
            request.topic_partitions = self._owned()
        self._is_full = True  # unless an answer comes
        answer = await self.client.ask(request, ConsumerGroupHeartbeatResponse, VERSION)
        error = answer.error_code
        if error == ErrorCode.NONE:
            self._is_full = self._resubscribes = self._has_news = False
            self._hear(answer, joins)
        elif error in FENCED:
            self._forget()
        elif error == ErrorCode.FENCED_INSTANCE_ID:
            self._end()
        elif error in COORDINATOR_MOVED:
            self.client.moved(None)
        elif error != ErrorCode.UNRELEASED_INSTANCE_ID or not joins:
            self._object_to(error)

    def _say_topics(self, request: ConsumerGroupHeartbeatRequest) -> None:
        if self._by_regex:
            request.subscribed_topic_regex = "|".join(f"{topic[:-1]}." for topic in sorted(self.topics))
        else:
            request.subscribed_topic_names = sorted(self.topics)

    def _owned(self) -> list[TopicPartitions]:
        ids = {name: topic_id for topic_id, name in self._names.items()}
        return [TopicPartitions(ids[name], indexes) for name, indexes in by_topic(self.owned).items()]

    def _hear(self, answer: ConsumerGroupHeartbeatResponse, joins: bool) -> None:
        demand, world = self.client.world.demand, self.client.world
        who = f"{self.client.host} ({self.member_id}) at epoch {self.epoch}"
        demand(answer.member_id == self.member_id, f"{who} is called {answer.member_id}")
        demand(joins or answer.member_epoch >= self.epoch, f"{who} goes back to {answer.member_epoch}")
        demand(answer.member_epoch > 0, f"{who} is given epoch {answer.member_epoch}")
        self.epoch = answer.member_epoch
        if answer.assignment is None:
            demand(not joins, f"{who} joins and gets no assignment")
            return
        self._target = {
            (self._names[each.topic_id], index)
            for each in answer.assignment.topic_partitions
            for index in each.partitions
        }
        goes = self.owned - self._target
        if goes - self._gives_up:
            rng = self.client.rng
            takes_s = rng.uniform(*(REVOKES_SLOWLY_S if rng.random() < SLOW else REVOKES_S))
            self._given_up_at = world.loop.time() + takes_s
        self._gives_up = goes
        self._gain_target()

    def _gain_target(self) -> None:
        news = self._target - self.owned
        if news:
            self._gain(news)
            self._has_news = True

    def _reconcile(self) -> None:
        if self._gives_up and self.client.world.loop.time() >= self._given_up_at:
            self._lose(set(self._gives_up))
            self._gives_up.clear()
            self._has_news = True
            self._gain_target()

    def _forget(self) -> None:
        """It has nothing any longer."""
        self._remember()
        self._lose_all()
        self.epoch = JOINS
        self._target.clear()
        self._gives_up.clear()
        self._is_full, self._has_news = True, False

    def _end(self) -> None:
        self._forget()
        self.is_over = True

    # --- its end

    async def _say_goodbye(self, epoch: int) -> None:
        was = self.epoch
        self._forget()
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group.id, member_id=self.member_id, member_epoch=epoch, instance_id=self.instance
        )
        answer = await self.client.ask(request, ConsumerGroupHeartbeatResponse, VERSION)
        if answer.error_code == ErrorCode.NONE and was > 0:
            await self._haunt()
            await self._beat_as(was)

    async def _beat_as(self, epoch: int) -> None:
        """What it was goes on after it has left."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group.id, member_id=self.member_id, member_epoch=epoch, instance_id=self.instance
        )
        error = (await self.client.ask(request, ConsumerGroupHeartbeatResponse, VERSION)).error_code
        text = f"{self.member_id} has left, and may stay in group {self.group.id} at epoch {epoch}"
        self.client.world.demand(error != ErrorCode.NONE, text)
