"""State that all connections of a server share: receive buffer, budgets, clocks, and shared parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from headrace.broker.net.budget import Budget
from headrace.broker.net.frame_memory import FrameMemory
from headrace.broker.net.logins import Logins
from headrace.broker.net.long_answers import LongAnswers
from headrace.broker.net.mutes import Mutes
from headrace.broker.net.output import SCRATCH_BYTES, SEND_BYTES, SEND_SHARED_BYTES
from headrace.broker.net.send_queue import SendQueue
from headrace.env.turns import SlicedTurns

if TYPE_CHECKING:
    from headrace.broker.net.client_quotas import ClientQuotas
    from headrace.broker.net.ports import Host, Pace, Requests
    from headrace.broker.telemetry.metrics import Registry
    from headrace.broker.telemetry.request_errors import RequestErrors
    from headrace.broker.telemetry.request_times import RequestTimes
    from headrace.config import BrokerConfig
    from headrace.env import Node, Owner

RECEIVE_BYTES: Final = 256 * 1024
"""Size of the shared receive buffer, chosen to fit the processor's cache."""
UNLIMITED_REQUEST_BYTES: Final = 1 << 62
SHARED_S: Final = 0.01
"""Time after a small request during which other connections take shorter turns, as its client may send more."""
UNAUTHENTICATED_SHARE: Final = 0.2
"""Largest share of the loop's time for unauthenticated connections while others are served."""
SERVED_S: Final = 0.02
"""Time since the last served request during which clients count as being served."""


class Shared:
    """The shared state of a server's connections. Its bounds are those of the settings at the start."""

    def __init__(
        self,
        node: Node,
        owner: Owner,
        config: Callable[[], BrokerConfig],
        requests: Requests,
        pace: Pace,
        metrics: Registry,
        request_errors: RequestErrors,
        host: Host,
    ) -> None:
        """`config` returns the settings in force; `owner` owns the connections' tasks and timers; `pace` tells whether
        the disk keeps up with producers."""
        settings = config()
        self.host = host
        self.owner = owner
        self.workers = node.workers
        self.errands = node.errands
        self.completions = node.completions
        self.monotonic = node.clock.monotonic
        self.now_ms = node.clock.now_ms
        self.requests = requests
        self.pace = pace
        self.request_errors = request_errors
        self.buffer = bytearray(RECEIVE_BYTES)
        self.view = memoryview(self.buffer)
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        """Buffer for file ranges on their way to sockets; used within one send."""
        limit = settings.queued_max_request_bytes
        self.requests_budget = Budget(limit if limit > 0 else UNLIMITED_REQUEST_BYTES)
        self.responses_budget = Budget(settings.queued_max_response_bytes)
        self.frame_memory = FrameMemory(self.requests_budget, node.scratch)
        self.frame_bytes_max = settings.socket_request_max_bytes
        self.unanswered_max = settings.connection_max_queued_requests
        self.long_answers = LongAnswers(node, owner, self.requests_budget, self.responses_budget, request_errors)
        self.mutes = Mutes(owner, self.monotonic)
        self.logins = Logins(owner, self.monotonic, lambda: config().connection_login_timeout_ms, metrics)
        self.unauthenticated = SlicedTurns(owner, self.monotonic, self._unauthenticated_share)
        """Turns of connections that are being accepted or have not logged in."""
        self.send_queue = SendQueue(owner, host)
        self.cold_reads = metrics.counter("fetch.cold_reads")
        self.quotas: ClientQuotas | None = None
        """Quotas of users and client ids; None if there are none."""
        self.times: RequestTimes | None = None
        """Receiver of the requests' durations; None if nothing reads them."""
        busy_poll_us = settings.busy_poll_us
        self.busy_poll: Callable[[float], None] | None = (
            node.network.busy_poll(busy_poll_us / 1e6) if busy_poll_us else None
        )
        """Called with the time after received requests are handled."""
        self.bulk = 0
        """Number of answers made with file ranges so far."""
        self.began = -SHARED_S
        """Arrival time of the requests that are being handled."""
        self.talked_at = -SHARED_S
        """Time of the last request whose answer had no file range."""
        self.served_at = -SERVED_S
        """Time of the last answer to a client that is authenticated or need not log in."""

    def _unauthenticated_share(self) -> float:
        return UNAUTHENTICATED_SHARE if self.monotonic() - self.served_at < SERVED_S else 1.0

    def send_bytes(self) -> int:
        """Returns how many bytes of a file a connection may send at once."""
        return SEND_SHARED_BYTES if self.monotonic() - self.talked_at < SHARED_S else SEND_BYTES
