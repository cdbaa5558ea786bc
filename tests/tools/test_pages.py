"""The pages: links lead somewhere, and measured ratios are those of the results that they name."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "RELEASING.md", *(ROOT / "docs").rglob("*.md")])
RESULTS = ROOT / "bench" / "results"
BROKER_RUN = "20261125T095418.jsonl"
LIFE_RUN = "20261125T102817.jsonl"
"""Starts, restarts and the row of bombs, in three rounds."""
CLUSTER_RUN = "cluster-20261126T000106.jsonl"
KILLS = ("kill-leader", "kill-controller", "kill-start")
"""Rows of which the page has the worst try."""
SPARK_RUN = "spark-20261122T063932.jsonl"


def _anchors(page: str) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    made = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
    return made | set(re.findall(r"<a id='([^']+)'", page))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_a_page_lead_to_files_and_titles_that_are_there(page: Path) -> None:
    text = re.sub(r"^```.*?^```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name} links to {target}"
        if anchor and file.suffix == ".md":
            assert anchor in _anchors(file.read_text(encoding="utf-8")), f"{page.name} links to {target}"


def _values(run: str, name: str) -> dict[str, Any]:
    """One thing that a run keeps of each row."""
    rows = [json.loads(line) for line in (RESULTS / run).read_text(encoding="utf-8").splitlines()]
    return {row["row"]: row[name] for row in rows if "row" in row}


def _ratios(run: str) -> dict[str, float]:
    return _values(run, "ratio")


def _measured(page: str) -> Counter[str]:
    """The ratios in the page's tables, each as often as it stands there."""
    rows = [line for line in page.splitlines() if line.startswith("|")]
    return Counter(ratio for row in rows for ratio in re.findall(r"[\d.]+x", row))


def _of_the_broker() -> dict[str, float]:
    """Every row of the newest run, and for those that were measured again what that gave."""
    return {**_ratios(BROKER_RUN), **_ratios(LIFE_RUN)}


def test_the_page_of_performance_has_the_ratios_of_its_runs() -> None:
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    broker, spark = page.split("\n## Spark\n")
    assert BROKER_RUN in broker
    assert LIFE_RUN in broker
    ours = Counter(f"{ratio:.2f}x" for ratio in _of_the_broker().values())
    assert not ours - _measured(broker)
    assert CLUSTER_RUN in broker
    # ratios from ten on have no digits on the page, and ours with itself is one of the row's own values
    for row, ratio in _ratios(CLUSTER_RUN).items():
        if row != "catch-up-p99":
            assert _measured(broker)[f"{ratio:.2f}x" if ratio < 10 else f"{ratio:.0f}x"], row
    for row, gaps in _values(CLUSTER_RUN, "headrace").items():
        assert row not in KILLS or f"{max(gaps):.2f} s" in broker, row
    assert SPARK_RUN in spark
    assert not Counter(f"{ratio:.2f}x" for ratio in _ratios(SPARK_RUN).values()) - _measured(spark)


def test_the_readme_has_ratios_of_those_runs_alone() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    ratios = [*_of_the_broker().values(), *_ratios(SPARK_RUN).values()]
    assert not _measured(readme) - Counter(f"{ratio:.2f}x" for ratio in ratios)


def test_every_page_is_linked_from_the_readme_the_list_of_pages_or_the_page_of_the_parts() -> None:
    starts = [ROOT / "README.md", ROOT / "docs" / "evidence.md", ROOT / "docs" / "architecture.md"]
    linked = {
        (page.parent / target.partition("#")[0]).resolve()
        for page in starts
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
    }
    assert not [page.name for page in (ROOT / "docs").rglob("*.md") if page.resolve() not in linked]
