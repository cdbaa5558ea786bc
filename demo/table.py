"""The live table: both topics moving, how far behind their readers are, and the airports now."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

from confluent_kafka import Consumer, TopicPartition
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from demo import picture
from demo.flights import LOCAL_ZONE
from demo.loss import LeaderLoss

DRAWS_A_SECOND: Final = 4
WIDTH: Final = 80
"""Columns that the table takes: those of a terminal as it opens."""
RATE_WINDOW_S: Final = 3.0
PLAIN_LINE_S: Final = 5.0
WORST_SHOWN: Final = 4
BAR_CELLS: Final = 14
BAR_SURGE: Final = 6.0
"""The surge at which a bar is full."""


@dataclass(slots=True)
class Rate:
    """Records a second over the last few seconds, from a count that grows."""

    points: deque[tuple[float, int]] = field(default_factory=deque)

    def at(self, now: float, count: int) -> float:
        self.points.append((now, count))
        while len(self.points) > 2 and now - self.points[0][0] > RATE_WINDOW_S:
            self.points.popleft()
        (then, before), (last, after) = self.points[0], self.points[-1]
        return (after - before) / (last - then) if last > then else 0.0


class SurgeReader(threading.Thread):
    """Reads the topic that the pipeline writes, as a dashboard would: the newest hour of each airport, the worst hours.

    `newest` and `worst` are replaced, never changed, so that the thread that draws may read them at any time.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__(name="surge-reader", daemon=True)
        self.bootstrap = bootstrap
        self.topic = topic
        self.partitions = partitions
        self.records = 0
        self.lag = 0
        self.newest: dict[str, dict[str, Any]] = {}
        self.worst: dict[str, dict[str, Any]] = {}
        self._stop_asked = threading.Event()

    def stop(self) -> None:
        """Ends the thread, and waits for it."""
        self._stop_asked.set()
        self.join(10)

    def run(self) -> None:
        settings = {
            "bootstrap.servers": self.bootstrap, "group.id": "demo-table", "enable.auto.commit": False, "log_level": 0,
        }  # fmt: skip
        consumer = Consumer(settings)
        try:
            consumer.assign([TopicPartition(self.topic, index, 0) for index in range(self.partitions)])
            while not self._stop_asked.is_set():
                for message in consumer.consume(2_000, timeout=0.2):
                    if message.error() is not None:
                        continue  # the client tries again; the check reads the topic on its own
                    self.records += 1
                    self.take(json.loads(message.value() or b"{}"))
                self.lag = self.behind(consumer)
        finally:
            consumer.close()

    def take(self, hour: dict[str, Any]) -> None:
        """One result: an airport and hour, perhaps again."""
        held = self.newest.get(hour["origin"])
        if held is None or hour["hour"] >= held["hour"]:
            self.newest = {**self.newest, hour["origin"]: hour}
        hours = {**self.worst, f"{hour['origin']}|{hour['hour']}": hour}
        self.worst = dict(sorted(hours.items(), key=lambda item: -float(item[1]["surge"]))[:WORST_SHOWN])

    def behind(self, consumer: Any) -> int:
        """How many records are written that `consumer` has not read; 0 for a partition whose end it does not know."""
        behind = 0
        for place in consumer.position([TopicPartition(self.topic, index) for index in range(self.partitions)]):
            _, end = consumer.get_watermark_offsets(place, cached=True)
            behind += max(0, end - max(place.offset, 0)) if end > 0 else 0
        return behind


@dataclass(slots=True)
class Progress:
    """What a query has said of itself so far, batch by batch."""

    query: Any
    batches: int = 0
    rows: int = 0
    dropped_late: int = 0
    batch_ms: int = 0
    _seen: set[tuple[int, str]] = field(default_factory=set)

    def refresh(self) -> None:
        """Takes in the batches since the last look."""
        for batch in self.query.recentProgress:
            # an idle trigger reports itself under the number of the batch that is still to come
            trigger = (int(batch["batchId"]), str(batch["timestamp"]))
            if trigger in self._seen:
                continue
            self._seen.add(trigger)
            if "addBatch" not in batch["durationMs"]:
                continue
            self.batches += 1
            self.rows += int(batch["numInputRows"])
            self.batch_ms = int(batch["durationMs"].get("triggerExecution", 0))
            for state in batch["stateOperators"]:
                self.dropped_late += int(state["numRowsDroppedByWatermark"])


@dataclass(slots=True)
class Screen:
    """Draws what the replay, the query and the reader of its results have come to."""

    replay: Any
    progress: Progress
    reader: SurgeReader
    names: dict[str, str]
    loss: LeaderLoss | None = None
    picture: Path | None = None
    """Where a picture of the table goes, taken once the next leader of the killed one takes writes."""
    in_rate: Rate = field(default_factory=Rate)
    out_rate: Rate = field(default_factory=Rate)

    def draw(self) -> Panel:
        now = time.monotonic()
        topics = Group(self._topics(now), self._query(), *self._loss())
        return Panel(
            Group(self._clock(), Text(), topics, Text(), self._airports(), Text(), self._worst()),
            title="[bold]Headrace[/]: flights in, surge out",
            border_style="blue",
            padding=(1, 2),
            width=WIDTH,
        )

    def take_picture(self) -> None:
        """Writes the picture that is still to be taken, if its moment has come."""
        if self.picture is not None and self.loss is not None and self.loss.is_led_again:
            picture.write(self.draw(), "make demo BROKERS=3", WIDTH, self.picture)
            self.picture = None

    def line(self) -> str:
        """The same in one line, for a log."""
        now = time.monotonic()
        delivered, written = self.replay.delivered, self.reader.records
        return (
            f"{self._moment():%Y-%m-%d}  flights {delivered:>7,} ({self.in_rate.at(now, delivered):,.0f}/s), "
            f"lag of the query {self._query_lag():,}; surge {written:>6,} ({self.out_rate.at(now, written):,.0f}/s), "
            f"lag {self.reader.lag:,}; {self.progress.dropped_late} dropped as late"
            f"{''.join(f'; {text}' for text in self._said_of_loss())}"
        )

    def _moment(self) -> datetime:
        return datetime.fromtimestamp(self.replay.now_ms / 1000, UTC).astimezone(ZoneInfo(LOCAL_ZONE))

    def _query_lag(self) -> int:
        return max(0, int(self.replay.delivered) - self.progress.rows)

    def _clock(self) -> Table:
        row = Table.grid(padding=(0, 2))
        total = len(self.replay.year)
        bar = ProgressBar(total=total, completed=self.replay.delivered, width=42)
        row.add_row(Text(f"{self._moment():%a %d %b %Y, %H:00}", "bold"), bar, f"{self.replay.delivered / total:.0%}")
        return row

    def _topics(self, now: float) -> Table:
        table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim")
        table.add_column("topic")
        for title in ("records", "records/s", "lag"):
            table.add_column(title, justify="right")
        table.add_column("read by")
        delivered, written = self.replay.delivered, self.reader.records
        flights = (f"{delivered:,}", f"{self.in_rate.at(now, delivered):,.0f}", f"{self._query_lag():,}")
        surge = (f"{written:,}", f"{self.out_rate.at(now, written):,.0f}", f"{self.reader.lag:,}")
        table.add_row("[cyan]flights", *flights, "the query")
        table.add_row("[magenta]surge", *surge, "this table")
        return table

    def _query(self) -> Text:
        late = self.progress.dropped_late
        batches = f"the query: {self.progress.batches:,} batches, the last in {self.progress.batch_ms} ms; "
        return Text.assemble(batches, (f"{late} dropped as late", "red" if late else "green"))

    def _said_of_loss(self) -> list[str]:
        return [] if self.loss is None else [text for text in self.loss.lines() if text]

    def _loss(self) -> list[Text]:
        """Two rows where a leader is killed on the way, empty ones before it: the rows below keep their place."""
        return [] if self.loss is None else [Text(text or " ", "yellow") for text in self.loss.lines()]

    def _airports(self) -> Table:
        table = self._hours_table("airports now")
        for hour in sorted(self.reader.newest.values(), key=lambda row: -float(row["surge"])):
            self._add(table, hour, "%H:00")
        return table

    def _worst(self) -> Table:
        table = self._hours_table("the worst hours so far")
        for hour in self.reader.worst.values():
            self._add(table, hour, "%d %b %H:00")
        return table

    def _hours_table(self, title: str) -> Table:
        table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
        table.add_column(title, min_width=23)
        table.add_column("hour", min_width=12)
        for name in ("demand", "supply", "surge"):
            table.add_column(name, justify="right", min_width=6)
        table.add_column("", min_width=BAR_CELLS)
        return table

    def _add(self, table: Table, hour: dict[str, Any], form: str) -> None:
        surge = float(hour["surge"])
        when = datetime.fromisoformat(hour["hour"]).astimezone(ZoneInfo(LOCAL_ZONE))
        colour = "green" if surge < 1.5 else "yellow" if surge < 3 else "red"
        cells = min(BAR_CELLS, max(1, round((surge - 1) / (BAR_SURGE - 1) * BAR_CELLS)))
        name = f"[bold]{hour['origin']}[/] {self.names.get(hour['origin'], '')}"
        numbers = (str(hour["demand"]), str(hour["supply"]), f"[{colour}]{surge:.2f}[/]")
        table.add_row(name, f"{when:{form}}", *numbers, f"[{colour}]{'█' * cells}[/]")


def show_until(screen: Screen, console: Console, finished: Callable[[], bool]) -> None:
    """Draws until `finished()`; a console that is not a terminal gets a line now and then instead."""
    if console.is_terminal:
        with Live(screen.draw(), console=console, refresh_per_second=DRAWS_A_SECOND) as live:
            while not finished():
                time.sleep(1 / DRAWS_A_SECOND)
                screen.progress.refresh()
                screen.take_picture()
                live.update(screen.draw())
            screen.progress.refresh()
            live.update(screen.draw())
        return
    said = 0.0
    while not finished():
        time.sleep(1 / DRAWS_A_SECOND)
        screen.progress.refresh()
        screen.take_picture()
        if time.monotonic() - said >= PLAIN_LINE_S:
            said = time.monotonic()
            print(screen.line(), flush=True)
    screen.progress.refresh()
    print(screen.line(), flush=True)
