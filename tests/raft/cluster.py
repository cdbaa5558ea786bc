"""Nodes of a quorum with disks and a network in memory, for transcripts and for random schedules.

A disk keeps what is synced; a crash takes what is not. What a snapshot takes the place of stays in the list that stands
for the log, as the snapshot's content. Messages wait in a list until somebody delivers, loses or reorders them. After
every step the promises are checked: one leader an epoch, and nothing committed is ever lost.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from headrace.raft import events as ev
from headrace.raft.control import ControlRecord, ControlType, Voter, VoterEndpoint
from headrace.raft.leader import Leader
from headrace.raft.log_view import LogView
from headrace.raft.machine import FIRST_BOOTSTRAP, Raft
from headrace.raft.messages import (
    AddVoterRequest,
    Entries,
    FetchResponse,
    FetchSnapshotResponse,
    Position,
    RemoveVoterRequest,
    ReplicaKey,
    Request,
    Response,
    SupportRequest,
    SupportResponse,
)
from headrace.raft.peers import RaftSettings
from headrace.raft.quorum_state import QuorumState, decode_quorum_state, encode_quorum_state
from headrace.raft.voter_set import NOT_IN_LOG, VoterHistory, VoterSet
from headrace.wire.errors import ErrorCode

EMPTY: Final = Position(0, 0)


class Entry(NamedTuple):
    """One entry of a log."""

    epoch: int
    payload: str
    record: ControlRecord | None = None


class Token(NamedTuple):
    """Where the reply to a request goes."""

    node: int
    life: int
    number: int
    asked: int = 0
    """As which peer the node was asked that replies; 0: under its own id."""


OUTSIDE: Final = Token(0, 0, 0)
"""Whoever asks and is no node."""


class Message(NamedTuple):
    """A request or a response under way; `life` is that of the node it began or ends at."""

    source: int
    target: int
    life: int
    number: int
    content: Request | Response


@dataclass
class Node:
    """One node: its machine while it is up, and its disk."""

    id: int
    jitter: Callable[[int], int]
    raft: Raft | None = None
    life: int = 0
    """How often it was started: a message of an earlier life meets nobody."""
    log: list[Entry] = field(default_factory=list)
    synced: int = 0
    saved: bytes | None = None
    holds_syncs: bool = False
    start: Position = EMPTY
    """Where its log begins, behind the oldest snapshot that it keeps."""
    snapshots: dict[Position, bytes] = field(default_factory=dict)
    """A snapshot's file is the payloads and epochs of its entries."""
    contents: dict[Position, list[Entry]] = field(default_factory=dict)
    """What the snapshots stand for."""
    host: str = ""
    """Where it is reached."""
    received: list[ev.Piece] = field(default_factory=list)
    """Pieces of a snapshot that are not stored yet."""
    part: bytes = b""

    bootstrap: tuple[int, ...] = ()
    """Nodes through which it finds the quorum, in whose place it was told of no voter."""
    is_incomplete: bool = False
    """Whether its log was emptied, and it has not got back what is committed."""
    disk: int = 0
    """Which disk it has: a new one has another directory id."""

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.id, bytes([self.disk, *([self.id] * 15)]) if self.disk else bytes([self.id]) * 16)

    @property
    def voter(self) -> Voter:
        return Voter(self.id, self.key.directory_id, (VoterEndpoint("CONTROLLER", self.host, 9093),))


class Lost(AssertionError):
    """A promise of the quorum was broken."""


class Cluster:
    """Voters 1 to `size`, none of them started. `say` gets a line for whatever can be seen."""

    def __init__(
        self, size: int, jitter: Callable[[int, int], int], say: Callable[[str], None] = lambda _: None
    ) -> None:
        self.nodes = {
            i: Node(i, jitter=lambda n, i=i: jitter(i, n), host=f"node{i}")  # type: ignore[misc]
            for i in range(1, size + 1)
        }
        self.first = VoterSet(tuple(node.voter for node in self.nodes.values()), kraft_version=1)
        """Who votes before the log says so."""
        self.first_offset = NOT_IN_LOG - 1
        """As if a log of old had said so. `NOT_IN_LOG`: the first leader says it."""
        self.names_itself = False
        """Whether nodes say how they want to be known as voters."""
        self._jitter = jitter
        self.now = 0
        self.network: list[Message] = []
        self.say = say
        self.settings = RaftSettings()
        self.refuses = False
        """Whether a node that is down refuses connections, and those that it had are broken: else there is silence."""
        self._asked: dict[tuple[int, int], int] = {}
        """The last request from one node to another."""
        self.leaders: dict[int, int] = {}
        self.committed: list[Entry] = []
        self.commit_epochs: list[int] = []
        """Of each committed entry: the epoch in which it was committed."""

    # --- nodes ------------------------------------------------------------------------------------------------------

    def start(self, node_id: int) -> None:
        """Starts a node on its disk. What a crash left in memory is synced first, as the shell does it."""
        node = self.nodes[node_id]
        assert node.raft is None
        node.life += 1
        newest = max(node.snapshots, key=lambda end: end.offset, default=node.start)
        if newest.offset > len(node.log) or (newest.offset > 0 and node.log[newest.offset - 1].epoch != newest.epoch):
            # A crash came between a snapshot of the leader's and the end of the log that it takes the place of.
            node.log, node.start = list(node.contents[newest]), newest
            node.snapshots = {newest: node.snapshots[newest]}
        node.synced = len(node.log)
        epochs = []
        last = node.start.epoch
        for at in range(node.start.offset, len(node.log)):
            if node.log[at].epoch > last:
                last = node.log[at].epoch
                epochs.append(Position(last, at))
        view = LogView(node.start.offset, len(node.log), epochs, node.start.epoch, newest)
        saved = None if node.saved is None else decode_quorum_state(node.saved)
        node.raft = Raft(
            node.key,
            self.history(node),
            view,
            saved,
            jitter=node.jitter,
            own=node.voter if self.names_itself else None,
            settings=self.settings,
            bootstrap=len(node.bootstrap),
            is_incomplete=node.is_incomplete,
        )
        self._perform(node, node.raft.start(self.now))

    def history(self, node: Node) -> VoterHistory:
        """The voters by a node's log, as a shell reads them at a start."""
        history = VoterHistory(VoterSet() if node.bootstrap else self.first, self.first_offset)
        for at, entry in enumerate(node.log):
            if entry.record is not None:
                history.note(at, entry.record)
        history.shorten(node.start.offset)
        return history

    def crash(self, node_id: int, keeps: int = 0) -> None:
        """A node is gone; of what it had not synced the first `keeps` entries happen to be on the disk."""
        node = self.nodes[node_id]
        node.raft = None
        node.holds_syncs = False
        node.received, node.part = [], b""
        del node.log[min(len(node.log), node.synced + keeps) :]
        while len(node.log) > node.synced and node.log[-1].payload == ControlType.KRAFT_VERSION.name:
            node.log.pop()  # the voters follow it in the same batch, of which a disk keeps all or nothing
        for (source, target), number in list(self._asked.items()):
            if self.refuses and self.place(source, target) == node_id and self.nodes[source].raft is not None:
                self.step(source, ev.Unreachable(target, number))

    def wipe(self, node_id: int) -> None:
        """A node that is down gets a new, empty disk."""
        node = self.nodes[node_id]
        assert node.raft is None
        node.log, node.synced, node.saved = [], 0, None
        node.start, node.snapshots, node.contents = EMPTY, {}, {}
        node.disk += 1

    def empty(self, node_id: int) -> None:
        """An operator empties the log of a node that is down: its votes stay, and a note says what happened."""
        node = self.nodes[node_id]
        assert node.raft is None
        node.log, node.synced = [], 0
        node.start, node.snapshots, node.contents = EMPTY, {}, {}
        node.is_incomplete = True

    def forget(self, node_id: int) -> None:
        """The same, and its votes are gone too: a new disk under the old name."""
        self.empty(node_id)
        self.nodes[node_id].saved = None

    def add_observer(self, node_id: int, bootstrap: tuple[int, ...] = ()) -> None:
        """A node that does not vote. `bootstrap`: it knows these nodes by their addresses alone, and no voter."""
        self.nodes[node_id] = Node(
            node_id, jitter=lambda n: self._jitter(node_id, n), host=f"node{node_id}", bootstrap=bootstrap
        )

    def place(self, source: int, peer: int) -> int:
        """The node that another one means by a peer: peers -2 and below are bootstrap servers."""
        return self.nodes[source].bootstrap[FIRST_BOOTSTRAP - peer] if peer <= FIRST_BOOTSTRAP else peer

    def step(self, node_id: int, event: ev.Event) -> None:
        """One event of a node that is up."""
        node = self.nodes[node_id]
        assert node.raft is not None
        self._perform(node, node.raft.step(event, self.now))

    def sync(self, node_id: int) -> None:
        """A sync of a node's log ends."""
        node = self.nodes[node_id]
        assert node.raft is not None
        node.synced = len(node.log)
        self.step(node_id, ev.Synced(node.raft.log.last))
        if node.received:
            self.store(node)

    def store(self, node: Node) -> None:
        """Stores a piece of a snapshot; the last one makes it one."""
        piece = node.received.pop(0)
        if piece.position == 0:
            node.part = b""
        assert len(node.part) == piece.position, "pieces follow one another"
        node.part += piece.data
        if not piece.is_last:
            self.step(node.id, ev.PieceStored(piece.snapshot, len(node.part)))
            return
        node.snapshots[piece.snapshot] = node.part
        node.contents[piece.snapshot] = self.contents(piece.snapshot)
        if not node.received:
            content = Node(0, node.jitter, log=node.contents[piece.snapshot])
            history = self.history(content)
            said = None if history.newest_offset < 0 else history.newest
            self.step(node.id, ev.SnapshotLoaded(piece.snapshot, said))

    def contents(self, end: Position) -> list[Entry]:
        """What a snapshot stands for, wherever it is."""
        return next(node.contents[end] for node in self.nodes.values() if end in node.contents)

    def snapshot(self, node_id: int, *, keeps: bool = False) -> bool:
        """A node writes a snapshot of what is committed; the log before it, or before an older one, goes."""
        node = self.nodes[node_id]
        raft = node.raft
        if raft is None or raft.high_watermark <= raft.log.snapshot.offset:
            return False
        end = Position(raft.log.epoch_below(raft.high_watermark), raft.high_watermark)
        node.snapshots[end] = json.dumps([each[:2] for each in node.log[: end.offset]]).encode()
        node.contents[end] = node.log[: end.offset]
        # What is synced with the snapshot is what the snapshot holds.
        node.synced = max(node.synced, end.offset)
        if not keeps:
            node.start = end
            node.snapshots = {end: node.snapshots[end]}
        self.say(f"{node.id} has a snapshot of all below {end.offset}, and its log begins at {node.start.offset}")
        self.step(node.id, ev.Snapshotted(end, node.start))
        return True

    def propose(self, node_id: int, payloads: list[str]) -> bool:
        """Appends to a node's log, if it leads."""
        raft = self.nodes[node_id].raft
        if raft is None or not raft.leads:
            return False
        self.step(node_id, ev.Propose(len(payloads), tuple(payloads)))
        return True

    def ask_to_add(self, node_id: int, added: int, token: Token, *, acks_when_committed: bool = True) -> None:
        """Asks a node for another one to vote."""
        voter = self.nodes[added].voter
        request = AddVoterRequest(self.nodes[added].key, voter.endpoints, acks_when_committed)
        self.step(node_id, ev.Requested(token, request))

    def ask_to_remove(self, node_id: int, key: ReplicaKey, token: Token) -> None:
        """Asks a node for a voter to be removed."""
        self.step(node_id, ev.Requested(token, RemoveVoterRequest(key)))

    def _perform(self, node: Node, out: ev.Output) -> None:
        raft = node.raft
        assert raft is not None
        if out.store is not None:
            self._store(node, out.store)
        if out.install is not None:
            node.log = list(node.contents[out.install])
            assert [list(each[:2]) for each in node.log] == json.loads(node.snapshots[out.install])
            node.start, node.synced = out.install, len(node.log)
            node.snapshots = {out.install: node.snapshots[out.install]}
            self.say(f"{node.id} has loaded the snapshot of all below {out.install.offset}")
        if out.truncate_to is not None:
            self.say(f"{node.id} truncates to {out.truncate_to}")
            del node.log[out.truncate_to :]
            node.synced = min(node.synced, out.truncate_to)
        for entries in out.append:
            assert entries.base_offset == len(node.log)
            records = entries.control or (None,) * entries.count
            payloads = zip(self._payloads(entries), records, strict=True)
            node.log += [Entry(entries.epoch, payload, record) for payload, record in payloads]
            self.say(f"{node.id} appends {entries.base_offset}..{entries.end_offset - 1} of epoch {entries.epoch}")
        for send in out.send:
            self._asked[node.id, send.peer] = send.number
            self.network.append(Message(node.id, send.peer, node.life, send.number, send.message))
        for reply in out.reply:
            self._reply(node, reply)
        if out.committed is not None:
            self.say(f"{node.id} commits up to {out.committed}")
        if out.is_complete:
            node.is_incomplete = False
            self.say(f"{node.id} has all that is committed")
        self._check(node, raft)
        if out.piece is not None:
            node.received.append(out.piece)
            if not node.holds_syncs:
                self.store(node)
        if node.synced < len(node.log) and not node.holds_syncs:
            self.sync(node.id)

    def _payloads(self, entries: Entries) -> list[str]:
        if all(isinstance(each, str) for each in entries.payload):
            return list(entries.payload)
        return [each.type.name for each in entries.payload]

    def _store(self, node: Node, state: QuorumState) -> None:
        node.saved = encode_quorum_state(state, state.data_version)

    def _reply(self, node: Node, reply: ev.Reply) -> None:
        token, message = reply.token, reply.message
        assert isinstance(token, Token)
        if isinstance(message, FetchSnapshotResponse) and not message.error:
            data = node.snapshots.get(message.snapshot)
            if data is None:
                message = replace(message, error=ErrorCode.SNAPSHOT_NOT_FOUND)
            else:
                message = replace(message, size=len(data), data=data[reply.read_from : reply.read_to])
        if isinstance(message, FetchResponse) and reply.read_to > reply.read_from:
            assert reply.read_from >= node.start.offset, "what a snapshot replaced is not there"
            assert reply.read_to <= node.synced, "what is not synced is not handed out"
            entries = [
                Entries(at, entry.epoch, 1, (entry.payload,), () if entry.record is None else (entry.record,))
                for at, entry in enumerate(node.log[reply.read_from : reply.read_to], reply.read_from)
            ]
            message = replace(message, entries=tuple(entries))
        source = token.asked or node.id
        self.network.append(Message(source, token.node, token.life, token.number, message))

    # --- the network ------------------------------------------------------------------------------------------------

    def deliver(self, message: Message) -> None:
        """A message arrives, or is refused because nobody is there."""
        if message.target == OUTSIDE.node:
            return
        is_request = isinstance(message.content, Request)
        target = self.nodes[self.place(message.source, message.target) if is_request else message.target]
        if isinstance(message.content, Request):
            if target.raft is not None and isinstance(message.content, SupportRequest):
                answer = SupportResponse((0, 1))
                self.network.append(Message(target.id, message.source, message.life, message.number, answer))
            elif target.raft is not None:
                token = Token(message.source, message.life, message.number, message.target)
                self.step(target.id, ev.Requested(token, message.content))
            else:
                self.lose(message, refused=self.refuses)
        elif target.raft is not None and target.life == message.life:
            self.step(target.id, ev.Answered(message.source, message.number, message.content))

    def lose(self, message: Message, *, refused: bool = False) -> None:
        """A request does not arrive, and its sender is told; `refused`: as if no process were there."""
        if not isinstance(message.content, Request):
            return
        source = self.nodes[message.source]
        if source.raft is not None and source.life == message.life:
            self.step(source.id, ev.Unreachable(message.target, message.number, refused))

    # --- the promises -----------------------------------------------------------------------------------------------

    def _check(self, node: Node, raft: Raft) -> None:
        if isinstance(raft.role, Leader):
            known = self.leaders.setdefault(raft.epoch, node.id)
            if known != node.id:
                raise Lost(f"epoch {raft.epoch} has two leaders: {known} and {node.id}")
            # One that was deposed and does not know it yet lacks what was committed since.
            known_by = sum(epoch <= raft.epoch for epoch in self.commit_epochs)
            if node.log[:known_by] != self.committed[:known_by]:
                raise Lost(f"leader {node.id} of epoch {raft.epoch} lacks what is committed")
        assert len(node.log) == raft.log.end_offset
        assert raft.sets.newest == self.history(node).newest, "the newest set in the log is in force"
        assert [entry.epoch for entry in node.log[-1:]] in ([], [raft.log.last.epoch])
        mark = max(0, raft.high_watermark)
        mine = node.log[:mark]
        if mine[: len(self.committed)] != self.committed[:mark]:
            raise Lost(f"node {node.id} has other entries committed than were committed before")
        if mark > len(self.committed):
            newest = self.history(node).newest
            voters = [each for each in self.nodes.values() if newest.names(each.key)]
            holders = [each.id for each in voters if each.log[: min(mark, each.synced)] == mine]
            if len(holders) < len(newest.voters) // 2 + 1:
                raise Lost(f"{mark} is committed, but only {holders} have synced it")
            self.commit_epochs += [raft.epoch] * (mark - len(self.committed))
            self.committed = mine


def error_name(message: Any) -> str:
    """The error of a response, with a space before it; empty for none."""
    error = getattr(message, "error", ErrorCode.NONE)
    return f" {error.name}" if error else ""
