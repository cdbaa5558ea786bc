"""The state that the connections of a server share: receive buffer, budgets, clocks, and the parts that serve them."""

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
"""The buffer that all connections receive into: what fits the processor's cache."""
UNLIMITED_REQUEST_BYTES: Final = 1 << 62
SHARED_S: Final = 0.01
"""For this long after a small request of a connection others take shorter turns: it may send more."""
UNAUTHENTICATED_SHARE: Final = 0.2
"""The share of the time, at most, for connections that come and have not logged in, while others are served."""
SERVED_S: Final = 0.02
"""Others are served while they were served less than this ago."""


class Shared:
    """See the module. Its bounds are those of the settings at the start."""

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
        """`config` returns the settings in force; `owner` has the connections' tasks and timers; `pace` says whether
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
        """What is read of files on its way into sockets; used within one send."""
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
        """The turns of connections that come, and of those that have not logged in."""
        self.send_queue = SendQueue(owner, host)
        self.cold_reads = metrics.counter("fetch.cold_reads")
        self.quotas: ClientQuotas | None = None
        """Of users and client ids; None if there are none."""
        self.times: RequestTimes | None = None
        """Takes how long requests took; None if nobody asks."""
        busy_poll_us = settings.busy_poll_us
        self.busy_poll: Callable[[float], None] | None = (
            node.network.busy_poll(busy_poll_us / 1e6) if busy_poll_us else None
        )
        """To be called with the time after what was received is handled."""
        self.bulk = 0
        """How many answers have been made out of files."""
        self.began = -SHARED_S
        """When the requests that are handled now arrived."""
        self.talked_at = -SHARED_S
        """When a connection last sent a request whose answer came out of no file."""
        self.served_at = -SERVED_S
        """When a request of an authenticated client, or of one that need not log in, was last answered."""

    def _unauthenticated_share(self) -> float:
        return UNAUTHENTICATED_SHARE if self.monotonic() - self.served_at < SERVED_S else 1.0

    def send_bytes(self) -> int:
        """Returns how much of a file a connection may send at once, in bytes."""
        return SEND_SHARED_BYTES if self.monotonic() - self.talked_at < SHARED_S else SEND_BYTES
