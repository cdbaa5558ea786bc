"""So many lines a second, a part of them about one subject, and how many were left out."""

from __future__ import annotations

from headrace.broker.telemetry.pace import LINES_PER_S, SUBJECT_LINES_PER_S, PacedLines


class Sink:
    """Keeps lines."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, object]]] = []

    def info(self, event: str, /, **fields: object) -> None:
        self.lines.append((event, fields))

    debug = warning = error = info


def test_others_are_seen_beside_one_subject() -> None:
    sink, now = Sink(), [0.0]
    lines = PacedLines(sink, lambda: now[0])
    for _ in range(1000):
        lines.info("g", "group rebalances", group="g")
    assert len(sink.lines) == SUBJECT_LINES_PER_S
    lines.warning("h", "group rebalances", group="h")
    assert sink.lines[-1] == ("group rebalances", {"group": "h", "left_out": 1000 - SUBJECT_LINES_PER_S})
    for number in range(1000):
        lines.info(number, "group rebalances", group=number)
    assert len(sink.lines) == LINES_PER_S
    now[0] = 1.0
    lines.info("g", "group rebalances", group="g")
    left_out = 1000 - (LINES_PER_S - SUBJECT_LINES_PER_S - 1)
    assert sink.lines[-1] == ("group rebalances", {"group": "g", "left_out": left_out})
    lines.info("g", "group rebalances", group="g")
    assert "left_out" not in sink.lines[-1][1]
