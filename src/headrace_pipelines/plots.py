"""A picture of a run: what its pipeline found, as the target topic holds it, or how far and how fast the run went.

Needs matplotlib, which is imported when a picture is drawn. Nothing here needs a screen.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from headrace.client.security import PLAINTEXT, Security

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Result = dict[str, Any]
"""A value of a target topic."""

COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Colours for the colour-blind; so many zones or services are drawn."""
INK: Final = "#1b2733"
QUIET: Final = "#6b7a88"
ALARM: Final = "#c1121f"
LABEL_CHARACTERS: Final = 28
RESULTS_READ: Final = 200_000
"""So many records of a target topic are looked at, the latest ones."""
BINS: Final = 30


@dataclass(frozen=True, slots=True)
class Done:
    """A batch that is done: when, in seconds since 1970, how many records it had, how many were left to read then
    (None where that is not known), and how many it read in a second.
    """

    at_s: float
    rows: int
    behind: int | None
    rows_per_s: float


def latest_results(bootstrap: str, topic: str, security: Security = PLAINTEXT) -> list[Result]:
    """The last value of every key among the latest `RESULTS_READ` records, as far as they are JSON objects.

    Raises `headrace.client.ClientError`.
    """
    import headrace
    from headrace.client.cluster import Client
    from headrace.client.reading import LATEST, list_offsets

    with Client(bootstrap, security=security) as client:
        ends = list_offsets(client, dict.fromkeys(client.partitions(topic), LATEST))
    share = RESULTS_READ // max(len(ends), 1)
    start = {index: max(end.offset - share, 0) for (_, index), end in ends.items()}
    columns = ["key", "value", "partition", "offset"]
    table = headrace.scan(topic, bootstrap=bootstrap, columns=columns, start=start, security=security)
    rows = sorted(table.to_pylist(), key=lambda row: (row["partition"], row["offset"]))
    values = {row["key"]: row["value"] for row in rows}
    found = []
    for value in values.values():
        try:
            result = json.loads(value or b"")
        except ValueError:
            continue
        if isinstance(result, dict):
            found.append(result)
    return found


def draw(path: Path, name: str, batches: Sequence[Done], results: Sequence[Result]) -> None:
    """Write the picture of a run of the pipeline `name` as a PNG. Raises OSError where it cannot be written."""
    figure_of(name, batches, results).savefig(path, format="png", dpi=110)


def figure_of(name: str, batches: Sequence[Done], results: Sequence[Result]) -> Figure:
    """The picture; without results, or for a pipeline whose results are copies, that of the run's progress."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 6.5), layout="constrained")
    rows = sum(batch.rows for batch in batches)
    did = f"{rows:,} records in {len(batches):,} batches"
    fields, painter = PAINTERS.get(name, (frozenset(), None))
    # others may write to the topic too
    ours = [result for result in results if result.keys() >= fields]
    # of times along an axis, each part is shown once
    with rc_context({"date.converter": "concise"}):
        if painter is None or not ours:
            _progress(figure, batches)
            what = did
        else:
            what = f"{painter(figure, ours)}; this run: {did}"
    figure.suptitle(f"{name}: {what}", color=INK, weight="bold")
    return figure


def _surge(figure: Figure, results: Sequence[Result]) -> str:
    """Demand and supply of the zones with most demand, and below them their surge."""
    zones = _most(results, "zone", "demand")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    for zone, colour in zip(zones, COLOURS):
        times, rows = _over_time(row for row in results if row["zone"] == zone)
        upper.plot(times, [row["demand"] for row in rows], color=colour, label=_label(zone), marker=".")
        upper.plot(times, [row["supply"] for row in rows], color=colour, linestyle="--")
        lower.plot(times, [row["surge"] for row in rows], color=colour, marker=".")
    lower.axhline(1, color=QUIET, linewidth=0.8, linestyle=":")
    _dress(upper, "demand (line), supply (dashed) a window")
    _dress(lower, "surge: demand for each supplied")
    lower.set_xlabel("UTC", color=QUIET)
    _legend(upper)
    count = len({row["zone"] for row in results})
    return f"{count:,} zones, {len(results):,} windows"


def _sessions(figure: Figure, results: Sequence[Result]) -> str:
    """How long sessions are and how many events they have."""
    left, right = figure.subplots(1, 2)
    minutes = [(_moment(row["end"]) - _moment(row["start"])).total_seconds() / 60 for row in results]
    events = [row["events"] for row in results]
    for axes, numbers, what in ((left, minutes, "minutes from first to last event"), (right, events, "events")):
        axes.hist(numbers, bins=BINS, color=COLOURS[0])
        middle = median(numbers)
        axes.axvline(middle, color=ALARM, label=f"median {middle:,.4g}")
        axes.set_xlabel(what, color=QUIET)
        _dress(axes, "sessions")
        axes.legend(loc="upper right", frameon=False, fontsize=9)
    return f"{len(results):,} sessions of {len({row['user'] for row in results}):,} users"


def _log_monitor(figure: Figure, results: Sequence[Result]) -> str:
    """Error rates of the services with most errors, windows that alert marked; below them their lines."""
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    for service, colour in zip(_most(results, "service", "errors"), COLOURS):
        times, rows = _over_time(row for row in results if row["service"] == service)
        upper.plot(times, [100 * row["rate"] for row in rows], color=colour, label=_label(service), marker=".")
        lower.plot(times, [row["lines"] for row in rows], color=colour, marker=".")
    alerts = [row for row in results if row["alert"]]
    if alerts:
        times, rows = _over_time(alerts)
        rates = [100 * row["rate"] for row in rows]
        upper.scatter(times, rates, s=70, facecolors="none", edgecolors=ALARM, linewidths=1.6, label="alert", zorder=3)
    _dress(upper, "errors, % of lines")
    _dress(lower, "lines a window")
    lower.set_xlabel("UTC", color=QUIET)
    _legend(upper)
    return f"{len({row['service'] for row in results}):,} services, {len(results):,} windows, {len(alerts):,} alerts"


def _progress(figure: Figure, batches: Sequence[Done]) -> None:
    """Records of each batch; below them how many were left to read, or where nobody knows, how fast it went."""
    upper, lower = figure.subplots(2, 1, sharex=True)
    times = [datetime.fromtimestamp(batch.at_s, UTC) for batch in batches]
    upper.vlines(times, 0, [batch.rows for batch in batches], color=COLOURS[0])
    upper.plot(times, [batch.rows for batch in batches], color=COLOURS[0], marker="o", linestyle="none")
    _dress(upper, "records a batch")
    known = [(time, batch.behind) for time, batch in zip(times, batches) if batch.behind is not None]
    if known:
        lower.plot([time for time, _ in known], [behind for _, behind in known], color=COLOURS[1], marker=".")
        _dress(lower, "records left to read")
    else:
        lower.plot(times, [batch.rows_per_s for batch in batches], color=COLOURS[1], marker=".")
        _dress(lower, "records a second")
    lower.set_xlabel("UTC", color=QUIET)


PAINTERS: Final[Mapping[str, tuple[frozenset[str], Callable[[Figure, Sequence[Result]], str]]]] = {
    "surge": (frozenset({"zone", "start", "demand", "supply", "surge"}), _surge),
    "sessions": (frozenset({"user", "start", "end", "events"}), _sessions),
    "log-monitor": (frozenset({"service", "start", "lines", "errors", "rate", "alert"}), _log_monitor),
}
"""By pipeline: the fields of its results, and what draws them, at least one, and says in a few words what they are."""


def _most(results: Iterable[Result], name: str, number: str) -> list[str]:
    """The names for which a number adds up highest, the first of them in order."""
    totals: Counter[str] = Counter()
    for row in results:
        totals[row[name]] += row[number]
    return [each for each, _ in sorted(totals.items(), key=lambda item: (-item[1], item[0]))[: len(COLOURS)]]


def _over_time(results: Iterable[Result]) -> tuple[list[datetime], list[Result]]:
    rows = sorted(results, key=lambda row: str(row["start"]))
    return [_moment(row["start"]) for row in rows], rows


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _label(text: str) -> str:
    """A name out of the data, as matplotlib shows it: no formula, and not hidden for its first character."""
    shown = text if len(text) <= LABEL_CHARACTERS else text[: LABEL_CHARACTERS - 1] + "…"
    return (" " if shown.startswith("_") else "") + shown.replace("$", r"\$")


def _legend(axes: Axes) -> None:
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=9)


def _dress(axes: Axes, what: str) -> None:
    axes.set_ylabel(what, color=QUIET)
    axes.set_ylim(bottom=0)
    axes.tick_params(colors=QUIET)
    axes.grid(axis="y", color="#e6eaee")
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
