"""Batches of idempotent producers that this broker refused before it led the partition, which must be resent before
later ones.

A client sends further batches before it has an answer. A broker that begins to lead in the middle of them has refused
the first ones, and knows nothing of the producer yet: it would accept any batch as the producer's first (KIP-360).
Clients count everything sent before an acknowledged batch as acknowledged (librdkafka does), so the refused batches
would be lost. So the log of a new leader waits for them (see `Producers.refused`).

A client that has read the refusal resends the refused batch first, or begins a new epoch. So only batches that were on
their way matter, and a refusal is forgotten after `KEPT_S`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.wire.batch import BATCH_OVERHEAD, NO_PRODUCER_ID, read_header

if TYPE_CHECKING:
    from headrace.env import Clock
    from headrace.wire.primitives import Buffer

KEPT_S: Final = 10.0
"""Time for which a refusal is remembered: less than the 30 s after which librdkafka gives up batches for an unknown
topic and continues after them."""
KEPT_MAX: Final = 1000
"""Bound on the refusals of all partitions; beyond it the oldest is forgotten."""

Place = tuple[str | bytes, int]
"""The name of a topic, or the id of one that was not known yet, and a partition."""


class RefusedBatches:
    """The remembered refusals of one broker."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._noted: dict[Place, dict[tuple[int, int], tuple[float, bytes]]] = {}
        """Time of the refusal (monotonic) and batch header, by place, then by producer id and epoch. Only the first
        batch of each is kept; the oldest place comes first."""
        self._count = 0
        """Number of remembered refusals."""

    def note(self, place: Place, batch: Buffer) -> None:
        """Notes a refused batch, which the client has to resend. Ignores bytes too short for a batch."""
        if len(batch) < BATCH_OVERHEAD:
            return
        header = read_header(batch)
        if header.producer_id == NO_PRODUCER_ID:
            return
        self._forget_old()
        there = self._noted.setdefault(place, {})
        whose = (header.producer_id, header.producer_epoch)
        now = self._clock.monotonic()
        if whose in there:
            if there[whose][0] >= now - KEPT_S:
                return
            del there[whose]  # the new refusal is the youngest
            self._count -= 1
        self._count += 1
        there[whose] = (now, bytes(batch[:BATCH_OVERHEAD]))

    def take(self, *places: Place) -> list[bytes]:
        """Removes and returns, in order, the headers of batches that were refused at these places and may still be
        resent."""
        if not self._noted:
            return []
        found = [each for place in places for each in self._noted.pop(place, {}).values()]
        self._count -= len(found)
        oldest = self._clock.monotonic() - KEPT_S
        return [header for noted, header in found if noted >= oldest]

    def _forget_old(self) -> None:
        """Forgets old refusals until there is room for one more."""
        oldest = self._clock.monotonic() - KEPT_S
        while self._noted:
            place, there = next(iter(self._noted.items()))
            first = next(iter(there))
            if there[first][0] >= oldest and self._count < KEPT_MAX:
                return
            del there[first]
            self._count -= 1
            if not there:
                del self._noted[place]
