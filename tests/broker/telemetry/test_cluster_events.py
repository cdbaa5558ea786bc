"""What a node's log says of a change of the cluster."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from headrace.broker.telemetry.cluster_events import ALONE, UNCLEAN, ClusterEvents
from headrace.broker.telemetry.metrics import Registry
from headrace.metadata.image import LEADER_RECOVERED, LEADER_RECOVERING


class Lines:
    """Remembers what is logged."""

    def __init__(self) -> None:
        self.warnings: list[tuple[str, dict[str, object]]] = []

    def warning(self, event: str, /, **fields: object) -> None:
        self.warnings.append((event, fields))


@pytest.mark.parametrize(("replicas", "why"), [((1,), ALONE), ((1, 2, 3), UNCLEAN)])
def test_a_leader_that_may_lack_records_is_explained(replicas: tuple[int, ...], why: str) -> None:
    def topic(state: int) -> Any:
        partition = SimpleNamespace(leader=1, leader_recovery_state=state, replicas=replicas)
        return SimpleNamespace(name="orders", partitions=[partition])

    lines: Any = Lines()
    change = SimpleNamespace(old=topic(LEADER_RECOVERED), changed={0})
    new: Any = SimpleNamespace(topics=SimpleNamespace(by_id=lambda _: topic(LEADER_RECOVERING)))
    delta: Any = SimpleNamespace(topics={b"id": change}, deleted_topics={})
    ClusterEvents(lines, lambda: 0.0, Registry()).changed(new, new, delta)
    ((event, fields),) = lines.warnings
    assert event == "leaders may lack records"
    assert fields == {"topic": "orders", "partitions": 1, "replicas": len(replicas), "why": why}
