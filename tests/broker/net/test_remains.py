"""What requests of many elements leave behind is freed a few things at a time, and not on the event loop."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

import pytest
from broker.raw import Raw
from peers.waiting import until

from headrace.broker.net import request_reader
from headrace.broker.net.remains import FREED_AT_ONCE, take_apart
from headrace.testing.running import TestBroker
from headrace.wire.messages.k15_describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from headrace.wire.messages.k27_write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic
from headrace.wire.messages.k30_create_acls import AclCreation, CreateAclsRequest

MANY = 5000
FREED_WITH_LISTS = 2 * FREED_AT_ONCE
"""The things that are being looked at, and what one of them has let go."""


class Noted(str):
    """A name that notes where it is freed."""

    __slots__ = ()
    freed: ClassVar[list[int]] = []

    def __del__(self) -> None:
        Noted.freed.append(threading.get_ident())


@pytest.fixture(autouse=True)
def _nothing_freed() -> None:
    Noted.freed = []


def names() -> list[Any]:
    return [Noted(f"n{number}") for number in range(MANY)]


def remains() -> list[Any]:
    deep = WritableTxnMarker(1, 1, topics=[WritableTxnMarkerTopic(name) for name in names()])
    return [
        DescribeGroupsRequest(groups=names()),
        DescribeGroupsResponse(groups=[DescribedGroup(group_id=name) for name in names()]),
        {name: [name] for name in names()},
        set(names()),
        tuple(names()),
        [deep],
    ]


def test_all_is_freed_a_little_at_a_time() -> None:
    at: list[int] = []

    def step(_frame: FrameType, _event: str, _argument: object) -> Any:
        at.append(len(Noted.freed))
        return step

    left = remains()
    sys.settrace(step)
    take_apart(left)
    sys.settrace(None)
    assert not left and len(Noted.freed) == 6 * MANY
    assert max(after - before for before, after in pairwise(at)) <= FREED_WITH_LISTS


def test_what_others_hold_stays_as_it_is() -> None:
    ours = remains()
    theirs = list(ours)
    take_apart(ours)
    assert not ours and not Noted.freed
    request, response, named, unordered, fixed, (marker,) = theirs
    assert len(request.groups) == len(response.groups) == len(named) == len(unordered) == len(fixed) == MANY
    assert len(marker.topics) == MANY


def test_the_loop_frees_next_to_nothing_of_a_large_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decode = CreateAclsRequest.decode

    def noted(*arguments: Any) -> CreateAclsRequest:
        request = decode(*arguments)
        for each in request.creations:
            each.resource_name = Noted(each.resource_name)
        return request

    monkeypatch.setattr(request_reader, "FEW_ELEMENT_BYTES", 1024)
    monkeypatch.setattr(CreateAclsRequest, "decode", noted)
    broker = TestBroker(tmp_path, {})
    broker.start()
    try:
        loop = broker.call(lambda _: threading.get_ident())
        with Raw(broker.port, timeout_s=60) as raw:
            raw.ask(CreateAclsRequest([AclCreation(2, f"n{n}", 3, "User:a", "*", 3, 3) for n in range(MANY)]), 3)
            until(lambda: len(Noted.freed) == MANY, "all is freed")
            assert Counter(Noted.freed)[loop] <= FREED_AT_ONCE
            until(lambda: broker.call(lambda inside: inside.server.requests_budget.used) == 0, "nothing is held")
    finally:
        broker.stop()
