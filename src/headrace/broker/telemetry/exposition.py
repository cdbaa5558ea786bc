"""Renders the metrics page: families as Prometheus text, by prometheus-client, in slices that do not block the event
loop.

The node goes on meanwhile, so a page's numbers are of the moments at which their slices ran. A request that arrives
while a page is rendered gets that page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from headrace.broker.telemetry.families import Family, Sample, Section, gauge
from headrace.env.node import settle
from headrace.env.workers import Raised

if TYPE_CHECKING:
    from asyncio import Future

    from headrace.env import Node, Owner

SLICE_S: Final = 0.0005
"""Time after which a slice ends, so that the loop can do other work. A section's work between two yields comes on
top."""
SAMPLES_AT_ONCE: Final = 32
"""Samples rendered at once: some 0.2 ms."""
LIBRARY: Final = "prometheus_client"


def is_installed() -> bool:
    """Returns whether prometheus-client is installed."""
    return find_spec(LIBRARY) is not None


class PrometheusText:
    """The imported prometheus-client. Made on a worker, because the import takes a while."""

    content_type: str

    def __init__(self) -> None:
        from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, ProcessCollector, generate_latest
        from prometheus_client.metrics_core import Metric
        from prometheus_client.samples import Sample as PrometheusSample

        self.content_type = CONTENT_TYPE_PLAIN_0_0_4
        self._generate: Any = generate_latest
        self._metric: Any = Metric
        self._sample: Any = PrometheusSample
        self._process: Any = ProcessCollector(registry=None)

    def process(self) -> bytes:
        """Returns CPU time, memory and open files of this process as text; runs on a worker."""
        text: bytes = self._generate(self._process)
        return text

    def pieces(self, family: Family) -> Iterator[bytes]:
        """Yields the text of a family, some lines at a time. A family without samples still has its HELP and TYPE
        lines."""
        for at in range(0, max(1, len(family.samples)), SAMPLES_AT_ONCE):
            text = self._text(family, family.samples[at : at + SAMPLES_AT_ONCE])
            # Only the first piece of a family keeps its HELP and TYPE lines.
            yield text.split(b"\n", 2)[2] if at else text

    def _text(self, family: Family, samples: Sequence[Sample]) -> bytes:
        metric = self._metric(family.name, family.about, family.kind)
        make, name = self._sample, family.name
        metric.samples = [make(name + suffix, labels, value) for suffix, labels, value in samples]
        text: bytes = self._generate(_Collected([metric]))
        return text


class _Collected:
    """A registry for prometheus-client with fixed metrics."""

    def __init__(self, metrics: Sequence[Any]) -> None:
        self._metrics = metrics

    def collect(self) -> Sequence[Any]:
        return self._metrics


class Exposition:
    """Renders the page. Call `load` first, on a running loop; requests for a page wait for it."""

    def __init__(
        self,
        node: Node,
        owner: Owner,
        sections: Sequence[Section],
        on_worker: Callable[[], list[Family]],
    ) -> None:
        """`on_worker` runs on a worker and returns the families that need system calls."""
        self._node = node
        self._owner = owner
        self._monotonic = node.clock.monotonic
        self._sections = sections
        self._on_worker = on_worker
        self._text: PrometheusText | None = None
        self._cannot = False
        self._waiting: list[Future[bytes | None]] = []
        self._work: Iterator[bytes] | None = None
        self._pieces: list[bytes] = []
        self._began = 0.0
        self._slowest_s = self._slowest_before_s = self._took_s = 0.0

    @property
    def slowest_slice_s(self) -> float:
        """Longest time that the last complete page held the loop."""
        return self._slowest_before_s

    @property
    def content_type(self) -> str:
        """Content type of the pages."""
        assert self._text is not None, "a page was made"
        return self._text.content_type

    def load(self) -> None:
        """Has a worker import the library."""
        self._node.workers.submit(PrometheusText).deliver_to(self._loaded)

    def _loaded(self, text: PrometheusText | Raised) -> None:
        if isinstance(text, Raised):
            self._cannot = True
            self._failed(text.error)
            return
        self._text = text
        if self._waiting:
            self._begin()

    async def render(self) -> bytes | None:
        """Returns a page, or None if it cannot be rendered. Requests that arrive together share a page."""
        if self._cannot:
            return None
        page: Future[bytes | None] = self._node.future()
        self._waiting.append(page)
        if len(self._waiting) == 1 and self._text is not None:
            self._begin()
        return await page

    def _begin(self) -> None:
        text = self._text
        assert text is not None
        self._began = self._monotonic()
        self._pieces = []
        self._slowest_s = 0.0
        self._node.workers.submit(lambda: (text.process(), self._on_worker())).deliver_to(self._collected)

    def _collected(self, found: tuple[bytes, list[Family]] | Raised) -> None:
        if isinstance(found, Raised):
            self._failed(found.error)
            return
        process, families = found
        self._pieces.append(process)
        self._work = self._made(families)
        self._slice()

    def _made(self, families: Sequence[Family]) -> Iterator[bytes]:
        text = self._text
        assert text is not None
        for family in families:
            yield from text.pieces(family)
        for section in self._sections:
            for each in section():
                if each is None:
                    yield b""
                else:
                    yield from text.pieces(each)
        for own in self._of_itself():
            yield from text.pieces(own)

    def _of_itself(self) -> Sequence[Family]:
        return (
            gauge("headrace_metrics_page_seconds", "Time that the page before this one took to make.", self._took_s),
            gauge(
                "headrace_metrics_slice_seconds",
                "Longest time that the page before this one held the event loop.",
                self._slowest_before_s,
            ),
        )

    def _slice(self) -> None:
        assert self._work is not None
        began = now = self._monotonic()
        ended = True
        try:
            for piece in self._work:
                self._pieces.append(piece)
                now = self._monotonic()
                if now - began >= SLICE_S:
                    ended = False
                    break
        except Exception as error:  # no waiting request may hang
            self._failed(error)
            return
        self._slowest_s = max(self._slowest_s, self._monotonic() - began)
        if ended:
            self._took_s = now - self._began
            self._slowest_before_s = self._slowest_s
            self._answer(b"".join(self._pieces))
        else:
            self._owner.soon(self._slice)

    def _failed(self, error: BaseException) -> None:
        self._node.defects.report(error, "the page of metrics")
        self._answer(None)

    def _answer(self, page: bytes | None) -> None:
        self._work = None
        self._pieces = []
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            settle(each, page)
