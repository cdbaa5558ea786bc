"""One coordinator shard with consumer groups that scripts drive.

A client is a name, and its member id too. It remembers the epoch and the partitions that it was last told, so that a
script says only what matters: `heartbeat g a` says nothing of what it has, and with `--done` that it has just that.
"""

from __future__ import annotations

from typing import Any

from groups.scripted import Client, Coordinator, Waiter, said_partitions, topic_id
from scripts.transcript import Words

from headrace.broker.requests.pieces import at_once
from headrace.groups.consumer.heartbeat import LEAVES_FOR_A_WHILE, Sender
from headrace.groups.consumer.regexes import LookUp
from headrace.groups.modern.epochs import JOINS, LEAVES
from headrace.groups.modern.topics import TopicInfo, Topics
from headrace.machine.patterns import matching, what_is_wrong
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k09_offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from headrace.wire.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

GIVES_UP = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)
"""Errors on which a client has nothing any more, and joins anew."""


class ConsumerGroups(Coordinator):
    """A shard, the topics that it is told of, and its clients."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicInfo] = {}
        self.has: dict[str, dict[bytes, list[int]]] = {}
        """What each client was last told that it has."""
        self.said: dict[str, tuple[int, list[str] | None, str | None]] = {}
        """The rebalance timeout, topics and regular expression that each client last named."""
        self.doubts: set[str] = set()
        """Clients that do not know what became of a heartbeat: they take them out who send a full one."""
        self.version = self.created = 0
        """Of the metadata, and of the newest topic."""
        self.client_id = ""
        """What all clients call themselves; empty: by their own names."""
        self.secret: set[str] = set()
        """Topics that clients may not Describe."""
        self.finds_later = False
        super().__init__()

    # --- the shell's part --------------------------------------------------------------------------------------------

    def reload(self) -> None:
        super().reload()
        self.know_topics()

    def know_topics(self) -> None:
        """Tells the shard of the topics as they are now."""
        self.shard.know_topics(Topics(self.topics.values(), self.version, self.created))

    def _may_describe(self, topic: str) -> bool:
        return topic not in self.secret

    def answer_questions(self) -> None:
        if self.finds_later or self.runtime.is_writing:
            return
        while self.questions:
            look_up = self.questions.pop(0)
            assert isinstance(look_up, LookUp)
            for regex in look_up.regexes:
                matched = [] if what_is_wrong(regex) else matching(regex, look_up.topics.by_name)
                means = frozenset(filter(look_up.may_describe, matched))
                self.run(self.shard.regex_found(look_up, regex, means, self.now_ms))
            self.run(self.shard.look_up_finished(look_up))

    def send(self, client: Client, request: ConsumerGroupHeartbeatRequest, what: str, version: int = 1) -> None:
        waiter = Waiter(client, what)
        fault = what_is_wrong(request.subscribed_topic_regex or "")
        sender = Sender(self.client_id or client.name, "/127.0.0.1", version, self._may_describe, self.principal, fault)
        self.run(self.shard.consumer_heartbeat(request, sender, self.now_ms), waiter)

    def answer(self, waiter: Waiter, response: Any) -> None:
        if not isinstance(response, ConsumerGroupHeartbeatResponse):
            if isinstance(response, ErrorCode):
                self.doubts.add(waiter.client.name)
            super().answer(waiter, response)
            return
        client = waiter.client
        if response.error_code:
            error = ErrorCode(response.error_code)
            self.say(f"{client.name} {waiter.what}: {error.name}: {response.error_message}")
            if error in GIVES_UP:
                client.generation = JOINS
                self.has[client.name] = {}
            return
        assert response.member_id is not None
        client.member_id, client.generation = response.member_id, response.member_epoch
        told = ""
        if response.assignment is not None:
            has = {each.topic_id: each.partitions for each in response.assignment.topic_partitions}
            self.has[client.name] = has
            told = f" has [{said_partitions({topic: frozenset(all_) for topic, all_ in has.items()})}]"
        self.say(f"{client.name} {waiter.what}: epoch={response.member_epoch}{told}")

    def do_find(self, words: Words) -> None:
        """find later|now: when what a regular expression means comes back."""
        self.finds_later = words.plain[0] == "later"
        self.answer_questions()

    # --- commands ----------------------------------------------------------------------------------------------------

    def do_topic(self, words: Words) -> None:
        """topic NAME PARTITIONS: as many from here on, 0 for a topic that is deleted; id=NAME where it is another.

        --secret: clients may not Describe it.
        """
        name, count = words.plain[0], int(words.plain[1])
        self.version += 1
        if self.topics.pop(name, None) is None:
            self.created = self.version
        if "secret" in words.switches:
            self.secret.add(name)
        if count:
            racks = tuple((rack,) for rack in words.named.get("racks", "").split(",") if rack)
            self.topics[name] = TopicInfo(name, topic_id(words.named.get("id", name)), count, racks)
        self.know_topics()

    def do_join(self, words: Words) -> None:
        """join GROUP CLIENT: a heartbeat with epoch 0, for topic t unless it says otherwise."""
        client = self.client(words.plain[1])
        self.has[client.name] = {}
        if "regex" not in words.named:
            words.named.setdefault("topics", "t")
        self.send(client, self._request(words, client, JOINS, []), "joins", int(words.named.get("version", 1)))

    def do_heartbeat(self, words: Words) -> None:
        """heartbeat GROUP CLIENT: epoch=, owns=t-0,t-1 or --done (what it was last told), and whatever changes.

        --full: all that it ever said, as clients do when an answer was lost.
        """
        client = self.client(words.plain[1])
        owned = None
        if "owns" in words.named:
            owned = _owned(words.named["owns"])
        elif words.switches & {"done", "full"}:
            owned = [TopicPartitions(topic, all_) for topic, all_ in self.has.get(client.name, {}).items()]
        epoch = int(words.named.get("epoch", client.generation))
        self.send(client, self._request(words, client, epoch, owned), "heartbeats")

    def do_leave(self, words: Words) -> None:
        """leave GROUP CLIENT: for good, or --for-a-while."""
        client = self.client(words.plain[1])
        epoch = LEAVES_FOR_A_WHILE if "for-a-while" in words.switches else LEAVES
        self.send(client, self._request(words, client, epoch, None), "leaves")

    def _request(
        self, words: Words, client: Client, epoch: int, owned: list[TopicPartitions] | None
    ) -> ConsumerGroupHeartbeatRequest:
        named = words.named
        topics = named.get("topics")
        names = None if topics is None else [topic for topic in topics.split(",") if topic]
        rebalance_timeout_ms = int(named.get("rebalance", 300_000 if epoch == JOINS else -1))
        regex = named.get("regex")
        before = self.said.get(client.name, (-1, None, None))
        if epoch != JOINS:
            rest = (max(rebalance_timeout_ms, before[0]), before[1] if names is None else names, regex or before[2])
        else:
            rest = (rebalance_timeout_ms, names, regex)
        self.said[client.name] = rest
        if "full" in words.switches:
            rebalance_timeout_ms, names, regex = rest
        return ConsumerGroupHeartbeatRequest(
            group_id=words.plain[0],
            member_id=named.get("member", client.name),
            member_epoch=epoch,
            instance_id=named.get("instance"),
            rack_id=named.get("rack"),
            rebalance_timeout_ms=rebalance_timeout_ms,
            subscribed_topic_names=names,
            subscribed_topic_regex=regex,
            server_assignor=named.get("assignor"),
            topic_partitions=owned,
        )

    def do_classic_join(self, words: Words) -> None:
        """join, by JoinGroup."""
        super().do_join(words)

    def do_fetch(self, words: Words) -> None:
        """fetch GROUP TOPIC-0: nobody's, or as=CLIENT with its epoch."""
        if "as" not in words.named:
            super().do_fetch(words)
            return
        client = self.client(words.named["as"])
        topics = [
            OffsetFetchRequestTopics(where.rsplit("-", 1)[0], bytes(16), [int(where.rsplit("-", 1)[1])])
            for where in words.plain[1:]
        ]
        epoch = int(words.named.get("epoch", client.generation))
        asked = OffsetFetchRequestGroup(words.plain[0], client.name, epoch, topics)
        found = at_once(self.shard.fetching(asked, False))
        if found.error_code:
            self.say(f"{client.name} fetches: {ErrorCode(found.error_code).name}")
        for topic in found.topics:
            for each in topic.partitions:
                self.say(f"{client.name} fetches: {topic.name}-{each.partition_index} = {each.committed_offset}")

    def do_describe(self, words: Words) -> None:
        group = at_once(self.shard.describing_consumer_group(words.plain[0]))
        if group.error_code:
            self.say(f"{ErrorCode(group.error_code).name}: {group.error_message}")
            return
        self.say(
            f"{group.group_state} epoch={group.group_epoch} targets={group.assignment_epoch} {group.assignor_name}"
        )
        for member in group.members:
            has, shall_have = (
                " ".join(
                    f"{each.topic_name}-{partition}" for each in one.topic_partitions for partition in each.partitions
                )
                for one in (member.assignment, member.target_assignment)
            )
            instance = f" instance={member.instance_id}" if member.instance_id is not None else ""
            self.say(
                f"  {member.member_id}{instance} epoch={member.member_epoch} has [{has}] shall have [{shall_have}]"
            )


def _owned(text: str) -> list[TopicPartitions]:
    """t-0,t-1"""
    owned: dict[str, list[int]] = {}
    for each in filter(None, text.split(",")):
        topic, partition = each.rsplit("-", 1)
        owned.setdefault(topic, []).append(int(partition))
    return [TopicPartitions(topic_id(topic), all_) for topic, all_ in owned.items()]
