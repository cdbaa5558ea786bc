"""The dashboard and the alerts of `examples/monitoring` ask for nothing that a running broker does not export."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from broker.telemetry.pages import get

from headrace.testing.running import broker as running_broker

parser = pytest.importorskip("prometheus_client.parser")

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples" / "monitoring"
METRIC = re.compile(r"\b(?:kafka|headrace|process)_[a-z0-9_]+")
SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum"), "gauge": ("",)}


@pytest.fixture(scope="module")
def exported() -> dict[str, set[str]]:
    """The names of samples that there are, or would be, and their labels where there are some."""
    with running_broker({"metrics.listener": "0"}) as running:
        assert running.inside.monitor.port is not None
        page = get(running.inside.monitor.port, "/metrics").body.decode()
    found: dict[str, set[str]] = {}
    for family in parser.text_string_to_metric_families(page):
        for suffix in SUFFIXES[family.type]:
            found[family.name + suffix] = set()
        for sample in family.samples:
            found[sample.name] |= set(sample.labels)
    return found


def dashboard_asks() -> list[str]:
    board = json.loads((EXAMPLES / "dashboard.json").read_text())
    variables = [each["query"]["query"] for each in board["templating"]["list"] if each["type"] == "query"]
    return variables + [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]


def alerts() -> str:
    lines = (EXAMPLES / "alerts.yml").read_text().splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith("#"))


def test_the_dashboard_asks_for_what_is_exported(exported: dict[str, set[str]]) -> None:
    asked = dashboard_asks()
    assert len(asked) > 40
    names = {name for each in asked for name in METRIC.findall(each)}
    assert sorted(names - set(exported)) == []


def test_the_alerts_ask_for_what_is_exported(exported: dict[str, set[str]]) -> None:
    names = set(METRIC.findall(alerts()))
    assert len(names) > 15
    assert sorted(names - set(exported)) == []


def test_the_operations_guide_has_every_alert_and_no_other() -> None:
    guide = (ROOT / "docs" / "operations" / "monitoring.md").read_text()
    named = re.findall(r"alert: (\w+)", alerts())
    assert len(named) == len(set(named)) > 15
    assert sorted(re.findall(r"^\| `(Headrace\w+)`", guide, re.MULTILINE)) == sorted(named)


def test_the_guide_names_what_is_exported(exported: dict[str, set[str]]) -> None:
    guide = (ROOT / "docs" / "operations" / "monitoring.md").read_text()
    names = set(METRIC.findall(guide))
    assert len(names) > 5
    assert sorted(names - set(exported)) == []


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    ids: list[Any] = []
    for panel in json.loads((EXAMPLES / "dashboard.json").read_text())["panels"]:
        ids.append(panel["id"])
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken and at["x"] + at["w"] <= 24
        taken |= cells
    assert len(ids) == len(set(ids))
