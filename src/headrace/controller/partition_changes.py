"""The changes of partitions: every PartitionChangeRecord of a cluster with several brokers is made here.

`PartitionChanges` is the draft of one decision. `change` turns a partition and its new state into a record; `take_out`
does so for the partitions that a broker holds. A second change of a partition in one decision is based on its first.

The rules are Kafka's:

- A complete reassignment is completed by every change.
- A leader stays while it is valid: in sync (or eligible, if none is in sync), active, its log directory online.
  Otherwise the first valid replica leads; then the last known leader, if none is in sync or eligible; then, if the
  topic allows it, any active replica. The last two elections are unclean: the leader is alone in the ISR, and
  recovering.
- With eligible leader replicas enabled, a replica that leaves the ISR while that is smaller than min.insync.replicas
  stays eligible, unless it went down uncleanly; the ISR may become empty. Without them, the last replica stays in the
  ISR.
- A record that names a leader raises the leader epoch. It names one if the leader changes, and if a replica leaves the
  replica set, so that the replica learns of it.

Source: KIP-455, KIP-631, KIP-841, KIP-858, KIP-966.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from headrace.controller import placement
from headrace.controller.context import MAX_RECORDS_PER_REQUEST, MIN_INSYNC_REPLICAS, ControllerContext
from headrace.metadata import image as im
from headrace.metadata import levels
from headrace.metadata.delta import merge_change
from headrace.metadata.image import LEADER_RECOVERING, NO_LEADER, ClusterImage, Partition, Topic
from headrace.wire.messages.metadata_records import PartitionChangeRecord

_UNCLEAN_ELECTION = "unclean.leader.election.enable"

_SAME_LEADER = -2
"""The value of PartitionChangeRecord.Leader for an unchanged leader."""


class Election(Enum):
    """The kind of an election: any valid replica; the first one if it is valid; or any active one if none is valid."""

    ONLINE = 0
    PREFERRED = 1
    UNCLEAN = 2


@dataclass(frozen=True, slots=True)
class Target:
    """The new state of a partition; None leaves a field unchanged.

    `lost` are replicas that went down uncleanly, and so are not eligible. `barred` brokers are not elected. `election`
    None: as the topic's settings allow.
    """

    isr: Sequence[int] | None = None
    replicas: Sequence[int] | None = None
    removing: Sequence[int] | None = None
    adding: Sequence[int] | None = None
    recovery_state: int | None = None
    lost: Collection[int] = ()
    barred: Collection[int] = ()
    election: Election | None = None


class Leaving(Protocol):
    """The departing broker and its failed directories, see `departure.Departure`."""

    @property
    def broker_id(self) -> int: ...
    @property
    def was_clean(self) -> bool: ...
    @property
    def failed(self) -> frozenset[bytes] | None: ...


class PartitionChanges:
    """The partition changes of one decision upon `image`; `records` may also take other records, in order.

    `records_before` is the number of records in the earlier pieces of the same request.
    """

    def __init__(self, image: ClusterImage, context: ControllerContext, records_before: int = 0) -> None:
        self.image = image
        self.records: list[Any] = []
        self.looked_at = 0
        """Partitions that this decision has looked at or deleted."""
        self._records_before = records_before
        level = image.features.metadata_version
        self.has_elr = image.features.level(levels.ELR_VERSION) > 0
        self.has_directories = levels.supports_directories(level)
        self.shrinking_keeps_epoch = levels.shrinking_keeps_leader_epoch(level)
        self._context = context
        self._changed: dict[bytes, dict[int, Partition]] = {}
        self._active = {i for i in image.brokers if placement.is_active(image, i)}
        if context.sessions is not None:
            self._active -= context.sessions.leaving(image)
        self._offline: set[bytes] = set()
        if context.sessions is not None:
            self._offline |= context.sessions.failing(image)
        self._settings: dict[str, tuple[int, bool]] = {}

    def partition(self, topic: Topic, index: int) -> Partition | None:
        """Returns a partition with the changes so far."""
        if not 0 <= index < len(topic.partitions):
            return None
        changed = self._changed.get(topic.id)
        return topic.partitions[index] if changed is None else changed.get(index, topic.partitions[index])

    def of(self, topic: Topic) -> Sequence[Partition]:
        """Returns the partitions of a topic with the changes so far."""
        changed = self._changed.get(topic.id)
        return topic.partitions if changed is None else [changed.get(each.index, each) for each in topic.partitions]

    @property
    def is_full(self) -> bool:
        """Returns whether the request has reached the limit of records."""
        return self._records_before + len(self.records) >= MAX_RECORDS_PER_REQUEST

    def without_leader(self, topic: Topic) -> list[Partition]:
        """Returns the partitions of a topic without a leader."""
        # They are few among hundreds of thousands, here and below: a list for each topic is cheapest.
        return [each for each in self.of(topic) if each.leader == NO_LEADER]

    def without_preferred_leader(self, topic: Topic) -> list[Partition]:
        """Returns the partitions of a topic that are not led by their first replica."""
        return [each for each in self.of(topic) if each.leader != each.replicas[0]]

    def change(self, topic: Topic, partition: Partition, target: Target) -> Partition:
        """Returns the partition after the change; the same object if nothing changes."""
        assert partition is self.partition(topic, partition.index)
        record = _Draft(self, topic, partition, target).record()
        return partition if record is None else self._note(topic, partition, record)

    def assign_directory(self, topic: Topic, partition: Partition, broker_id: int, directory: bytes) -> Partition:
        """Returns the partition with a broker's replica in that log directory. Elects no leader.

        A replica whose earlier directory failed may be empty in the new one, so electing it is left to another
        decision.
        """
        assert partition is self.partition(topic, partition.index)
        if partition.directory_of(broker_id) == directory:
            return partition
        directories = [
            directory if replica == broker_id else old
            for replica, old in zip(partition.replicas, partition.directories, strict=True)
        ]
        record = PartitionChangeRecord(partition_id=partition.index, topic_id=topic.id, directories=directories)
        return self._note(topic, partition, record)

    def _note(self, topic: Topic, partition: Partition, record: PartitionChangeRecord) -> Partition:
        after = merge_change(partition, record)
        replicas, isr = set(after.replicas), set(after.isr)
        assert len(replicas) == len(after.replicas) and len(isr) == len(after.isr), "a broker has one replica"
        assert isr <= replicas, "replicas alone are in sync"
        assert len(after.directories) == len(after.replicas), "each replica lies in a directory"
        assert isr.isdisjoint(after.eligible_leaders), "a replica in sync is not eligible besides"
        assert after.leader == NO_LEADER or after.leader in isr, "a leader is in sync with itself"
        assert replicas.issuperset(after.adding) and replicas.issuperset(after.removing)
        assert after.partition_epoch == partition.partition_epoch + 1, "each change has a partition epoch"
        assert after.leader_epoch >= partition.leader_epoch, "leader epochs never fall"
        is_led_alike = after.leader == partition.leader
        assert is_led_alike or after.leader_epoch > partition.leader_epoch, "an epoch has one leader"
        self._changed.setdefault(topic.id, {})[partition.index] = after
        self.records.append(record)
        return after

    def goes_down(self, broker_id: int) -> None:
        """Excludes a broker from elections: it is no longer active."""
        self._active.discard(broker_id)

    def take_out(self, topic: Topic, leaving: Leaving, *, records_max: int) -> bool:
        """Removes a broker that is not active, or whose log directories failed, from the ISRs of a topic, and elects
        other leaders. Stops at `records_max` records; returns False if more may be left.

        Not `was_clean`: the broker may lack acknowledged records, so it is not eligible either.
        """
        broker_id, was_clean, failed = leaving.broker_id, leaving.was_clean, leaving.failed
        lost = () if was_clean else (broker_id,)
        barred = () if failed is None else (broker_id,)
        self.looked_at += len(topic.partitions)
        for partition in [each for each in self.of(topic) if broker_id in each.replicas]:
            if len(self.records) >= records_max:
                return False
            if failed is not None and partition.directory_of(broker_id) not in failed:
                continue
            if broker_id in partition.isr or (not was_clean and broker_id in partition.eligible_leaders):
                isr = [replica for replica in partition.isr if replica != broker_id]
                self.change(topic, partition, Target(isr=isr, lost=lost, barred=barred))
        return True

    def comes_up(self, broker_id: int) -> None:
        """Includes a broker in elections: it is active."""
        self._active.add(broker_id)

    def fail_directories(self, failed: Collection[bytes]) -> None:
        """Excludes the replicas in failed log directories from elections."""
        self._offline |= set(failed)

    def leads_any(self, broker_id: int) -> bool:
        """Returns whether a broker leads a partition."""
        return any([each for each in self.of(topic) if each.leader == broker_id] for topic in self.image.topics)

    def is_active(self, broker_id: int) -> bool:
        """Returns whether a broker may be in sync and lead: registered, not fenced, not shutting down, not leaving."""
        return broker_id in self._active

    def may_lead(self, partition: Partition, broker_id: int) -> bool:
        """Returns whether a broker is active and the log directory of its replica online."""
        return broker_id in self._active and self.is_online(broker_id, partition.directory_of(broker_id))

    def is_online(self, broker_id: int, directory: bytes) -> bool:
        """Returns whether a broker's log directory works, as far as the broker has reported."""
        if directory in (im.DIRECTORY_UNASSIGNED, im.DIRECTORY_MIGRATING):
            return True
        if directory == im.DIRECTORY_LOST or directory in self._offline:
            return False
        broker = self.image.brokers.get(broker_id)
        online = () if broker is None else broker.directories
        # A registration older than directories in the metadata names none.
        return not online or directory in online

    def min_insync_replicas(self, topic: Topic) -> int:
        """Returns how many in-sync replicas are required: the setting, at most the number of replicas."""
        return self._settings_of(topic)[0]

    def allows_unclean(self, topic: Topic) -> bool:
        """Returns whether a replica that lacks acknowledged records may lead a topic's partitions."""
        return self._settings_of(topic)[1]

    def _settings_of(self, topic: Topic) -> tuple[int, bool]:
        found = self._settings.get(topic.name)
        if found is None:
            enough = min(int(self._setting(topic, MIN_INSYNC_REPLICAS)), len(topic.partitions[0].replicas))
            found = enough, self._setting(topic, _UNCLEAN_ELECTION) == "true"
            self._settings[topic.name] = found
        return found

    def _setting(self, topic: Topic, name: str) -> str:
        configs = self.image.configs
        for overrides in (
            configs.topic_overrides(topic.name),
            configs.broker_overrides(self._context.node_id),
            configs.cluster_overrides(),
        ):
            value = overrides.get(name)
            if value is not None:
                return value
        default = self._context.rules.default_text(im.ResourceType.TOPIC, name)
        assert default is not None
        return default


class _Draft:
    """One change of one partition, from the request to the record."""

    def __init__(self, changes: PartitionChanges, topic: Topic, old: Partition, target: Target) -> None:
        self.changes = changes
        self.topic = topic
        self.old = old
        self.target = target
        self.isr = list(old.isr if target.isr is None else target.isr)
        self.replicas = list(old.replicas if target.replicas is None else target.replicas)
        self.removing = list(old.removing if target.removing is None else target.removing)
        self.adding = list(old.adding if target.adding is None else target.adding)
        self.eligible = list(old.eligible_leaders)
        self.recovery_state = old.leader_recovery_state if target.recovery_state is None else target.recovery_state

    def record(self) -> PartitionChangeRecord | None:
        """Returns the record of this change, or None if nothing changes."""
        old = self.old
        self._complete_reassignment()
        self._note_eligible()
        leader, is_unclean = self._elect()
        assert leader == NO_LEADER or leader in self.replicas, "a replica leads"
        record = PartitionChangeRecord(partition_id=old.index, topic_id=self.topic.id)
        if leader != old.leader:
            record.leader = leader
            if is_unclean:
                self.isr, self.eligible, self.recovery_state = [leader], [], LEADER_RECOVERING
            elif leader in self.eligible:
                self.isr = [leader]
                self.eligible.remove(leader)
        elif not set(old.replicas) <= set(self.replicas):
            record.leader = leader
        # Without eligible leaders the last replica stays in sync: no other is known to have every record.
        if tuple(self.isr) != old.isr and (self.isr or self.changes.has_elr):
            record.isr = self.isr
            if not self.changes.shrinking_keeps_epoch and not set(old.isr) <= set(self.isr):
                record.leader = leader
        if tuple(self.eligible) != old.eligible_leaders:
            record.eligible_leader_replicas = self.eligible
        self._note_last_known(record, leader)
        self._note_assignment(record)
        if self.recovery_state != old.leader_recovery_state:
            record.leader_recovery_state = self.recovery_state
        return None if _says_nothing(record) else record

    def _complete_reassignment(self) -> None:
        if not self.removing and not self.adding:
            return
        isr = [replica for replica in self.isr if replica not in self.removing]
        replicas = [replica for replica in self.replicas if replica not in self.removing]
        needed = replicas if len(self.adding) < len(self.removing) else self.adding
        if isr and set(needed) <= set(isr):
            self.isr, self.replicas, self.removing, self.adding = isr, replicas, [], []

    def _note_eligible(self) -> None:
        if not self.changes.has_elr or len(self.isr) >= self.changes.min_insync_replicas(self.topic):
            self.eligible = []
            return
        gone = {*self.isr, *self.target.lost}
        candidates = {*self.eligible, *self.old.isr} & set(self.replicas)
        self.eligible = sorted(candidates - gone)

    def _elect(self) -> tuple[int, bool]:
        """Returns the leader, or NO_LEADER, and whether it may lack acknowledged records."""
        old = self.old
        election = self.target.election
        if election is None:
            election = Election.UNCLEAN if self.changes.allows_unclean(self.topic) else Election.ONLINE
        preferred = self.replicas[:1] if election is Election.PREFERRED else []
        valid = self.isr or self.eligible
        for replica in (*preferred, old.leader, *self.replicas):
            if replica in valid and replica in self.replicas and self._may_lead(replica):
                return replica, False
        if self.changes.has_elr and not valid and len(old.last_known_eligible_leaders) == 1:
            (last,) = old.last_known_eligible_leaders
            if last in self.replicas and self._may_lead(last):
                return last, True
        if election is Election.UNCLEAN:
            for replica in self.replicas:
                if self._may_lead(replica):
                    return replica, True
        return NO_LEADER, False

    def _may_lead(self, replica: int) -> bool:
        barred = self.target.barred, self.target.lost
        return not any(replica in each for each in barred) and self.changes.may_lead(self.old, replica)

    def _note_last_known(self, record: PartitionChangeRecord, leader: int) -> None:
        """Notes the last known leader while there is none."""
        known = self.old.last_known_eligible_leaders
        if leader != NO_LEADER or not self.changes.has_elr:
            if known:
                record.last_known_elr = []
        elif self.old.leader != NO_LEADER and not known:
            record.last_known_elr = [self.old.leader]

    def _note_assignment(self, record: PartitionChangeRecord) -> None:
        old = self.old
        if tuple(self.replicas) != old.replicas:
            record.replicas = self.replicas
        if tuple(self.removing) != old.removing:
            record.removing_replicas = self.removing
        if tuple(self.adding) != old.adding:
            record.adding_replicas = self.adding
        if self.changes.has_directories:
            directories = [self._directory(replica) for replica in self.replicas]
            # Directories are repeated with the replicas, so that a reader of the record can match them.
            if record.replicas is not None or tuple(directories) != old.directories:
                record.directories = directories

    def _directory(self, replica: int) -> bytes:
        if replica in self.old.replicas:
            return self.old.directory_of(replica)
        return placement.default_directory(self.changes.image, replica)


def _says_nothing(record: PartitionChangeRecord) -> bool:
    fresh = PartitionChangeRecord(partition_id=record.partition_id, topic_id=record.topic_id)
    return record == fresh
