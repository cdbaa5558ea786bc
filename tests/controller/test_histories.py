"""What holds of a cluster's partitions whatever happens: random histories of everything that a controller is asked."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

from controller.clustered import Everything
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from peers.tried import tried

from headrace.broker.quorum.log.proposals import prepare
from headrace.broker.settings.config_rules import SettingsRules
from headrace.config import BrokerConfig
from headrace.controller import drawing, pieces
from headrace.controller.brokers import Registration
from headrace.controller.configs import Alteration, AlterConfigs, AlterOperation
from headrace.controller.context import ControllerContext, ControllerRequest
from headrace.controller.directories import AssignDirectories
from headrace.controller.heartbeats import Heartbeat
from headrace.controller.in_sync import AlterPartitions, PartitionAlteration
from headrace.controller.leaders import BalanceLeaders, ElectLeaders, ElectMissing, ElectUnclean
from headrace.controller.membership import FenceBrokers, RegisterBroker, UnregisterBroker
from headrace.controller.partitions import CreatePartitions
from headrace.controller.reassignments import ReassignPartitions
from headrace.controller.sessions import BrokerSessions
from headrace.controller.topics import CreateTopics
from headrace.machine import Decision
from headrace.metadata import bootstrap, levels
from headrace.metadata.framing import decode_record
from headrace.metadata.image import (
    LEADER_RECOVERED,
    LEADER_RECOVERING,
    NO_LEADER,
    ClusterImage,
    Partition,
    ResourceType,
    Topic,
)
from headrace.metadata.replay import Replay
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k19_create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from headrace.wire.messages.k37_create_partitions import CreatePartitionsTopic
from headrace.wire.messages.metadata_records import PartitionChangeRecord

BROKERS = st.integers(1, 5)
PLACES = st.integers(0, 2)
SOME_BROKERS = st.lists(BROKERS, min_size=1, max_size=4, unique=True)
RULES = SettingsRules(BrokerConfig.load({}))


class Histories(RuleBasedStateMachine):
    """A controller, the metadata that it wrote, and what the metadata may never say."""

    def __init__(self) -> None:
        super().__init__()
        self.image = ClusterImage(cluster_id="test")
        self.sessions = BrokerSessions(9_000)
        self.now_ms = 0
        self.drawn = 0
        self.written: list[bytes] = []
        self.unfinished: deque[Callable[[ClusterImage], Decision[Any]]] = deque()
        self.piece_records, self.piece_partitions = 100, 100
        self.was_cut = False
        """A controller was elected while a decision of the one before went on."""
        self.context = ControllerContext(1, 1, 3, RULES, self._new_id, lambda n: self._draw() % n, self.sessions)

    def _draw(self) -> int:
        self.drawn += 7
        return self.drawn

    def _new_id(self) -> bytes:
        return (self._draw() + 1000).to_bytes(16, "big")

    @initialize(elr=st.booleans(), piece=st.sampled_from([(1, 1), (2, 100), (100, 100)]))
    def format(self, elr: bool, piece: tuple[int, int]) -> None:
        self.piece_records, self.piece_partitions = piece
        found = bootstrap.default_levels(30)
        if not elr:
            del found[levels.ELR_VERSION]
        self._apply(bootstrap.activation_records(bootstrap.bootstrap_records(found), 1))
        for broker in (1, 2, 3):
            self.register(broker, False)
            self.beat(broker, True, False, False, False)
        self.create(3, 2)
        while self.unfinished:
            self.go_on()

    def _ask(self, request: ControllerRequest[Any]) -> Any:
        context = replace(self.context, now_ms=self.now_ms)
        takes_word = isinstance(request, AlterPartitions | ReassignPartitions)
        return self._decide(lambda image: request.decide(image, context, Everything()), takes_word)

    def _decide(self, decide: Callable[[ClusterImage], Decision[Any]], takes_word: bool = False) -> Any:
        """The reply; of a decision that goes on None: its next piece is decided when `go_on` comes."""
        with (
            mock.patch.multiple(pieces, PIECE_RECORDS=self.piece_records, PIECE_PARTITIONS=self.piece_partitions),
            mock.patch.object(drawing, "SLICE_PARTITIONS", self.piece_records),
        ):
            decision = decide(self.image)
        before = self.image
        self._apply(decision.records)
        self._check_change(before, decision.records, takes_word)
        if decision.then is None:
            return decision.reply
        self.unfinished.append(decision.then)
        return None

    def _apply(self, records: Any) -> None:
        if not records:
            return
        values = prepare(self.image, records, self.image.offset + 1, 1, 0)[1].values
        replay = Replay(self.image)
        for value in values:
            replay.apply(decode_record(value))
        self.written += values
        replay.advance(offset=self.image.offset + len(values), epoch=1, timestamp_ms=0)
        self.image = replay.finish()

    def _check_change(self, before: ClusterImage, records: Any, takes_word: bool) -> None:
        raised: dict[tuple[bytes, int], int] = {}
        for record in records:
            if type(record) is PartitionChangeRecord:
                key = (record.topic_id, record.partition_id)
                raised[key] = raised.get(key, 0) + 1
        for topic in before.topics:
            for old in topic.partitions:
                new = self.image.topics.topics_by_id[topic.id].partitions[old.index]
                assert new.partition_epoch - old.partition_epoch == raised.get((topic.id, old.index), 0)
                assert new.leader_epoch >= old.leader_epoch
                assert new.leader == old.leader or new.leader_epoch > old.leader_epoch
                assert set(old.replicas) <= set(new.replicas) or new.leader_epoch > old.leader_epoch
                if new.leader not in (NO_LEADER, old.leader):
                    assert new.directory_of(new.leader) not in self.sessions.failing(before)
                if new.leader not in (NO_LEADER, old.leader) and not takes_word:
                    is_safe = new.leader in old.isr or new.leader in old.eligible_leaders
                    assert is_safe or new.leader_recovery_state == LEADER_RECOVERING

    def _partitions(self) -> list[tuple[Topic, Partition]]:
        return [(topic, partition) for topic in self.image.topics for partition in topic.partitions]

    def _at(self, place: int) -> tuple[Topic, Partition]:
        found = self._partitions()
        return found[place % len(found)]

    @rule(broker=BROKERS, clean=st.booleans())
    def register(self, broker: int, clean: bool) -> None:
        old = self.image.brokers.get(broker)
        directories = tuple(bytes([100 + 2 * broker + n]) * 16 for n in (0, 1))
        previous = old.epoch if clean and old is not None else -1
        registration = Registration(
            broker, self._new_id(), (), (), "ab"[broker % 2], directories, "test", previous_broker_epoch=previous
        )
        is_live = self.sessions.is_live(broker, self.now_ms)
        reply = self._ask(RegisterBroker(registration))
        refused = old is not None and is_live
        assert reply is None or reply.error == (ErrorCode.DUPLICATE_BROKER_REGISTRATION if refused else ErrorCode.NONE)

    @rule(broker=BROKERS)
    def amend(self, broker: int) -> None:
        old = self.image.brokers.get(broker)
        if old is None:
            return
        registration = Registration(broker, old.incarnation_id, (), (), old.rack, old.directories, "test")
        reply = self._ask(RegisterBroker(registration))
        assert reply.broker_epoch == old.epoch
        assert self.image.brokers[broker].fenced == old.fenced

    @rule(broker=BROKERS, ready=st.booleans(), stop=st.booleans(), fence=st.booleans(), failed=st.booleans())
    def beat(self, broker: int, ready: bool, stop: bool, fence: bool, failed: bool) -> None:
        old = self.image.brokers.get(broker)
        if old is None:
            return
        offset = self.image.offset if ready else old.epoch - 1
        directories = old.directories[:1] if failed and len(old.directories) > 1 else ()
        reply = self._ask(Heartbeat(broker, old.epoch, offset, fence, stop, directories))
        if reply is not None:
            assert reply.is_fenced == self.image.brokers[broker].fenced
            assert reply.is_fenced or not reply.should_shut_down

    @rule(broker=BROKERS, passed=st.sampled_from([0, 5_000, 9_000]))
    def silence(self, broker: int, passed: int) -> None:
        self.now_ms += passed
        for other in self.image.brokers.values():
            if other.id != broker:
                self.sessions.heard(other.id, other.epoch, self.image.offset, self.now_ms)
        expired = self.sessions.expired(self.image, self.now_ms)
        self._ask(FenceBrokers(expired))
        if not self.unfinished:
            assert all(self.image.brokers[i].fenced for i, _ in expired)

    @rule(brokers=SOME_BROKERS)
    def crash(self, brokers: list[int]) -> None:
        dead = [(i, self.image.brokers[i].epoch) for i in brokers if i in self.image.brokers]
        for broker, epoch in dead:
            self.sessions.forget(broker, epoch)
        self._ask(FenceBrokers(dead))

    @rule()
    def fail_over(self) -> None:
        self.sessions.begin(self.image, self.now_ms)
        self.was_cut |= bool(self.unfinished)
        self.unfinished.clear()
        self._ask(ElectMissing())

    @rule()
    def go_on(self) -> None:
        if self.unfinished:
            self._decide(self.unfinished.popleft())

    @rule(broker=BROKERS)
    def go_on_to_the_end(self, broker: int) -> None:
        dead = [(i, self.image.brokers[i].epoch) for i in (broker,) if i in self.image.brokers]
        self._ask(FenceBrokers(dead))
        for _ in range(1000):
            if not self.unfinished:
                break
            self._decide(self.unfinished.popleft())
        assert not self.unfinished
        assert not self.sessions.leaving(self.image)
        assert all(self.image.brokers[i].fenced for i, _ in dead if i in self.image.brokers)

    @rule(broker=BROKERS)
    def unregister(self, broker: int) -> None:
        self._ask(UnregisterBroker(broker))

    @rule(count=st.integers(1, 2), factor=st.integers(1, 3))
    def create(self, count: int, factor: int) -> None:
        if len(self.image.topics) < 3:
            enough = CreatableTopicConfig(name="min.insync.replicas", value=str(factor))
            name = f"t{len(self.image.topics)}"
            topic = CreatableTopic(name=name, num_partitions=count, replication_factor=factor, configs=[enough])
            self._ask(CreateTopics(CreateTopicsRequest(topics=[topic])))

    @rule(place=PLACES)
    def grow(self, place: int) -> None:
        topic, _ = self._at(place)
        if len(topic.partitions) < 3:
            self._ask(CreatePartitions([CreatePartitionsTopic(topic.name, len(topic.partitions) + 1, None)]))

    @rule(place=PLACES, members=SOME_BROKERS, recovered=st.booleans())
    def alter(self, place: int, members: list[int], recovered: bool) -> None:
        topic, partition = self._at(place)
        leader = self.image.brokers.get(partition.leader)
        if leader is None:
            return
        isr = (leader.id, *(m for m in members if m != leader.id and m in partition.replicas))
        state = LEADER_RECOVERED if recovered else partition.leader_recovery_state
        change = PartitionAlteration(
            topic.id,
            partition.index,
            partition.leader_epoch,
            partition.partition_epoch,
            tuple((member, -1) for member in isr),
            state,
        )
        reply = self._ask(AlterPartitions(leader.id, leader.epoch, [change, change]))
        if reply is None:
            return  # the second one is decided when others have been
        for _, index, error, after in reply.results:
            assert (after is None) == (error != ErrorCode.NONE)
            assert after is None or after == self.image.topics.topics_by_id[topic.id].partitions[index]

    @rule(place=PLACES, replicas=SOME_BROKERS)
    def reassign(self, place: int, replicas: list[int]) -> None:
        topic, partition = self._at(place)
        self._ask(ReassignPartitions([(topic.name, [(partition.index, replicas)])], True))

    @rule(place=PLACES)
    def call_off(self, place: int) -> None:
        topic, partition = self._at(place)
        self._ask(ReassignPartitions([(topic.name, [(partition.index, None)])], True))

    @rule(unclean=st.booleans(), place=PLACES)
    def elect(self, unclean: bool, place: int) -> None:
        topic, partition = self._at(place)
        self._ask(ElectLeaders(int(unclean), [(topic.name, [partition.index, partition.index])]))

    @rule(most=st.integers(1, 3))
    def tidy(self, most: int) -> None:
        self._ask(BalanceLeaders(most))
        self._ask(ElectUnclean(most))

    @rule(place=PLACES, name=st.sampled_from(["min.insync.replicas=2", "unclean.leader.election.enable=true"]))
    def configure(self, place: int, name: str) -> None:
        topic, _ = self._at(place)
        key, _, value = name.partition("=")
        self._ask(AlterConfigs([Alteration(ResourceType.TOPIC, topic.name, [(key, AlterOperation.SET, value)])]))

    @rule(place=PLACES, broker=BROKERS, second=st.booleans())
    def put(self, place: int, broker: int, second: bool) -> None:
        topic, partition = self._at(place)
        registered = self.image.brokers.get(broker)
        if registered is not None:
            directory = bytes([100 + 2 * broker + second]) * 16
            self._ask(AssignDirectories(broker, [(topic.id, partition.index, directory)], registered.epoch))

    @invariant()
    def partitions_make_sense(self) -> None:
        has_elr = self.image.features.level(levels.ELR_VERSION) > 0
        for _, partition in self._partitions():
            replicas, isr = set(partition.replicas), set(partition.isr)
            assert len(replicas) == len(partition.replicas) == len(partition.directories) > 0
            assert isr <= replicas
            assert len(isr) == len(partition.isr)
            assert set(partition.eligible_leaders) <= replicas - isr
            assert has_elr or (isr and not partition.eligible_leaders and not partition.last_known_eligible_leaders)
            assert set(partition.adding) | set(partition.removing) <= replicas
            assert not set(partition.adding) & set(partition.removing)
            if partition.leader == NO_LEADER:
                continue
            assert partition.leader in isr
            assert not partition.last_known_eligible_leaders
            assert partition.leader_recovery_state == LEADER_RECOVERED or len(isr) == 1
            for member in isr:
                assert not self.image.brokers[member].fenced
                # One that shuts down says so first, and gives up what it holds in the pieces that follow.
                is_cut = self.was_cut or self.unfinished
                assert is_cut or not self.image.brokers[member].in_controlled_shutdown

    @invariant()
    def the_log_makes_the_image(self) -> None:
        replay = Replay(ClusterImage(cluster_id="test"))
        for value in self.written:
            replay.apply(decode_record(value))
        replay.advance(offset=len(self.written) - 1, epoch=1, timestamp_ms=0)
        assert not self.written or replay.finish() == self.image


Histories.TestCase.settings = settings(max_examples=tried(100), stateful_step_count=40, deadline=None)
TestHistories = Histories.TestCase


def test_a_broker_fenced_between_two_pieces_of_a_heartbeat_stays_fenced() -> None:
    """What it said before it was given up does not bring it back, nor keep another decision from its end."""
    for stops_too, given_up in ((None, 1), (2, 3)):
        state = Histories()
        state.format(elr=False, piece=(1, 1))
        state.beat(1, ready=False, stop=True, fence=False, failed=False)
        state.beat(1, ready=True, stop=False, fence=False, failed=True)
        if stops_too is not None:
            state.beat(stops_too, ready=False, stop=True, fence=False, failed=False)
        state.go_on_to_the_end(given_up)
