"""The group coordinator: shards of groups over `__consumer_offsets`, with the cluster's topics, and the removal of the
offsets of deleted topics."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from headrace.broker.coordinators.coordinator import Coordinator
from headrace.broker.coordinators.matching import Matching
from headrace.config.group import ASSIGNMENT_INTERVAL, HEARTBEAT_INTERVAL, SESSION_TIMEOUT, group_time_ms
from headrace.machine.patterns import PatternError
from headrace.machine.runtime import Runtime, RuntimeSettings, ShardRuntime
from headrace.metadata.levels import GROUP_VERSION

if TYPE_CHECKING:
    from headrace.broker.coordinators.door import LedPartitions
    from headrace.broker.telemetry.metrics import Registry
    from headrace.config import BrokerConfig
    from headrace.env.node import Node
    from headrace.groups.consumer.regexes import LookUp
    from headrace.groups.consumer.settings import ConsumerSettings
    from headrace.groups.modern.topics import Topics
    from headrace.groups.settings import GroupSettings
    from headrace.groups.shard import GroupShard
    from headrace.groups.shard_state import GroupShardState, Tallies
    from headrace.metadata.delta import ImageDelta
    from headrace.metadata.image import ClusterImage

OFFSETS_TOPIC: Final = "__consumer_offsets"
SEEN_A_TURN: Final = 500
"""Topics checked with the authorizer in one turn of the loop, among the matches of a member's regular expression."""


class GroupCoordinator(Coordinator["GroupShard"]):
    """The coordinator of all groups whose partitions this broker leads."""

    def __init__(
        self,
        *,
        config: Callable[[], BrokerConfig],
        partitions: LedPartitions,
        node: Node,
        node_id: int,
        metrics: Registry,
    ) -> None:
        """`config` returns the settings in force; a shard keeps those at the time it was made."""
        self._config = config
        self._topics: Topics | None = None
        """Cluster topics as the shards know them; None while there is no shard."""
        self.matching = Matching(node)
        """Worker queue for clients' regular expressions."""
        self._tallies: Tallies | None = None
        self._plain: tuple[BrokerConfig, ConsumerSettings] | None = None
        """Settings of groups without settings of their own, with the broker settings that they were made from."""
        super().__init__(
            OFFSETS_TOPIC,
            "groups",
            Runtime(self._make_shard, self._runtime_settings),
            partition_count=lambda: config().offsets_topic_num_partitions,
            partitions=partitions,
            node=node,
            node_id=node_id,
            metrics=metrics,
        )
        metrics.gauge("groups.count", self.group_count)
        metrics.gauge("groups.member_bytes_counted", self.member_bytes_counted)
        metrics.gauge("groups.assignment_bytes_held", self.assignment_bytes)

    def member_bytes_counted(self) -> int:
        """Returns the bytes of members' data that count against the budget."""
        return 0 if self._tallies is None else self._tallies.member_bytes.total

    def assignment_bytes(self) -> int:
        """Returns the bytes of cached assignments, and of topics that match regular expressions."""
        return sum(runtime.shard.state.assignment_bytes.latest.get(None, 0) for runtime in self.runtime.shards.values())

    def group_count(self) -> int:
        """Returns the number of groups of all kinds that this broker keeps."""
        return sum(runtime.shard.group_count for runtime in self.runtime.shards.values())

    def committed_offsets(self) -> Iterator[tuple[str, list[tuple[tuple[str, int], int]]]]:
        """Yields each group with its committed offset in each partition. Groups may change between two items."""
        for runtime in list(self.runtime.shards.values()):
            for group_id, table in runtime.shard.state.offsets.committed_items():
                offsets = table.positions.committed_items()
                yield group_id, [(place, offset.position) for place, offset in offsets]

    @property
    def serves_consumer_groups(self) -> bool:
        """Whether the cluster's feature level and this broker's settings allow consumer groups (KIP-848)."""
        level = 0 if self._metadata is None else self._metadata.image.features.level(GROUP_VERSION)
        return level >= 1 and "consumer" in self._config().group_coordinator_rebalance_protocols

    def _prepare(self) -> None:
        import headrace.groups.consumer.settings
        import headrace.groups.modern.cluster_topics
        import headrace.groups.shard  # noqa: F401

    def _make_shard(self, _index: int) -> GroupShard:
        from headrace.groups.modern.cluster_topics import topics_of
        from headrace.groups.shard import GroupShard
        from headrace.groups.shard_state import Tallies
        from headrace.groups.tally import Tally
        from headrace.groups.usage import Usage

        assert self._metadata is not None
        if self._tallies is None:
            self._tallies = Tallies(
                Tally(lambda: self._count(lambda state: state.count_groups())),
                Tally(lambda: self._count(lambda state: state.count_regexes())),
                Usage(),
                Tally(lambda: self._count(lambda state: state.count_assignment_bytes())),
            )
        new_uuid = self._node.entropy.uuid
        shard = GroupShard(
            settings_of(self._config()),
            lambda: str(uuid.UUID(bytes=new_uuid())),
            self.group_count,
            self._consumer_settings,
            self._tallies,
        )
        if self._topics is None:
            self._topics = topics_of(self._metadata.image)
        shard.know_topics(self._topics)
        return shard

    def _consumer_settings(self, group_id: str) -> ConsumerSettings:
        """Returns the settings of a consumer group: its own, and the broker's for the rest."""
        assert self._metadata is not None
        config, own = self._config(), self._metadata.image.configs.group_overrides(group_id)
        if own:
            return self._settings_with(config, own)
        # Each heartbeat reads the settings several times, and few groups have settings of their own.
        if self._plain is None or self._plain[0] is not config:
            self._plain = config, self._settings_with(config, own)
        return self._plain[1]

    def _settings_with(self, config: BrokerConfig, own: Mapping[str, str]) -> ConsumerSettings:
        from headrace.groups.consumer.settings import ConsumerSettings

        policy = config.group_consumer_migration_policy.lower()
        return ConsumerSettings(
            session_timeout_ms=group_time_ms(config, own, SESSION_TIMEOUT),
            heartbeat_interval_ms=group_time_ms(config, own, HEARTBEAT_INTERVAL),
            assignment_interval_ms=group_time_ms(config, own, ASSIGNMENT_INTERVAL),
            max_size=config.group_consumer_max_size,
            regex_refresh_interval_ms=config.group_consumer_regex_refresh_interval_ms,
            assignors=config.group_consumer_assignors,
            upgrades=policy in ("upgrade", "bidirectional"),
            downgrades=policy in ("downgrade", "bidirectional"),
        )

    def _runtime_settings(self) -> RuntimeSettings:
        config = self._config()
        return RuntimeSettings(
            commit_timeout_ms=config.offsets_commit_timeout_ms,
            codec=config.offsets_topic_compression_codec,
        )

    # --- regular expressions -----------------------------------------------------------------------------------------

    def _count(self, count: Callable[[GroupShardState], Counter[str]]) -> Counter[str]:
        """Returns the counts by principal, summed over all shards."""
        held: Counter[str] = Counter()
        for runtime in self.runtime.shards.values():
            held.update(count(runtime.shard.state))
        return held

    def _answer(self, runtime: ShardRuntime[GroupShard], question: LookUp) -> None:
        self._owner.spawn(self._look_up(runtime, question))

    async def _look_up(self, runtime: ShardRuntime[GroupShard], look_up: LookUp) -> None:
        """Finds the topics that match a group's regular expressions, one after the other. A group has one look-up at a
        time."""
        names, may_see = list(look_up.topics.by_name), dict[str, bool]()
        try:
            for regex in look_up.regexes:
                matched = await self._matching(look_up, regex, names)
                means = await _seen(matched, may_see, look_up.may_describe)
                if not runtime.is_active:
                    return
                self.decide_alone(
                    runtime,
                    lambda shard, now_ms: shard.regex_found(look_up, regex, means, now_ms),  # noqa: B023
                )
        except Exception:
            self.decide_alone(runtime, lambda shard, _: shard.look_up_finished(look_up))
            raise
        self.decide_alone(runtime, lambda shard, _: shard.look_up_finished(look_up))

    async def _matching(self, look_up: LookUp, regex: str, names: Sequence[str]) -> list[str]:
        try:
            return await self.matching.matching(look_up.principal, regex, names)
        except PatternError:
            return []  # another broker may have accepted a pattern that this one cannot parse

    # --- the cluster's topics, and offsets of those that were deleted ------------------------------------------------

    def _image_changed(self, old: ClusterImage, new: ClusterImage, delta: ImageDelta) -> None:
        self._tell_topics(old, new, delta)
        super()._image_changed(old, new, delta)
        gone = {topic.name: topic.id for topic in delta.deleted_topics.values()}
        if gone and self.runtime.shards and not self._stopped:
            self._owner.spawn(self._forget(gone))

    def _tell_topics(self, old: ClusterImage, new: ClusterImage, delta: ImageDelta) -> None:
        if self._topics is None:
            return
        if not self.runtime.shards:
            self._topics = None
            return
        from headrace.groups.modern.cluster_topics import topics_after

        topics = topics_after(self._topics, old, new, delta)
        if topics is not self._topics:
            self._topics = topics
            for runtime in self.runtime.shards.values():
                runtime.shard.know_topics(topics)

    async def _forget(self, gone: Mapping[str, bytes]) -> None:
        """Removes the offsets of deleted topics. Checks every offset, some groups per turn."""
        assert self._metadata is not None
        for runtime in list(self.runtime.shards.values()):
            for group_ids in runtime.shard.parts():
                exists = self._metadata.image.topics.topics_by_name
                self.decide_alone(
                    runtime,
                    lambda shard, _: shard.forget_topics(gone, exists, group_ids),  # noqa: B023
                )
                await asyncio.sleep(0)

    def _tidy(self, runtime: ShardRuntime[GroupShard]) -> None:
        """Removes the offsets of topics that were deleted while no broker coordinated their groups, some groups per
        turn."""
        first, *rest = runtime.shard.parts() or [[]]
        self._forget_missing(runtime, first)
        if rest:
            self._owner.spawn(self._forget_rest(runtime, rest))

    async def _forget_rest(self, runtime: ShardRuntime[GroupShard], parts: Sequence[Sequence[str]]) -> None:
        for group_ids in parts:
            await asyncio.sleep(0)
            self._forget_missing(runtime, group_ids)

    def _forget_missing(self, runtime: ShardRuntime[GroupShard], group_ids: Sequence[str]) -> None:
        assert self._metadata is not None
        topic_ids = self._metadata.image.topics.topics_by_id
        self.decide_alone(runtime, lambda shard, _: shard.forget_missing(topic_ids, group_ids))


async def _seen(names: Sequence[str], known: dict[str, bool], may: Callable[[str], bool]) -> frozenset[str]:
    """Returns the topics that may be described; `known` caches earlier results."""
    seen = []
    for at in range(0, len(names), SEEN_A_TURN):
        await asyncio.sleep(0)
        for name in names[at : at + SEEN_A_TURN]:
            if name not in known:
                known[name] = may(name)
            if known[name]:
                seen.append(name)
    return frozenset(seen)


def settings_of(config: BrokerConfig) -> GroupSettings:
    """Returns the group settings of a broker's configuration."""
    from headrace.groups.settings import GroupSettings

    return GroupSettings(
        min_session_timeout_ms=config.group_min_session_timeout_ms,
        max_session_timeout_ms=config.group_max_session_timeout_ms,
        max_size=config.group_max_size,
        initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        offset_metadata_max_bytes=config.offset_metadata_max_bytes,
        offsets_retention_ms=config.offsets_retention_minutes * 60_000,
        retention_check_interval_ms=config.offsets_retention_check_interval_ms,
        groups_max=config.group_count_max,
    )
