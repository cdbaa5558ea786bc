"""Numbers of a run for Prometheus."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request

import click
import pytest

from headrace.cli.failures import Failure
from headrace_pipelines.commands.driving import Report
from headrace_pipelines.commands.metrics import Metric, MetricsServer, exposition
from headrace_pipelines.running import Batch


def page_of(port: int, path: str = "/metrics") -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        text: str = answer.read().decode()
    return text


def test_the_text_is_prometheus_own() -> None:
    text = exposition("surge", [Metric("records_total", "Records.", 12), Metric("state_rows", "In the state.", 1.5)])
    assert text == (
        "# HELP headrace_pipeline_records_total Records.\n"
        "# TYPE headrace_pipeline_records_total counter\n"
        'headrace_pipeline_records_total{pipeline="surge"} 12\n'
        "# HELP headrace_pipeline_state_rows In the state.\n"
        "# TYPE headrace_pipeline_state_rows gauge\n"
        'headrace_pipeline_state_rows{pipeline="surge"} 1.5\n'
    )


def test_an_ipv6_address_will_do() -> None:
    server = MetricsServer("::1", 0, lambda: "1")
    with urllib.request.urlopen(f"http://[::1]:{server.port}/metrics", timeout=60) as answer:
        assert answer.read() == b"1"
    server.close()


def test_served_until_closed() -> None:
    numbers = iter("12")
    server = MetricsServer("127.0.0.1", 0, lambda: next(numbers))
    port = server.port
    assert [page_of(port), page_of(port, "/metrics?x=1")] == ["1", "2"]
    with pytest.raises(urllib.error.HTTPError, match="404"):
        page_of(port, "/")
    server.close()
    with pytest.raises(OSError):
        page_of(port)


def test_a_report_serves_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    def follow() -> None:
        with Report("surge", as_json=False) as report:
            port = int(capsys.readouterr().out.strip().removeprefix("metrics on 127.0.0.1:").removesuffix("/metrics"))
            assert 'records_total{pipeline="surge"} 0\n' in page_of(port)
            report.add(Batch(0, 1200, 5400.4, 2, 3, 61, 222, behind=40))
            report.add(Batch(1, 300, 5400.4, 0, 0, 62, 1500, behind=10))
            page = page_of(port)
        numbers = dict(line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))
        bare = {name.partition("{")[0].removeprefix("headrace_pipeline_"): name for name in numbers}
        found = {name: float(numbers[full]) for name, full in bare.items()}
        assert found.pop("last_batch_timestamp_seconds") > 1_700_000_000
        assert found == {
            "batches_total": 2, "records_total": 1500, "late_total": 2, "unreadable_total": 3,
            "last_batch_duration_seconds": 1.5, "last_batch_records": 300, "state_rows": 62, "behind_records": 10,
        }  # fmt: skip

    from headrace_pipelines.commands.driving import run_options

    command = click.command()(run_options(lambda **_: follow()))
    command.main(["--checkpoint", "x", "--metrics-port", "0"], standalone_mode=False)


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ctx = click.Context(click.Command("x"))
        with ctx, pytest.raises(Failure, match=f"cannot serve metrics on 127.0.0.1:{port}: Address already in use"):
            for name, value in (("port", port), ("host", "127.0.0.1")):
                ctx.meta[f"headrace_pipelines.commands.driving.metrics_{name}"] = value
            with Report("surge", as_json=True):
                pass
