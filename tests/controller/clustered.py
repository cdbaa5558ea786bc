"""A controller of several brokers that scripts drive, beside the commands of `scripted`.

Whatever is asked here is a request of `headrace.controller`, with sessions and a clock.

    cluster 1 2 3 racks=a,b,c   a fresh cluster whose brokers are up, each in its rack; --no-elr: nobody is eligible
    start 2 previous=17         broker 2 registers: a new incarnation, but with --again; what it says may be wrong:
                                cluster=ID directories=A,B metadata=LOW-HIGH
    beat 2                      a heartbeat: the broker has read all metadata, or up to offset=N, and wants nothing, or
                                --fence, --stop; failed=A,B and cordoned=A,B are directories; epoch=N is not its own
    time 9000                   time passes, and the brokers named beside it are heard at the end of it
    expire                      fences who was not heard for a session
    dead 2                      somebody knows that broker 2 is dead
    isr a-0 1+2                 the leader says who is in sync; leader-epoch=, partition-epoch=, epochs=5+9 and by= are
                                what the metadata says, if not told otherwise; --recovering
    place a-0 2 100             broker 2 has put its replica into directory 100; epoch=N
    unregister 2
    pieces 2                    a broker leaves in pieces of so many records
    go-on                       the next piece of the decision that waits longest; --refused: there is no room for it
    controller 3 metadata=7-28  a controller registers; it and a broker may know other levels, of metadata or kraft
    voters 1 2 3 kraft=0        who votes in the metadata quorum, and its kraft.version (1 if not told)
    balance 10, elect-unclean 10
    set broker 2 NAME=VALUE     a setting of any node of the cluster
    show                        every partition: leader@epoch, in sync, eligible, last known leader, replicas, the move
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from unittest import mock

from controller.scripted import TYPES, Controller, outcome
from scripts.transcript import Words

from headrace.controller import pieces
from headrace.controller.brokers import Registration, supported_features
from headrace.controller.configs import Alteration, AlterConfigs, AlterOperation
from headrace.controller.context import ControllerRequest
from headrace.controller.directories import AssignDirectories
from headrace.controller.heartbeats import Heartbeat
from headrace.controller.in_sync import AlterPartitions, PartitionAlteration
from headrace.controller.leaders import BalanceLeaders, ElectUnclean
from headrace.controller.membership import FenceBrokers, RegisterBroker, RegisterController, UnregisterBroker
from headrace.controller.producer_ids import AllocateProducerIds
from headrace.controller.sessions import BrokerSessions
from headrace.machine import Decision
from headrace.metadata import bootstrap, levels
from headrace.metadata.image import (
    LEADER_RECOVERING,
    ClusterImage,
    Endpoint,
    Partition,
    SupportedFeature,
    Topic,
)
from headrace.metadata.image import Controller as ControllerNode
from headrace.metadata.replay import Replay
from headrace.wire.errors import ErrorCode

SESSION_MS = 9_000


class Everything:
    """Who asks may do everything."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: ErrorCode.NONE if name == "may_alter_configs" else True


class ClusteredController(Controller):
    """Commands of a cluster beside those of a single broker."""

    def __init__(self) -> None:
        super().__init__()
        self.sessions = BrokerSessions(SESSION_MS)
        self.now_ms = 0
        self._incarnations = itertools.count(1)
        self._piece_records = pieces.PIECE_RECORDS
        self._unfinished: deque[Callable[[ClusterImage], Decision[Any]]] = deque()

    def ask(self, request: ControllerRequest[Any]) -> Any:
        context = replace(self.context, sessions=self.sessions, now_ms=self.now_ms)
        return self._decide(lambda image: request.decide(image, context, Everything()))

    def _decide(self, decide: Callable[[ClusterImage], Decision[Any]]) -> Any:
        with mock.patch.object(pieces, "PIECE_RECORDS", self._piece_records):
            self._decided = decide(self.image)
        return self._decided.reply

    def commit_asked(self) -> None:
        self.commit(self._decided)
        if self._decided.then is not None:
            self._unfinished.append(self._decided.then)
            self.say("  to be continued")

    def do_pieces(self, words: Words) -> None:
        self._piece_records = int(words.plain[0])

    def do_go_on(self, words: Words) -> None:
        if self._unfinished and "refused" in words.switches:
            self._unfinished.popleft()
        elif self._unfinished:
            self._decide(self._unfinished.popleft())
            self.commit_asked()
        else:
            self.say("nothing goes on")

    def do_cluster(self, words: Words) -> None:
        levels_of = bootstrap.default_levels(30)
        if "no-elr" in words.switches:
            del levels_of[levels.ELR_VERSION]
        racks = words.named.get("racks", "").split(",")
        self._quietly(bootstrap.activation_records(bootstrap.bootstrap_records(levels_of), 1))
        for broker, rack in itertools.zip_longest(map(int, words.plain), racks):
            reply = self.ask(RegisterBroker(self._registration(broker, rack)))
            self._quietly(self._decided.records)
            self.ask(Heartbeat(broker, reply.broker_epoch, self.image.offset))
            self._quietly(self._decided.records)
        self.say(f"brokers {' '.join(f'{broker.id}@{broker.epoch}' for broker in self.image.online_brokers())}")

    def _quietly(self, records: Any) -> None:
        replay = Replay(self.image)
        for record in records:
            replay.apply(record)
        replay.advance(offset=self.image.offset + len(records), epoch=1, timestamp_ms=0)
        self.image = replay.finish()

    def _registration(self, broker: int, rack: str | None) -> Registration:
        directory = bytes([100 + broker]) * 16
        return Registration(
            node_id=broker,
            incarnation_id=next(self._incarnations).to_bytes(16, "big"),
            endpoints=(Endpoint("PLAINTEXT", "localhost", 9090 + broker, 0),),
            controller_endpoints=(),
            rack=rack or None,
            directories=(directory,),
            cluster_id="test",
        )

    def do_start(self, words: Words) -> None:
        broker = int(words.plain[0])
        old = self.image.brokers.get(broker)
        registration = self._registration(broker, None if old is None else old.rack)
        if "again" in words.switches:
            assert old is not None
            registration = replace(registration, incarnation_id=old.incarnation_id)
        told = words.named
        if "directories" in told:
            registration = replace(registration, directories=ids(told["directories"]))
        registration = replace(registration, features=at_levels(told))
        reply = self.ask(
            RegisterBroker(
                replace(
                    registration,
                    cluster_id=told.get("cluster", "test"),
                    previous_broker_epoch=int(told.get("previous", -1)),
                )
            )
        )
        self.say(outcome(reply.error, reply.message) + (f" broker epoch {reply.broker_epoch}" * (not reply.error)))
        self.commit_asked()

    def do_beat(self, words: Words) -> None:
        broker = int(words.plain[0])
        told = words.named
        registered = self.image.brokers.get(broker)
        reply = self.ask(
            Heartbeat(
                broker,
                int(told.get("epoch", -1 if registered is None else registered.epoch)),
                int(told.get("offset", self.image.offset)),
                want_fence="fence" in words.switches,
                want_shut_down="stop" in words.switches,
                failed_directories=ids(told.get("failed", "")),
                cordoned_directories=ids(told["cordoned"]) if "cordoned" in told else None,
            )
        )
        facts = {"caught up": reply.is_caught_up, "fenced": reply.is_fenced, "may stop": reply.should_shut_down}
        said = ", ".join(fact for fact, holds in facts.items() if holds)
        self.say(reply.error.name if reply.error else f"NONE {said}".rstrip())
        self.commit_asked()

    def do_time(self, words: Words) -> None:
        passed, *heard = map(int, words.plain)
        self.now_ms += passed
        for broker in heard:
            self.sessions.heard(broker, self.image.brokers[broker].epoch, self.image.offset, self.now_ms)

    def do_expire(self, words: Words) -> None:
        expired = self.sessions.expired(self.image, self.now_ms)
        self.say(f"expired {expired}, next check in {(self.sessions.next_check_ms(self.now_ms) or 0) - self.now_ms} ms")
        self.ask(FenceBrokers(expired))
        self.commit_asked()

    def do_takeover(self, words: Words) -> None:
        """Another controller is active: it has just heard everybody, as it were."""
        self.sessions = BrokerSessions(SESSION_MS)
        self.sessions.begin(self.image, self.now_ms)
        self._unfinished.clear()

    def do_dead(self, words: Words) -> None:
        broker = int(words.plain[0])
        epoch = self.image.brokers[broker].epoch
        self.sessions.forget(broker, epoch)
        self.ask(FenceBrokers([(broker, epoch)]))
        self.commit_asked()

    def do_isr(self, words: Words) -> None:
        topic, partition = self._partition(words.plain[0])
        told = words.named
        members = [int(each) for each in words.plain[1].split("+")]
        epochs = [int(each) for each in told["epochs"].split("+")] if "epochs" in told else [-1] * len(members)
        by = int(told.get("by", partition.leader))
        alteration = PartitionAlteration(
            topic.id if topic is not None else bytes(16),
            partition.index,
            int(told.get("leader-epoch", partition.leader_epoch)),
            int(told.get("partition-epoch", partition.partition_epoch)),
            tuple(zip(members, epochs, strict=True)),
            LEADER_RECOVERING if "recovering" in words.switches else 0,
        )
        registered = self.image.brokers.get(by)
        epoch = int(told.get("epoch", -1 if registered is None else registered.epoch))
        changes = [alteration, alteration] if "twice" in words.switches else [alteration]
        reply = self.ask(AlterPartitions(by, epoch, changes))
        if reply.error:
            self.say(reply.error.name)
        for _, _, error, after in reply.results:
            self.say(error.name if after is None else f"{error.name} {describe(after)}")
        self.commit_asked()

    def do_place(self, words: Words) -> None:
        place, broker, directory = words.plain
        topic, partition = self._partition(place)
        epoch = int(words.named.get("epoch", self.image.brokers[int(broker)].epoch))
        chosen = [(bytes(16) if topic is None else topic.id, partition.index, ids(directory)[0])]
        reply = self.ask(AssignDirectories(int(broker), chosen, epoch))
        self.say(" ".join(error.name for error in (reply.error, *(result[2] for result in reply.results))))
        self.commit_asked()

    def do_unregister(self, words: Words) -> None:
        self.say(outcome(*self.ask(UnregisterBroker(int(words.plain[0])))))
        self.commit_asked()

    def do_controller(self, words: Words) -> None:
        node = ControllerNode(int(words.plain[0]), bytes(16), (), at_levels(words.named))
        self.say(outcome(*self.ask(RegisterController(node))))
        self.commit_asked()

    def do_voters(self, words: Words) -> None:
        kraft_version = int(words.named.get("kraft", 1))
        self.context = replace(self.context, voters=tuple(map(int, words.plain)), kraft_version=kraft_version)

    def do_producer_ids_of(self, words: Words) -> None:
        """producer-ids-of BROKER EPOCH"""
        reply = self.ask(AllocateProducerIds(*map(int, words.plain)))
        self.say(f"{reply.error.name} {reply.first} to {reply.end - 1}")
        self.commit_asked()

    def do_balance(self, words: Words) -> None:
        self.say("there may be more" if self.ask(BalanceLeaders(int(words.plain[0]))) else "done")
        self.commit_asked()

    def do_elect_unclean(self, words: Words) -> None:
        self.say("there may be more" if self.ask(ElectUnclean(int(words.plain[0]))) else "done")
        self.commit_asked()

    def do_set(self, words: Words) -> None:
        kind, name = words.plain
        changes = [(key, AlterOperation.SET, value) for key, value in words.named.items()]
        for error in self.ask(AlterConfigs([Alteration(TYPES[kind], name, changes)])):
            self.say(outcome(*error))
        self.commit_asked()

    def do_show(self, words: Words) -> None:
        for topic in self.image.topics:
            for partition in topic.partitions:
                self.say(f"{topic.name}-{partition.index} {describe(partition)}")

    def _partition(self, place: str) -> tuple[Topic | None, Partition]:
        name, _, index = place.rpartition("-")
        topic = self.image.topics.by_name(name)
        found = self.image.topics.partition(name, int(index))
        return topic, found or Partition(int(index), (), (), (), -1, 0, 0)

    def commit(self, decision: Decision[Any]) -> None:
        super().commit(decision)
        if decision.records:
            for broker in self.image.brokers.values():
                assert broker.epoch <= self.image.offset


def ids(text: str) -> tuple[bytes, ...]:
    """Directory ids from numbers with commas between."""
    return tuple(bytes([int(each)]) * 16 for each in text.split(",") if each)


def at_levels(told: Mapping[str, str]) -> tuple[SupportedFeature, ...]:
    """Our features, but with the levels of metadata.version and kraft.version that are told as LOW-HIGH."""
    found = {feature.name: feature for feature in supported_features()}
    for name in (levels.METADATA_VERSION, levels.KRAFT_VERSION):
        if (span := told.get(name.partition(".")[0])) is not None:
            low, high = map(int, span.split("-"))
            found[name] = SupportedFeature(name, low, high)
    return tuple(found.values())


def describe(partition: Partition) -> str:
    """Its state in words; what is as usual is left out."""
    said = f"leader {partition.leader}@{partition.leader_epoch} isr {list(partition.isr)}"
    for what, value in (
        ("eligible", partition.eligible_leaders),
        ("last known", partition.last_known_eligible_leaders),
        ("replicas", partition.replicas),
        ("adding", partition.adding),
        ("removing", partition.removing),
    ):
        if value:
            said += f" {what} {list(value)}"
    if partition.leader_recovery_state:
        said += " recovering"
    return f"{said} partition epoch {partition.partition_epoch}"
