"""A fetcher driven by hand."""

from __future__ import annotations

from random import Random

import pytest
from client.test_routing import Clock

from headrace.client.conversation import Pause
from headrace.client.fetching import FetcherMachine
from headrace.client.routing import Patience, Router


def test_a_poll_without_partitions_takes_its_time() -> None:
    """A member of a group may have none: its loop must not spin."""
    fetcher = FetcherMachine(Router([("a", 1)], Patience(), Clock(), Random(1)), {}, {})
    steps = fetcher.poll_steps(1.5)
    assert next(steps) == Pause(1.5)
    with pytest.raises(StopIteration) as end:
        steps.send(None)
    assert end.value.value == []
    assert list(fetcher.pieces_steps()) == []
