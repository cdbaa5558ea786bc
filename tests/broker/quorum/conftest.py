"""A node for drivers of the quorum."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from headrace.env.posix_node import PosixNode


@pytest.fixture
async def node() -> AsyncIterator[PosixNode]:
    node = PosixNode()
    yield node
    await node.close()
    assert node.defects.count == 0, node.defects.first
