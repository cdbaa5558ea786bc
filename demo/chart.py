"""The year as a picture: every hour of every airport in its colour, as a PNG and as a page to look into."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from demo.flights import LOCAL_ZONE, WEATHER

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FIRST_HOUR: Final = 5
LAST_HOUR: Final = 23
SURGE_TOP: Final = 8.0
"""The surge at which the colour is at its end."""
DAYS_NAMED: Final = 7
DAYS_OF_THE_YEAR: Final = 365
PAGE: Final = Path(__file__).with_name("page.html")
INK, QUIET, EMPTY = "#1b2733", "#6b7a88", "#eef1f4"


def write(hours: pd.DataFrame, names: dict[str, str], out: Path, days: int = DAYS_OF_THE_YEAR) -> None:
    """`surge.png` and `surge.html` in `out`, of the first `days` days of the year. `hours` is what `check.read_back`
    gives; `names` is by airport code."""
    local = with_local_time(hours)
    _write_picture(local, names, out / "surge.png", days)
    _write_page(local, names, out / "surge.html", days)


def span(days: int) -> str:
    """The part of the year that is drawn, for titles."""
    if days >= DAYS_OF_THE_YEAR:
        return "2013"
    return "the first day of 2013" if days == 1 else f"the first {days} days of 2013"


def departures(days: int) -> str:
    """What is drawn, for the line below the title."""
    return "A year of departures" if days >= DAYS_OF_THE_YEAR else f"Departures of {span(days)}"


def with_local_time(hours: pd.DataFrame) -> pd.DataFrame:
    """The hours with `day` (of the year, from 0) and `clock` (0 to 23), both as the airport's clocks have them."""
    table = hours.reset_index()
    when = pd.to_datetime(table["hour"], utc=True).dt.tz_convert(LOCAL_ZONE)
    return table.assign(day=when.dt.day_of_year - 1, clock=when.dt.hour)


def worst_days(local: pd.DataFrame) -> pd.Series[float]:
    """The days when supply fell furthest behind demand, over all airports: their surge, the worst first."""
    days = local.groupby("day")[["demand", "supply"]].sum()
    return (days["demand"] / days["supply"].clip(lower=1)).nlargest(DAYS_NAMED)


def _write_picture(local: pd.DataFrame, names: dict[str, str], path: Path, days: int) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.colors import LogNorm

    plt.rcParams.update({"font.family": "DejaVu Sans", "font.size": 9, "text.color": INK, "axes.edgecolor": EMPTY})
    colours = mpl.colormaps["YlOrRd"].with_extremes(bad=EMPTY)
    norm = LogNorm(1, SURGE_TOP)
    origins = sorted(local["origin"].unique())
    figure, axes = plt.subplots(
        len(origins), 2, figsize=(11.5, 6.6), gridspec_kw={"width_ratios": [12, 1.5], "wspace": 0.03, "hspace": 0.34}
    )
    figure.subplots_adjust(left=0.055, right=0.985, top=0.825, bottom=0.105)
    drawn: Any = None
    for row, origin in enumerate(origins):
        plane, side = axes[row]
        airport = local[local["origin"] == origin]
        drawn = plane.pcolormesh(_grid(airport), cmap=colours, norm=norm, rasterized=True)
        _dress(plane, f"{origin}  {names.get(origin, '')}", pad=4 if row else 18)
        _profile(side, airport)
    axes[0][1].set_title("by hour", loc="left", fontsize=9, color=QUIET)
    _name_days(axes[0][0], worst_days(local))
    place = figure.add_axes((0.055, 0.035, 0.3, 0.016))
    bar = figure.colorbar(drawn, cax=place, orientation="horizontal", extend="max")
    bar.set_ticks([1, 1.5, 2, 3, 5, 8], labels=["1", "1.5", "2", "3", "5", "8"])
    bar.ax.minorticks_off()
    bar.ax.tick_params(length=0, labelsize=8, colors=QUIET)
    bar.outline.set_visible(False)
    figure.text(0.365, 0.033, "surge: flights scheduled for each that left at most 15 minutes late", color=QUIET)
    title = f"Leaving New York in {span(days)}: {int(local['demand'].sum()):,} flights, hour by hour"
    figure.text(0.055, 0.955, title, fontsize=15, weight="bold")
    what = f"{departures(days)} through a Headrace topic, computed by Spark as they happened"
    figure.text(0.055, 0.922, what, color=QUIET)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _grid(airport: pd.DataFrame) -> pd.DataFrame:
    """Surge by clock hour and day; where no flight was scheduled, not a number."""
    table = airport.pivot_table(index="clock", columns="day", values="surge", aggfunc="max")
    return table.reindex(index=range(FIRST_HOUR, LAST_HOUR + 1), columns=range(DAYS_OF_THE_YEAR))


def _dress(plane: Axes, title: str, pad: int) -> None:
    months = pd.date_range("2013-01-01", periods=12, freq="MS")
    plane.set_title(title, loc="left", fontsize=10, weight="bold", pad=pad)
    plane.set_xticks([month.day_of_year - 1 for month in months], labels=[f"{month:%b}" for month in months], ha="left")
    clocks = range(6, LAST_HOUR + 1, 6)
    plane.set_yticks([clock - FIRST_HOUR + 0.5 for clock in clocks], labels=[f"{clock}:00" for clock in clocks])
    plane.invert_yaxis()
    plane.tick_params(length=0, labelsize=8, colors=QUIET)
    for spine in plane.spines.values():
        spine.set_visible(False)


def _profile(side: Axes, airport: pd.DataFrame) -> None:
    """The surge of each clock hour over the whole year, beside the rows it belongs to."""
    clocks = airport.groupby("clock")[["demand", "supply"]].sum().reindex(range(FIRST_HOUR, LAST_HOUR + 1))
    surge = clocks["demand"] / clocks["supply"].clip(lower=1)
    rows = [clock - FIRST_HOUR + 0.5 for clock in surge.index]
    side.barh(rows, surge - 1, left=1, height=0.8, color="#f28e45")
    side.set_xlim(1, 2)
    side.set_ylim(LAST_HOUR - FIRST_HOUR + 1, 0)
    side.set_yticks([])
    side.set_xticks([1, 1.5, 2], labels=["1", "1.5", "2"])
    side.tick_params(length=0, labelsize=8, colors=QUIET)
    for spine in side.spines.values():
        spine.set_visible(False)


def _name_days(plane: Axes, days: pd.Series[float]) -> None:
    """The worst days by name, above the first plane; neighbours share a name."""
    named: list[int] = []
    for day in days.index:
        if all(abs(day - other) > 14 for other in named):
            named.append(int(day))
            when = pd.Timestamp("2013-01-01") + pd.Timedelta(days=int(day))
            plane.annotate(f"{when.day} {when:%b}", (day + 0.5, 0), (0, 5), textcoords="offset points", ha="center",
                           fontsize=8, color="#b10026", annotation_clip=False)  # fmt: skip


def _write_page(local: pd.DataFrame, names: dict[str, str], path: Path, days: int) -> None:
    """One file with its data and its own small script: nothing is loaded from anywhere."""
    columns = ["day", "clock", "demand", "supply", *WEATHER]
    airports = {}
    for origin, airport in local.groupby("origin"):
        rows = airport[columns].astype(object).where(airport[columns].notna(), None)
        airports[origin] = {"name": names.get(str(origin), ""), "hours": rows.to_numpy().tolist()}
    shown = {"top": SURGE_TOP, "first": FIRST_HOUR, "last": LAST_HOUR, "airports": airports}
    data = json.dumps(shown, separators=(",", ":"))
    page = PAGE.read_text(encoding="utf-8")
    for mark, text in (("{{span}}", span(days)), ("{{departures}}", departures(days)), ("/*DATA*/null", data)):
        page = page.replace(mark, text)
    path.write_text(page, encoding="utf-8")
