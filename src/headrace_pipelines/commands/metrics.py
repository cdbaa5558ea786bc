"""The numbers of a run for Prometheus: a page in its text format, served as long as the run goes on."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_PASSIVE: Final = socket.AI_PASSIVE
PREFIX: Final = "headrace_pipeline_"


@dataclass(frozen=True, slots=True)
class Metric:
    """A number: a counter if its name ends in `_total`, else a gauge."""

    name: str
    about: str
    value: float


def exposition(pipeline: str, metrics: Iterable[Metric]) -> str:
    """The text that Prometheus reads; `pipeline` is on every number as a label."""
    lines = []
    for metric in metrics:
        name = PREFIX + metric.name
        kind = "counter" if name.endswith("_total") else "gauge"
        lines.append(f"# HELP {name} {metric.about}\n# TYPE {name} {kind}")
        lines.append(f'{name}{{pipeline="{pipeline}"}} {metric.value}')
    return "\n".join(lines) + "\n"


class MetricsServer:
    """Answers GET /metrics with what `page` gives, in threads of its own. Raises OSError where it cannot listen."""

    def __init__(self, host: str, port: int, page: Callable[[], str]) -> None:
        family, _, _, _, address = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=_PASSIVE)[0]
        server = type("Server", (ThreadingHTTPServer,), {"address_family": family})
        self._server: ThreadingHTTPServer = server(address, _handler_of(page))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler_of(page: Callable[[], str]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10

        def do_GET(self) -> None:
            if self.path.partition("?")[0] != "/metrics":
                self.send_error(404)
                return
            body = page().encode()
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Nobody wants a line for every look."""

    return Handler
