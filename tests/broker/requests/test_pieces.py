"""Work in pieces: few steps are made at once, many turn by turn, one request at a time, until the connection ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from broker.raw import Raw
from peers.waiting import until

from headrace.broker.broker import Broker
from headrace.broker.net.answers import CloseConnectionError
from headrace.broker.net.budget import Budget
from headrace.broker.net.context import RequestContext
from headrace.broker.net.long_answers import EncodedAnswer, LongAnswers
from headrace.broker.requests.pieces import PIECE_STEPS, Steps, in_pieces, in_turn
from headrace.env.completion import Completion, CompletionQueue
from headrace.security.authorizer import OpenAuthorizer
from headrace.testing.running import broker as running_broker
from headrace.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from headrace.wire.messages.k15_describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from headrace.wire.messages.k18_api_versions import ApiVersionsRequest

VERSION = 5
MANY = 5 * PIECE_STEPS


class Node:
    """Runs the work of workers at once, and tasks."""

    workers: Any

    def __init__(self) -> None:
        self.workers = self

    def future(self) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().create_future()

    def soon(self, callback: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(callback)

    async def run(self, work: Callable[[], Any]) -> Any:
        return work()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        return asyncio.get_running_loop().create_task(work)


class Errors:
    """Counts errors in answers."""

    def __init__(self) -> None:
        self.codes: list[int] = []

    def count(self, _key: int, code: int, times: int) -> None:
        self.codes += [code] * times


def broker(responses: Budget | None = None) -> Any:
    node: Any = Node()
    errors: Any = Errors()
    answers = LongAnswers(node, node, Budget(1 << 30), responses or Budget(1 << 30), errors)
    completions = CompletionQueue(node, node.future)
    return SimpleNamespace(long_answers=answers, errors=errors, node=SimpleNamespace(completions=completions))


def context() -> RequestContext:
    return RequestContext(OpenAuthorizer(), api_key=15, api_version=VERSION)


def groups(count: int, done: list[int] | None = None) -> Steps[DescribeGroupsResponse]:
    found = []
    for number in range(count):
        found.append(DescribedGroup(group_id=f"g{number}", error_code=69))
        if done is not None:
            done.append(number)
        yield 1
    return DescribeGroupsResponse(groups=found)


def test_few_steps_are_answered_at_once() -> None:
    answer = in_pieces(broker(), context(), groups(PIECE_STEPS - 1))
    assert isinstance(answer, DescribeGroupsResponse) and len(answer.groups) == PIECE_STEPS - 1


def test_many_steps_are_made_turn_by_turn_and_encoded() -> None:
    async def run() -> None:
        node, done = broker(), list[int]()
        answer: Any = in_pieces(node, context(), groups(MANY, done))
        assert len(done) == PIECE_STEPS
        task = asyncio.ensure_future(answer)
        turns = []
        while not task.done():
            turns.append(len(done))
            await asyncio.sleep(0)
        assert max(b - a for a, b in pairwise(turns)) <= PIECE_STEPS
        assert isinstance(task.result(), EncodedAnswer)
        body = b"".join(map(bytes, task.result().encode_parts(VERSION)))
        assert [each.group_id for each in DescribeGroupsResponse.decode(body, VERSION).groups] == [
            f"g{number}" for number in range(MANY)
        ]
        assert node.errors.codes == [69] * MANY

    asyncio.run(run())


def test_one_long_request_is_answered_at_a_time() -> None:
    async def run() -> None:
        node, first, second = broker(), list[int](), list[int]()
        ways: list[Any] = [in_pieces(node, context(), groups(MANY, done)) for done in (first, second)]
        tasks = [asyncio.ensure_future(way) for way in ways]
        while len(first) < MANY:
            assert len(second) == PIECE_STEPS  # made before it was known to be long
            await asyncio.sleep(0)
        await asyncio.gather(*tasks)
        assert len(second) == MANY

    asyncio.run(run())


def test_the_end_of_a_connection_ends_the_work() -> None:
    async def run() -> None:
        asked, done = context(), list[int]()
        answer: Any = in_pieces(broker(), asked, groups(MANY, done))
        asked.client.closed = True
        with pytest.raises(CloseConnectionError):
            await answer
        assert len(done) == PIECE_STEPS

    asyncio.run(run())


@pytest.mark.parametrize("later", ["pending", "coroutine"])
def test_what_is_known_later_is_waited_for_while_others_have_their_turn(later: str) -> None:
    async def run() -> None:
        node = broker()
        pending = Completion[Any](node.node.completions)
        value = asyncio.get_running_loop().create_future()
        result: Completion[Any] | Coroutine[Any, Any, Any] = pending

        async def answered() -> Any:
            return await value

        if later == "coroutine":
            result = answered()

        def steps() -> Steps[Any]:
            yield from groups(MANY)
            return result

        way: Any = in_pieces(node, context(), steps())
        task = asyncio.ensure_future(way)
        other: Any = in_pieces(node, context(), groups(MANY))
        assert isinstance(await other, EncodedAnswer)
        assert not task.done()
        pending.complete(DescribeGroupsResponse())
        value.set_result(DescribeGroupsResponse())
        assert isinstance(await task, EncodedAnswer)

    asyncio.run(run())


def test_an_answer_is_made_once_there_is_room_for_it() -> None:
    async def run() -> None:
        responses = Budget(100)
        responses.force(100)
        way: Any = in_pieces(broker(responses), context(), groups(MANY))
        task = asyncio.ensure_future(way)
        for _ in range(20):
            await asyncio.sleep(0)
        assert not task.done()
        responses.give(1)
        assert isinstance(await task, EncodedAnswer)

    asyncio.run(run())


def test_a_coroutine_gets_what_its_steps_return() -> None:
    async def run() -> None:
        node = broker()
        for count in (1, MANY):
            assert len((await in_turn(node, context(), groups(count))).groups) == count

    asyncio.run(run())


# --- over a connection


def metadata(count: int) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=f"n{number}") for number in range(count)])


def test_answers_keep_their_order_behind_a_request_that_a_worker_decodes() -> None:
    names = [f"g{number}" for number in range(30_000)]
    with running_broker() as node, Raw(node.port, timeout_s=60) as raw:
        raw.send(ApiVersionsRequest(), 0)
        raw.send(DescribeGroupsRequest(groups=names), VERSION)
        raw.send(metadata(30_000), 9)
        raw.send(ApiVersionsRequest(), 0)
        raw.receive(18, 0)
        assert [each.group_id for each in raw.receive(15, VERSION)[1].groups] == names
        assert len(raw.receive(3, 9)[1].topics) == 30_000
        raw.receive(18, 0)
        assert node.call(lambda inside: inside.server.requests_budget.used) == 0


@pytest.mark.parametrize("size", [50_000, 400_000])
def test_a_large_request_that_nobody_can_read_ends_its_connection(size: int) -> None:
    with running_broker() as node:
        with Raw(node.port) as raw:
            frame = bytearray(raw.frame(DescribeGroupsRequest(groups=["g" * 30] * (size // 31)), VERSION))
            frame[-2000:] = b"\xff" * 2000
            raw.socket.sendall(frame)
            assert raw.socket.recv(1) == b""
        assert node.call(lambda inside: inside.server.requests_budget.used) == 0


def close_all(inside: Broker) -> None:
    for each in list(inside.server.connections):
        each.close("")


def test_a_connection_that_ends_takes_its_request_along() -> None:
    request = DescribeGroupsRequest(groups=[f"g{number}" for number in range(60_000)])
    with running_broker() as node:
        turn = node.call(lambda inside: inside.long_answers.turn)
        node.call(lambda _: setattr(turn, "_locked", True))  # it is another's
        with Raw(node.port) as raw:
            raw.send(request, VERSION)
            until(lambda: node.call(lambda inside: inside.server.requests_budget.used) > 2_000_000, "it is held")
            node.call(close_all)
        node.call(lambda _: turn.release())
        until(lambda: node.call(lambda inside: inside.server.requests_budget.used) == 0, "nothing is held")
        assert node.inside.node.defects.first is None
