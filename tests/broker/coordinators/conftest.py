"""A broker over logs in memory, whose coordinator has started."""

from __future__ import annotations

from typing import Any

import pytest
from broker.coordinators.memory import FakeBroker


@pytest.fixture
async def broker() -> Any:
    broker = FakeBroker()
    broker.groups.start(broker)
    yield broker
    await broker.groups.stop()
    await broker.node.close()
