"""A quorum that scripts drive.

Messages arrive at once and in order, but for links that are cut; syncs end at once, but for nodes that hold them. A
draw from [0, n) gives node i the i-th tenth of n, so that node 1 is always the first to lose its patience.

    cluster 3            voters 1 to 3, none started (--dynamic: the first leader writes who votes, and nodes say how
                         they want to be known)
    add 1 4, remove 1 2  node 1 is asked for node 4 to vote, for node 2 not to (disk=0: for what it was with that disk)
    move 2 elsewhere     a node that is down is reached elsewhere from now on
    joins                nodes that start from here on join by themselves
    voters 1             who votes by a node's log
    start 1 2            starts nodes on their disks
    crash 1 keeps=1      a node is gone; of what it had not synced one entry is on the disk
    wipe 1               a node that is down gets a new, empty disk
    empty 1              the log of a node that is down is emptied: its votes stay, and a note says so
    observer 4           starts a node that does not vote (bootstrap=1,2: it knows these nodes' addresses, and no voter)
    observers 1          the observers that a leader knows: the end of their logs, when they fetched and had all
    stop 1               a node resigns
    cut 1 2, heal 1 2    messages between two nodes are lost without a word (one node: all of its links)
    refusals             from here on a node that is down refuses connections
    hold 1, sync 1       a node's syncs wait until it is told to
    propose 1 a b        entries, where the node leads
    snapshot 1           a node writes a snapshot, and its log begins behind it (--keep: where it did)
    pieces 20            followers ask for so many bytes of a snapshot at once
    time 2000            time passes
    state                every node: role, epoch, leader, vote, end of its log, high watermark
    log 1                the entries of a node's log
    ask 1 vote from=2 epoch=3 end=1,5 --pre   a message from outside, and the answer
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from raft.cluster import OUTSIDE, Cluster, Message, error_name
from scripts.transcript import Scripted, Words

from headrace.raft import events as ev
from headrace.raft.leader import Leader
from headrace.raft.messages import (
    NO_DIRECTORY,
    AddVoterRequest,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    EpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Position,
    RemoveVoterRequest,
    ReplicaKey,
    Request,
    Response,
    SupportRequest,
    SupportResponse,
    UpdateVoterRequest,
    VoteRequest,
    VoteResponse,
    VoterResponse,
)
from headrace.raft.voter_set import NOT_IN_LOG, VoterSet


class Quorum(Scripted):
    """A cluster that runs commands."""

    def __init__(self) -> None:
        super().__init__()
        self.cut: set[frozenset[int]] = set()
        self.roles: dict[int, str] = {}
        self.told: set[str] = set()
        """Refused fetches of this command: they come again and again, and are said once."""
        self.do_cluster(Words(["3"]))

    # --- commands

    def do_cluster(self, words: Words) -> None:
        self.cluster = Cluster(int(words.plain[0]), lambda node, n: n * node // 10, self.say)
        if "dynamic" in words.switches:
            self.cluster.first_offset = NOT_IN_LOG
            self.cluster.names_itself = True
        if "static" in words.switches:
            named = (voter._replace(directory_id=NO_DIRECTORY) for voter in self.cluster.first.voters)
            self.cluster.first = VoterSet(tuple(named), kraft_version=0)
            self.cluster.first_offset = NOT_IN_LOG
            self.cluster.names_itself = True
        self.cut.clear()
        self.roles.clear()

    def do_start(self, words: Words) -> None:
        for node_id in map(int, words.plain):
            self.cluster.start(node_id)

    def do_crash(self, words: Words) -> None:
        self.cluster.crash(int(words.plain[0]), int(words.named.get("keeps", 0)))
        self.roles.pop(int(words.plain[0]), None)

    def do_wipe(self, words: Words) -> None:
        self.cluster.wipe(int(words.plain[0]))

    def do_empty(self, words: Words) -> None:
        self.cluster.empty(int(words.plain[0]))

    def do_observer(self, words: Words) -> None:
        bootstrap = tuple(map(int, words.named["bootstrap"].split(","))) if "bootstrap" in words.named else ()
        self.cluster.add_observer(int(words.plain[0]), bootstrap)
        self.cluster.start(int(words.plain[0]))

    def do_observers(self, words: Words) -> None:
        raft = self.cluster.nodes[int(words.plain[0])].raft
        if raft is None or not isinstance(raft.role, Leader):
            self.say(f"{words.plain[0]} does not lead")
            return
        raft.role.forget_silent_observers(self.cluster.now)
        for key, each in raft.role.observers.items():
            self.say(f"{key.id} end={each.end_offset} fetched={each.fetched_ms} caught_up={each.caught_up_ms}")
        if not raft.role.observers:
            self.say("no observers")

    def do_add(self, words: Words) -> None:
        node, added = map(int, words.plain)
        self.cluster.ask_to_add(node, added, OUTSIDE, acks_when_committed="early" not in words.switches)

    def do_remove(self, words: Words) -> None:
        node, removed = map(int, words.plain)
        known = self.cluster.nodes.get(removed)
        key = self.key(removed) if known is None or "disk" in words.named else known.key
        self.cluster.ask_to_remove(node, key, OUTSIDE)

    def do_raise(self, words: Words) -> None:
        node, level = map(int, words.plain)
        raft = self.cluster.nodes[node].raft
        assert raft is not None
        refusal = raft.version_refusal(level)
        self.say(refusal or f"kraft.version is raised to {level}")
        if refusal is None:
            self.cluster.step(node, ev.RaiseVersion(level))

    def do_move(self, words: Words) -> None:
        node = self.cluster.nodes[int(words.plain[0])]
        assert node.raft is None
        node.host = words.plain[1]

    def do_joins(self, words: Words) -> None:
        self.cluster.settings = replace(self.cluster.settings, auto_join=True)

    def do_voters(self, words: Words) -> None:
        raft = self.cluster.nodes[int(words.plain[0])].raft
        assert raft is not None
        sets = raft.sets
        said = " ".join(f"{v.id}@{v.endpoints[0].host}/{v.directory_id[0]}" for v in sets.newest.voters)
        self.say(f"{said or 'nobody'} since {sets.newest_offset}")

    def do_stop(self, words: Words) -> None:
        self.cluster.step(int(words.plain[0]), ev.Resign())

    def links(self, plain: list[str]) -> list[frozenset[int]]:
        one, *others = map(int, plain)
        return [frozenset({one, other}) for other in others or self.cluster.nodes]

    def do_cut(self, words: Words) -> None:
        self.cut.update(self.links(words.plain))

    def do_heal(self, words: Words) -> None:
        self.cut.difference_update(self.links(words.plain))

    def do_refusals(self, words: Words) -> None:
        self.cluster.refuses = True

    def do_hold(self, words: Words) -> None:
        self.cluster.nodes[int(words.plain[0])].holds_syncs = True

    def do_sync(self, words: Words) -> None:
        self.cluster.nodes[int(words.plain[0])].holds_syncs = False
        self.cluster.sync(int(words.plain[0]))

    def do_propose(self, words: Words) -> None:
        if not self.cluster.propose(int(words.plain[0]), words.plain[1:]):
            self.say(f"{words.plain[0]} does not lead")

    def do_snapshot(self, words: Words) -> None:
        if not self.cluster.snapshot(int(words.plain[0]), keeps="keep" in words.switches):
            self.say(f"{words.plain[0]} has nothing new")

    def do_pieces(self, words: Words) -> None:
        """Of nodes that start from now on."""
        self.cluster.settings = replace(self.cluster.settings, fetch_snapshot_bytes=int(words.plain[0]))

    def do_refuse(self, words: Words) -> None:
        """The disk has no room for what was appended from this offset on."""
        node = self.cluster.nodes[int(words.plain[0])]
        del node.log[int(words.plain[1]) :]
        self.cluster.step(node.id, ev.Refused(int(words.plain[1])))

    def do_time(self, words: Words) -> None:
        end = self.cluster.now + int(words.plain[0])
        while (due := self.next_due()) is not None and due[0] <= end:
            self.cluster.now = max(self.cluster.now, due[0])
            with self.at(self.cluster.now):
                self.cluster.step(due[1], ev.Tick())
                self.settle()
        self.cluster.now = end

    def next_due(self) -> tuple[int, int] | None:
        times = [
            (deadline_ms, node.id)
            for node in self.cluster.nodes.values()
            if node.raft is not None and (deadline_ms := node.raft.deadline_ms()) is not None
        ]
        return min(times, default=None)

    def do_state(self, words: Words) -> None:
        for node in self.cluster.nodes.values():
            raft = node.raft
            if raft is None:
                self.say(f"{node.id} down, log ends at {len(node.log)}, synced to {node.synced}")
                continue
            voted = "" if raft.voted is None else f" voted={raft.voted.id}"
            self.say(
                f"{node.id} {raft.role.name} epoch={raft.epoch} leader={raft.known_leader}{voted} "
                f"end={said_position(raft.log.last)} high_watermark={raft.high_watermark}"
            )

    def do_log(self, words: Words) -> None:
        entries = self.cluster.nodes[int(words.plain[0])].log
        self.say(" ".join(f"{entry.epoch}:{entry.payload}" for entry in entries) or "empty")

    def do_saved(self, words: Words) -> None:
        saved = self.cluster.nodes[int(words.plain[0])].saved
        self.say("nothing" if saved is None else saved.decode())

    def do_ask(self, words: Words) -> None:
        node = self.cluster.nodes[int(words.plain[0])]
        source = self.key(int(words.named.get("from", 9)))
        epoch = int(words.named["epoch"])
        to = self.key(int(words.named.get("to", node.id)))
        message: Request
        if words.plain[1] == "vote":
            end = Position(*map(int, words.named["end"].split(",")))
            message = VoteRequest(epoch, source, to, end, "pre" in words.switches)
        elif words.plain[1] == "begin":
            message = BeginQuorumEpochRequest(epoch, source.id, to)
        elif words.plain[1] == "snapshot":
            end = Position(*map(int, words.named["end"].split(",")))
            message = FetchSnapshotRequest(epoch, source, end, int(words.named.get("position", 0)), 100)
        elif words.plain[1] == "end":
            message = EndQuorumEpochRequest(epoch, source.id, ())
        else:
            last, offset = map(int, words.named["end"].split(","))
            message = FetchRequest(epoch, source, last, offset)
        self.cluster.step(node.id, ev.Requested(OUTSIDE, message))

    def key(self, node_id: int) -> ReplicaKey:
        return ReplicaKey(node_id, bytes([max(0, node_id)]) * 16)

    # --- the network

    def after_each(self) -> None:
        self.settle()
        self.told.clear()

    def settle(self) -> None:
        """Delivers what can be delivered, until nothing is under way."""
        self.say_roles()
        while self.cluster.network:
            self.carry(self.cluster.network.pop(0))
            self.say_roles()

    def carry(self, message: Message) -> None:
        if message.target == OUTSIDE.node:
            self.say(said_response(message.content))
            return
        source, target_id = self.ends(message)
        target = self.cluster.nodes[target_id]
        if frozenset({source, target_id}) in self.cut:
            return
        line = f"{message.source} -> {message.target} {said(message.content)}"
        if target.raft is not None and self.is_worth_saying(message.content) and line not in self.told:
            self.say(line)
            if isinstance(message.content, FetchResponse):
                self.told.add(line)
        self.cluster.deliver(message)

    def ends(self, message: Message) -> tuple[int, int]:
        """The nodes between which a message travels."""
        if isinstance(message.content, Request):
            return message.source, self.cluster.place(message.source, message.target)
        return self.cluster.place(message.target, message.source), message.target

    def is_worth_saying(self, content: Request | Response) -> bool:
        """Fetches that bring what they are for show in what is appended and committed."""
        if isinstance(content, FetchResponse):
            return bool(content.error) or content.diverging is not None or content.snapshot is not None
        return not isinstance(content, FetchRequest | EpochResponse)

    def say_roles(self) -> None:
        for node in self.cluster.nodes.values():
            if node.raft is not None:
                raft = node.raft
                role = f"{raft.role.name} in epoch {raft.epoch}"
                if raft.role.name == "follower":
                    role = f"{raft.role.name} of {raft.leader_id} in epoch {raft.epoch}"
                if self.roles.get(node.id) != role:
                    self.roles[node.id] = role
                    self.say(f"{node.id} is {role}")


def said_position(position: Position) -> str:
    return f"{position.epoch},{position.offset}"


def said(message: Request | Response) -> str:
    """A message in one line."""
    if isinstance(message, VoteRequest):
        kind = "pre-vote" if message.pre_vote else "vote"
        return f"{kind}? epoch={message.epoch} end={said_position(message.log_end)}"
    if isinstance(message, BeginQuorumEpochRequest):
        return f"begins epoch {message.epoch}"
    if isinstance(message, EndQuorumEpochRequest):
        return f"ends epoch {message.epoch}, successors {[key.id for key in message.successors]}"
    if isinstance(message, FetchRequest):
        return f"fetch epoch={message.epoch} end={message.last_fetched_epoch},{message.offset}"
    if isinstance(message, FetchSnapshotRequest):
        return f"snapshot? epoch={message.epoch} end={said_position(message.snapshot)} position={message.position}"
    if isinstance(message, SupportRequest):
        return "what do you run?"
    if isinstance(message, AddVoterRequest):
        return f"add voter {message.key.id}/{message.key.directory_id[0]}"
    if isinstance(message, RemoveVoterRequest):
        return f"remove voter {message.key.id}/{message.key.directory_id[0]}"
    if isinstance(message, UpdateVoterRequest):
        return f"voter {message.voter.id} is at {message.voter.endpoints[0].host}"
    return said_response(message)


def said_response(message: Any) -> str:
    """An answer in one line."""
    if isinstance(message, VoteResponse):
        kind = "pre-vote" if message.pre_vote else "vote"
        return f"{kind}: {'yes' if message.granted else 'no'} epoch={message.epoch}{error_name(message)}"
    if isinstance(message, FetchResponse):
        more = ""
        if message.diverging is not None:
            more = f" diverging={said_position(message.diverging)}"
        elif message.snapshot is not None:
            more = f" snapshot={said_position(message.snapshot)}"
        elif message.entries:
            more = f" entries {message.entries[0].base_offset}..{message.entries[-1].end_offset - 1}"
        return (
            f"fetched epoch={message.epoch} leader={message.leader_id} "
            f"high_watermark={message.high_watermark}{more}{error_name(message)}"
        )
    if isinstance(message, FetchSnapshotResponse):
        end = message.position + len(message.data)
        return (
            f"snapshot: epoch={message.epoch} end={said_position(message.snapshot)} "
            f"bytes {message.position}..{end} of {message.size}{error_name(message)}"
        )
    if isinstance(message, SupportResponse):
        return f"runs kraft.version {message.levels[0]} to {message.levels[1]}"
    if isinstance(message, VoterResponse):
        return f"voters: {error_name(message).strip() or 'done'}{' ' + message.message if message.message else ''}"
    return f"epoch={message.epoch} leader={message.leader_id}{error_name(message)}"
