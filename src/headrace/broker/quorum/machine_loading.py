"""From a metadata directory to the quorum's machine: everything is read, checked and synced before the driver begins.

All of it is synchronous: at a start there is nothing to wait for. A node that votes alone takes the lead here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.broker.quorum.effects import Append, Store, Sync, effects_of
from headrace.broker.quorum.log.completeness import Completeness
from headrace.broker.quorum.log.proposals import opening_records, prepare
from headrace.broker.quorum.voters import foreign_voters
from headrace.broker.storage.storage_format import StorageError
from headrace.metadata.delta import ImageDelta
from headrace.metadata.image import ClusterImage
from headrace.raft.events import Output, Propose, Synced
from headrace.raft.machine import Raft
from headrace.raft.voter_set import VoterHistory

if TYPE_CHECKING:
    from headrace.broker.quorum.log.metadata_log import LoadedMetadata, MetadataLog
    from headrace.broker.quorum.voters import Member
    from headrace.env import Node
    from headrace.raft.peers import RaftSettings
    from headrace.raft.quorum_state import QuorumState


@dataclass(slots=True)
class LoadedMachine:
    """The machine of a node with its log and its image.

    `member` is who the node is by its settings, `min_insync_replicas` what a fresh cluster begins with. `log_bytes` are
    the bytes of the log behind its newest snapshot, and `timestamp_ms` is the time of the last record that was read.
    `leads`: this node votes alone, and is the active controller.
    """

    log: MetadataLog
    member: Member
    completeness: Completeness
    raft: Raft
    image: ClusterImage
    min_insync_replicas: int
    committed: int
    timestamp_ms: int
    log_bytes: int
    leads: bool = False

    @property
    def sets(self) -> VoterHistory:
        """The voters, as the log and the settings have them."""
        return self.raft.sets


def load_machine(
    node: Node,
    log: MetadataLog,
    member: Member,
    found: LoadedMetadata,
    settings: RaftSettings,
    min_insync_replicas: int,
    obstacles: Sequence[str],
) -> LoadedMachine:
    """Makes the machine from the metadata that were found on disk, and takes the lead if no other node votes.

    Raises StorageError if this node must not start on the directory, naming every reason; `obstacles` are those that
    the image of a lone voter gives. No record has been written then. Raises OSError.
    """
    saved = log.read_quorum_state()
    completeness = Completeness(node, log, member, node.logger("quorum"))
    is_alone = member.is_alone_in(found.sets.newest)
    reasons = _contradictions(member, found, saved)
    if is_alone and not found.image.is_empty:
        reasons += obstacles
    reasons += completeness.look(found.sets.newest, saved, is_alone=is_alone)
    if reasons:
        raise StorageError(f"{log.directory} cannot be served: " + "; ".join(reasons))
    completeness.note()
    # What a crash left in memory is on the disk before anybody hears how far this log goes.
    log.sync_all()
    loaded = LoadedMachine(
        log,
        member,
        completeness,
        _machine(node, log, member, found, saved, settings, is_incomplete=completeness.lacks is not None),
        found.image,
        min_insync_replicas,
        committed=found.image.offset + 1,
        timestamp_ms=found.image.timestamp_ms,
        log_bytes=found.log_bytes,
    )
    if is_alone:
        _take_the_lead(loaded, node, found.in_transaction)
    return loaded


def _contradictions(member: Member, found: LoadedMetadata, saved: QuorumState | None) -> list[str]:
    """Returns why the settings and the directory do not fit together."""
    newest = found.sets.newest
    counts = member.is_static or newest.kraft_version == 0  # what the settings say of voters
    others = foreign_voters(member.voters, newest.voters, saved) if counts else []
    reasons = [f"the metadata quorum has other voters: {others}"] if others else []
    if member.is_lost_in(newest):
        reasons.append("this node is no voter and knows no other: set controller.quorum.bootstrap.servers")
    return reasons


def _machine(
    node: Node,
    log: MetadataLog,
    member: Member,
    found: LoadedMetadata,
    saved: QuorumState | None,
    settings: RaftSettings,
    *,
    is_incomplete: bool,
) -> Raft:
    view = found.view(log.end_offset)
    assert view.last.epoch == found.last_epoch
    return Raft(
        member.key_in(found.sets.newest),
        found.sets,
        view,
        saved,
        jitter=node.entropy.random().randrange,
        settings=settings,
        bootstrap=len(member.bootstrap),
        own=member.own,
        is_incomplete=is_incomplete,
    )


def _take_the_lead(loaded: LoadedMachine, node: Node, in_transaction: bool) -> None:
    """Without other voters there is nothing to wait for: all writes are synced at the end. Raises OSError."""
    raft, log = loaded.raft, loaded.log
    steady_ms = int(node.clock.monotonic() * 1000)
    _write(loaded, raft.start(steady_ms), node)
    assert raft.leads, "a lone voter leads at once"
    now_ms = node.clock.now_ms()
    image = ImageDelta(loaded.image).image(offset=log.end_offset - 1, epoch=raft.epoch, timestamp_ms=now_ms)
    stored = log.read_bootstrap() if image.is_empty else None
    records = opening_records(image, stored, in_transaction, loaded.min_insync_replicas)
    if records:
        change, values = prepare(image, records, raft.log.end_offset, raft.epoch, now_ms)
        _write(loaded, raft.step(Propose(len(values.values), values), raft.now), node)
        image = change.after
    end = raft.log.last
    log.sync()
    out = raft.step(Synced(end), int(node.clock.monotonic() * 1000))
    assert out.committed == end.offset and raft.is_active
    loaded.image, loaded.leads = image, True


def _write(loaded: LoadedMachine, out: Output, node: Node) -> None:
    """Carries out what the machine of a lone voter wants, at once; the sync is left to the caller. Raises OSError."""
    for effect in effects_of(out, loaded.raft.log.last):
        if isinstance(effect, Store):
            loaded.log.write_quorum_state(effect.state, effect.state.data_version)
        elif isinstance(effect, Append):
            loaded.log_bytes += loaded.log.append(effect.entries, node.clock.now_ms())
        else:
            assert isinstance(effect, Sync), "a lone voter has nobody to send to, and commits with its first sync"
