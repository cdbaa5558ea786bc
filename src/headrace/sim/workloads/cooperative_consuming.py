"""Consumers of the classic protocol that rebalance cooperatively (KIP-429): each keeps and reports its partitions while
it rejoins, and gives up only those that it is no longer assigned; another member gets these in the next generation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.groups.subscription import read_subscription
from headrace.sim.workloads.classic_consuming import ClassicConsumer
from headrace.sim.workloads.consuming import REVOKES_S, by_topic
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.consumer_protocol import ConsumerProtocolSubscription, TopicPartition

if TYPE_CHECKING:
    from headrace.sim.checkers.commits import Place
    from headrace.wire.messages.k11_join_group import JoinGroupResponse


class CooperativeConsumer(ClassicConsumer):
    """A consumer that rebalances cooperatively (KIP-429)."""

    protocol = "cooperative-sticky"

    def _give_up_first(self) -> None:
        """Nothing."""

    def _take(self, given: set[Place]) -> None:
        goes = self.owned - given
        if goes:
            self._lose(goes)
            # others are given it when this one has joined again
            self._rejoins_at = self.client.world.loop.time() + self.client.rng.uniform(*REVOKES_S)
        self._gain(given - self.owned)

    def _is_over_with(self, error: int) -> bool:
        if error == ErrorCode.REBALANCE_IN_PROGRESS:
            self._rejoins_at = self.client.world.loop.time()
            return True
        return super()._is_over_with(error)

    def _subscription(self) -> ConsumerProtocolSubscription:
        owned = [TopicPartition(topic, indexes) for topic, indexes in by_topic(self.owned).items()]
        return ConsumerProtocolSubscription([self.group.topic], owned_partitions=owned, generation_id=self.epoch)

    def _share_out(self, joined: JoinGroupResponse) -> dict[str, list[int]]:
        """Each keeps what it has, up to an equal share; what nobody has goes to those with the least."""
        count = self.group.partitions[self.group.topic]
        most = -(-count // len(joined.members))
        shares: dict[str, list[int]] = {}
        claimed: set[int] = set()
        for member in sorted(joined.members, key=lambda each: each.member_id):
            owned = read_subscription(bytes(member.metadata)).owned_partitions
            has = sorted(index for each in owned for index in each.partitions if each.topic == self.group.topic)
            shares[member.member_id] = [index for index in has if index not in claimed][:most]
            claimed.update(has)
        for index in sorted(set(range(count)) - claimed):
            min(shares.values(), key=len).append(index)
        return shares
