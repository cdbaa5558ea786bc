"""Questions to the coordinators of transactions: gathered, sent over real sockets, and answered each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial

import pytest
from broker.scripted_coordinator import COORDINATOR, NONE, ScriptedCoordinator, cluster_of

from headrace.broker.coordinators import verifier as module
from headrace.broker.coordinators.verifier import PartitionErrors, Verifier
from headrace.broker.telemetry.metrics import Registry
from headrace.config import BrokerConfig
from headrace.env.completion import Completion
from headrace.env.node import Node
from headrace.env.posix_node import PosixNode
from headrace.transactions.asks import Partitions, TopicPartition, Verdicts
from headrace.wire.errors import ErrorCode

HERE = 1
FIRST: TopicPartition = ("t", 0)
LATE, NOBODY = ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.NETWORK_EXCEPTION


def about(name: str, epoch: int = 0, *partitions: TopicPartition) -> Partitions:
    return Partitions(name, 7, epoch, frozenset(partitions or (FIRST,)), 2)


async def join(verifier: Verifier, ask: Partitions, *, verify_only: bool) -> PartitionErrors:
    said = verifier.join(ask, verify_only=verify_only)
    return await said if isinstance(said, Coroutine) else said


Make = Callable[..., Verifier]


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    node = PosixNode()
    made: list[Verifier] = []

    def make_it(port: int, leader: int = COORDINATOR, **settings: str) -> Verifier:
        given = {"log.dirs": "unused", **{name.replace("_", "."): value for name, value in settings.items()}}
        config, image = BrokerConfig(given), cluster_of(port, leader)
        made.append(Verifier(node, HERE, lambda: config, lambda: image, Registry()))
        return made[-1]

    yield make_it
    for each in made:
        each.close()
    await node.close()


async def came(scripted: ScriptedCoordinator) -> None:
    assert await asyncio.to_thread(scripted.came.acquire, timeout=60)


async def test_each_partition_is_spoken_of(make: Make) -> None:
    with ScriptedCoordinator() as scripted:
        verifier = make(scripted.port)
        errors = {0: NONE, 1: ErrorCode.PRODUCER_FENCED, 2: None, 3: ErrorCode.TRANSACTION_ABORTABLE}
        scripted.says = lambda _, topic, index: errors[index] if topic == "t" else NONE
        asked = about("x", 0, *(("t", index) for index in errors), ("u", 5))
        assert await join(verifier, asked, verify_only=True) == {
            ("t", 0): NONE,
            ("t", 1): LATE,
            ("t", 2): ErrorCode.INVALID_TXN_STATE,
            ("t", 3): ErrorCode.TRANSACTION_ABORTABLE,
            ("u", 5): NONE,
        }
        assert scripted.transactions() == [("x", True, [("t", [0, 1, 2, 3]), ("u", [5])])]


async def test_what_is_asked_while_one_request_is_under_way_goes_with_the_next(make: Make) -> None:
    with ScriptedCoordinator() as scripted:
        verifier = make(scripted.port)
        scripted.gate.clear()
        scripted.says = lambda each, *_: NONE if each.verify_only else ErrorCode.INVALID_TXN_STATE
        asks = [asyncio.ensure_future(join(verifier, about("0"), verify_only=True))]
        await came(scripted)
        asks += [asyncio.ensure_future(join(verifier, about(str(i)), verify_only=i % 2 == 0)) for i in range(1, 50)]
        await asyncio.sleep(0)
        scripted.gate.set()
        said = [each[FIRST] for each in await asyncio.gather(*asks)]
        assert said == [NONE, ErrorCode.INVALID_TXN_STATE] * 25
        assert [len(each.transactions) for each in scripted.asked] == [1, 49]


async def queued(
    scripted: ScriptedCoordinator, verifier: Verifier, *asks: tuple[Partitions, bool]
) -> list[PartitionErrors]:
    """What is said to each who asks (`verify_only`) while an answer to another is awaited."""
    scripted.gate.clear()
    before = asyncio.ensure_future(join(verifier, about("other"), verify_only=True))
    await came(scripted)
    waiting = []
    for ask, verify_only in asks:
        waiting.append(asyncio.ensure_future(join(verifier, ask, verify_only=verify_only)))
        await asyncio.sleep(0)
    scripted.gate.set()
    await before
    return list(await asyncio.gather(*waiting))


async def test_a_newer_producer_takes_the_place_of_an_older_one(make: Make) -> None:
    """And an older one is too late."""
    with ScriptedCoordinator() as scripted:
        said = await queued(
            scripted, make(scripted.port), *((about("x", epoch), True) for epoch in (3, 4, 2))
        )  # fmt: skip
        assert [each[FIRST] for each in said] == [LATE, NONE, LATE]
        assert [each.producer_epoch for each in scripted.asked[1].transactions] == [4]


async def test_what_one_producer_asks_about_several_partitions_is_one_question(make: Make) -> None:
    """Each who asks hears of its own partitions; so does one that comes again."""
    with ScriptedCoordinator() as scripted:
        scripted.says = lambda *at: ErrorCode.TRANSACTION_ABORTABLE if at[2] == 1 else NONE
        first, second = ("t", 1), ("u", 2)
        asks = [about("x", 0, FIRST), about("x", 0, first, second), about("x", 0, FIRST)]
        said = await queued(scripted, make(scripted.port), *((each, True) for each in asks))
        assert said == [{FIRST: NONE}, {first: ErrorCode.TRANSACTION_ABORTABLE, second: NONE}, {FIRST: NONE}]
        assert scripted.transactions()[1:] == [("x", True, [("t", [0, 1]), ("u", [2])])]


async def test_questions_that_cannot_be_one_take_the_place_of_each_other(make: Make) -> None:
    """An answer speaks of a transactional id once."""
    with ScriptedCoordinator() as scripted:
        other = about("x")._replace(producer_id=8)
        said = await queued(scripted, make(scripted.port), (about("x"), True), (about("x"), False), (other, False))
        assert [each[FIRST] for each in said] == [NOBODY, NOBODY, NONE]
        assert [each.producer_id for each in scripted.asked[1].transactions] == [8]


@pytest.mark.parametrize("verify_only", [True, False])
async def test_one_that_others_keep_from_being_looked_at_asks_again(make: Make, verify_only: bool) -> None:
    """One partition that the coordinator does not know fails all that are asked about with it."""
    unknown, left_out = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
    with ScriptedCoordinator() as scripted:

        def says(_: object, topic: str, __: int) -> ErrorCode:
            topics = {each.name for each in scripted.asked[-1].transactions[0].topics}
            return unknown if topic == "new" else left_out if "new" in topics else NONE

        scripted.says = says
        verifier = make(scripted.port)
        asks = [about("x"), about("x", 0, ("new", 0), ("u", 0))]
        said = await queued(scripted, verifier, *((each, verify_only) for each in asks))
        assert said == [{FIRST: NONE}, {("new", 0): unknown, ("u", 0): left_out}]
        scripted.says = lambda *_: left_out
        assert await join(verifier, about("x"), verify_only=verify_only) == {FIRST: NOBODY}


async def test_a_full_queue_takes_nothing_more(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUEUED_MAX", 2)
    with ScriptedCoordinator() as scripted:
        verifier = make(scripted.port)
        scripted.gate.clear()
        asks = [asyncio.ensure_future(join(verifier, about("first"), verify_only=True))]
        await came(scripted)
        asks += [asyncio.ensure_future(join(verifier, about(each), verify_only=True)) for each in ("a", "b", "c")]
        await asyncio.sleep(0)
        scripted.gate.set()
        assert [each[FIRST] for each in await asyncio.gather(*asks)] == [NONE, NONE, NONE, NOBODY]


async def test_a_request_has_a_bound(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TRANSACTIONS_AT_ONCE", 2)
    with ScriptedCoordinator() as scripted:
        verifier = make(scripted.port)
        await asyncio.gather(*(join(verifier, about(each), verify_only=True) for each in "abcde"))
        assert [len(each.transactions) for each in scripted.asked] == [2, 2, 1]


async def test_what_is_concurrent_is_asked_again_for_a_while(make: Make) -> None:
    with ScriptedCoordinator() as scripted:
        patient = make(scripted.port, add_partitions_to_txn_retry_backoff_max_ms="60000")
        busy = ErrorCode.CONCURRENT_TRANSACTIONS
        scripted.says = lambda *_: busy if len(scripted.asked) < 3 else NONE
        assert await join(patient, about("x"), verify_only=False) == {FIRST: NONE}
        assert len(scripted.asked) == 3
        verifier = make(scripted.port, add_partitions_to_txn_retry_backoff_max_ms="1000")
        scripted.says = lambda *_: busy
        assert await join(verifier, about("x"), verify_only=True) == {FIRST: busy}
        assert len(scripted.asked) == 4, "what only verifies is not asked again"
        began = asyncio.get_running_loop().time()
        assert await join(verifier, about("x"), verify_only=False) == {FIRST: busy}
        assert asyncio.get_running_loop().time() - began < 30
        assert len(scripted.asked) > 5


async def test_one_that_cannot_be_reached_says_nothing(make: Make) -> None:
    with ScriptedCoordinator() as scripted:
        verifier = make(scripted.port)
        assert await join(verifier, about("x"), verify_only=True) == {FIRST: NONE}
        scripted.gate.clear()
        asked = asyncio.ensure_future(join(verifier, about("x"), verify_only=True))
        await came(scripted)
        await came(scripted)
        verifier.close()
        assert await asked == {FIRST: NOBODY}
        assert await join(verifier, about("y"), verify_only=True) == {FIRST: NOBODY}, "and it asks no more"
        unasked = make(scripted.port)
        unasked.close()
        assert await join(unasked, about("y"), verify_only=True) == {FIRST: NOBODY}
        port = scripted.port
    assert await join(make(port), about("x"), verify_only=True) == {FIRST: NOBODY}


async def test_one_that_does_not_answer_is_not_waited_for_ever(make: Make) -> None:
    with ScriptedCoordinator() as scripted:
        verifier = make(scripted.port, request_timeout_ms="100")
        scripted.gate.clear()
        assert await join(verifier, about("x"), verify_only=True) == {FIRST: NOBODY}
        scripted.gate.set()
        assert await join(verifier, about("x"), verify_only=True) == {FIRST: NONE}


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
async def test_a_refusal_of_everything(make: Make, error: ErrorCode, said: ErrorCode) -> None:
    with ScriptedCoordinator() as scripted:
        scripted.error = error
        assert await join(make(scripted.port), about("x"), verify_only=True) == {FIRST: said}


async def test_a_broker_that_knows_clients_questions_alone_is_not_asked(make: Make) -> None:
    with ScriptedCoordinator(newest=3) as scripted:
        verifier = make(scripted.port)
        assert await join(verifier, about("x"), verify_only=True) == {FIRST: NONE}
        assert await join(verifier, about("x"), verify_only=False) == {FIRST: ErrorCode.UNSUPPORTED_VERSION}
        assert scripted.asked == []


async def test_without_a_coordinator_nobody_is_asked(make: Make) -> None:
    for leader in (-1, HERE, 5):
        said = await join(make(1, leader), about("x"), verify_only=True)
        assert said == {FIRST: ErrorCode.COORDINATOR_NOT_AVAILABLE}


class Local:
    """This broker's own coordinator: it answers at once, or later if `waiting` is a list."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.asked: list[tuple[str, bool]] = []
        self.says: dict[str, list[ErrorCode]] = {}
        self.waiting: list[Callable[[], None]] | None = None
        self.fails = False

    def add_partitions(self, ask: Partitions, verify_only: bool) -> Completion[Verdicts]:
        self.asked.append((ask.transactional_id, verify_only))
        if self.fails:
            raise AssertionError("a defect")
        said = self.says.get(ask.transactional_id)
        error = said.pop(0) if said else NONE
        verdicts = Verdicts(error, {} if error else dict.fromkeys(ask.partitions, NONE))
        answer: Completion[Verdicts] = Completion(self.node.completions)
        if self.waiting is None:
            answer.complete(verdicts)
        else:
            self.waiting.append(partial(answer.complete, verdicts))
        return answer


def test_its_own_coordinator_is_asked_without_a_socket_and_may_answer_at_once(make: Make) -> None:
    verifier = make(1, HERE)
    verifier.local = local = Local(verifier.node)
    local.says = {"fenced": [ErrorCode.PRODUCER_FENCED]}
    names = ("a", "fenced", "adds")
    assert [verifier.join(about(each), verify_only=each != "adds") for each in names] == [
        {FIRST: NONE},
        {FIRST: LATE},
        {FIRST: NONE},
    ]
    assert local.asked == [("a", True), ("fenced", True), ("adds", False)]


async def test_its_own_coordinator_may_answer_later(make: Make) -> None:
    """It is asked all the same before this returns."""
    verifier = make(1, HERE)
    verifier.local = local = Local(verifier.node)
    waiting: list[Callable[[], None]] = []
    local.waiting = waiting
    asks = [asyncio.ensure_future(join(verifier, about(each), verify_only=False)) for each in "ab"]
    early = verifier.join(about("c"), verify_only=False)
    assert isinstance(early, Coroutine) and local.asked == [("c", False)]
    await asyncio.sleep(0)
    assert len(waiting) == 3 and not any(each.done() for each in asks)
    for each in waiting:
        each()
    assert [await early, *await asyncio.gather(*asks)] == [{FIRST: NONE}] * 3
    assert len(local.asked) == 3


async def test_its_own_coordinator_is_asked_again_while_markers_are_on_their_way(make: Make) -> None:
    verifier = make(1, HERE)
    verifier.local = local = Local(verifier.node)
    local.says = {"x": [ErrorCode.CONCURRENT_TRANSACTIONS] * 2}
    assert await join(verifier, about("x"), verify_only=False) == {FIRST: NONE}
    assert len(local.asked) == 3
    local.says = {"x": [ErrorCode.CONCURRENT_TRANSACTIONS]}
    assert verifier.join(about("x"), verify_only=True) == {FIRST: ErrorCode.CONCURRENT_TRANSACTIONS}


async def test_without_a_coordinator_of_its_own_nobody_is_asked(make: Make) -> None:
    verifier = make(1, HERE)
    assert await join(verifier, about("a"), verify_only=True) == {FIRST: ErrorCode.COORDINATOR_NOT_AVAILABLE}


async def test_a_defect_there_is_raised_where_it_was_asked(make: Make) -> None:
    verifier = make(1, HERE)
    verifier.local = local = Local(verifier.node)
    local.fails = True
    with pytest.raises(AssertionError):
        verifier.join(about("a"), verify_only=True)
    local.fails = False
    assert verifier.join(about("a"), verify_only=True) == {FIRST: NONE}
