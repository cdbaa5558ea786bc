"""Checks the metadata quorum: an epoch has one leader, whose log has everything committed; what a node applies is on a
majority of the voters, and is the same on every node."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from headrace.broker.quorum.driver import QuorumDriver
from headrace.raft.machine import Raft
from headrace.raft.messages import Position
from headrace.sim.moments import after_each, before_each

if TYPE_CHECKING:
    from headrace.broker.quorum.uncommitted import Change
    from headrace.metadata.image import ClusterImage
    from headrace.raft.log_view import LogView
    from headrace.raft.voter_set import VoterHistory
    from headrace.sim.world import World


class Quorum:
    """Checks the promises of the metadata quorum."""

    def __init__(self, world: World, voters: Callable[[], Mapping[int, Raft | None]]) -> None:
        """`voters` has each node that may vote by its id, None of one that does not run."""
        self._world = world
        self._voters = voters
        self._leaders: dict[int, int] = {}
        self._sets: dict[int, VoterHistory] = {}
        """Those of each epoch's leader, whether it still runs or not."""
        self._epochs: dict[int, int] = {}
        self._committed = Position(0, 0)
        self.newest: ClusterImage | None = None
        """The newest image that any node has applied."""

    @property
    def newest_epoch(self) -> int:
        """The epoch of the last election; 0 before the first."""
        return max(self._leaders, default=0)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Hears of every image and every election inside the block."""
        with ExitStack() as taps:
            taps.enter_context(before_each(QuorumDriver, "_publish", self._applied))
            taps.enter_context(after_each(Raft, "become_leader", self._elected))
            yield

    def _applied(self, driver: QuorumDriver, change: Change) -> None:
        image = change.after
        node, end = driver.node_id, Position(image.epoch, image.offset + 1)
        what = f"node {node} applies metadata up to offset {image.offset} of epoch {image.epoch}"
        first = self._epochs.setdefault(image.offset, image.epoch)
        self._world.demand(first == image.epoch, f"{what}, and another node had epoch {first} there")
        running = {node: raft for node, raft in self._voters().items() if raft is not None}
        was_kept = end.offset <= self._committed.offset  # an emptied voter had it
        without = {
            node for node, raft in running.items() if not _has(raft.log, end) and not (was_kept and raft.is_incomplete)
        }
        # A leader commits by its newest voter set, which who applies may not have read yet: nor may anyone else have,
        # where that leader is alone in it.
        led = [each for epoch, each in self._sets.items() if epoch >= image.epoch]
        histories = [driver.sets, *led, *(raft.sets for raft in running.values())]
        sets = {each.keys: each for history in histories for each in history.since(end.offset)}.values()
        is_kept = any(len(each.keys) - len(without & {key.id for key in each.keys}) >= each.majority for each in sets)
        self._world.demand(is_kept, f"{what}, which voters {sorted(without)} do not have")
        if end.offset > self._committed.offset:
            self._committed, self.newest = end, image

    def _elected(self, raft: Raft, *_: object) -> None:
        node = raft.me.id
        first = self._leaders.setdefault(raft.epoch, node)
        self._sets[raft.epoch] = raft.sets
        self._world.demand(first == node, f"epoch {raft.epoch} of the quorum has two leaders: {first} and {node}")
        text = f"node {node} leads epoch {raft.epoch} of the quorum, and lacks what is committed: {self._committed}"
        self._world.demand(_has(raft.log, self._committed), text)


def _has(log: LogView, end: Position) -> bool:
    """Whether a log holds all that ends here, or a snapshot in its place."""
    if end.offset <= log.start_offset:
        return True
    return log.synced_offset >= end.offset and log.epoch_below(end.offset) == end.epoch
