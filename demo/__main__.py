"""The demo's command: starts brokers, replays the year, runs the pipeline, checks and draws it, says what is next."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click
from rich.console import Console

from demo.broker import FLIGHTS, HEADRACE, SURGE, BrokerProcess, DemoError, create_topics, start_broker

if TYPE_CHECKING:
    from demo.loss import LeaderLoss

REPLICAS: Final = 3
DEFAULT_DAYS_PER_S: Final = 10.0
DIFFERENCES_SHOWN: Final = 10
REPORT_PATIENCE_S: Final = 20.0


@dataclass(slots=True)
class Parts:
    """How long each part took."""

    console: Console
    began: float = field(default_factory=time.monotonic)
    seconds: list[tuple[str, float]] = field(default_factory=list)

    @contextmanager
    def part(self, name: str, *, spins: bool = False) -> Iterator[None]:
        """Says what goes on; on a terminal with a spinner, where a part has nothing else to show for many seconds."""
        self.console.print(f"[dim]{name} ...[/]")
        started = time.monotonic()
        with self.console.status("[dim]some seconds more[/]") if spins and self.console.is_terminal else nullcontext():
            yield
        self.seconds.append((name, time.monotonic() - started))

    def show(self) -> None:
        for name, seconds in self.seconds:
            self.console.print(f"  {seconds:6.1f} s  {name}")
        self.console.print(f"  {time.monotonic() - self.began:6.1f} s  in all")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--speed", type=click.FloatRange(min=0), default=DEFAULT_DAYS_PER_S, show_default=True, metavar="DAYS",
              help="Days of 2013 replayed in a second; 0 is as fast as it goes.")  # fmt: skip
@click.option("--days", type=click.IntRange(1, 365), default=365, show_default=True, metavar="N",
              help="Only the first N days of 2013: a look in less than a minute.")  # fmt: skip
@click.option("--keep", is_flag=True, help="Leave the broker up, and say how to look around.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=Path("demo-out"), show_default=True,
              metavar="DIR", help="Where the chart goes.")  # fmt: skip
@click.option("--bootstrap", metavar="HOST:PORT", help="Use a broker that is up already, rather than start one.")
@click.option("--brokers", type=click.IntRange(1, 9), default=1, show_default=True, metavar="N",
              help="With 3 or more: a cluster of them, of which one is killed half-way.")  # fmt: skip
@click.option("--picture", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="With 3 or more brokers: the table as SVG, once the next leader takes writes.")  # fmt: skip
def main(
    speed: float, days: int, keep: bool, out: Path, bootstrap: str | None, brokers: int, picture: Path | None
) -> None:
    """A year of flights from New York through a topic, a Spark pipeline and a second topic, checked and drawn.

    With --brokers 3 the topics have three replicas. When half of the flights are sent, the broker that leads their
    busiest partition is killed (SIGKILL), and the table shows for how long its writes stood still.
    """
    from demo.session import java_is_missing

    if brokers == 2:
        raise click.BadParameter("two brokers do not survive the loss of one", param_hint="--brokers")
    if brokers > 1 and bootstrap is not None:
        raise click.BadParameter("it starts brokers, and --bootstrap uses one that is up", param_hint="--brokers")
    if picture is not None and brokers == 1:
        raise click.BadParameter("it shows how a broker of several is killed", param_hint="--picture")

    if java_is_missing():
        raise click.ClickException("Spark needs Java 17 or later, and there is none here (make system-deps)")
    console = Console(highlight=False, soft_wrap=True)
    out.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="headrace-demo-"))
    parts = Parts(console)
    broker: BrokerProcess | None = None
    kept = False
    _signals.clear()
    was = {number: signal.signal(number, _on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        if bootstrap is None:
            with parts.part("starting a broker" if brokers == 1 else f"starting {brokers} brokers"):
                broker = start_broker(directory, brokers)
            bootstrap = broker.bootstrap
        nodes = broker.nodes if broker is not None else {}
        right = run(bootstrap, Replayed(speed, days), out, directory, parts, nodes, picture)
        kept = keep and broker is not None
        _say_next(console, out, bootstrap if broker is None or kept else None, broker, days, parts)
    except (DemoError, TimeoutError) as error:
        _end_if_asked()
        raise click.ClickException(str(error)) from error
    except Exception:
        _end_if_asked()  # what was interrupted half-way fails in ways of its own
        raise
    finally:
        if broker is not None and not kept:
            broker.stop()
        shutil.rmtree(directory / "state", ignore_errors=True)
        if not kept:
            shutil.rmtree(directory, ignore_errors=True)
        for number, handler in was.items():
            signal.signal(number, handler)
    sys.exit(0 if right else 1)


_signals: list[int] = []
"""Those that have asked the demo to end."""


def _on_signal(number: int, _frame: FrameType | None) -> NoReturn:
    """A broker in a session of its own would outlive a demo that just dies: it has to be stopped first."""
    _signals.append(number)
    raise SystemExit(128 + number)


def _end_if_asked() -> None:
    """Ends a demo that was asked to end inside code that takes any exception for its own."""
    if _signals:
        raise SystemExit(128 + _signals[0])


@dataclass(frozen=True, slots=True)
class Replayed:
    """How much of the year is replayed: `days`, of which `speed` go in a second (0: as fast as it goes)."""

    speed: float
    days: int


def run(
    bootstrap: str,
    replayed: Replayed,
    out: Path,
    directory: Path,
    parts: Parts,
    nodes: Mapping[int, int],
    picture: Path | None = None,
) -> bool:
    """Runs everything between the broker's start and its end. Returns whether the result is right.

    `nodes` are those of a cluster, of which one is killed (`demo.loss`). `picture` is where the table then goes as SVG.
    """
    from demo import chart, check, flights
    from demo.loss import loss_of

    console = parts.console
    console.print(f"the broker answers on [bold]{bootstrap}[/]")
    with parts.part("reading the flights"):
        from demo.replay import prepare

        create_topics(bootstrap, REPLICAS if nodes else 1)
        table, weather = flights.of_the_first(replayed.days, flights.load_flights()), flights.load_weather()
        year = prepare(table)
    loss = loss_of(bootstrap, FLIGHTS, nodes) if nodes else None
    dropped = _stream(
        bootstrap, replayed.speed, year, weather, out / "spark.log", directory, Shown(parts, loss, picture)
    )
    if loss is not None:
        with parts.part("waiting until all replicas are in sync again"):
            loss.wait()
        console.print(f"[yellow]{'; '.join(loss.lines())}")
    with parts.part("checking every hour of every airport against pandas"):
        found, records = check.read_back(bootstrap, SURGE)
        wrong = check.differences(found, check.expected(table, weather))
    for line in wrong[:DIFFERENCES_SHOWN]:
        console.print(f"[red]{line}")
    if wrong:
        console.print(f"[bold red]{len(wrong):,} differences from pandas over the same file")
    else:
        console.print(f"[green]{len(found):,} airport-hours in {records:,} records, all equal to pandas on this file")
    console.print(f"[{'bold red' if dropped else 'green'}]{dropped:,} records dropped as late[/], as should be 0")
    with parts.part("drawing"):
        chart.write(found, flights.airport_names(), out, replayed.days)
    return not wrong and not dropped


@dataclass(frozen=True, slots=True)
class Shown:
    """What the screen shows beside the flights, and where its picture goes."""

    parts: Parts
    loss: LeaderLoss | None
    picture: Path | None


def _stream(
    bootstrap: str, speed: float, year: Any, weather: Any, spark_log: Path, directory: Path, shown: Shown
) -> int:
    """Replays the year while the query runs, until both are through; the number of rows dropped as late."""
    from demo import flights, query
    from demo.replay import Replay
    from demo.session import open_session
    from demo.table import Progress, Screen, SurgeReader, show_until

    parts, loss = shown.parts, shown.loss
    with ExitStack() as open_things:
        with parts.part("starting Spark and the query", spins=True):
            spark = open_session(spark_log)
            open_things.callback(spark.stop)
            signal.signal(signal.SIGINT, _on_signal)  # Spark has put one of its own there
            _end_if_asked()
            frame = query.weather_frame(spark, weather)
            running = query.start(spark, bootstrap, FLIGHTS, SURGE, frame, str(directory / "state"))
            open_things.callback(running.stop)
            _first_batch(running)
        replay = Replay(bootstrap, FLIGHTS, year, speed, loss)
        reader = SurgeReader(bootstrap, SURGE, partitions=2)
        open_things.callback(reader.stop)
        open_things.callback(replay.stop)
        screen = Screen(replay, Progress(running), reader, flights.airport_names(), loss, shown.picture)
        how = f"{speed:g} days a second" if speed else "as fast as it goes"
        with parts.part(f"replaying {len(year):,} flights of 2013 through topic and query, {how}"):
            reader.start()
            replay.start()
            drained = threading.Thread(target=_drain, args=(replay, running), daemon=True)
            drained.start()
            show_until(screen, parts.console, lambda: _is_over(replay, running, drained))
            _wait_for_reports(screen.progress, len(year))
        return screen.progress.dropped_late


def _first_batch(running: Any) -> None:
    """Waits for the empty first batch: Spark is warm then, and the table moves from the replay's first second."""
    while not running.recentProgress:
        _end_if_asked()
        if not running.isActive:
            raise DemoError(f"the query did not start: {running.exception()}")
        time.sleep(0.1)


def _drain(replay: Any, running: Any) -> None:
    replay.join()
    if not replay.failure:
        running.processAllAvailable()


def _wait_for_reports(progress: Any, rows: int) -> None:
    """Waits until the query has reported on every row, so that none dropped as late goes uncounted. The reports come a
    moment after the batches. Raises DemoError if some never come."""
    deadline = time.monotonic() + REPORT_PATIENCE_S
    while progress.rows < rows and time.monotonic() < deadline:
        time.sleep(0.1)
        progress.refresh()
    if progress.rows != rows:
        raise DemoError(f"the query reports {progress.rows:,} rows read, and {rows:,} were sent")


def _is_over(replay: Any, running: Any, drained: threading.Thread) -> bool:
    """Whether everything sent has been through the query. Raises DemoError if it never will be."""
    _end_if_asked()
    if replay.failure:
        raise DemoError(f"the replay ended early: {replay.failure}")
    if not running.isActive:
        raise DemoError(f"the query ended early: {running.exception()}")
    return not drained.is_alive()


def _say_next(
    console: Console, out: Path, up: str | None, broker: BrokerProcess | None, days: int, parts: Parts
) -> None:
    """`up` is where a broker still answers when the demo is over; `broker` is the demo's own."""
    console.print()
    parts.show()
    console.print(f"\nthe chart: [bold]{out / 'surge.png'}[/], and to look into: [bold]{out / 'surge.html'}[/]")
    if up is None:
        console.print("next: [bold]make demo KEEP=1[/] leaves the broker up to look around;\n"
                      "      [bold]make demo BROKERS=3[/] kills a leader of three on the way;\n"
                      "      [bold].venv/bin/headrace serve[/] starts one of your own")  # fmt: skip
        return
    where = "" if broker is None else f", its data and log in {broker.directory}"
    console.print(f"the broker is up on {up}{where}. Look around:")
    halfway = date(2013, 1, 1) + timedelta(days=days // 2)
    for command in (
        "topic list",
        "topic describe flights surge",
        f"consume {FLIGHTS} --from {halfway} --max 5",
        f"consume {SURGE} --follow --key-separator ' '",
        "cluster describe",
    ):
        console.print(f"  {HEADRACE} {command} -b {up}")
    if broker is None:
        console.print(f"  {HEADRACE} topic delete {FLIGHTS} {SURGE} -b {up}    # makes room for another run")
    else:
        console.print(f"  kill {broker.process.pid}    # a clean shutdown")


if __name__ == "__main__":
    main()
