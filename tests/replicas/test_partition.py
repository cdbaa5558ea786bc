"""What holds of a partition's machine whatever happens to it."""

from __future__ import annotations

from copy import deepcopy

from hypothesis import given, settings
from hypothesis import strategies as st
from peers.tried import tried

from headrace.log.producers import UNDECIDED
from headrace.metadata.image import Partition
from headrace.replicas.partition import AlterIsr, Fetched, PartitionState, Rest, Role
from headrace.wire.errors import ErrorCode

NODE = 1
REPLICAS = (1, 2, 3)
LAG_MS = 30_000
ANSWERS = [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.INELIGIBLE_REPLICA, ErrorCode.INVALID_UPDATE_VERSION]
ANSWERS += [ErrorCode.NOT_CONTROLLER, ErrorCode.OPERATION_NOT_ATTEMPTED]


def facts(state: PartitionState, node: int) -> dict[str, object]:
    """What is known of a follower, and how far the partition is."""
    follower = state.followers[node]
    known: dict[str, object] = {name: getattr(follower, name) for name in follower.__slots__}
    return known | {"high_watermark": state.high_watermark, "pending": state.pending}


class World:
    """A controller and followers that do what real ones may, and the truth about who has what."""

    def __init__(self, min_insync: int, isr: tuple[int, ...]) -> None:
        self.state = PartitionState(NODE, lag_max_ms=LAG_MS)
        self.min_insync = min_insync
        self.now_ms = 0
        self.epoch = 0
        self.partition_epoch = 0
        self.isr = isr
        self.log_end = 10
        self.told = {2: -1, 3: -1}
        """Where each follower fetched last in this term of office."""
        self.has = {each: self.log_end if each in isr else 0 for each in REPLICAS}
        """What each replica really has; what is confirmed is never cut."""
        self.asked: list[AlterIsr] = []
        """Requests whose answers are still to come, the oldest first."""
        self.open: dict[int, int] = {}
        """Where each producer's open transaction begins."""
        self.ended: list[tuple[int, int]] = []
        """(first offset, offset of the marker) of every transaction that has ended."""
        self.state.brokers_are({1: 1, 2: 1, 3: 1})
        self.lead()

    def metadata(self, leader: int) -> Partition:
        return Partition(0, REPLICAS, (bytes(16),) * 3, self.isr, leader, self.epoch, self.partition_epoch)

    def lead(self) -> None:
        was_leader = self.state.role is Role.LEADER
        start = self.state.become_leader(self.metadata(NODE), self.log_end, self.now_ms, self.log_end)
        if not was_leader:
            self.told = {2: -1, 3: -1}
        assert start is None or (start.epoch, start.offset) == (self.epoch, self.log_end)

    def transact(self, producer: int) -> None:
        """A producer begins a transaction with the next record, or ends its own with a marker there."""
        if producer in self.open:
            self.ended.append((self.open.pop(producer), self.log_end))
        else:
            self.open[producer] = self.log_end
        oldest = min(self.open.values(), default=None)
        kept = [each for each in self.ended if each[1] >= self.state.high_watermark]
        self.state.transactions_are((*kept, *([] if oldest is None else [(oldest, UNDECIDED)])))
        self.log_end += 1

    def stable(self) -> int:
        """Where the first transaction begins that is open or has no committed marker; else the high watermark."""
        mark = self.state.high_watermark
        unstable = [*self.open.values(), *(first for first, marker in self.ended if marker >= mark)]
        return min([mark, *unstable])

    def may_count(self) -> int:
        """The end of the slowest replica that somebody could elect: committed or asked for."""
        members = set(self.isr) | set(self.state.maximal_isr)
        return min([self.log_end, *(self.told[each] for each in members if each != NODE)])


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 5)),
        st.tuples(st.just("transact"), st.integers(1, 3)),
        st.tuples(st.just("transact"), st.integers(1, 3)),
        st.tuples(st.just("fetch"), st.tuples(st.sampled_from([2, 3]), st.sampled_from([0, 0, 0, 1, 2, 6]))),
        st.tuples(st.just("fetch"), st.tuples(st.sampled_from([2, 3]), st.sampled_from([0, 0, 0, 1, 2, 6]))),
        st.tuples(st.just("wait"), st.sampled_from([1, LAG_MS, 2 * LAG_MS])),
        st.tuples(st.just("shrink"), st.none()),
        st.tuples(st.just("answer"), st.sampled_from(ANSWERS)),
        st.tuples(st.just("lead again"), st.none()),
        st.tuples(st.just("depose"), st.none()),
        st.tuples(st.just("fence"), st.sets(st.sampled_from([2, 3]))),
    ),
    min_size=10,
    max_size=60,
)


@settings(max_examples=tried(500))
@given(STEPS, st.integers(1, 3), st.sampled_from([(1,), (1, 2), REPLICAS]))
def test_what_is_committed_or_stable_stays_so_and_nobody_electable_lacks_it(
    steps: list[tuple[str, object]], min_insync: int, isr_at_first: tuple[int, ...]
) -> None:
    world = World(min_insync, isr_at_first)
    for what, argument in steps:
        before, known = world.state.high_watermark, world.state.isr
        stable_before = world.state.last_stable_offset
        take(world, what, argument)
        state = world.state
        assert stable_before <= state.last_stable_offset == world.stable() <= state.high_watermark
        assert state.last_stable_offset == state.high_watermark or world.open or world.ended
        assert state.high_watermark >= before
        assert state.high_watermark <= world.log_end
        if state.high_watermark > before:
            assert state.high_watermark <= world.may_count()
            assert max(len(known), len(state.isr)) >= min_insync  # as far as this broker knows
        assert all(world.has[each] >= state.high_watermark for each in world.isr if each != NODE)
        assert NODE in state.maximal_isr or state.role is not Role.LEADER
        assert state.pending is None or state.role is Role.LEADER


def take(world: World, what: str, argument: object) -> None:
    state = world.state
    if what == "append" and state.role is Role.LEADER:
        assert isinstance(argument, int)
        world.log_end += argument
        state.advance(world.log_end, world.now_ms, world.min_insync)
    elif what == "transact" and state.role is Role.LEADER:
        assert isinstance(argument, int)
        world.transact(argument)
        state.advance(world.log_end, world.now_ms, world.min_insync)
    elif what == "fetch" and state.role is Role.LEADER:
        assert isinstance(argument, tuple)
        node, back = argument
        offset = world.told[node] = world.has[node] = max(world.has[node], world.log_end - back)
        again = deepcopy(state)
        got = state.fetched(node, 1, offset, world.now_ms, world.min_insync)
        assert got.error is ErrorCode.NONE
        rest = Rest()
        if again.rests(node, 1, offset, -1, rest):
            assert got == Fetched(ErrorCode.NONE), "nothing came of it"
            rest.fetched_at_ms = later_ms = world.now_ms + LAG_MS
            asking = deepcopy(state)
            asking.fetched(node, 1, offset, later_ms, world.min_insync)
            for at_ms in (later_ms + LAG_MS, later_ms + LAG_MS + 1):
                caught_up = [each.followers[node].is_caught_up(offset + 1, at_ms, LAG_MS) for each in (again, asking)]
                assert caught_up == [at_ms == later_ms + LAG_MS] * 2, "it counts while it rests"
            again.wakes(node, Rest())
            assert again.followers[node].rest is rest, "another session's"
            again.wakes(node, rest)
            assert facts(again, node) == facts(asking, node)
        if got.alter is not None:
            assert offset >= state.epoch_start
            world.asked.append(got.alter)
    elif what == "wait":
        assert isinstance(argument, int)
        world.now_ms += argument
    elif what == "shrink":
        alter = state.shrink(world.now_ms)
        world.asked += [alter] if alter is not None else []
    elif what == "answer" and world.asked:
        assert isinstance(argument, ErrorCode)
        answer(world, world.asked.pop(0), argument)
    elif what == "lead again":
        world.epoch, world.partition_epoch = world.epoch + 1, world.partition_epoch + 1
        world.lead()
    elif what == "depose":
        world.epoch, world.partition_epoch = world.epoch + 1, world.partition_epoch + 1
        state.become_follower(world.metadata(-1))
        assert state.pending is None
    elif what == "fence":
        assert isinstance(argument, set)
        state.brokers_are({each: 1 for each in REPLICAS if each not in argument})


def answer(world: World, asked: AlterIsr, error: ErrorCode) -> None:
    """The controller writes a change that was asked of what it knows now; it may write one and the answer says no."""
    is_current = (asked.leader_epoch, asked.partition_epoch) == (world.epoch, world.partition_epoch)
    if not is_current and error is ErrorCode.NONE:
        error = ErrorCode.INVALID_UPDATE_VERSION
    if is_current and error in (ErrorCode.NONE, ErrorCode.INVALID_UPDATE_VERSION):
        world.isr = tuple(each for each, _ in asked.members)
        world.partition_epoch += 1
    partition = world.metadata(NODE) if error is ErrorCode.NONE else None
    outcome = world.state.altered(asked, error, partition, world.now_ms, world.min_insync)
    if outcome.retry is not None:
        assert outcome.retry is world.state.pending
        world.asked.append(outcome.retry)
    if error is ErrorCode.NONE:
        assert world.state.isr == world.isr and world.state.pending is None


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=30))
def test_a_follower_commits_no_more_than_it_has(steps: list[tuple[int, int]]) -> None:
    state = PartitionState(NODE)
    state.become_follower(Partition(0, REPLICAS, (bytes(16),) * 3, REPLICAS, 2, 0, 0))
    end = 0
    for grown, leaders in steps:
        before, end = state.high_watermark, end + grown
        moved = state.followed(end, leaders)
        assert state.high_watermark == state.last_stable_offset == max(before, min(end, leaders))
        assert moved == (state.high_watermark > before)


@given(st.integers(0, 100), st.lists(st.integers(0, 20), max_size=20))
def test_alone_the_short_way_and_the_long_way_agree(mark: int, grown: list[int]) -> None:
    """`append_counts` is `advance` for a partition with one replica."""
    ways = [PartitionState(NODE, mark), PartitionState(NODE, mark)]
    for state in ways:
        state.become_leader(Partition(0, (1,), (bytes(16),), (1,), 1, 0, 0), mark, 0, mark)
        assert state.is_alone
    end = mark
    for step in grown:
        end += step
        assert ways[0].append_counts(end) == ways[1].advance(end, 0, 3) == (step > 0)
        assert ways[0].high_watermark == ways[1].high_watermark == end
        assert ways[0].last_stable_offset == ways[1].last_stable_offset == end


def test_the_low_watermark_is_that_of_the_replicas_that_serve() -> None:
    state = PartitionState(NODE)
    state.brokers_are({1: 1, 2: 1, 3: 1})
    state.become_leader(Partition(0, REPLICAS, (bytes(16),) * 3, REPLICAS, NODE, 0, 0), 10, 0, 10)
    assert state.low_watermark(4) == -1
    state.fetched(2, 1, 10, 0, 1, log_start=4)
    state.fetched(3, 1, 10, 0, 1, log_start=2)
    assert (state.low_watermark(4), state.low_watermark(1)) == (2, 1)
    state.brokers_are({1: 1, 2: 1})
    assert state.low_watermark(4) == 4
    state.become_leader(Partition(0, (1, 2), (bytes(16),) * 2, (1, 2), NODE, 1, 1), 10, 0, 10)
    state.brokers_are({1: 1, 2: 1, 3: 1})
    assert state.low_watermark(9) == 4, "replica 3 is none any more"


def test_a_follower_joins_only_once_it_begins_where_the_leader_does() -> None:
    state = PartitionState(NODE, log_start=4)
    state.brokers_are({1: 1, 2: 1, 3: 1})
    state.become_leader(Partition(0, REPLICAS, (bytes(16),) * 3, (1,), NODE, 0, 0), 10, 0, 10)
    assert state.fetched(2, 1, 10, 0, 1, log_start=3).alter is None, "it has records that were deleted"
    assert state.fetched(2, 1, 10, 0, 1, log_start=4).alter is not None


def test_a_follower_that_does_not_tell_its_log_start_may_join() -> None:
    state = PartitionState(NODE, log_start=4)
    state.brokers_are({1: 1, 2: 1, 3: 1})
    state.become_leader(Partition(0, REPLICAS, (bytes(16),) * 3, (1,), NODE, 0, 0), 10, 0, 10)
    assert state.fetched(2, 1, 10, 0, 1).alter is not None


def test_a_follower_rests_if_it_asks_for_the_same_again_and_everything_is_committed() -> None:
    world = World(1, (NODE, 2))
    state, rest = world.state, Rest()
    assert not state.rests(2, 1, world.log_end, 0, rest), "it has not fetched yet"
    state.fetched(2, 1, world.log_end, 0, 1, log_start=0)
    assert not state.rests(2, 1, world.log_end - 1, 0, rest), "it asks for something else"
    assert not state.rests(2, 1, world.log_end, 1, rest), "its log begins elsewhere"
    assert not state.rests(3, 1, world.log_end, 0, rest), "it is not in sync"
    assert state.rests(2, 1, world.log_end, 0, rest)
    assert state.followers[2].rest is rest


def test_a_follower_that_begins_below_the_leader_after_a_deletion_does_not_join() -> None:
    world = World(1, (NODE,))
    world.state.begins_at(5)
    assert world.state.fetched(2, 1, world.log_end, 0, 1, log_start=4).alter is None
    joining = world.state.fetched(2, 1, world.log_end, 0, 1, log_start=5).alter
    assert joining is not None and {node for node, _ in joining.members} == {NODE, 2}
