"""The largest requests of every API, made from its messages: however many elements one has, it takes the event loop in
small turns, as an unauthorized user, as one with few rights, and as super user.

Calls of functions are counted, which are the same on every machine. What a frame may hold before a worker decodes it is
made small, so that a few thousand elements are many.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path as File

import broker.requests.large
import pytest
from broker.raw import Raw, create_topic
from broker.requests.large import LOGINS, THERE, WHO, Path, fit, paths_of, request
from broker.turns import Turns, turns_of
from peers.waiting import until

from headrace.broker.net import request_reader
from headrace.broker.requests import produce_run
from headrace.broker.requests.apis import SERVED
from headrace.security.authorizer import OpenAuthorizer
from headrace.testing.running import TestBroker
from headrace.wire.apis import APIS
from headrace.wire.messages import request_class
from headrace.wire.messages.k10_find_coordinator import FindCoordinatorRequest

MANY = 6000
FEW_BYTES = 1024
CALLS_MAX = 24_000
"""In one turn of the loop; what takes all elements at once makes several for each."""
ROUNDS_MAX = 5000
"""Of one line, in one turn of the loop: a comprehension that takes all elements at once has as many as there are."""
SLOW_WAYS = [("super user", True), ("few rights", True), ("nobody", False)]
WAYS = [("super user", False), *(pytest.param(*way, marks=pytest.mark.slow) for way in SLOW_WAYS)]
"""Who asks, and whether all elements are alike. `make check` has the one in which each element is taken up."""


def cases() -> Iterator[tuple[int, Path]]:
    for key in sorted(SERVED):
        if "broker" in APIS[key].listeners and key not in LOGINS:
            yield from ((key, path) for path in paths_of(request_class(key)))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TestBroker, Turns]]:
    with pytest.MonkeyPatch.context() as patched:
        for decodes in (request_reader, produce_run):
            patched.setattr(decodes, "FEW_ELEMENT_BYTES", FEW_BYTES)
        node = TestBroker(File(tmp_path_factory.mktemp("data")), {})
        node.start()
        broker.requests.large.ID = create_topic(node.port, THERE, 2)
        with Raw(node.port) as raw:
            for key_type in (0, 1):
                raw.ask(FindCoordinatorRequest("", key_type, ["any"]), 4)
        with turns_of(node, counts_calls=True) as turns:
            yield node, turns
        node.stop()


@pytest.mark.slow
@pytest.mark.parametrize(("who", "alike"), WAYS)
@pytest.mark.parametrize(
    ("key", "path"), [pytest.param(*case, id=f"{APIS[case[0]].name}-{'.'.join(case[1])}") for case in cases()]
)
def test_turns_are_small(running: tuple[TestBroker, Turns], key: int, path: Path, who: str, alike: bool) -> None:
    node, turns = running
    versions = range(APIS[key].max_version, APIS[key].min_version - 1, -1)
    version = next((each for each in versions if fit(request(key, path, 1, alike=True), each, path)), None)
    assert version is not None, "no version says that"
    node.call(lambda inside: setattr(inside, "authorizer", WHO[who]))
    for count in (1, MANY):  # the first one imports modules
        message = request(key, path, count, alike=alike)
        fit(message, version, path)
        with Raw(node.port, timeout_s=60) as raw:
            turns.reset()
            try:
                raw.ask(message, version)
            except ConnectionError:
                pass  # Kafka closes the connection too
        assert count == 1 or turns.most_calls <= CALLS_MAX, (who, "alike" if alike else "distinct")
        assert count == 1 or turns.most_rounds <= ROUNDS_MAX, (turns.most_rounds, turns.busiest, who, alike)
    inside = node.inside
    node.call(lambda inside: setattr(inside, "authorizer", OpenAuthorizer()))
    until(lambda: node.call(lambda inside: inside.server.requests_budget.used) == 0, "what it held is freed")
    assert inside.node.defects.first is None
