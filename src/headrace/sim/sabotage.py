"""Planted faults in the broker: a simulator that does not find them would not find real ones.

Each replaces one function of the broker by a wrong one, with a mistake that has been made in practice.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from headrace.broker.net.budget import Budget
from headrace.broker.quorum.log.completeness import Completeness
from headrace.broker.quorum.log.metadata_log import MetadataLog
from headrace.broker.quorum.log.snapshot_files import SnapshotFiles
from headrace.broker.quorum.uncommitted import Uncommitted
from headrace.broker.requests.fetching.fetch import Fetch
from headrace.groups import offsets
from headrace.groups.classic import membership
from headrace.groups.classic.kind import ClassicKind
from headrace.groups.shard import GroupShard
from headrace.groups.shard_state import GroupShardState
from headrace.log.compaction import OffsetMap
from headrace.log.crash import SegmentScan
from headrace.log.flushing import Flushing
from headrace.log.log import Log
from headrace.log.producers import Producers
from headrace.machine import Decision
from headrace.raft.leader import Leader
from headrace.raft.machine import Raft
from headrace.raft.messages import FetchResponse, Response, VoteRequest
from headrace.raft.roles import Follower
from headrace.security.acls import AclAuthorizer
from headrace.sim.client_sabotage import client_plants
from headrace.sim.clock_sabotage import clock_plants
from headrace.sim.cluster_sabotage import cluster_plants
from headrace.sim.consumer_sabotage import consumer_plants
from headrace.sim.deleting_sabotage import deleting_plants
from headrace.sim.failing_sabotage import failing_plants
from headrace.sim.load_sabotage import load_plants
from headrace.sim.log_sabotage import log_plants
from headrace.sim.ownership_sabotage import ownership_plants
from headrace.sim.raise_sabotage import raise_plants
from headrace.sim.replica_sabotage import replica_plants
from headrace.sim.roles_sabotage import roles_plants
from headrace.sim.step_sabotage import step_plants
from headrace.sim.transaction_sabotage import group_plants, transaction_plants
from headrace.sim.unclean_sabotage import unclean_plants
from headrace.wire.batch import BatchHeader
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k08_offset_commit import OffsetCommitRequest

LOSES_ONE_IN: Final = 5

Plant = tuple[Any, str, Any]
"""Whose attribute, which, and what takes its place."""


def _flush_without_sync(self: Flushing, _up_to: int | None = None) -> int:
    self.flushed_offset = max(self.flushed_offset, self.state.bounds.end_offset)
    return self.flushed_offset


def _nothing(*_: object, **__: object) -> None:
    """Done, it says."""


def _find_nothing(*_: object, **__: object) -> list[str]:
    """All is there, it says."""
    return []


def _give_less(real: Callable[[Budget, int], None]) -> Callable[[Budget, int], None]:
    def give(self: Budget, size: int) -> None:
        real(self, max(size - 1, 0))

    return give


def _remember_later(real: Callable[..., bool]) -> Callable[..., bool]:
    """Every record has a later one, as far as compaction knows."""

    def add(self: OffsetMap, header: BatchHeader, *given: Any) -> bool:
        return real(self, header._replace(base_offset=header.base_offset + 1), *given)

    return add


def _commit_alone(_: Leader, raft: Raft) -> None:
    """What the leader has on its disk is committed, it says."""
    raft.commit(raft.log.synced_offset)


def _commit_any_epoch(real: Callable[..., None]) -> Callable[..., None]:
    """What a majority has is committed, whichever epoch it is of (figure 8 of the paper on Raft)."""

    def advance(self: Leader, raft: Raft) -> None:
        start, self.epoch_start = self.epoch_start, -1
        try:
            real(self, raft)
        finally:
            self.epoch_start = start

    return advance


def _take_the_vote_back(real: Callable[[Raft], None]) -> Callable[[Raft], None]:
    """A voter that has no leader any longer has not voted either."""

    def become_leaderless(self: Raft) -> None:
        real(self)
        self.voted = None

    return become_leaderless


def _yes(*_: object) -> bool:
    """Each that asks gets the vote."""
    return True


def _any_log(real: Callable[[Raft, object, VoteRequest], None]) -> Callable[[Raft, object, VoteRequest], None]:
    """Every candidate's log is good enough."""

    def vote(self: Raft, token: object, request: VoteRequest) -> None:
        real(self, token, replace(request, log_end=max(request.log_end, self.log.last)))

    return vote


def _any_length(real: Callable[[Raft, object, VoteRequest], None]) -> Callable[[Raft, object, VoteRequest], None]:
    """A candidate whose last entry is of the same epoch has as good a log, however far it goes."""

    def vote(self: Raft, token: object, request: VoteRequest) -> None:
        mine = self.log.last
        if request.log_end.epoch == mine.epoch:
            request = replace(request, log_end=max(request.log_end, mine))
        real(self, token, request)

    return vote


def _count_pre_votes(real: Callable[[Raft], None]) -> Callable[[Raft], None]:
    """Who would vote for a node has voted for it."""

    def become_candidate(self: Raft) -> None:
        granted = vars(self.role)["granted"]
        real(self)
        vars(self.role)["granted"] |= granted

    return become_candidate


def _hear_any_mark(real: Callable[..., None]) -> Callable[..., None]:
    """What is committed on a leader is so on its follower, whether the follower has the same log or not."""

    def answered(self: Follower, raft: Raft, peer: int, response: Response) -> None:
        if isinstance(response, FetchResponse) and response.diverging is not None and not response.error:
            raft.heard(response.high_watermark)
        real(self, raft, peer, response)

    return answered


def _take_old_generations(real: Callable[..., ErrorCode]) -> Callable[..., ErrorCode]:
    """A member is a member, whichever generation it is in."""

    def check(*given: Any) -> ErrorCode:
        error = real(*given)
        return ErrorCode.NONE if error is ErrorCode.ILLEGAL_GENERATION else error

    return check


def _take_replaced(real: Callable[..., ErrorCode]) -> Callable[..., ErrorCode]:
    """Who names an instance is the member that has it."""

    def check(shard: GroupShardState, request: OffsetCommitRequest, *given: Any) -> ErrorCode:
        group = shard.groups.get(request.group_id)
        if group is not None and request.group_instance_id is not None:
            request.member_id = group.static_members.get(request.group_instance_id, request.member_id)
        return real(shard, request, *given)

    return check


def _reply_at_once(real: Callable[..., None]) -> Callable[..., None]:
    """What was decided is as good as committed."""

    def push(self: Uncommitted, end_offset: int, change: object, decision: Decision[Any], asked: Future[Any]) -> None:
        real(self, end_offset, change, decision, asked)
        if decision.then is None:
            asked.set_result(decision.reply)

    return push


def _drop_some(real: Callable[..., Any]) -> Callable[..., Any]:
    count = 0

    def commit(*given: Any) -> Any:
        nonlocal count
        out = real(*given)
        count += 1
        if count % LOSES_ONE_IN == 0:
            out.records.clear()
        return out

    return commit


def _remember_decisions(real: Callable[..., Any]) -> Callable[..., Any]:
    """What was decided once stays so."""

    def follow(self: AclAuthorizer, records: Any) -> None:
        decisions = self._decisions
        real(self, records)
        self._decisions = decisions

    return follow


def _keep_the_generation(real: Callable[..., Any]) -> Callable[..., Any]:
    """Connections that remember what was allowed do not hear that rights have changed."""

    def follow(self: AclAuthorizer, records: Any) -> None:
        generation = self.generation
        is_first = not self._loaded
        real(self, records)
        if not is_first:
            self.generation = generation

    return follow


def _rename_alone(real: Callable[[Log, str], None]) -> Callable[[Log, str], None]:
    """Workers that have a log which moves away do not hear where it is."""

    def rename(self: Log, directory: str) -> None:
        if self.is_future:
            real(self, directory)
        else:
            self.resources.disk.rename(self.directory, directory)

    return rename


@contextmanager
def _hold_nothing(_: Flushing) -> Iterator[bool]:
    """Nobody is in the way."""
    yield True


def _moving_plants() -> dict[str, list[Plant]]:
    """The same, of what only moves between log directories can find."""
    rename = _rename_alone(Log.rename_folder)
    return {"moves-logs-under-workers": [(Flushing, "held_still", _hold_nothing), (Log, "rename_folder", rename)]}


def _replacements() -> dict[str, Plant]:
    """By name: whose attribute, which, and what takes its place."""
    check_commit = vars(offsets)["_check_commit"]
    return {
        "says-synced-without-sync": (Flushing, "flush", _flush_without_sync),
        "never-syncs-metadata": (MetadataLog, "sync", _nothing),
        "never-syncs-names": (Flushing, "_sync_names", _nothing),
        "keeps-a-torn-tail": (SegmentScan, "_cut", _nothing),
        "takes-duplicates": (Producers, "check", _nothing),
        "compacts-the-last-value": (OffsetMap, "add", _remember_later(OffsetMap.add)),
        "forgets-waiting-fetches": (Fetch, "_wait", _nothing),
        "leaks-the-budget": (Budget, "give", _give_less(Budget.give)),
        "confirms-commits-it-drops": (offsets, "commit", _drop_some(offsets.commit)),
        "lets-dead-members-stay": (GroupShard, "due", _nothing),
        "takes-commits-of-old-generations": (offsets, "_check_commit", _take_old_generations(check_commit)),
        "takes-commits-of-replaced-instances": (offsets, "_check_commit", _take_replaced(check_commit)),
        "lets-old-generations-stay": (
            ClassicKind,
            "heartbeat",
            staticmethod(_take_old_generations(membership.heartbeat)),
        ),
    }


def _quorum_replacements() -> dict[str, Plant]:
    """The same, of what only several controllers can find."""
    return {
        "commits-alone": (Leader, "advance", _commit_alone),
        "commits-older-epochs-by-count": (Leader, "advance", _commit_any_epoch(Leader.advance)),
        "takes-its-vote-back": (Raft, "become_leaderless", _take_the_vote_back(Raft.become_leaderless)),
        "counts-pre-votes": (Raft, "become_candidate", _count_pre_votes(Raft.become_candidate)),
        "hears-any-mark": (Follower, "answered", _hear_any_mark(Follower.answered)),
        "votes-twice": (Raft, "may_vote_for", _yes),
        "elects-any-log": (Raft, "_vote", _any_log(vars(Raft)["_vote"])),
        "votes-for-shorter-logs": (Raft, "_vote", _any_length(vars(Raft)["_vote"])),
        "replies-before-commit": (Uncommitted, "push", _reply_at_once(Uncommitted.push)),
        "names-a-snapshot-before-its-sync": (SnapshotFiles, "_sync", _nothing),
        "forgets-its-vote": (MetadataLog, "write_quorum_state", _nothing),
        "votes-with-an-emptied-log": (Completeness, "look", _find_nothing),
        "keeps-its-log-after-loading": (Log, "truncate_fully_and_start_at", _nothing),
    }


def _rights_replacements() -> dict[str, Plant]:
    """The same, of what only clusters with an authorizer can find."""
    return {
        "keeps-acls-that-are-gone": (AclAuthorizer, "_take_out", _nothing),
        "remembers-decisions-for-ever": (AclAuthorizer, "follow", _remember_decisions(AclAuthorizer.follow)),
        "produces-by-old-rights": (AclAuthorizer, "follow", _keep_the_generation(AclAuthorizer.follow)),
    }


PLANTED: Final = (*_replacements(), *ownership_plants(), *step_plants())
"""The names of the faults of one broker."""
PLANTED_IN_QUORUMS: Final = tuple(_quorum_replacements())
"""The names of the faults of several controllers."""
PLANTED_IN_CLUSTERS: Final = tuple(cluster_plants())
"""The names of the faults of whole clusters."""
PLANTED_IN_REPLICAS: Final = tuple(replica_plants())
"""The names of the faults of clusters whose leaders and in-sync sets change all the time."""
PLANTED_IN_ROLES: Final = tuple(roles_plants())
"""The names of the faults of partitions that change their role under a worker."""
PLANTED_IN_CLOCKS: Final = tuple(clock_plants())
"""The names of the faults of whole clusters whose clocks drift apart."""
PLANTED_IN_RAISES: Final = tuple(raise_plants())
"""The names of the faults of clusters that raise kraft.version."""
PLANTED_IN_GROUPS: Final = tuple(group_plants())
"""The names of the faults of transactions that commit as groups."""
PLANTED_IN_CLIENTS: Final = tuple(client_plants())
"""The names of the faults of the asyncio client."""
PLANTED_IN_CONSUMERS: Final = tuple(consumer_plants())
"""The names of the faults of consumer groups."""
PLANTED_IN_MOVES: Final = tuple(_moving_plants())
"""The names of the faults of one broker whose replicas move between its log directories."""
PLANTED_IN_RIGHTS: Final = tuple(_rights_replacements())
"""The names of the faults of clusters whose rights change."""
PLANTED_IN_LOADS: Final = tuple(load_plants())
"""The names of the faults of coordinators that load."""
PLANTED_IN_LOGS: Final = tuple(log_plants())
"""The names of the faults of one log."""
PLANTED_IN_DELETIONS: Final = tuple(deleting_plants())
"""The names of the faults of clusters of which records are deleted."""
PLANTED_IN_SINKS: Final = (
    "decides-without-the-ordinal",
    "compares-no-digest",
    "compares-no-options-of-writes",
    "passes-over-what-is-older",
    "takes-a-missing-mark-for-the-first",
    "forgets-the-commit-topic",
    "marks-before-it-commits",
    "compares-no-rows-of-batches",
    "compares-no-rows-of-tasks",
    "leaves-no-plan",
    "fences-nothing-for-a-plan",
)
"""The names of the faults of the sink that writes exactly once from Spark, which is loaded where it is needed."""
PLANTED_IN_FAILURES: Final = tuple(failing_plants())
"""The names of the faults of clusters of which log directories fail."""
PLANTED_IN_UNCLEAN_ELECTIONS: Final = tuple(unclean_plants())
"""The names of the faults of clusters with topics of which leaders may lack something."""
PLANTED_IN_TRANSACTIONS: Final = tuple(transaction_plants())
"""The names of the faults of clusters that only transactions meet."""


@contextmanager
def planted(name: str) -> Iterator[None]:
    """The fault is there inside the block."""
    alone = _replacements() | _quorum_replacements() | _rights_replacements()
    of_clusters = cluster_plants() | replica_plants() | raise_plants() | transaction_plants() | group_plants()
    of_clusters |= _moving_plants() | load_plants() | log_plants() | deleting_plants() | consumer_plants()
    of_clusters |= (
        ownership_plants()
        | step_plants()
        | roles_plants()
        | client_plants()
        | clock_plants()
        | failing_plants()
        | unclean_plants()
    )
    if name in PLANTED_IN_SINKS:
        from headrace.sim.sink_sabotage import sink_plants

        of_clusters |= sink_plants()
    plants = [alone[name]] if name in alone else of_clusters[name]
    real = [(owner, attribute, vars(owner)[attribute]) for owner, attribute, _ in plants]
    for owner, attribute, replacement in plants:
        setattr(owner, attribute, replacement)
    try:
        yield
    finally:
        for owner, attribute, before in real:
            setattr(owner, attribute, before)
