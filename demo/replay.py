"""The year again, faster: a producer that sends every flight when its moment has come."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pandas as pd
from confluent_kafka import KafkaError, Message, Producer

from demo.flights import as_values, in_order

TICK_MS: Final = 60 * 60 * 1000
"""One hour of 2013 is sent at a time."""
DAY_TICKS: Final = 24
DELIVERY_PATIENCE_S: Final = 60.0


@dataclass(slots=True)
class Year:
    """The records to send, in order: when each happened (ms since 1970), its key and its value."""

    happened_ms: list[int]
    keys: list[bytes]
    values: list[bytes]

    def __len__(self) -> int:
        return len(self.values)


def prepare(flights: pd.DataFrame) -> Year:
    """The flights as records, in the order in which things happened."""
    ordered = in_order(flights)
    happened_ms = ordered["happened"].dt.as_unit("ms").astype("int64").tolist()
    return Year(happened_ms, [str(origin).encode() for origin in ordered["origin"]], as_values(ordered))


class Witness(Protocol):
    """Takes part in a replay."""

    def acknowledged(self, partition: int) -> None:
        """A record of a partition was acknowledged."""

    def strike(self) -> None:
        """Half of the records are sent, some of which are not acknowledged yet."""


class Replay(threading.Thread):
    """Sends a year to a topic at `days_per_s` days of 2013 a second; 0 is as fast as the broker takes it.

    Before a new day begins the broker has acknowledged the last one, so no airport runs ahead of the others by more
    than a day, whatever the speed. `sent`, `delivered` and `now_ms` may be read while it runs; `failure` says why it
    ended early.
    """

    def __init__(
        self, bootstrap: str, topic: str, year: Year, days_per_s: float, witness: Witness | None = None
    ) -> None:
        super().__init__(name="replay", daemon=True)
        self.bootstrap = bootstrap
        self.topic = topic
        self.year = year
        self.days_per_s = days_per_s
        self.witness = witness
        self.sent = 0
        self.delivered = 0
        self.now_ms = year.happened_ms[0] // TICK_MS * TICK_MS
        self.failure = ""
        self._stop_asked = threading.Event()

    def stop(self) -> None:
        """Ends the replay at the next tick."""
        self._stop_asked.set()

    def run(self) -> None:
        try:
            self._send_all(time.monotonic())
        except Exception as error:
            self.failure = str(error)

    def _send_all(self, started: float) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "client.id": "demo-replay",
                "enable.idempotence": True,
                "partitioner": "murmur2_random",  # Kafka's own: each of the three airports has a partition
                "linger.ms": 5,
                "log_level": 0,  # `failure` says what matters, and nothing writes into the table
            }
        )
        first_ms, tick, half = self.now_ms, 0, len(self.year) // 2
        while self.sent < len(self.year) and not self._stop_asked.is_set() and not self.failure:
            tick += 1
            before = self.sent
            self._send_until(producer, first_ms + tick * TICK_MS)
            if self.witness is not None and before < half <= self.sent:
                self.witness.strike()
            if tick % DAY_TICKS == 0:
                self._settle(producer)
            if self.days_per_s > 0:
                due = started + tick / DAY_TICKS / self.days_per_s
                while (early_s := due - time.monotonic()) > 0:
                    producer.poll(min(early_s, 0.05))
        self._settle(producer)

    def _send_until(self, producer: Any, until_ms: int) -> None:
        year, at = self.year, self.sent
        while at < len(year) and year.happened_ms[at] < until_ms:
            when = year.happened_ms[at]
            producer.produce(self.topic, year.values[at], year.keys[at], timestamp=when, on_delivery=self._on_delivery)
            at += 1
        self.sent = at
        self.now_ms = until_ms
        producer.poll(0)

    def _settle(self, producer: Any) -> None:
        if producer.flush(DELIVERY_PATIENCE_S):
            self.failure = self.failure or f"the broker did not acknowledge {self.topic} in {DELIVERY_PATIENCE_S:.0f} s"

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.delivered += 1
            if self.witness is not None:
                self.witness.acknowledged(message.partition() or 0)
        else:
            self.failure = str(error)
