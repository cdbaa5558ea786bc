"""What idempotent producers sent to this broker before it led the partition: it is to come again before what follows.

A client sends its next batches before it has an answer. Where a broker begins to lead in the middle of them, it has
refused the first ones, and knows nothing of the producer yet: any batch would do as its first (KIP-360). Clients take
all that they sent before an acknowledged batch for acknowledged too (librdkafka does), so what was refused would be
lost. The log of a new leader waits for it instead: see `Producers.refused`.

Once a client has read the refusal it sends the refused batch first, or begins a new epoch. So what was on its way
counts alone, and a refusal is forgotten after `KEPT_S`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.wire.batch import BATCH_OVERHEAD, NO_PRODUCER_ID, read_header

if TYPE_CHECKING:
    from headrace.env import Clock
    from headrace.wire.primitives import Buffer

KEPT_S: Final = 10.0
"""Less than the 30 s after which librdkafka gives up what it sent to an unknown topic, and goes on behind that."""
KEPT_MAX: Final = 1000
"""Of all partitions; beyond it the oldest refusal goes."""

Place = tuple[str | bytes, int]
"""The name of a topic, or the id of one that was not known yet, and a partition."""


class RefusedBatches:
    """See the module."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._noted: dict[Place, dict[tuple[int, int], tuple[float, bytes]]] = {}
        """When a client had to send it again (monotonic), and its header: of each place the first batch of each
        producer and epoch. The oldest comes first."""
        self._count = 0

    def note(self, place: Place, batch: Buffer) -> None:
        """Notes that a client has to send a batch again. Bytes too short for a batch are passed over."""
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
            del there[whose]  # the new one is the youngest
            self._count -= 1
        self._count += 1
        there[whose] = (now, bytes(batch[:BATCH_OVERHEAD]))

    def take(self, *places: Place) -> list[bytes]:
        """Takes out the headers of batches that were refused there and did not come again, in order."""
        if not self._noted:
            return []
        found = [each for place in places for each in self._noted.pop(place, {}).values()]
        self._count -= len(found)
        oldest = self._clock.monotonic() - KEPT_S
        return [header for noted, header in found if noted >= oldest]

    def _forget_old(self) -> None:
        """Makes room for one more."""
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
