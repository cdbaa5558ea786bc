"""Enforces the quotas of users and client ids: measures what requests use, and puts throttle times into answers.

Without any quota a server has no such object (`Shared.quotas` is None). With quotas, each request is looked up by
principal and client id; unlimited requests take their usual paths, short paths included.

A request of a limited client has a `Meter`: it counts the bytes of Produce as they arrive, the bytes of Fetch before
they leave, and the event loop's time. Traffic between the nodes of a cluster is not measured: a handler that serves a
node calls `Meter.exempt`. Source: KIP-13, KIP-55, KIP-124, KIP-219, KIP-599.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from headrace.machine.rates import TokenBucket
from headrace.metadata import client_quotas as keys
from headrace.security.quotas.buckets import Buckets
from headrace.security.quotas.lookup import CLIENT_ID_MAX, BucketName, Limit, QuotaTable
from headrace.security.quotas.rate import Rate, in_throttle_range
from headrace.wire.apis import ApiKey

if TYPE_CHECKING:
    from headrace.config import BrokerConfig
    from headrace.env.clock import Clock
    from headrace.metadata.delta import ImageDelta
    from headrace.metadata.image import ClusterImage

KNOWN_MAX: Final = 10_000
"""Number of clients whose limits are cached; when it is exceeded the cache is cleared."""
CLIENT_ID_AT: Final = 14
"""Position of the client id's text in a frame, counted from the frame's size field."""
PERCENT: Final = 100


class Mutating(Protocol):
    """The context of a request that creates or deletes partitions."""

    principal: str
    client_id: str | None
    api_version: int


class ClientLimits(NamedTuple):
    """Limits of one client, which is a principal and the bytes of a client id."""

    client: tuple[str, bytes]
    produce: Limit | None
    fetch: Limit | None
    request: Limit | None
    mutation: Limit | None


class _Known(NamedTuple):
    """Limits of one client by kind of request; None where no limit applies."""

    produce: ClientLimits | None
    fetch: ClientLimits | None
    others: ClientLimits | None


def _known(found: ClientLimits) -> _Known:
    return _Known(
        found if found.produce or found.request else None,
        found if found.fetch or found.request else None,
        found if found.request or found.mutation else None,
    )


class ClientQuotas:
    """The client quotas of one node; `table` is the table of the current image."""

    def __init__(
        self, clock: Clock, config: Callable[[], BrokerConfig], on_table: Callable[[ClientQuotas], None]
    ) -> None:
        """`config` returns the settings in force; window sizes are fixed at the start. `on_table` is called after each
        change of the table."""
        self.monotonic = clock.monotonic
        self.table = QuotaTable({})
        settings = config()
        samples, sample_ms = settings.quota_window_num, 1000 * settings.quota_window_size_seconds
        self.sample_ms = sample_ms
        self.burst_s = (samples - 1) * sample_ms / 1000
        """Window, in seconds, whose bytes bound one answer."""
        self._on_table = on_table
        self._records: object = None
        """Quotas of the image from which `table` was made."""
        self._known: dict[tuple[str, bytes], _Known] = {}
        """Cached limits by client."""
        tokens, token_ms = settings.controller_quota_window_num, 1000 * settings.controller_quota_window_size_seconds
        self.rates: Buckets[BucketName, Rate] = Buckets(lambda: Rate(samples, sample_ms))
        self.tokens: Buckets[BucketName, TokenBucket] = Buckets(lambda: TokenBucket(tokens * token_ms))
        self._open: Meter | None = None
        """Meter of the request that the loop is working for."""

    def now_ms(self) -> int:
        """Returns the monotonic time in milliseconds."""
        return int(self.monotonic() * 1000)

    # --- which quotas there are

    def changed(self, _: ClusterImage, new: ClusterImage, __: ImageDelta) -> None:
        """Applies the quotas of a new image at once; usage so far still counts."""
        self.take(new)

    def take(self, image: ClusterImage) -> None:
        """Applies the quotas of an image."""
        if image.kept.quotas is self._records:
            return
        self._records = image.kept.quotas
        self.table = QuotaTable(image.kept.quotas)
        self._known.clear()
        self._open = None
        self._on_table(self)

    def limits_of(self, principal: str, key: int, view: memoryview, at: int, length: int) -> ClientLimits | None:
        """Returns the limits of the request in `view` at `at` (the position of its size), whose client id has `length`
        bytes; None if no limit applies."""
        at += CLIENT_ID_AT
        client = principal, bytes(view[at : at + length]) if length > 0 else b""
        try:
            known = self._known[client]
        except KeyError:
            known = _known(self.limits(client))
            if length <= CLIENT_ID_MAX:
                if len(self._known) >= KNOWN_MAX:
                    self._known.clear()
                self._known[client] = known
        if key == ApiKey.PRODUCE:
            return known.produce
        if key == ApiKey.FETCH:
            return known.fetch
        return known.others

    def limits(self, client: tuple[str, bytes]) -> ClientLimits:
        """Returns the limits of a client under the current quotas."""
        user, client_id = client[0].partition(":")[2], client[1].decode(errors="replace")
        return ClientLimits(client, *(self.table.find(key, user, client_id) for key in keys.CLIENT_KEYS))

    # --- usage

    def expire(self) -> None:
        """Drops usage that is too old to count. Called periodically."""
        now_ms = self.now_ms()
        self.rates.expire(now_ms)
        self.tokens.expire(now_ms)

    def use(self, limit: Limit, amount: float) -> None:
        """Counts usage of a client."""
        now_ms = self.now_ms()
        self.rates.use(limit.bucket, now_ms).record(amount, now_ms)

    def used(self, limit: Limit) -> bool:
        """Returns whether any usage of a client still counts."""
        now_ms = self.now_ms()
        return self.rates.use(limit.bucket, now_ms).per_second(now_ms) > 0

    def throttle_ms(self, limit: Limit) -> int:
        """Returns how long a client has to wait for its usage, in milliseconds; 0 if it is within its limit."""
        now_ms = self.now_ms()
        return self.rates.use(limit.bucket, now_ms).throttle_ms(limit.bound, now_ms)

    def meter(self, limits: ClientLimits, key: int, size: int) -> Meter:
        """Begins to measure a request, whose frame of `size` bytes counts too."""
        self.finished()
        return Meter(self, limits, key, size)

    def last(self, meter: Meter) -> None:
        """Charges the loop's time until `finished`, in which an answer is encoded and sent, to the meter's request."""
        self._open = meter

    def finished(self) -> None:
        """Ends the measurement begun by `last`: everything received is handled, and ready answers are sent."""
        meter, self._open = self._open, None
        if meter is not None:
            meter.pause()

    def mutations(self, asked: Mutating, strict_from: int) -> Mutations:
        """Returns the mutations that a request's client may make. From version `strict_from` on, a refusal is an
        error."""
        user = asked.principal.partition(":")[2]
        limit = self.table.find(keys.MUTATION, user, asked.client_id or "")
        return Mutations(self, limit, is_strict=asked.api_version >= strict_from)


class Meter:
    """Usage of one request of a limited client, until it is answered."""

    __slots__ = ("_has_share", "_key", "_mark", "_quotas", "exempt", "limits")

    def __init__(self, quotas: ClientQuotas, limits: ClientLimits, key: int, size: int) -> None:
        self._quotas = quotas
        self.limits = limits
        self._key = key
        self._mark: float | None = quotas.monotonic()
        """Time up to which the request's time is counted; None while the loop does other work."""
        self._has_share = False
        """Whether the answer's throttle time includes the loop's time."""
        self.exempt = False
        """Whether a node of the cluster sent the request."""
        if key == ApiKey.PRODUCE and limits.produce is not None:
            quotas.use(limits.produce, size)

    # --- time

    def handled(self) -> None:
        """Notes that the request's handler was called, and perhaps answered."""
        self._quotas.last(self)

    def begin(self) -> None:
        """Starts counting the loop's time for this request."""
        self._mark = self._quotas.monotonic()

    def spend(self) -> None:
        """Counts the time since the last mark, if time is being counted."""
        mark, limit = self._mark, self.limits.request
        if mark is None:
            return
        self._mark = now = self._quotas.monotonic()
        if limit is not None and not self.exempt:
            self._quotas.use(limit, (now - mark) * PERCENT)

    def pause(self) -> None:
        """Stops counting time: the loop turns to other work."""
        self.spend()
        self._mark = None

    def timed(self, work: Coroutine[Any, Any, Any]) -> _Timed:
        """Returns an awaitable for a handler's coroutine that measures its steps, but not its waits."""
        return _Timed(work, self)

    def _share_ms(self) -> int:
        """Returns how long the client has to wait for its use of the loop, in milliseconds; at most one sample."""
        limit = self.limits.request
        if limit is None:
            return 0
        self.spend()
        return min(self._quotas.throttle_ms(limit), self._quotas.sample_ms)

    # --- answers

    @property
    def fetch_bytes_max(self) -> int:
        """Bound on the bytes of one Fetch answer, so that its client waits no longer than its window."""
        limit = self.limits.fetch
        return 2**31 - 1 if limit is None else max(0, min(2**31 - 1, int(limit.bound * self._quotas.burst_s)))

    def throttle_fetch(self, byte_count: int) -> tuple[int, bool]:
        """Counts a Fetch answer; returns the throttle time, and whether the answer must be empty.

        An empty answer is not counted. A client without recent usage gets its answer and waits afterwards: otherwise it
        would wait for ever for a batch larger than its window.
        """
        if self.exempt:
            return 0, False
        self._has_share = True
        limit, quotas = self.limits.fetch, self._quotas
        share_ms = self._share_ms()
        if limit is None:
            return share_ms, share_ms > 0
        has_used = quotas.used(limit)
        quotas.use(limit, byte_count)
        bytes_ms = quotas.throttle_ms(limit)
        is_empty = share_ms > 0 or (bytes_ms > 0 and has_used)
        if is_empty:
            quotas.use(limit, -byte_count)
        return max(share_ms, bytes_ms), is_empty

    def answered(self, response: Any) -> int:
        """Puts the throttle time into a response (None: no response is sent); returns for how many milliseconds the
        client is not read from."""
        if self.exempt:
            return 0
        own_ms = getattr(response, "throttle_time_ms", 0)
        throttle_ms: int = own_ms
        if self._key == ApiKey.PRODUCE and self.limits.produce is not None:
            throttle_ms = max(throttle_ms, self._quotas.throttle_ms(self.limits.produce))
        if response is not None and not self._has_share:
            throttle_ms = max(throttle_ms, self._share_ms())
        if throttle_ms != own_ms and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = throttle_ms
        return throttle_ms


class _Timed:
    """Awaitable returned by `Meter.timed`."""

    __slots__ = ("_meter", "_work")

    def __init__(self, work: Coroutine[Any, Any, Any], meter: Meter) -> None:
        self._work = work
        self._meter = meter

    def __await__(self) -> Generator[Any, Any, Any]:
        step: Callable[[Any], Any] = self._work.send
        given: Any = None
        while True:
            self._meter.begin()
            try:
                waits_for = step(given)
            except StopIteration as end:
                return end.value
            finally:
                self._meter.pause()
            try:
                step, given = self._work.send, (yield waits_for)
            except BaseException as error:  # the work gets it, and decides
                step, given = self._work.throw, error


class Mutations:
    """The partitions that one request creates or deletes, charged one by one.

    A strict request begins no further mutation once its client has a debt. Others are carried out, and their client
    waits.
    """

    __slots__ = ("_is_strict", "_limit", "_quotas", "throttle_ms")

    def __init__(self, quotas: ClientQuotas, limit: Limit | None, *, is_strict: bool) -> None:
        self._quotas = quotas
        self._limit = limit
        self._is_strict = is_strict
        self.throttle_ms = 0
        """Throttle time to report in the answer."""

    def pay(self, partitions: int) -> bool:
        """Returns whether that many partitions may be created or deleted; if so, charges for them."""
        limit = self._limit
        if limit is None:
            return True
        now_ms = self._quotas.now_ms()
        bucket = self._quotas.tokens.use(limit.bucket, now_ms)
        if self._is_strict:
            self.throttle_ms = in_throttle_range(bucket.wait_ms(limit.bound, now_ms))
            if bucket.tokens(limit.bound, now_ms) < 0:
                return False
        bucket.take(partitions, limit.bound, now_ms)
        if not self._is_strict:
            self.throttle_ms = in_throttle_range(bucket.wait_ms(limit.bound, now_ms))
        return True
